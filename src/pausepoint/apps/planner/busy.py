"""Read busy times from calendar files, without the events that the planner wrote itself."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from pausepoint.apps.calendars.busy import busy_times
from pausepoint.apps.calendars.recurrence import Occurrence
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
    times: list[Occurrence] = []
    skipped = 0
    for path in paths:
        _check_size(path)
        found, odd = busy_times(path, first, last, zone)
        times += [each for each in found if not str(each.event.get("UID", "")).endswith(DOMAIN)]
        skipped += len(odd)
    merged: list[Busy] = []
    for each in sorted(times, key=lambda each: each[:2]):
        if merged and each.start <= merged[-1].end:
            merged[-1] = Busy(start=merged[-1].start, end=max(merged[-1].end, each.end))
        else:
            merged.append(Busy(start=each.start, end=each.end))
    return Found(merged, skipped)


def _check_size(path: Path) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}. Check the path of the calendar.") from None
    if size > LARGEST:
        raise BadInput(f"{path}: The file is larger than {LARGEST // 10**6} MB. Export a smaller calendar.")
