"""The shapes of the Google Classroom API that Aura reads, and their conversion into assignments.

The export and the live API share them. Fields that only teachers see may be missing. As in the API, dates and times
omit parts that are zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, TypeVar
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from pausepoint.apps.aura.models import Assignment, Course, Moment, in_utc
from pausepoint.apps.input import BadInput

T = TypeVar("T")

Points = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Shape(BaseModel):
    """A resource with fields in camel case. Unknown fields are ignored."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True)


class Name(Shape):
    """The name of a person."""

    full_name: str = ""


class UserProfile(Shape):
    """``userProfiles.get``."""

    id: str
    email_address: str = ""


class Student(Shape):
    """``courses.students.list``."""

    course_id: str
    user_id: str
    profile: UserProfile | None = None


class CourseShape(Shape):
    """``courses.list``."""

    id: str
    name: str
    course_state: str = "ACTIVE"


class Day(Shape):
    """A date. Parts that are 0 are omitted."""

    year: int = 0
    month: int = 0
    day: int = 0


class TimeOfDay(Shape):
    """A time in UTC. Parts that are 0 are omitted."""

    hours: int = 0
    minutes: int = 0
    seconds: int = 0


class CourseWork(Shape):
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


class StateHistory(Shape):
    """One change of a submission's state."""

    state: str = ""
    state_timestamp: Moment | None = None


class History(Shape):
    """One entry in a submission's history: a change of its state or its grade."""

    state_history: StateHistory | None = None


class StudentSubmission(Shape):
    """``courses.courseWork.studentSubmissions.list``."""

    course_id: str
    course_work_id: str
    user_id: str
    state: str = "NEW"
    late: bool = False
    assigned_grade: Points | None = None
    update_time: Moment | None = None
    submission_history: list[History] = []

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


def parsed(shape: type[T], found: object, where: str) -> list[T]:
    """Return a list of resources. Raises `BadInput` with the place and the field if one is invalid."""
    try:
        return TypeAdapter(list[shape]).validate_python(found)  # type: ignore[valid-type]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        raise BadInput(f"{where}{field}: {first['msg'].removeprefix('Value error, ')}") from None


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
    assignment = Assignment(
        id=f"{course.account}/{course.course_id}/{work.id}", account=course.account, course=course.name,
        title=work.title or work.id, kind=work.work_type, due=due, max_points=work.max_points,
    )  # fmt: skip
    if done is None:
        return assignment
    at = done.handed_in_at
    seen = {
        "handed_in": done.handed_in,
        "handed_in_at": at,
        "late": done.late or (at is not None and due is not None and at > due),
        "points": done.assigned_grade,
        "graded_at": None if done.assigned_grade is None else done.update_time,
    }
    return assignment.model_copy(update=seen)


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
