"""Places in books, as people name them: `§8`, `§6.1–6.3`, `chapters 1–6, 9`, `calc2: §3`, or the name of a topic."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from pausepoint.apps.planner.models import Role, TopicEstimate

_NUMBER = r"(?:[0-9]{1,3}|[A-Z](?![^\W\d_]))(?:\.[0-9]{1,3}){0,4}"
_WORDS = (
    r"§+|chapters?|chap?s?\.?|sections?|secs?\.?|lectures?|lessons?|units?|weeks?|kapitel|kap\.?|abschnitte?|vorlesung(?:en)?"
    r"|chapitres?|cap[ií]tulos?|capitol[oi]"
)
_NUMBERS = re.compile(
    rf"(?i)^\s*(?:(?P<where>.+?)\s*(?::|,|\s(?=(?:{_WORDS})\s*\d))\s*)?(?P<word>{_WORDS})?\s*(?-i:(?P<first>{_NUMBER}))"
    rf"(?:\s*(?:-|–|—|to|until|bis)\s*§?\s*(?-i:(?P<last>{_NUMBER})))?\.?\s*$"
)
_ROMAN = {"I": 1, "V": 5, "X": 10}
_HAN = {sign: number for number, sign in enumerate("一二三四五六七八九十", 1)}

Number = tuple[tuple[int, int | str], ...]
"""A number that can be compared: its components, the letters of appendices behind all digits."""


class Place(NamedTuple):
    """A section of a topic. ``number`` is its own or that of the chapter that it belongs to; empty if it has none."""

    course_id: str
    topic: str
    section: str
    number: Number
    book: str
    role: Role = "book"


class Numbers(NamedTuple):
    """What a person wrote: numbers from the first to the last, and perhaps the course or the book."""

    where: str
    first: Number
    last: Number

    def includes(self, place: Place) -> bool:
        """Return whether a place has one of the numbers."""
        number = place.number
        return bool(number) and self.first <= number[: len(self.first)] and number[: len(self.last)] <= self.last


def read_numbers(text: str) -> Numbers | None:
    """Return the numbers of chapters or sections that a text names, or None if it names none.

    >>> read_numbers("§8"), read_numbers("calc2: chapters 1–6")
    (Numbers(where='', first=((0, 8),), last=((0, 8),)), Numbers(where='calc2', first=((0, 1),), last=((0, 6),)))
    >>> read_numbers("Power Series"), read_numbers("Kelp forests §2.1").where
    (None, 'Kelp forests')
    """
    found = _NUMBERS.match(text)
    if found is None:
        return None
    first, last = _number(found["first"]), _number(found["last"] or found["first"])
    return Numbers((found["where"] or "").strip(" :,"), first, last)


def _number(text: str) -> Number:
    """Return a number as it can be compared. Roman and Chinese numbers count as digits."""
    return tuple(map(_component, text.split("."))) if text else ()


def _component(text: str) -> tuple[int, int | str]:
    if text.isdecimal():
        return 0, int(text)
    if text in _HAN:
        return 0, _HAN[text]
    if re.fullmatch(r"X{0,3}(IX|IV|V?I{0,3})", text.upper()):
        values = [_ROMAN[sign] for sign in text.upper()]
        return 0, sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0], strict=True))
    return 1, text.upper()


def places_of(estimates: Iterable[TopicEstimate]) -> list[Place]:
    """Return all sections of the courses. If no section of a course has a number, its topics are counted."""
    found: list[Place] = []
    for _, listed in groupby(estimates, key=lambda each: each.course_id):
        topics = list(listed)
        has_numbers = any(section.number for each in topics for section in each.sections)
        for count, each in enumerate(topics, 1):
            found += _of_topic(each, [] if has_numbers else [(0, count)])
    return found


def _of_topic(topic: TopicEstimate, counted: Sequence[tuple[int, int | str]]) -> Iterator[Place]:
    """Yield the sections of a topic. A section without a number belongs to the one before it, or to the chapter."""
    if not topic.sections:
        yield Place(topic.course_id, topic.topic, "", tuple(counted), "; ".join(topic.source_files))
    number: Number = tuple(counted)
    for filename, listed in groupby(topic.sections, key=lambda each: each.filename):
        sections = list(listed)
        number = next((_number(each.number)[:1] for each in sections if each.number), number)
        for each in sections:
            number = _number(each.number) or number
            yield Place(topic.course_id, topic.topic, each.section, number, each.book or filename, each.role)


def numbered(places: Sequence[Place], numbers: Numbers, courses: dict[str, str]) -> list[Place]:
    """Return the places that some numbers mean. ``courses``: the names of the courses by their ids."""
    where = numbers.where.casefold()
    within = [
        place for place in places
        if not where or where == place.course_id.casefold() or where in courses.get(place.course_id, "").casefold()
        or where in place.book.casefold()
    ]  # fmt: skip
    return [place for place in within if numbers.includes(place)]
