"""The times that the events of a calendar take."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pausepoint.apps.calendars.events import Skipped, read_events
from pausepoint.apps.calendars.recurrence import Occurrence, occurrences


def busy_times(path: Path, first: date, last: date, zone: ZoneInfo) -> tuple[list[Occurrence], list[Skipped]]:
    """Return the events that take time from the first day to the last, both included, and the odd ones.

    Events that are cancelled, or shown as free, take no time.
    """
    events, odd = read_events(path, first, last)
    start = datetime.combine(first, time.min, zone)
    end = datetime.combine(last + timedelta(days=1), time.min, zone)
    found, unplaced = occurrences(events, start, end, zone)
    busy = [each for each in found if _takes_time(each.event) and each.start < each.end]
    return sorted(busy, key=lambda each: each[:2]), [*odd, *unplaced]


def _takes_time(event: Any) -> bool:
    return str(event.get("TRANSP", "")).upper() != "TRANSPARENT" and str(event.get("STATUS", "")).upper() != "CANCELLED"
