"""Read dates as people write them, and write them as people read them."""

from __future__ import annotations

import re
from datetime import date, timedelta

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip
GERMAN = {"jän": 1, "jan": 1, "feb": 2, "mär": 3, "mae": 3, "mai": 5, "okt": 10, "dez": 12}
_NAMES = {name[:3].lower(): number for number, name in enumerate(MONTHS, 1)} | GERMAN

_ISO = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})")
_DOTTED = re.compile(r"(\d{1,2})\.\s?(\d{1,2})\.\s?(\d{4})")
_SLASHED = re.compile(r"(\d{1,2})[/-](\d{1,2})[/-](\d{4})")
_NAMED = re.compile(r"(?:[^\W\d_]+,\s*|[^\W\d_]+\s+(?=\d))?(?:(\d{1,2})(?:st|nd|rd|th|\.)?\s+)?([^\W\d_]{3,})\.?\s*"
                    r"(?:(\d{1,2})(?:st|nd|rd|th)?,?\s+)?(\d{4})")  # fmt: skip


def read_date(text: str, today: date | None = None) -> date:
    """Return the date that a person wrote. Raises `ValueError` with the way out if it is none, or could be two.

    >>> read_date("2026-12-01"), read_date("1.12.2026"), read_date("Dec 1 2026"), read_date("1st December 2026")
    (datetime.date(2026, 12, 1), datetime.date(2026, 12, 1), datetime.date(2026, 12, 1), datetime.date(2026, 12, 1))
    >>> read_date("12/31/2026"), read_date("yesterday", date(2026, 12, 1))
    (datetime.date(2026, 12, 31), datetime.date(2026, 11, 30))
    """
    words = text.strip()
    near = {"today": 0, "tomorrow": 1, "yesterday": -1}.get(words.lower())
    if near is not None and today is not None:
        return today + timedelta(days=near)
    try:
        found = _read(words)
    except ValueError:
        found = None
        if _SLASHED.fullmatch(words) and _both_ways(words):
            raise
    if found is None:
        raise ValueError(f"{text!r} is not a date. Write it like 2030-02-21, 21.2.2030 or Feb 21 2030.")
    return found


def _read(words: str) -> date | None:
    if match := _ISO.fullmatch(words):
        return date(int(match[1]), int(match[2]), int(match[3]))
    if match := _DOTTED.fullmatch(words):
        return date(int(match[3]), int(match[2]), int(match[1]))
    if match := _SLASHED.fullmatch(words):
        return _slashed(words, int(match[1]), int(match[2]), int(match[3]))
    if (match := _NAMED.fullmatch(words)) and bool(match[1]) != bool(match[3]):
        month = _NAMES.get(match[2][:3].lower())
        return date(int(match[4]), month, int(match[1] or match[3])) if month else None
    return None


def _slashed(words: str, one: int, other: int, year: int) -> date:
    """Return a date whose day is above 12. Otherwise the order of day and month is not known."""
    if one != other and one <= 12 and other <= 12:
        ways = " or ".join(f"{date(year, month, day).isoformat()} ({said(date(year, month, day))})"
                           for month, day in ((other, one), (one, other)))  # fmt: skip
        raise ValueError(f"{words!r} can be read in two ways. Write {ways}.")
    return date(year, other, one) if one > 12 else date(year, one, other)


def _both_ways(words: str) -> bool:
    match = _SLASHED.fullmatch(words)
    return match is not None and 0 < int(match[1]) <= 12 and 0 < int(match[2]) <= 12


def said(day: date, year: bool = True) -> str:
    """Return a date for people.

    >>> said(date(2030, 2, 21)), said(date(2030, 2, 1), year=False)
    ('Thu 21 Feb 2030', 'Fri 1 Feb')
    """
    weekday = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[day.weekday()]
    return f"{weekday} {day.day} {MONTHS[day.month - 1][:3]}" + (f" {day.year}" if year else "")
