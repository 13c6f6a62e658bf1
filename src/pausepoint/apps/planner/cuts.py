"""Cut work that does not fit. Priority, which is what the exam needs, decides what is cut; the order never changes.

All topics are shortened before one is left out, because later chapters build on earlier ones. Those of low priority
lose most: half of their time, against 30 % for medium and 20 % for high priority. If that is not enough, all are
shortened again. Then whole topics go, those of low priority first, and the last of the book before the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date

from pausepoint.apps.planner.models import STEP, Priority
from pausepoint.apps.planner.work import Work, up

TIERS: tuple[tuple[Priority, float], ...] = (
    ("low", 0.5), ("medium", 0.7), ("high", 0.8), ("low", 0.3), ("medium", 0.5), ("high", 0.6),
    ("low", 0.0), ("medium", 0.0), ("high", 0.0),
)  # fmt: skip
"""What is cut, in this order: the priority, and the share of its time that a topic keeps."""


def cut(work: Sequence[Work], room: Mapping[date, int], extra: Mapping[date, int]) -> list[Work]:
    """Shorten work until it fits into the minutes of ``room`` by midterm, and by ``extra`` minutes more."""
    planned = [each.minutes for each in work]
    for due in sorted({each.due for each in work}):
        ahead = [number for number, each in enumerate(work) if each.due <= due]
        over = max(sum(planned[number] for number in ahead) - room[due], 0) + extra.get(due, 0)
        for priority, share in TIERS:
            tier = [number for number in ahead if work[number].priority == priority]
            over -= _dropped(work, planned, tier, over) if not share else _shortened(work, planned, tier, share, over)
    return [replace(each, planned=minutes) for each, minutes in zip(work, planned, strict=True)]


def _dropped(work: Sequence[Work], planned: list[int], tier: Sequence[int], over: int) -> int:
    """Cut topics one after another: the least certain first, and among those the last of the book."""
    taken = 0
    for number in sorted(tier, key=lambda number: (work[number].confidence, -number)):
        less = min(planned[number], max(up(over - taken), 0))
        planned[number] -= less
        taken += less
    return taken


def _shortened(work: Sequence[Work], planned: list[int], tier: Sequence[int], share: float, over: int) -> int:
    """Shorten all topics by the same share of what they can lose."""
    spare = {number: max(planned[number] - up(work[number].minutes * share), 0) for number in tier}
    total = sum(spare.values())
    wanted = min(total, max(up(over), 0))
    taken = 0
    reached = 0
    for number in tier:
        reached += spare[number]
        less = min(round(wanted * reached / total / STEP) * STEP - taken if total else 0, spare[number])
        planned[number] -= less
        taken += less
    return taken
