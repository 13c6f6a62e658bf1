"""Trials with the sample: an action happens at a point, and another process resumes.

Each trial returns a list of failures. An empty list means that the promise held. Broken twins run through the same
functions.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pausepoint import Status
from pausepoint.errors import DamagedRecord
from pausepoint.model.sessions import PauseMode
from tests.faults.jobs import SLOW
from tests.faults.lab import Lab, Reference, Runs, Seen
from tests.support.forkserver import Child
from tests.support.points import Action
from tests.support.sample import BLOCKING, COMPOSITE, WIDTH


def killed(lab: Lab, reference: Reference, point: str, twin: str = "", also: str = "") -> list[str]:
    """Kill the process at ``point``. With ``also``, kill the resuming process there, and let a third one finish."""
    session = lab.new("killed")
    if (code := _kill(lab, session, verb="start", point=point, twin=twin)) != -signal.SIGKILL:
        return [f"{point}: the kill did not fire, the process ended with {code}"]
    wrong = _loses_at_most_what_ran(lab, session, Runs())
    if also and lab.exists(session) and lab.row(session).ended is None:
        runs = lab.runs(session)
        if _kill(lab, session, verb="resume", point=also) == -signal.SIGKILL:
            wrong += _loses_at_most_what_ran(lab, session, runs)
    return [f"{point}: {text}" for text in wrong + _goes_on(lab, session, reference)]


def _kill(lab: Lab, session: str, **args: Any) -> int:
    code = lab.drive(session, **args).wait()
    lab.kills += code == -signal.SIGKILL
    return code


def _loses_at_most_what_ran(lab: Lab, session: str, earlier: Runs) -> list[str]:
    """Check that acknowledged work is stored, and that only the visit and the operations in flight are lost."""
    runs = lab.runs(session)
    if not lab.exists(session):
        return ["something ran before the session was stored"] if runs.labels else []
    try:
        lost = set(runs.since(earlier)) - lab.remembered(session)
    except DamagedRecord as error:
        return [f"the log is damaged: {error}"]
    wrong = _none_twice(Counter(runs.since(earlier)))
    if (seq := lab.row(session).seq) < runs.acknowledged:
        wrong.append(f"record {runs.acknowledged} was acknowledged, the log ends at {seq}")
    steps = {label for label in lost if label.startswith("step")}
    # An operation inside a map item is in flight together with its item. Both are named after it.
    branches = {label.partition(":")[2] for label in lost - steps}
    if len(steps) > 1 or len(branches) > WIDTH:
        wrong.append(f"more than what was in flight is lost: {sorted(lost)}")
    return wrong


def _goes_on(lab: Lab, session: str, reference: Reference) -> list[str]:
    """Let another process finish. Nothing in the log may run again, and the result must equal the reference."""
    exists = lab.exists(session)
    earlier = lab.runs(session)
    known = lab.remembered(session) if exists else frozenset()
    child = lab.drive(session, verb="resume" if exists else "start")
    wrong = []
    if (code := child.wait()) != 0:
        wrong.append(f"the process that went on ended with {code}: {child.said}")
    begun = Counter(lab.runs(session).since(earlier))
    if again := known & begun.keys():
        wrong.append(f"kept and run again: {sorted(again)}")
    return wrong + _none_twice(begun) + _same(lab, session, reference)


def _same(lab: Lab, session: str, reference: Reference) -> list[str]:
    seen = _seen(lab, session)
    if isinstance(seen, str):
        return [seen]
    wrong = [str(problem) for problem in lab.do(lab.engine.session(session).verify()).problems]
    if seen.result != reference.seen.result:
        wrong.append(f"another result than undisturbed: {_difference(seen, reference.seen)}")
    if missing := set(reference.labels) - set(lab.runs(session).labels):
        wrong.append(f"never run: {sorted(missing)}")
    if strange := set(lab.runs(session).labels) - set(reference.labels):
        wrong.append(f"run although the undisturbed run did not: {sorted(strange)}")
    return wrong


def _seen(lab: Lab, session: str) -> Seen | str:
    try:
        return lab.see(session)
    except DamagedRecord as error:
        return f"the log is damaged: {error}"


def _difference(found: Seen, expected: Seen) -> str:
    pairs = zip(found.result, expected.result, strict=True)
    return "; ".join(f"{mine!r} instead of {theirs!r}" for mine, theirs in pairs if mine != theirs)


def killed_at_times(lab: Lab, reference: Reference, delays: Sequence[float]) -> list[str]:
    """Kill one process after the other, each some seconds after its fork. The last one may finish the work."""
    session = lab.new("timed")
    wrong: list[str] = []
    for delay in delays:
        runs = lab.runs(session)
        child = lab.drive(session, verb="resume" if lab.exists(session) else "start")
        with suppress(TimeoutError):
            child.wait(delay)
        child.signal(signal.SIGKILL)
        if child.wait() == -signal.SIGKILL:
            lab.kills += 1
            wrong += _loses_at_most_what_ran(lab, session, runs)
    return [f"{delays}: {text}" for text in wrong + _goes_on(lab, session, reference)]


def ended_politely(lab: Lab, reference: Reference, point: str, action: Action = "term", twin: str = "") -> list[str]:
    """Send SIGTERM or SIGINT at ``point``. The program must exit cleanly, and keep every operation that began."""
    session = lab.new("ended")
    code = lab.drive(session, point=point, action=action, twin=twin).wait()
    expected = 128 + signal.SIGTERM if action == "term" else -signal.SIGINT
    wrong = [] if code == expected else [f"the process ended with {code} instead of {expected}"]
    row, operations = lab.row(session), _operations(lab.runs(session), COMPOSITE)
    if row.status not in (Status.READY, Status.COMPLETED, Status.CREATED):
        wrong.append(f"left {row.status}")
    if row.holder is not None:
        wrong.append("the hold was not given back")
    if cut := operations.keys() - lab.remembered(session):
        wrong.append(f"begun, but not finished and remembered: {sorted(cut)}")
    wrong += _goes_on(lab, session, reference)
    wrong += _none_twice(_operations(lab.runs(session), COMPOSITE))
    return [f"{point}: {text}" for text in wrong]


def _operations(runs: Runs, but: str = "no") -> Counter[str]:
    return Counter(label for label in runs.labels if label.startswith("op") and not label.startswith(but))


def _none_twice(executions: Counter[str]) -> list[str]:
    twice = [label for label, count in executions.items() if count > 1]
    return [f"run twice: {sorted(twice)}"] if twice else []


def paused(lab: Lab, reference: Reference, point: str, mode: PauseMode, twin: str = "") -> list[str]:
    """Request a pause while the process is at ``point``, and resume in another process."""
    session = lab.new("paused")
    gate = lab.gate(session)
    # In a step or an operation on the loop, an abort must cancel work that would never end on its own.
    cuts = mode == "abort" and point.startswith(("step", "op")) and not point.startswith(BLOCKING) and not twin
    action, poll = ("hang", 0.005) if cuts else ("gate", SLOW)
    child = lab.drive(session, point=point, action=action, gate=gate, poll=poll, twin=twin)
    if (message := child.hear()) != {"at": point}:
        return [f"{point}: not reached, the process said {message}"]
    before = lab.runs(session)
    lab.pause(session, mode)
    if not cuts:
        open_gate(gate)
    wrong = [] if (code := child.wait()) == 0 else [f"the process ended with {code}"]
    wrong += _stands_still(lab, session, lab.runs(session).since(before), reference.in_last_step(point))
    wrong += _goes_on(lab, session, reference)
    if mode == "finish":
        wrong += _none_twice(_operations(lab.runs(session), COMPOSITE))
    return [f"{point}: {text}" for text in wrong]


def open_gate(gate: str) -> None:
    """Release the process that waits at the gate."""
    with open(gate, "wb"):
        pass


def _stands_still(lab: Lab, session: str, since: list[str], at_end: bool) -> list[str]:
    status = lab.row(session).status
    if status is Status.COMPLETED and at_end:
        return []
    wrong = [] if status is Status.PAUSED else [f"asked to pause, but {status}"]
    if len(steps := [label for label in since if label.startswith("step")]) > 1:
        wrong.append(f"went on for {len(steps)} steps: {steps}")
    return wrong


def zombie(lab: Lab, reference: Reference, point: str, overtake: str, poll: float, twin: str = "") -> list[str]:
    """Stop the driver at ``point``, steal the session, and wake the driver. It must write nothing.

    ``overtake`` says when the driver wakes: after the other process has ``ended``, or when it has only ``claimed``.
    """
    session = lab.new("zombie")
    sleeper = lab.drive(session, point=point, action="stop", poll=poll, twin=twin)
    sleeper.wait_stopped()
    known, earlier = lab.remembered(session), lab.runs(session)
    gate = lab.gate(session)
    held = {"point": "before commit 1", "action": "gate", "gate": gate} if overtake == "claimed" else {}
    thief = lab.drive(session, verb="steal", **held)
    if held:
        thief.hear()
    else:
        thief.wait()
    wrong = _wakes_up_for_nothing(lab, session, sleeper)
    if held:
        open_gate(gate)
    if (code := thief.wait()) != 0 or thief.said != [{"status": "completed", "skipped": thief.said[0].get("skipped")}]:
        wrong.append(f"the process that took over ended with {code}: {thief.said}")
    again = Counter(lab.runs(session).since(earlier))
    if kept := known & again.keys():
        wrong.append(f"kept and run again: {sorted(kept)}")
    if often := [label for label, count in again.items() if count > 2]:
        wrong.append(f"run more than once by each: {often}")
    return [f"{point}, {overtake}: {text}" for text in wrong + _same(lab, session, reference)]


def _wakes_up_for_nothing(lab: Lab, session: str, sleeper: Child) -> list[str]:
    before, runs = lab.records(session), lab.runs(session)
    sleeper.signal(signal.SIGCONT)
    code = sleeper.wait()
    said: dict[str, Any] = sleeper.said[0] if sleeper.said else {}
    wrong = [] if code == 0 else [f"the zombie ended with {code}"]
    if said.get("error") != "HoldLost" or "nothing" not in said.get("text", "").lower():
        wrong.append(f"the zombie was not told that it lost the session: {said}")
    with suppress(DamagedRecord):  # `_same` reports it
        if lab.records(session) != before:
            wrong.append("the zombie wrote")
    if len(begun := lab.runs(session).since(runs)) > WIDTH + 1:
        wrong.append(f"the zombie went on: {begun}")
    return wrong
