"""When a student has time: the hours of each day that are set for work, less what an iCalendar file holds.

Events that recur count each time. Events of whole days take the day, as the calendar says they do; events that are
marked as transparent or cancelled take nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from pausepoint.apps.aura.recurrence import occurrences
from pausepoint.apps.input import BadInput

if TYPE_CHECKING:
    from icalendar import Calendar


class Slot(NamedTuple):
    """A stretch of time, in UTC."""

    start: datetime
    end: datetime

    @property
    def minutes(self) -> int:
        """Whole minutes."""
        return int((self.end - self.start).total_seconds() // 60)


class Day(NamedTuple):
    """One day where the student lives, and what of it is free for work."""

    start: datetime
    free: tuple[Slot, ...]


def free_days(
    now: datetime, days: int, hours: tuple[time, time], time_zone: str, calendar: Path | None
) -> list[Day]:  # fmt: skip
    """The next days, today first; nothing is free before ``now``."""
    zone = ZoneInfo(time_zone)
    check_hours(*hours)
    today = now.astimezone(zone).date()
    dates = [today + timedelta(days=number) for number in range(days)]
    busy = [] if calendar is None else busy_slots(calendar, dates[0], dates[-1], zone)
    return [_day(each, hours, zone, [Slot(datetime.min.replace(tzinfo=UTC), now), *busy]) for each in dates]


def check_hours(start: time, end: time) -> None:
    """Refuse a day that ends before it begins."""
    if start >= end:
        raise BadInput(f"day_end: the day ends at {end:%H:%M}, which is not after {start:%H:%M}, where it begins")


def _day(day: date, hours: tuple[time, time], zone: ZoneInfo, busy: Iterable[Slot]) -> Day:
    start, end = (datetime.combine(day, hour, zone).astimezone(UTC) for hour in hours)
    # Where clocks are turned, an hour may come twice or not at all: compared in UTC it cannot be counted twice.
    free = [Slot(start, end)] if start < end else []
    for taken in busy:
        free = [rest for slot in free for rest in without(slot, taken)]
    return Day(datetime.combine(day, time.min, zone).astimezone(UTC), tuple(free))


def without(slot: Slot, taken: Slot) -> Iterator[Slot]:
    """What is left of a slot: all of it, two ends, one, or nothing."""
    if taken.end <= slot.start or slot.end <= taken.start:
        yield slot
        return
    if slot.start < taken.start:
        yield Slot(slot.start, taken.start)
    if taken.end < slot.end:
        yield Slot(taken.end, slot.end)


def busy_slots(path: Path, first: date, last: date, zone: ZoneInfo) -> list[Slot]:
    """What a calendar holds between two days, both included."""
    calendar = read_calendar(path)
    start = datetime.combine(first, time.min, zone)
    end = datetime.combine(last + timedelta(days=1), time.min, zone)
    try:
        found = list(occurrences(calendar.walk("VEVENT"), start, end, zone))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise BadInput(f"calendar: {path} has an event that cannot be placed: {error}") from None
    return sorted(Slot(each.start, each.end) for each in found if _takes_time(each.event) and each.start < each.end)


def reads_calendars() -> bool:
    """Whether the libraries for it are installed."""
    return all(find_spec(name) is not None for name in ("icalendar", "dateutil"))


def read_calendar(path: Path) -> Calendar:
    """The calendar in a file; refuses one that cannot be read, with the file's name."""
    if not reads_calendars():
        raise BadInput(f"calendar: reading {path} needs more: pip install 'pausepoint[apps]'")
    from icalendar import Calendar

    try:
        found = Calendar.from_ical(path.read_bytes())
    except OSError as error:
        raise BadInput(f"calendar: {path} cannot be read: {error.strerror}") from None
    except (ValueError, IndexError, UnicodeDecodeError) as error:
        raise BadInput(f"calendar: {path} is no iCalendar file: {error}") from None
    for event in found.walk("VEVENT"):
        if event.errors:
            field, problem = event.errors[0]
            raise BadInput(f"calendar: {path}, event {event.get('SUMMARY', '')!s:.40}, {field}: {problem}")
        if "DTSTART" not in event:
            raise BadInput(f"calendar: {path}, event {event.get('SUMMARY', '')!s:.40}: it has no DTSTART")
    return found


def _takes_time(event: Any) -> bool:
    return str(event.get("TRANSP", "")).upper() != "TRANSPARENT" and str(event.get("STATUS", "")).upper() != "CANCELLED"
