"""The events of an iCalendar file. An odd event is left out and named; the rest of the calendar is used.

Only the lines that say when an event takes place are parsed, and only of events that can take place in the wanted time.
A wrong phone number in a thousand events therefore costs neither an error nor a second. Files that hold several
calendars, or events without a calendar around them, are read as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from pausepoint.apps.input import BadInput, decoded
from pausepoint.apps.words import one_line

LINES = {
    "UID", "SUMMARY", "SEQUENCE", "STATUS", "TRANSP", "DTSTART", "DTEND", "DURATION", "RRULE", "RDATE", "EXDATE",
    "RECURRENCE-ID",
}  # fmt: skip
SERIES = {"RRULE", "RDATE", "RECURRENCE-ID", "DURATION"}
"""Lines of events that may take place long after their start."""

ODD = (ValueError, TypeError, KeyError, AttributeError, OverflowError, IndexError)
"""The errors of the libraries for events that make no sense."""

MARGIN = timedelta(days=2)
"""Dates are compared without their time zone, so two days on each side are kept."""


class Skipped(NamedTuple):
    """An event that does not count, or not fully: a key of the texts, and its values."""

    reason: str
    name: str
    day: date | None = None
    value: str = ""


class Block(NamedTuple):
    """The lines of one event that matter, by name. A name may occur several times."""

    lines: list[tuple[str, str]]

    def first(self, name: str) -> str:
        """Return the first line of that name, or an empty string."""
        return next((line for known, line in self.lines if known == name), "")

    @property
    def name(self) -> str:
        """The title of the event, on one line."""
        text = self.first("SUMMARY").partition(":")[2]
        return one_line(re.sub(r"\\([\\,;])", r"\1", text.replace("\\n", " ").replace("\\N", " ")))[:60]

    @property
    def day(self) -> date | None:
        """The day on which the event starts, if its start can be read."""
        return _day(self.first("DTSTART"))

    @property
    def key(self) -> str:
        """The event's id, or an empty string."""
        return self.first("UID").partition(":")[2]

    def may_overlap(self, first: date, last: date) -> bool:
        """Return whether the event can take place between two days. Uncertain events can."""
        if any(name in SERIES for name, _ in self.lines):
            return True
        begin = self.day
        if begin is None:
            return True
        end = _day(self.first("DTEND")) or begin
        return not (max(begin, end) < first - MARGIN or begin > last + MARGIN)

    def parsed(self) -> Any:
        """Return the event as the library's object. Lines that it cannot read are in its ``errors``."""
        from icalendar import Event

        text = "\r\n".join(["BEGIN:VEVENT", *(line for _, line in self.lines), "END:VEVENT", ""])
        return Event.from_ical(text)


def reads_calendars() -> bool:
    """Return whether the libraries that read calendars are installed."""
    return all(find_spec(name) is not None for name in ("icalendar", "dateutil"))


def read_events(path: Path, first: date, last: date) -> tuple[list[Any], list[Skipped]]:
    """Return the events that may take place between two days, and those that cannot be used.

    Raises `BadInput` with the file's name if it is not an iCalendar file.
    """
    if not reads_calendars():
        raise BadInput(f"calendar: Reading {path} needs icalendar. Install it: pip install 'pausepoint[apps]'")
    text = _text(path)
    if not re.search(r"^BEGIN:(VCALENDAR|VEVENT)\s*$", text, re.MULTILINE | re.IGNORECASE):
        raise BadInput(f"calendar: {path} is not an iCalendar file. Export the calendar again as .ics.")
    lines = text.split("\n")
    _know_zones(lines)
    blocks = list(_blocks(lines))
    versions = Counter(block.key for block in blocks)
    events: list[Any] = []
    skipped: list[Skipped] = []
    for block in blocks:
        if block.may_overlap(first, last) or (block.key and versions[block.key] > 1):
            event, problem = _event(block)
            events += [] if event is None else [event]
            skipped += [] if problem is None else [problem]
    return events, skipped


def _event(block: Block) -> tuple[Any, Skipped | None]:
    """Return a block's event, or None, and what is odd about it."""
    start = block.first("DTSTART").partition(":")[2].strip()
    if not start:
        return None, Skipped("skipped_no_start", block.name)
    try:
        event = block.parsed()
    except ODD:
        return None, Skipped("skipped_odd", block.name, block.day)
    wrong = {str(name).upper() for name, _ in event.errors}
    if "DTSTART" not in event or "DTSTART" in wrong:
        return None, Skipped("skipped_bad_start", block.name, value=one_line(start)[:40])
    if wrong & {"DTEND", "DURATION", "RECURRENCE-ID"}:
        return None, Skipped("skipped_odd", block.name, block.day)
    odd = wrong & {"RRULE", "RDATE", "EXDATE"}
    for name in odd:
        event.pop(name, None)
    reason = "first_only" if "RRULE" in odd else "some_dates"
    return event, Skipped(reason, block.name, block.day) if odd else None


def _text(path: Path) -> str:
    """Return the text of a file with whole lines. Old programs write other encodings than UTF-8."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"calendar: {path} cannot be read: {error.strerror}. Check the path.") from None
    text = decoded(content).replace("\r\n", "\n").replace("\r", "\n")
    return re.sub(r"\n[ \t]", "", text)


def _blocks(lines: Iterable[str]) -> Iterator[Block]:
    """Yield the lines of each event that matter. Alarms inside an event have a start of their own and do not."""
    inside: list[str] = []
    found: list[tuple[str, str]] = []
    for line in lines:
        word = line.strip().upper()
        if word.startswith("BEGIN:"):
            inside.append(word[6:])
            found = [] if word == "BEGIN:VEVENT" else found
        elif word.startswith("END:"):
            if word == "END:VEVENT":
                yield Block(found)
            inside[-1:] = []
        elif inside and inside[-1] == "VEVENT":
            name = re.split("[:;]", word, maxsplit=1)[0]
            if name in LINES:
                found.append((name, line.replace("\\;", ";").replace("\\,", ",") if name == "RRULE" else line))


def _know_zones(lines: list[str]) -> None:
    """Make the library know the time zones that the file defines. An odd definition is ignored."""
    from icalendar import Calendar

    for zone in _zones(lines):
        try:
            Calendar.from_ical("\r\n".join(["BEGIN:VCALENDAR", *zone, "END:VCALENDAR", ""]))
        except ODD:
            continue


def _zones(lines: Iterable[str]) -> Iterator[list[str]]:
    found: list[str] | None = None
    for line in lines:
        word = line.strip().upper()
        found = [] if word == "BEGIN:VTIMEZONE" else found
        if found is not None:
            found.append(line)
            if word == "END:VTIMEZONE":
                yield found
                found = None


def _day(line: str) -> date | None:
    match = re.search(r":\s*(\d{8})", line)
    try:
        return None if match is None else datetime.strptime(match[1], "%Y%m%d").date()
    except ValueError:
        return None
