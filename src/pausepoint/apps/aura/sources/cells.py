"""The cells of tables that people write: column names, dates and points, in English and German."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import date, datetime, time
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from pausepoint.apps.aura.models import in_utc
from pausepoint.apps.input import BadInput
from pausepoint.apps.words import one_line

Order = Literal["day-first", "month-first"]

COLUMNS = {
    "student": "name pupil child studentname studentid email emailaddress schüler schülerin schülername kind lernende",
    "course": "class subject coursename classname kurs fach klasse unterricht",
    "title": "assignment task homework work assignmenttitle titel aufgabe hausaufgabe arbeit thema bezeichnung",
    "id": "assignmentid nr nummer number",
    "kind": "type worktype art typ",
    "due": "duedate dueon deadline dueat fällig fälligam fälligkeit abgabe abgabedatum abgabetermin termin frist bis",
    "handed_in": "submitted turnedin submittedat handedinat status done abgegeben abgegebenam erledigt eingereicht",
    "late": "islate verspätet zuspät",
    "points": "grade score result pointsearned punkte ergebnis erreicht erreichtepunkte",
    "mark": "note zensur schulnote lettergrade",
    "max_points": "maxpoints maxscore outof maximum total pointspossible maxpunkte maximalpunkte maximalepunkte von",
    "minutes": "duration effort time dauer minuten aufwand zeit",
    "graded_at": "gradedat gradedon gradedate returned korrigiertam benotetam zurückgegeben",
}
"""The known columns, and other names for them, written without blanks and signs."""

NEEDED = ("course", "title")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
GERMAN = {"mär": "mar", "mrz": "mar", "mai": "may", "okt": "oct", "dez": "dec"}

SLASHES = re.compile(r"^(\d{1,2})[/-](\d{1,2})[/-](\d{4}|\d{2})$")
DOTS = re.compile(r"^(\d{1,2})\.\s?(\d{1,2})\.\s?(\d{4}|\d{2})$")
NAMED = re.compile(r"^(?:[a-zäöü]+\.?,?\s+)?(\d{1,2})\.?\s+([a-zäöü]{3,})\.?,?\s+(\d{4})$", re.IGNORECASE)
AMERICAN = re.compile(r"^(?:[a-z]+\.?,?\s+)?([a-z]{3,})\.?\s+(\d{1,2}),?\s+(\d{4})$", re.IGNORECASE)
MARK = re.compile(
    r"^(?:[A-Fa-f][+-]?|[1-6]\s?[+-]|pass|passed|fail|failed|(?:nicht )?bestanden)$", re.IGNORECASE
)  # fmt: skip
"""A mark that is no number: B, C+, 2- or passed."""

CLOCK = re.compile(r"[\s,T]+(\d{1,2}):(\d{2})(?::\d{2})?\s*(am|pm|uhr)?$", re.IGNORECASE)


class AmbiguousDates(BadInput):
    """A date has two readings, and nothing tells which one is meant."""


def column_of(heading: str) -> str | None:
    """Return the known column for a heading, in any case and with any signs, or None.

    >>> column_of("Due Date"), column_of("Fällig am"), column_of("max_points"), column_of("Teacher")
    ('due', 'due', 'max_points', None)
    """
    bare = squeezed(heading)
    return next((name for name, others in COLUMNS.items() if bare == squeezed(name) or bare in others.split()), None)


def squeezed(text: str) -> str:
    """Return a text in small letters without blanks and signs."""
    return re.sub(r"[\W_]+", "", text.casefold())


def order_of(found: Iterable[tuple[str, str]]) -> Order | None:
    """Return the order of day and month that dates such as 3/14/2030 prove, or None if none of them does.

    ``found`` are places and dates. Raises `BadInput` if they prove both orders.
    """
    proofs: dict[Order, tuple[str, str]] = {}
    for where, text in found:
        match = SLASHES.match(CLOCK.sub("", text.strip()))
        if match is not None and int(match[1]) > 12:
            proofs.setdefault("day-first", (where, text))
        elif match is not None and int(match[2]) > 12:
            proofs.setdefault("month-first", (where, text))
    if len(proofs) == 2:
        (one, first), (two, second) = proofs.values()
        raise BadInput(
            f"{one}: {first!r} and {second!r} ({two}) have day and month in a different order. Write all dates alike."
        )
    return next(iter(proofs), None)


def moment(text: str, zone: ZoneInfo, order: Order | None) -> datetime:
    """Return a time in UTC. A date alone means the end of that day. Raises `ValueError`, or `AmbiguousDates`."""
    text = text.strip()
    try:
        iso = datetime.fromisoformat(text)
    except ValueError:
        clock = CLOCK.search(text)
        day = _day(CLOCK.sub("", text).strip(), order)
        found = datetime.combine(day, time(23, 59) if clock is None else _time(clock))
    else:
        found = iso if re.search(r"\d[T ]\d", text) else datetime.combine(iso, time(23, 59))
    return in_utc(found if found.tzinfo else found.replace(tzinfo=zone))


def _day(text: str, order: Order | None) -> date:
    if match := DOTS.match(text):
        return date(_year(match[3]), int(match[2]), int(match[1]))
    if match := SLASHES.match(text):
        first, second, year = int(match[1]), int(match[2]), _year(match[3])
        if order is None and first <= 12 and second <= 12 and first != second:
            raise AmbiguousDates
        month_first = order == "month-first" if order else second > 12
        return date(year, first, second) if month_first else date(year, second, first)
    if match := NAMED.match(text):
        return date(int(match[3]), _month(match[2]), int(match[1]))
    if match := AMERICAN.match(text):
        return date(int(match[3]), _month(match[1]), int(match[2]))
    raise ValueError(text)


def _year(text: str) -> int:
    return int(text) if len(text) == 4 else 2000 + int(text)


def _month(name: str) -> int:
    short = name.casefold()[:3]
    return MONTHS.index(GERMAN.get(short, short)) + 1


def _time(match: re.Match[str]) -> time:
    hour, half = int(match[1]), (match[3] or "").casefold()
    if half in ("am", "pm"):
        hour = hour % 12 + (12 if half == "pm" else 0)
    return time(hour, int(match[2]))


class Grade(NamedTuple):
    """Points and their maximum, as far as a cell says them. ``text`` is a grade that is not a number of points."""

    points: float | None = None
    most: float | None = None
    text: str = ""


def grade(text: str) -> Grade:
    """Return the grade in a cell for points.

    >>> grade("8,5"), grade("9 von 10")
    (Grade(points=8.5, most=None, text=''), Grade(points=9.0, most=10.0, text=''))
    >>> grade("85 %"), grade("2+")
    (Grade(points=85.0, most=100.0, text='85 %'), Grade(points=None, most=None, text='2+'))
    """
    text = text.strip()
    if MARK.match(text):
        return Grade(text=text)
    if text.endswith("%"):
        return Grade(_number(text[:-1]), 100.0, text)
    parts = re.split(r"\s*(?:/|von|out of|of)\s*", text)
    if len(parts) > 2:
        raise ValueError(text)
    return Grade(_number(parts[0]), _number(parts[1]) if len(parts) == 2 else None)


def mark(text: str) -> Grade:
    """Return the grade in a cell for marks: points with a maximum, or any other text as it is.

    >>> mark("9/15"), mark("2,3").text, mark("very good").text
    (Grade(points=9.0, most=15.0, text=''), '2,3', 'very good')
    """
    try:
        found = grade(text)
    except ValueError:
        found = Grade()
    return found if found.text or found.most else Grade(text=one_line(text))


def _number(text: str) -> float:
    found = float(text.strip().replace(",", "."))
    if not 0 <= found < math.inf:  # and not nan
        raise ValueError(text)
    return found


def is_grade(text: str) -> bool:
    """Return whether a cell is a grade.

    >>> is_grade("8,5"), is_grade("B+"), is_grade("excused")
    (True, True, False)
    """
    try:
        return grade(text) != Grade()
    except ValueError:
        return False


def is_moment(text: str) -> bool:
    """Return whether a cell is meant as a date or a time, even as an impossible one.

    >>> is_moment("31.2.2030"), is_moment("March 5, 2030"), is_moment("may")
    (True, True, False)
    """
    try:
        moment(text, ZoneInfo("UTC"), "day-first")
    except (ValueError, OverflowError):
        return text[:1].isdigit()
    return True


def whole(text: str) -> int:
    """Return a whole number of minutes above 0."""
    found = int(re.sub(r"\s*(min(ute[ns]?|uten)?\.?)$", "", text.strip(), flags=re.IGNORECASE))
    if found < 1:
        raise ValueError(text)
    return found
