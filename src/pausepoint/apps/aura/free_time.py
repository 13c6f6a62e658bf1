"""A student's free time: the working hours of each day, minus the events of an iCalendar file.

Every occurrence of a recurring event counts. All-day events take the whole day. Events that are marked as transparent
or cancelled take no time. Odd events are left out and reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from pausepoint.apps.aura.language import Speech
from pausepoint.apps.calendars.busy import busy_times
from pausepoint.apps.calendars.events import Skipped
from pausepoint.apps.calendars.recurrence import MOST
from pausepoint.apps.input import BadInput

MOST_SAID = 10
"""How many odd events the report names."""


class Slot(NamedTuple):
    """A period of time in UTC."""

    start: datetime
    end: datetime

    @property
    def minutes(self) -> int:
        """The length in whole minutes."""
        return int((self.end - self.start).total_seconds() // 60)


class Day(NamedTuple):
    """One day in the student's time zone, and its free time for work."""

    start: datetime
    free: tuple[Slot, ...]


class FreeWeek(NamedTuple):
    """The free time of some days, and the events of the calendar that do not count."""

    days: list[Day]
    skipped: list[Skipped]


def free_week(
    now: datetime, days: int, hours: tuple[time, time], time_zone: str, calendar: Path | None
) -> FreeWeek:  # fmt: skip
    """Return the next days, starting today, and the events that do not count. No time before ``now`` is free."""
    zone = ZoneInfo(time_zone)
    check_hours(*hours)
    today = now.astimezone(zone).date()
    dates = [today + timedelta(days=number) for number in range(days)]
    busy, skipped = ([], []) if calendar is None else busy_slots(calendar, dates[0], dates[-1], zone)
    past = Slot(datetime.min.replace(tzinfo=UTC), now)
    return FreeWeek([_day(each, hours, zone, [past, *busy]) for each in dates], skipped)


def check_hours(start: time, end: time) -> None:
    """Refuse a day that ends before it begins."""
    if start >= end:
        raise BadInput(f"day_end: The day ends at {end:%H:%M} but starts at {start:%H:%M}. Set a later day_end.")


def _day(day: date, hours: tuple[time, time], zone: ZoneInfo, busy: Iterable[Slot]) -> Day:
    start, end = (datetime.combine(day, hour, zone).astimezone(UTC) for hour in hours)
    # When the clocks change, an hour may occur twice or not at all. A comparison in UTC does not count it twice.
    free = [Slot(start, end)] if start < end else []
    for taken in busy:
        free = [rest for slot in free for rest in without(slot, taken)]
    return Day(datetime.combine(day, time.min, zone).astimezone(UTC), tuple(free))


def without(slot: Slot, taken: Slot) -> Iterator[Slot]:
    """Yield what remains of a slot after ``taken`` is removed: the whole slot, two parts, one part, or nothing."""
    if taken.end <= slot.start or slot.end <= taken.start:
        yield slot
        return
    if slot.start < taken.start:
        yield Slot(slot.start, taken.start)
    if taken.end < slot.end:
        yield Slot(taken.end, slot.end)


def busy_slots(path: Path, first: date, last: date, zone: ZoneInfo) -> tuple[list[Slot], list[Skipped]]:
    """Return the busy time in a calendar from the first day to the last, both included, and the odd events."""
    found, odd = busy_times(path, first, last, zone)
    return [Slot(each.start, each.end) for each in found], odd


def odd_events(skipped: Sequence[Skipped], speech: Speech) -> list[str]:
    """Return what to say about events that do not count. The end of a long list is counted instead."""
    said = [speech.say("calendar", problem=_odd(each, speech)) for each in skipped[:MOST_SAID]]
    more = len(skipped) - MOST_SAID
    return [*said, *([speech.say("calendar", problem=speech.say("more_events", more))] if more > 0 else [])]


def _odd(found: Skipped, speech: Speech) -> str:
    name = found.name or speech.say("unnamed")
    if found.day is None:
        event = speech.say("event_undated", name=name)
    else:
        noon = datetime.combine(found.day, time(12), speech.zone)
        event = speech.say("event", name=name, day=speech.day(noon))
    return speech.say(found.reason, event=event, value=found.value, most=f"{MOST:,}")
