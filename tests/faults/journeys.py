"""Trials with the journey: a process is killed while the session waits, rewinds or has children; another resumes.

Each trial returns a list of failures. An empty list means that the promise held.
"""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import dataclass
from typing import Any

from pausepoint.errors import DamagedRecord
from pausepoint.model.sessions import Filter, SessionRow
from tests.faults.lab import Lab, Runs
from tests.support.forkserver import Child
from tests.support.journey import REDONE, WIDTH, label_of


@dataclass(frozen=True)
class Arrived:
    """A journey and its children, as stored."""

    rows: list[SessionRow]
    states: list[str]
    remembered: frozenset[str]

    @property
    def result(self) -> tuple[object, ...]:
        """Return the facts that must not depend on interruptions."""
        return [(row.workflow, row.status, row.spent_usd) for row in self.rows], self.states


@dataclass(frozen=True)
class Undisturbed:
    """An uninterrupted journey: the points that it passes, and its end."""

    points: list[str]
    labels: Counter[str]
    seen: Arrived


def undisturbed(lab: Lab) -> Undisturbed:
    session = lab.new("undisturbed")
    child = _accompany(lab, session)
    assert child.wait() == 0, child.said
    runs = lab.runs(session)
    return Undisturbed(list(dict.fromkeys(runs.hits)), runs.counts, lab.do(_arrived(lab, session)))


def _accompany(lab: Lab, session: str, **args: Any) -> Child:
    return lab.server.start(
        "tests.faults.jobs:accompany", path=lab.path, session=session, runs=lab.file(session, "runs"),
        is_new=not lab.exists(session), **args,
    )  # fmt: skip


async def _arrived(lab: Lab, session: str) -> Arrived:
    rows = await lab.store.find(Filter(session_id=session, tree=True))
    rows.sort(key=lambda row: (row.workflow, row.created_at, row.key))
    states = sorted([(await lab.engine.session(row.session_id).state()).model_dump_json() for row in rows])
    labels = [label_of(record) for row in rows for record in await lab.store.records(row.key, 1)]
    return Arrived(rows, states, frozenset(filter(None, labels)))


def killed_on_the_way(lab: Lab, reference: Undisturbed, *points: str, twin: str = "") -> list[str]:
    """Kill one process after the other, one at each point. The last process completes the journey."""
    session = lab.new("journey")
    wrong: list[str] = []
    for point in points:
        earlier, known = lab.runs(session), _remembered(lab, session)
        code = _accompany(lab, session, point=point, twin=twin).wait()
        lab.kills += code == -signal.SIGKILL
        wrong += _loses_at_most_what_ran(lab, session, earlier) + _runs_nothing_again(lab, session, earlier, known)
    earlier, known = lab.runs(session), _remembered(lab, session)
    child = _accompany(lab, session, twin=twin)
    if (code := child.wait()) != 0:
        wrong.append(f"the process that went on ended with {code}: {child.said}")
    wrong += _runs_nothing_again(lab, session, earlier, known) + _same(lab, session, reference)
    return [f"{', '.join(points)}: {text}" for text in wrong]


def _remembered(lab: Lab, session: str) -> frozenset[str]:
    return lab.do(_arrived(lab, session)).remembered if lab.exists(session) else frozenset()


def _loses_at_most_what_ran(lab: Lab, session: str, earlier: Runs) -> list[str]:
    lost = set(lab.runs(session).since(earlier)) - _remembered(lab, session)
    return [f"more than what was in flight is lost: {sorted(lost)}"] if len(lost) > WIDTH else []


def _runs_nothing_again(lab: Lab, session: str, earlier: Runs, known: frozenset[str]) -> list[str]:
    begun = Counter(lab.runs(session).since(earlier))
    again = {label for label in known & begun.keys() if label not in REDONE}
    twice = {label for label, count in begun.items() if count > 1 + (label in REDONE)}
    wrong = [f"kept and run again: {sorted(again)}"] if again else []
    return wrong + ([f"run twice: {sorted(twice)}"] if twice else [])


def _same(lab: Lab, session: str, reference: Undisturbed) -> list[str]:
    try:
        seen = lab.do(_arrived(lab, session))
    except DamagedRecord as error:
        return [f"the log is damaged: {error}"]
    wrong = []
    if seen.result != reference.seen.result:
        wrong.append(f"another result than undisturbed: {seen.result} instead of {reference.seen.result}")
    if (ran := lab.runs(session).counts.keys()) != reference.labels.keys():
        wrong.append(f"run, or not run, unlike undisturbed: {sorted(ran ^ reference.labels.keys())}")
    for row in seen.rows:
        report = lab.do(lab.engine.session(row.session_id).verify())
        wrong += [f"damaged: {problem}" for problem in report.problems]
    return wrong
