"""Compare how Aura and recurring-ical-events read the calendars in a folder: ``python -m tools.calendars FOLDER``.

For each file, both look for the events in the week of the file's first event. Install recurring-ical-events in an
environment of its own, because it does not allow python-dateutil 3 and newer. Without it, only Aura's columns are
filled. ``--all`` lists every file instead of only those that differ, are odd or are slow.
"""

from __future__ import annotations

import argparse
import re
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable
from datetime import date, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from pausepoint.apps.calendars.events import read_events
from pausepoint.apps.calendars.recurrence import occurrences

PEER = "recurring_ical_events"
ZONE = ZoneInfo("Europe/Berlin")
LIMIT = 60
SLOW = 2.0


class Reading(NamedTuple):
    """What a reader makes of a file: the number of events in the week, those left out, or the error."""

    found: int | None
    odd: int
    seconds: float
    error: str = ""

    def __str__(self) -> str:
        return f"{'—' if self.found is None else self.found} | {self.seconds:.2f} s"


class OutOfTime(Exception):
    """A reader took more than `LIMIT` seconds."""


def ours(path: Path, first: date, last: date) -> tuple[int, int]:
    """Read a file with Aura."""
    events, odd = read_events(path, first, last)
    start, end = (datetime.combine(day, datetime.min.time(), ZONE) for day in (first, last + timedelta(days=1)))
    found, unplaced = occurrences(events, start, end, ZONE)
    return len(found), len(odd) + len(unplaced)


def peers(path: Path, first: date, last: date) -> tuple[int, int]:
    """Read a file with recurring-ical-events."""
    from icalendar import Calendar

    peer: Any = __import__(PEER)
    calendars = Calendar.from_ical(path.read_bytes(), multiple=True)
    return sum(len(peer.of(each).between(first, last + timedelta(days=1))) for each in calendars), 0


def reading(read: Callable[[Path, date, date], tuple[int, int]], path: Path) -> Reading:
    """Return what a reader makes of a file, within `LIMIT` seconds."""
    first = week(path)
    began = time.perf_counter()
    signal.alarm(LIMIT)
    try:
        found, odd = read(path, first, first + timedelta(days=6))
        return Reading(found, odd, time.perf_counter() - began)
    except Exception as error:
        return Reading(None, 0, time.perf_counter() - began, f"{type(error).__name__}: {error}".split("\n")[0][:80])
    finally:
        signal.alarm(0)


def week(path: Path) -> date:
    """Return the day of the first event in the file that has a usual date."""
    for year, month, day in re.findall(rb"DTSTART[^:\n]*:(\d{4})(\d\d)(\d\d)", path.read_bytes()):
        try:
            found = date(int(year), int(month), int(day))
        except ValueError:
            continue
        if found.year > 1971:
            return found
    return date(2024, 1, 1)


def _stop(*_: object) -> None:
    raise OutOfTime(f"more than {LIMIT} s")


def main() -> None:
    """Print the table, and the totals below it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _stop)
    files = sorted(path for path in given.folder.rglob("*") if path.is_file())
    compares = find_spec(PEER) is not None
    print("| file | events | Aura | events | recurring-ical-events | left out or error |\n|---|---|---|---|---|---|")
    readable, seconds = Counter[str](), Counter[str]()
    slowest = dict.fromkeys(("Aura", PEER), 0.0)
    for path in files:
        mine = reading(ours, path)
        other = reading(peers, path) if compares else Reading(None, 0, 0.0, "not installed")
        for name, each in (("Aura", mine), (PEER, other)):
            readable[name] += each.found is not None
            seconds[name] += round(each.seconds * 1000)
            slowest[name] = max(slowest[name], each.seconds)
        differs = mine.found != other.found or mine.odd or mine.seconds > SLOW or other.seconds > SLOW
        if given.all or differs:
            odd = f"{mine.odd} left out" if mine.odd else mine.error
            print(f"| {path.name} | {mine} | {other} | {'; '.join(filter(None, (odd, other.error)))} |")
    for name in ("Aura", PEER):
        print(
            f"{name}: {readable[name]} of {len(files)} files readable, {seconds[name] / 1000:.1f} s,"
            f" slowest {slowest[name]:.1f} s"
        )


if __name__ == "__main__":
    main()
