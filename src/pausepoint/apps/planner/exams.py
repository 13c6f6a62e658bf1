"""What an exam covers, as its course says it: `chapters 1–6, 9`, `§2.1–4.3`, `up to chapter 5`, or names of topics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pausepoint.apps.planner.models import Course, TopicEstimate, UserInputs
from pausepoint.apps.planner.places import Number, Place, numbered, places_of, read_numbers

_ITEMS = re.compile(r"(?i)\s*(?:[,;&+]|\band\b|\bund\b)\s*")
_UP_TO = re.compile(r"(?i)^(?:up to|until|to|bis)\s+")
_FIRST: Number = ((0, 0),)

Key = tuple[str, str]
"""A topic and a section of it."""


def outside(inputs: UserInputs, estimates: Iterable[TopicEstimate]) -> dict[str, set[Key]]:
    """Return the sections that the exam of each course does not cover, for the courses whose exam is limited."""
    listed = list(estimates)
    limited = [course for course in inputs.courses if course.exam]
    places = places_of(listed) if limited else []
    found: dict[str, set[Key]] = {}
    for course in limited:
        mine = [place for place in places if place.course_id == course.course_id]
        asked = {_key(place) for item in items(course.exam) for place in covered(item, mine)}
        topics = {topic for topic, _ in asked}
        # exercises belong to their chapter, and an old exam is always worth solving
        asked |= {_key(place) for place in mine if place.role == "exercises" and place.topic in topics}
        asked |= {_key(place) for place in mine if place.role == "old_exam"}
        found[course.course_id] = {_key(place) for place in mine} - asked if topics else set()
    return found


def unknown(inputs: UserInputs, estimates: Iterable[TopicEstimate]) -> str | None:
    """Return what an exam names that the files of its course do not have, with the way out, or None."""
    places = places_of(estimates)
    for course in inputs.courses:
        mine = [place for place in places if place.course_id == course.course_id]
        for item in items(course.exam) if mine else ():
            if not covered(item, mine):
                return (
                    f"course {course.course_id}: the exam covers “{item}”, which its files do not have{_have(mine)};"
                    f" correct it with `replan --exam '{course.course_id}=CHAPTERS'`"
                )
    return None


def items(exam: str) -> list[str]:
    """Return the parts of what an exam covers.

    >>> items("chapters 1–6, 9 and Power Series")
    ['chapters 1–6', '9', 'Power Series']
    """
    return [item for item in _ITEMS.split(exam.strip()) if item]


def left_out(course: Course, keys: set[Key], estimates: Iterable[TopicEstimate]) -> list[str]:
    """Return the topics of a course of which the exam covers nothing."""
    mine = [each for each in estimates if each.course_id == course.course_id]
    return [each.topic for each in mine if {(each.topic, name) for name in _sections(each)} <= keys]


def _sections(topic: TopicEstimate) -> list[str]:
    return [each.section for each in topic.sections] or [""]


def _key(place: Place) -> Key:
    return place.topic, place.section


def covered(item: str, places: Sequence[Place]) -> list[Place]:
    """Return the places that a part of what an exam covers means."""
    same = [place for place in places if item.casefold() in (place.topic.casefold(), place.section.casefold())]
    if same:
        return same
    upto = _UP_TO.sub("", item)
    numbers = read_numbers(upto)
    if numbers is not None and not numbers.where:
        numbers = numbers._replace(first=_FIRST) if upto != item else numbers
        return numbered(places, numbers, {})
    within = [place for place in places if item.casefold() in place.topic.casefold()]
    return within or [place for place in places if item.casefold() in place.section.casefold()]


def _have(places: Sequence[Place]) -> str:
    chapters = sorted({place.number[0] for place in places if place.number})
    if not chapters:
        return ""
    first, last = str(chapters[0][1]), str(chapters[-1][1])
    return f" (they have chapters {first} to {last})" if first != last else f" (they have chapter {first})"
