"""A student's free time: the working hours of each day, minus the events of an iCalendar file.

Every occurrence of a recurring event counts. All-day events take the whole day. Events that are marked as transparent
or cancelled take no time.
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


def free_days(
    now: datetime, days: int, hours: tuple[time, time], time_zone: str, calendar: Path | None
) -> list[Day]:  # fmt: skip
    """Return the next days, starting today. No time before ``now`` is free."""
    zone = ZoneInfo(time_zone)
    check_hours(*hours)
    today = now.astimezone(zone).date()
    dates = [today + timedelta(days=number) for number in range(days)]
    busy = [] if calendar is None else busy_slots(calendar, dates[0], dates[-1], zone)
    return [_day(each, hours, zone, [Slot(datetime.min.replace(tzinfo=UTC), now), *busy]) for each in dates]


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


def busy_slots(path: Path, first: date, last: date, zone: ZoneInfo) -> list[Slot]:
    """Return the busy time in a calendar from the first day to the last, both included."""
    calendar = read_calendar(path)
    start = datetime.combine(first, time.min, zone)
    end = datetime.combine(last + timedelta(days=1), time.min, zone)
    try:
        found = list(occurrences(calendar.walk("VEVENT"), start, end, zone))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise BadInput(
            f"calendar: {path} has an event whose times cannot be computed. Correct or remove it. The error: {error}"
        ) from None
    return sorted(Slot(each.start, each.end) for each in found if _takes_time(each.event) and each.start < each.end)


def reads_calendars() -> bool:
    """Return whether the libraries that read calendars are installed."""
    return all(find_spec(name) is not None for name in ("icalendar", "dateutil"))


def read_calendar(path: Path) -> Calendar:
    """Return the calendar in a file. Raises `BadInput` with the file's name if it cannot be read."""
    if not reads_calendars():
        raise BadInput(f"calendar: Reading {path} needs icalendar. Install it: pip install 'pausepoint[apps]'")
    from icalendar import Calendar

    try:
        found = Calendar.from_ical(path.read_bytes())
    except OSError as error:
        raise BadInput(f"calendar: {path} cannot be read: {error.strerror}. Check the path.") from None
    except (ValueError, IndexError, UnicodeDecodeError) as error:
        raise BadInput(
            f"calendar: {path} is not an iCalendar file. Export the calendar again as .ics. The error: {error}"
        ) from None
    for event in found.walk("VEVENT"):
        if event.errors:
            field, problem = event.errors[0]
            raise BadInput(f"calendar: {path}, event {event.get('SUMMARY', '')!s:.40}, {field}: {problem}")
        if "DTSTART" not in event:
            raise BadInput(
                f"calendar: {path}, event {event.get('SUMMARY', '')!s:.40}: The event has no DTSTART. Add it, or remove"
                " the event."
            )
    return found


def _takes_time(event: Any) -> bool:
    return str(event.get("TRANSP", "")).upper() != "TRANSPARENT" and str(event.get("STATUS", "")).upper() != "CANCELLED"
