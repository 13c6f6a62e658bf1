"""Read study hours from words: ``16:00-20:00`` for every day, or ``Mon-Fri 16:00-20:00``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pausepoint.apps.input import BadInput
from pausepoint.apps.planner.models import WEEKDAYS, Weekday

GROUPS = {"daily": WEEKDAYS, "weekdays": WEEKDAYS[:5], "weekend": WEEKDAYS[5:]}


def read_hours(texts: Iterable[str]) -> dict[Weekday, list[str]]:
    """Return the windows of each weekday. ``none`` removes the study hours.

    >>> read_hours(["Fri-Sun 9:00-12:00", "sat,sun 14:00-16:00"])["Saturday"]
    ['9:00-12:00', '14:00-16:00']
    >>> list(read_hours(["weekdays 16:00-20:00"])), read_hours(["none"])
    (['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday'], {})
    """
    found: dict[Weekday, list[str]] = {}
    for text in texts:
        if text.strip().lower() == "none":
            continue
        *days, window = text.split()
        for day in _days("".join(days), text) if days else WEEKDAYS:
            found.setdefault(day, []).append(window)
    return {day: found[day] for day in WEEKDAYS if day in found}


def _days(words: str, text: str) -> Iterator[Weekday]:
    for part in words.lower().replace("–", "-").split(","):
        first, dash, last = part.partition("-")
        if part in GROUPS:
            yield from GROUPS[part]
        elif dash:
            start, end = _day(first, text), _day(last, text)
            yield from (WEEKDAYS[(start + number) % 7] for number in range((end - start) % 7 + 1))
        else:
            yield WEEKDAYS[_day(part, text)]


def _day(word: str, text: str) -> int:
    named = [number for number, day in enumerate(WEEKDAYS) if len(word) >= 2 and day.lower().startswith(word)]
    if len(named) != 1:
        raise BadInput(f"--hours: {text!r} is not valid. Write it like 'Mon-Fri 16:00-20:00' or '16:00-20:00'.")
    return named[0]
