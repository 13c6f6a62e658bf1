"""The days of a plan, and the times of each day that are free for study.

A day has blocks: the study hours without the busy times, up to the daily limit. Without study hours, a day's window
begins at four in the afternoon, or earlier if the limit needs more time before ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import cached_property
from zoneinfo import ZoneInfo

from pausepoint.apps.planner.models import STEP, WEEKDAYS, UserInputs, Weekday
from pausepoint.apps.planner.stages import every_day

SITTING = 15
"""No row is shorter than a sitting of 15 minutes."""

AFTERNOON, EVENING, MIDNIGHT = 16 * 60, 22 * 60, 24 * 60


@dataclass(frozen=True)
class Block:
    """A free time of a day, in minutes after midnight. ``minutes`` is how much of it the daily limit allows."""

    start: int
    end: int
    minutes: int


@dataclass(frozen=True)
class Calendar:
    """The days of a plan, with their blocks."""

    days: list[date]
    limit: int
    rest: Weekday | None
    blocks: dict[date, list[Block]]

    @classmethod
    def of(cls, inputs: UserInputs, start: date) -> Calendar:
        """Return the calendar from the first day to the last midterm, at least one day."""
        last = max(inputs.last_midterm or start, start)
        limits = inputs.shared_constraints
        days = every_day(start, last)
        busy = _busy_by_day(inputs)
        blocks = {day: _blocks(_windows(inputs, day), busy.get(day, []), limits.limit) for day in days}
        blocks |= {day: [] for day in days if WEEKDAYS[day.weekday()] == limits.preferred_rest_day}
        return cls(days, limits.limit, limits.preferred_rest_day, blocks)

    @cached_property
    def capacity(self) -> dict[date, int]:
        """The minutes of work that each day can take."""
        return {day: sum(block.minutes for block in blocks) for day, blocks in self.blocks.items()}

    def rests(self, day: date) -> bool:
        """Return whether a day is the rest day."""
        return WEEKDAYS[day.weekday()] == self.rest

    def before(self, due: date, since: date | None = None) -> list[date]:
        """Return the days before a midterm that have time for work."""
        return [day for day in self.days if (since or self.days[0]) <= day < due and self.capacity[day]]

    def minutes_before(self, due: date) -> int:
        """Return the minutes of work that fit before a midterm."""
        return sum(self.capacity[day] for day in self.before(due))


def _windows(inputs: UserInputs, day: date) -> list[tuple[int, int]]:
    hours = inputs.shared_constraints.study_hours
    if hours:
        return sorted(map(_minutes, hours.get(WEEKDAYS[day.weekday()], [])))
    limit = inputs.shared_constraints.limit
    start = max(min(AFTERNOON, EVENING - limit), 0)
    return [(start, max(EVENING, start + limit))]


def _minutes(window: str) -> tuple[int, int]:
    first, _, last = window.partition("-")
    start, end = (int(each[:2]) * 60 + int(each[3:]) for each in (first, last))
    return start, end


def _busy_by_day(inputs: UserInputs) -> dict[date, list[tuple[int, int]]]:
    """Return the busy minutes of each day in the student's time zone."""
    zone = ZoneInfo(inputs.timezone)
    found: dict[date, list[tuple[int, int]]] = {}
    for each in inputs.busy:
        start, end = each.start.astimezone(zone), each.end.astimezone(zone)
        day = start.date()
        while day <= end.date():
            first = _clock(start) if day == start.date() else 0
            last = _clock(end, up=True) if day == end.date() else MIDNIGHT
            found.setdefault(day, []).append((first, last))
            day += timedelta(days=1)
    return found


def _clock(moment: datetime, up: bool = False) -> int:
    return moment.hour * 60 + moment.minute + (up and moment.second > 0)


def _blocks(windows: Sequence[tuple[int, int]], busy: Sequence[tuple[int, int]], limit: int) -> list[Block]:
    """Return the free times of a day that are long enough for a sitting, up to the daily limit."""
    left = limit // STEP * STEP
    found: list[Block] = []
    reached = 0
    for window in windows:
        for start, end in _without((max(window[0], reached), window[1]), busy):
            minutes = min((end - start) // STEP * STEP, left)
            if minutes >= SITTING:
                found.append(Block(start, end, minutes))
                left -= minutes
        reached = max(reached, window[1])
    return found


def _without(window: tuple[int, int], busy: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of a window that are not busy, from steps of 5 minutes on."""
    found: list[tuple[int, int]] = []
    at, end = window
    for first, last in sorted(busy):
        if at < min(first, end):
            found.append((at, min(first, end)))
        at = max(at, -(-last // STEP) * STEP)
    return [*found, (at, end)] if at < end else found


def as_time(minutes: int) -> time:
    """Return a time of day, given the minutes after midnight."""
    return time(minutes // 60, minutes % 60)
