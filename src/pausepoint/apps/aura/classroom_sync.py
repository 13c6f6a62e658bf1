"""ClassroomSync: gather a student's assignments from every account and course.

Each course is one remembered operation, so an interrupted sync fetches only the missing courses.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter

from pausepoint import Context
from pausepoint.apps.aura.models import Assignment, Course
from pausepoint.apps.aura.sources import Source, open_source
from pausepoint.apps.aura.sources.cells import Order
from pausepoint.apps.input import BadInput

ASSIGNMENTS = TypeAdapter(list[Assignment])
"""Remembers the assignments of a course as one text, which is much faster to store than a thousand models."""


async def gather(
    student_id: str, data: Sequence[str], time_zone: str, ctx: Context, dates: Order | None = None
) -> list[Assignment]:
    """Return all assignments of a student, sorted by due date. Assignments without a due date come last."""
    sources = [open_source(place, time_zone, dates) for place in dict.fromkeys(data)]
    courses = [await _enrolled(source, student_id, ctx) for source in sources]
    _check_courses(student_id, sources, courses)
    found = [await _fetched(source, mine, ctx) for source, mine in zip(sources, courses, strict=True)]
    return sorted((each for some in found for each in some), key=_by_due)


async def _enrolled(source: Source, student_id: str, ctx: Context) -> list[Course]:
    def enrolled(place: str, student: str) -> list[Course]:
        return source.courses(student)

    return await ctx.do(enrolled, source.place, student_id)


async def _fetched(source: Source, courses: Sequence[Course], ctx: Context) -> list[Assignment]:
    def fetch_course(course: Course) -> str:
        return ASSIGNMENTS.dump_json(source.assignments(course)).decode()

    found = await ctx.map(fetch_course, courses, key=lambda each: f"{source.place} {each.account} {each.course_id}")
    return [each for some in found for each in ASSIGNMENTS.validate_json(some)]


def _by_due(assignment: Assignment) -> tuple[bool, float, str]:
    due = assignment.due
    return due is None, due.timestamp() if due else 0.0, assignment.id


def check(student_id: str, data: Sequence[str], time_zone: str, dates: Order | None = None) -> str:
    """Refuse data that a sync cannot read, before a session is stored. Return the student's name, if it is known.

    Files are read completely. From the live API, only the courses are requested.
    """
    sources = [open_source(place, time_zone, dates) for place in dict.fromkeys(data)]
    courses = [source.courses(student_id) for source in sources]
    _check_courses(student_id, sources, courses)
    for source, mine in zip(sources, courses, strict=True):
        for course in mine if source.is_file else ():
            source.assignments(course)
    return next((name for source in sources if (name := source.name(student_id))), "")


def _check_courses(student_id: str, sources: Sequence[Source], courses: Sequence[Sequence[Course]]) -> None:
    """Refuse an unknown student, and two accounts with the same name, because assignment ids contain it."""
    if not any(courses):
        raise unknown(student_id, sources)
    places: dict[str, str] = {}
    for source, mine in zip(sources, courses, strict=True):
        for account in {each.account for each in mine}:
            other = places.setdefault(account, source.place)
            if other != source.place:
                raise BadInput(
                    f"data: {other} and {source.place} both have an account {account!r}. Accounts are named after their"
                    " folder or file; rename one of the two."
                )


def unknown(student_id: str, sources: Sequence[Source]) -> BadInput:
    """Return the refusal of an unknown student. It names the known ones."""
    names = sorted({name for source in sources for name in source.students()})
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    known = f" Known students: {', '.join(names[:5])}{more}." if names else " Check the id or the e-mail address."
    return BadInput(f"student_id: {student_id!r} has no course in {', '.join(each.place for each in sources)}.{known}")
