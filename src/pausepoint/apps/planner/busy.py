"""Read busy times from a calendar file: single and recurring events, in any time zone.

Whole days count if the calendar shows them as busy. Cancelled events do not count, nor do the planner's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from pausepoint.apps.input import BadInput
from pausepoint.apps.planner.ical import DOMAIN
from pausepoint.apps.planner.models import Busy

BEYOND = timedelta(days=90)
"""A calendar is read this long beyond the last midterm, so that a midterm can move."""

LARGEST = 20_000_000


class Found(NamedTuple):
    """Busy times without overlaps, and the number of events that could not be read."""

    busy: list[Busy]
    skipped: int


def read_busy(paths: Iterable[Path], zone: ZoneInfo, first: date, last: date) -> Found:
    """Return the busy times of some calendar files from a day to another. An odd event is skipped."""
    times: list[tuple[datetime, datetime]] = []
    skipped = 0
    for path in paths:
        for calendar in _calendars(path):
            found = _times(calendar, zone, first, last)
            if found is None:
                parts = [_times(series, zone, first, last) for series in _series(calendar)]
                found = [each for part in parts if part is not None for each in part]
                skipped += parts.count(None)
            times += found
    merged: list[Busy] = []
    for start, end in sorted(times):
        if merged and start <= merged[-1].end:
            merged[-1] = Busy(start=merged[-1].start, end=max(merged[-1].end, end))
        else:
            merged.append(Busy(start=start, end=end))
    return Found(merged, skipped)


def _calendars(path: Path) -> list[Any]:
    try:
        import icalendar
        import recurring_ical_events  # noqa: F401  (used below)
    except ImportError:
        raise BadInput(f"{path}: Calendars need a library. Install it: pip install 'pausepoint[apps]'") from None
    try:
        if path.stat().st_size > LARGEST:
            raise BadInput(f"{path}: The file is larger than {LARGEST // 10**6} MB. Export a smaller calendar.")
        found = icalendar.Calendar.from_ical(path.read_bytes(), multiple=True)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}. Check the path of the calendar.") from None
    except (ValueError, IndexError, KeyError) as error:
        why = " ".join(str(error).split())[:200]
        raise BadInput(f"{path}: The file is not a readable calendar ({why}). Export it again as .ics.") from None
    if not found:
        raise BadInput(f"{path}: The file is not a readable calendar (it is empty). Export it again as .ics.")
    return found


def _series(calendar: Any) -> Iterator[Any]:
    """Yield a calendar for each event with its changed occurrences, so that an odd event spoils no other."""
    import icalendar

    zones = calendar.walk("VTIMEZONE")
    by_id: dict[str, list[Any]] = {}
    for number, event in enumerate(calendar.walk("VEVENT")):
        by_id.setdefault(str(event.get("UID", number)), []).append(event)
    for events in by_id.values():
        found = icalendar.Calendar()
        for each in [*zones, *events]:
            found.add_component(each)
        yield found


def _times(calendar: Any, zone: ZoneInfo, first: date, last: date) -> list[tuple[datetime, datetime]] | None:
    """Return the times of all events, or None if one of them is odd."""
    import recurring_ical_events

    try:
        events = recurring_ical_events.of(calendar).between(first, last + timedelta(days=1))
        return [each for event in events for each in _time(event, zone)]
    except Exception:  # an odd event can break the library in any way, and the others are still useful
        return None


def _time(event: Any, zone: ZoneInfo) -> list[tuple[datetime, datetime]]:
    """Return the time of an event in UTC, or nothing if it does not take any."""
    if str(event.get("UID", "")).endswith(DOMAIN) or str(event.get("STATUS", "")).upper() == "CANCELLED":
        return []
    if str(event.get("TRANSP", "")).upper() == "TRANSPARENT":
        return []
    start, end = (_moment(each, zone) for each in (event.start, event.end))
    return [(start, end)] if start < end else []


def _moment(given: date, zone: ZoneInfo) -> datetime:
    moment = given if isinstance(given, datetime) else datetime.combine(given, time.min)
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
