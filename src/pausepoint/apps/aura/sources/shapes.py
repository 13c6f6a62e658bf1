"""The shapes of the Google Classroom API that Aura reads, and their conversion into assignments.

The exports and the live API share them. Fields that only teachers see may be missing. As in the API, dates and times
omit parts that are zero. They are msgspec structs: an export of a whole class has tens of thousands of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, TypeVar
from zoneinfo import ZoneInfo

import msgspec

from pausepoint.apps.aura.models import Assignment, Course, in_utc
from pausepoint.apps.input import BadInput
from pausepoint.apps.words import one_line

T = TypeVar("T")

Points = Annotated[float, msgspec.Meta(ge=0)]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class Shape(msgspec.Struct, frozen=True, rename="camel"):
    """A resource with fields in camel case. Unknown fields are ignored."""


class Name(Shape, frozen=True):
    """The name of a person."""

    full_name: str = ""


class UserProfile(Shape, frozen=True):
    """``userProfiles.get``."""

    id: str
    email_address: str = ""
    name: Name | None = None


class Student(Shape, frozen=True):
    """``courses.students.list``."""

    course_id: str
    user_id: str
    profile: UserProfile | None = None


class CourseShape(Shape, frozen=True):
    """``courses.list``."""

    id: str
    name: str
    course_state: str = "ACTIVE"


class Day(Shape, frozen=True):
    """A date. Parts that are 0 are omitted."""

    year: int = 0
    month: int = 0
    day: int = 0


class TimeOfDay(Shape, frozen=True):
    """A time in UTC. Parts that are 0 are omitted."""

    hours: int = 0
    minutes: int = 0
    seconds: int = 0


class CourseWork(Shape, frozen=True):
    """``courses.courseWork.list``."""

    course_id: str
    id: str
    title: str = ""
    state: str = "PUBLISHED"
    work_type: str = "ASSIGNMENT"
    assignee_mode: str = "ALL_STUDENTS"
    due_date: Day | None = None
    due_time: TimeOfDay | None = None
    max_points: Points | None = None


class StateHistory(Shape, frozen=True):
    """One change of a submission's state."""

    state: str = ""
    state_timestamp: Instant | None = None

    def __post_init__(self) -> None:
        check_year(self.state_timestamp, "stateTimestamp")


class History(Shape, frozen=True):
    """One entry in a submission's history: a change of its state or its grade."""

    state_history: StateHistory | None = None


class StudentSubmission(Shape, frozen=True):
    """``courses.courseWork.studentSubmissions.list``."""

    course_id: str
    course_work_id: str
    user_id: str
    state: str = "NEW"
    late: bool = False
    assigned_grade: Points | None = None
    update_time: Instant | None = None
    submission_history: tuple[History, ...] = ()

    def __post_init__(self) -> None:
        check_year(self.update_time, "updateTime")

    @property
    def handed_in(self) -> bool:
        """Whether the work was turned in or returned by the teacher."""
        return self.state in ("TURNED_IN", "RETURNED")

    @property
    def handed_in_at(self) -> datetime | None:
        """When the work was last turned in, if the history shows it."""
        changes = [line.state_history for line in self.submission_history if line.state_history is not None]
        times = [each.state_timestamp for each in changes if each.state == "TURNED_IN" and each.state_timestamp]
        return max(times, default=None)


def check_year(moment: datetime | None, field: str) -> None:
    """Refuse the first and the last year, because another time zone may lead out of them."""
    if moment is not None and not 1 < moment.year < 9999:
        raise ValueError(f"{field}: The year must be from 2 to 9998.")


@cache
def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder for a type. Numbers in quotes are numbers."""
    return msgspec.json.Decoder(kind, strict=False)


def parsed(shape: type[T], found: object, where: str) -> list[T]:
    """Return a list of resources. Raises `BadInput` with the place and the field if one is invalid."""
    try:
        return msgspec.convert(found, list[shape], strict=False)  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        raise BadInput(f"{where}{problem(error)}") from None


def problem(error: Exception) -> str:
    """Return the place in the data, and what is wrong there.

    >>> problem(msgspec.ValidationError("Expected `str`, got `int` - at `$[0].name`"))
    '[0].name: Expected `str`, got `int`'
    """
    what, _, place = str(error).partition(" - at ")
    missing = re.fullmatch(r"Object missing required field `(.*)`", what)
    path = place.strip("`").removeprefix("$")
    return f"{path}.{missing[1]}: The field is missing" if missing else f"{path}: {what}"


def as_assignments(
    course: Course, work: Iterable[CourseWork], submissions: Iterable[StudentSubmission], zone: ZoneInfo
) -> list[Assignment]:
    """Return the published work of one course, with the student's submissions."""
    by_work = {each.course_work_id: each for each in submissions if each.user_id == course.user_id}
    known = {each.id: each for each in work if each.course_id == course.course_id}  # pages may overlap
    return [
        _assignment(course, each, by_work.get(each.id), zone)
        for each in known.values()
        if each.state == "PUBLISHED" and (each.id in by_work or each.assignee_mode != "INDIVIDUAL_STUDENTS")
    ]


def _assignment(course: Course, work: CourseWork, done: StudentSubmission | None, zone: ZoneInfo) -> Assignment:
    due = _due(course, work, zone)
    at = None if done is None or done.handed_in_at is None else done.handed_in_at.astimezone(UTC)
    graded = None if done is None or done.assigned_grade is None else done.update_time
    return Assignment(
        id=f"{course.course_id}/{work.id}", account=course.account, course=course.name,
        title=one_line(work.title) or work.id, kind=work.work_type, due=due, max_points=work.max_points,
        handed_in=done is not None and done.handed_in, handed_in_at=at,
        late=done is not None and (done.late or (at is not None and due is not None and at > due)),
        points=None if done is None else done.assigned_grade,
        graded_at=graded and graded.astimezone(UTC),
    )  # fmt: skip


def _due(course: Course, work: CourseWork, zone: ZoneInfo) -> datetime | None:
    """Return the due time. The API gives it in UTC; a date without a time means the end of the student's day."""
    day, at = work.due_date, work.due_time
    if day is None:
        return None
    try:
        if at is None:
            return in_utc(datetime(day.year, day.month, day.day, 23, 59, tzinfo=zone))
        return in_utc(datetime(day.year, day.month, day.day, at.hours, at.minutes, at.seconds, tzinfo=UTC))
    except (ValueError, OverflowError) as error:
        raise BadInput(
            f"courseWork {work.id!r} of {course.name} ({course.account}): dueDate and dueTime are invalid: {error}"
        ) from None
