"""ClassroomSync: gather a student's assignments from every account and course.

Each course is one remembered operation, so an interrupted sync fetches only the missing courses. While Google is busy
or does not answer, the operation waits and tries again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace
from pydantic import TypeAdapter

from pausepoint import Context
from pausepoint.apps import model
from pausepoint.apps.aura.models import Assignment, Course, Doubt
from pausepoint.apps.aura.sources import Source, open_source
from pausepoint.apps.aura.sources.cells import Order
from pausepoint.apps.aura.sources.live import Unreachable
from pausepoint.apps.input import BadInput
from pausepoint.apps.words import one_line

OUTAGE = replace(model.OUTAGE, on=(Unreachable,))
"""Google is waited for as a language model is: until it answers."""

ASSIGNMENTS = TypeAdapter(list[Assignment])
"""Remembers the assignments of a course as one text, which is much faster to store than a thousand models."""


class Gathered(NamedTuple):
    """A student's assignments and name, and what the report should mention about the data."""

    assignments: list[Assignment]
    name: str
    doubts: list[Doubt]


async def gather(
    student_id: str, data: Sequence[str], time_zone: str, ctx: Context, dates: Order | None = None
) -> Gathered:
    """Return all assignments of a student, sorted by due date. Assignments without a due date come last."""
    sources = [open_source(place, time_zone, dates) for place in dict.fromkeys(data)]
    courses = [await _enrolled(source, student_id, ctx) for source in sources]
    _check_courses(student_id, sources, courses)
    texts = [text for source, mine in zip(sources, courses, strict=True) for text in await _fetched(source, mine, ctx)]
    name = next(filter(None, [await _name(source, student_id, ctx) for source in sources if not source.is_file]), "")
    doubts = [doubt for source in sources for doubt in await _doubts(source, student_id, ctx)]
    sources.clear()  # an export of a whole class is large, and no longer needed
    found = [each for text in texts for each in ASSIGNMENTS.validate_json(text)]
    _tell_apart(found)
    found.sort(key=_by_due)
    return Gathered(found, name, doubts)


def _tell_apart(found: Sequence[Assignment]) -> None:
    """Number the ids that occur in several accounts."""
    seen: Counter[str] = Counter()
    for each in found:
        seen[each.id] += 1
        if seen[each.id] > 1:
            each.id = f"{each.id} ({seen[each.id]})"


async def _enrolled(source: Source, student_id: str, ctx: Context) -> list[Course]:
    def enrolled(place: str, student: str) -> list[Course]:
        return source.courses(student)

    return await ctx.do(enrolled, source.place, student_id, retry=OUTAGE)


async def _name(source: Source, student_id: str, ctx: Context) -> str:
    def find_name(place: str, student: str) -> str:
        return source.name(student)

    return await ctx.do(find_name, source.place, student_id, retry=OUTAGE)


async def _doubts(source: Source, student_id: str, ctx: Context) -> list[Doubt]:
    def find_doubts(place: str, student: str) -> list[Doubt]:
        return source.doubts(student)

    return await ctx.do(find_doubts, source.place, student_id)


async def _fetched(source: Source, courses: Sequence[Course], ctx: Context) -> list[str]:
    """Return the assignments of each course as text."""

    def fetch_course(course: Course) -> str:
        return ASSIGNMENTS.dump_json(source.assignments(course)).decode()

    return await ctx.map(
        fetch_course, courses, key=lambda each: f"{source.place} {each.account} {each.course_id}", retry=OUTAGE
    )


def _by_due(assignment: Assignment) -> tuple[bool, float, str]:
    due = assignment.due
    return due is None, due.timestamp() if due else 0.0, assignment.id


class Checked(NamedTuple):
    """The student's name if the data has it, and what the report should mention about the data."""

    name: str
    doubts: list[Doubt]


def check(student_id: str, data: Sequence[str], time_zone: str, dates: Order | None = None) -> Checked:
    """Refuse data that a sync cannot read, before a session is stored.

    Files are read completely. From the live API, only the courses are requested. If it does not answer now, that is a
    doubt and no refusal, because the session waits for it.
    """
    sources = [open_source(place, time_zone, dates) for place in dict.fromkeys(data)]
    courses: list[list[Course]] = []
    names: list[str] = []
    doubts: list[Doubt] = []
    for source in sources:
        try:
            courses.append(mine := source.courses(student_id))
            for course in mine if source.is_file else ():
                source.assignments(course)
            names.append(source.name(student_id))
            doubts += source.doubts(student_id)
        except Unreachable as error:
            doubts.append(Doubt(key="unreachable", values={"problem": one_line(str(error))}))
    if len(names) == len(sources):
        _check_courses(student_id, sources, courses)
    return Checked(next(filter(None, names), ""), doubts)


def only_student(data: Sequence[str]) -> str:
    """Return the only student that the data name. Raises `BadInput` if there are several or none."""
    sources = [open_source(place, "UTC") for place in dict.fromkeys(data)]
    names = _known(sources)
    if len(names) == 1:
        return names[0]
    places = ", ".join(each.place for each in sources)
    if not names:
        raise BadInput(f"student_id: {places} does not say whose work it is. Pass --student with the student's name.")
    raise BadInput(f"student_id: {places} names several students. Pass --student with one of them: {_listed(names)}.")


def _check_courses(student_id: str, sources: Sequence[Source], courses: Sequence[Sequence[Course]]) -> None:
    """Refuse an unknown student."""
    if not any(courses):
        raise unknown(student_id, sources)


def unknown(student_id: str, sources: Sequence[Source]) -> BadInput:
    """Return the refusal of an unknown student. It names the known ones."""
    names = _known(sources)
    known = f" Known students: {_listed(names)}." if names else " Check the id or the e-mail address."
    return BadInput(f"student_id: {student_id!r} has no course in {', '.join(each.place for each in sources)}.{known}")


def _known(sources: Sequence[Source]) -> list[str]:
    return sorted({name for source in sources for name in source.students()})


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}"
