"""Condense all assignments into what a report needs: counts, overdue work, the latest grades, and what has changed.

Long lists are cut here, so the rest of the report does not depend on how many assignments there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pausepoint.apps.aura.models import (
    Assignment,
    LastReport,
    Standing,
    key_without_due,
    standing,
    subject_key,
)

LONGEST_LIST = 20
"""How many pieces of work of one kind a report names. The rest is counted."""

LATEST = 3
"""How many grades of a subject a report names."""

CHANGES: dict[str, tuple[Standing, set[Standing | None]]] = {
    "new_grades": (Standing.GRADED, set(Standing) - {Standing.GRADED} | {None}),
    "newly_overdue": (Standing.OVERDUE, {None, Standing.OPEN, Standing.EXCUSED}),
    "caught_up": (Standing.HANDED_IN, {Standing.OVERDUE}),
    "handed_in": (Standing.HANDED_IN, {None, Standing.OPEN, Standing.EXCUSED}),
    "excused": (Standing.EXCUSED, {None, Standing.OPEN, Standing.OVERDUE}),
    "new_work": (Standing.OPEN, {None}),
}
"""The changes since the last report: how work stands now, and how it stood then. None stands for unknown work."""


@dataclass(frozen=True)
class Change:
    """Work that changed in one way since the last report: some of it, and how much there is."""

    kind: str
    work: list[Assignment]
    count: int


@dataclass(frozen=True)
class Overview:
    """What a report needs to know about all assignments. ``latest`` has the newest grades by subject."""

    total: int
    courses: int
    still_open: int
    overdue: list[Assignment]
    overdue_count: int
    next_due: Assignment | None
    latest: dict[str, list[Assignment]]
    changes: list[Change]


def overview(assignments: Sequence[Assignment], previous: LastReport | None, now: datetime) -> Overview:
    """Return what a report needs to know about the assignments."""
    overdue = sorted(
        (each for each in assignments if each.is_overdue(now)), key=lambda each: (_at(each.due), each.id), reverse=True
    )
    still_open = [each for each in assignments if each.is_open]
    upcoming = [each for each in still_open if each.due is not None and each.due >= now]
    return Overview(
        total=len(assignments),
        courses=len({(each.account, each.course) for each in assignments}),
        still_open=len(still_open),
        overdue=overdue[:LONGEST_LIST],
        overdue_count=len(overdue),
        next_due=min(upcoming, key=lambda each: (_at(each.due), each.id), default=None),
        latest=_latest(assignments),
        changes=[] if previous is None else _changes(assignments, previous, now),
    )


def _latest(assignments: Iterable[Assignment]) -> dict[str, list[Assignment]]:
    """Return the newest grades of each subject."""
    graded: dict[str, list[Assignment]] = {}
    for each in assignments:
        if each.is_graded:
            graded.setdefault(subject_key(each.course), []).append(each)

    def age(work: Assignment) -> tuple[float, str]:
        return _at(work.graded_at or work.handed_in_at or work.due), work.id

    return {subject: sorted(found, key=age, reverse=True)[:LATEST] for subject, found in sorted(graded.items())}


def _changes(assignments: Iterable[Assignment], previous: LastReport, now: datetime) -> list[Change]:
    found: dict[str, list[Assignment]] = {kind: [] for kind in CHANGES}
    moved = _moved(assignments, previous.work)
    for each in assignments:
        stands, stood = standing(each, now), previous.work.get(each.id, moved.get(each.id))
        for kind, (after, before) in CHANGES.items():
            if stands is after and stood in before:
                found[kind].append(each)
    return [Change(kind=kind, work=work[:LONGEST_LIST], count=len(work)) for kind, work in found.items() if work]


def _moved(assignments: Iterable[Assignment], before: Mapping[str, Standing]) -> dict[str, Standing]:
    """Return how work stood whose id has changed because it has another due date now.

    The title must be unique among the new and among the vanished ids. A finished test and the next one with the same
    title are two pieces of work.
    """
    ids = {each.id for each in assignments}
    added, gone = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for key in ids - before.keys():
        added[key_without_due(key)].append(key)
    for key in before.keys() - ids:
        if key_without_due(key) == key or before[key] in (Standing.OPEN, Standing.OVERDUE):
            gone[key_without_due(key)].append(key)
    pairs = ((keys, gone[title]) for title, keys in added.items() if title in gone)
    return {now[0]: before[then[0]] for now, then in pairs if len(now) == len(then) == 1}


def _at(moment: datetime | None) -> float:
    return 0.0 if moment is None else moment.timestamp()
