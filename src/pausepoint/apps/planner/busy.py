"""Read busy times from a calendar file: single and recurring events, in any time zone.

Whole days count if the calendar shows them as busy. Cancelled events do not count, nor do the planner's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pausepoint.apps.input import BadInput
from pausepoint.apps.planner.ical import DOMAIN
from pausepoint.apps.planner.models import Busy

BEYOND = timedelta(days=90)
"""A calendar is read this long beyond the last midterm, so that a midterm can move."""

LARGEST = 20_000_000


def read_busy(paths: Iterable[Path], zone: ZoneInfo, first: date, last: date) -> list[Busy]:
    """Return the busy times of some calendar files from a day to another, without overlaps."""
    found: list[tuple[datetime, datetime]] = []
    for path in paths:
        calendar = _calendar(path)
        for event in _events(path, calendar, first, last):
            found += _time(event, zone)
    merged: list[Busy] = []
    for start, end in sorted(found):
        if merged and start <= merged[-1].end:
            merged[-1] = Busy(start=merged[-1].start, end=max(merged[-1].end, end))
        else:
            merged.append(Busy(start=start, end=end))
    return merged


def _calendar(path: Path) -> Any:
    try:
        import icalendar
    except ImportError:
        raise BadInput(f"{path}: Calendars need a library. Install it: pip install 'pausepoint[apps]'") from None
    try:
        if path.stat().st_size > LARGEST:
            raise BadInput(f"{path}: The file is larger than {LARGEST // 10**6} MB. Export a smaller calendar.")
        return icalendar.Calendar.from_ical(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}. Check the path of the calendar.") from None
    except (ValueError, IndexError, KeyError) as error:
        why = " ".join(str(error).split())[:200]
        raise BadInput(f"{path}: The file is not a readable calendar ({why}). Export it again as .ics.") from None


def _events(path: Path, calendar: Any, first: date, last: date) -> list[Any]:
    import recurring_ical_events

    try:
        found = recurring_ical_events.of(calendar, skip_bad_series=True)
        return list(found.between(first, last + timedelta(days=1)))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        why = " ".join(str(error).split())[:200]
        raise BadInput(f"{path}: The events cannot be read ({why}). Remove the odd event, or export again.") from None


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
