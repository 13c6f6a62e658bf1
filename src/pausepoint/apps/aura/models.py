"""The data that Aura's agents pass to each other, and the state of its sessions.

All times are timezone-aware and stored in UTC. They are shown in the time zone that the state names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, Field

from pausepoint import Status
from pausepoint.apps.input import known_zone, local_zone
from pausepoint.apps.words import one_line

LIVE = "classroom:"
"""The prefix of a token file for the live API."""

A_DAY = timedelta(days=1)


Title = Annotated[str, AfterValidator(one_line)]
"""A name from the data, on one line and without control characters."""


def in_utc(moment: datetime) -> datetime:
    """Return a time in UTC. Refuse the first and the last year, because another time zone may lead out of them."""
    try:
        found = moment.astimezone(UTC)
    except OverflowError:
        found = datetime.max
    if not 1 < found.year < 9999:
        raise ValueError("The year must be from 2 to 9998.")
    return found


Moment = Annotated[AwareDatetime, AfterValidator(in_utc)]


class CurrentStep(StrEnum):
    """The position of a session: the next step, or the end."""

    SYNCING = "SYNCING"
    ANALYZING = "ANALYZING"
    PLANNING = "PLANNING"
    REPORTING = "REPORTING"
    COMPLETED = "COMPLETED"


class Course(BaseModel):
    """A course as one account sees it. ``user_id`` is the student's id in that account."""

    account: str
    course_id: str
    name: Title
    user_id: str


class Doubt(BaseModel):
    """Something in the data that the report should mention: the key of a text, and its values.

    ``taken`` is the key of the text that says as what the work counts.
    """

    key: str
    values: dict[str, str]
    taken: str = ""


class Assignment(BaseModel):
    """A piece of work assigned to a student. ``minutes`` is the expected effort, if the data gives it.

    The id is the source's id, or else the course, the title and the due date. It never comes from the name of a file,
    so that next week's file has the same ids. Excused work is neither to be done nor missing. ``grade`` is the grade as
    the source writes it, if it is not a number of points: ``85%``, ``2+`` or ``B``.

    The model has no validators of its own, because the engine stores and loads such models several times as fast. The
    sources check the values.
    """

    id: str
    account: str
    course: str
    title: str
    kind: str = "ASSIGNMENT"
    due: AwareDatetime | None = None
    handed_in: bool = False
    handed_in_at: AwareDatetime | None = None
    graded_at: AwareDatetime | None = None
    late: bool = False
    excused: bool = False
    points: float | None = None
    max_points: float | None = None
    minutes: int | None = None
    grade: str = ""

    @property
    def score(self) -> float | None:
        """The grade from 0 to 1, or None if the work has no grade or no maximum. Bonus points do not count."""
        if self.points is None or self.max_points is None or self.max_points <= 0:
            return None
        return min(max(self.points / self.max_points, 0.0), 1.0)

    @property
    def is_graded(self) -> bool:
        """Whether the work has a grade of any kind."""
        return self.points is not None or bool(self.grade)

    @property
    def is_open(self) -> bool:
        """Whether the work is still to be done."""
        return not self.handed_in and not self.is_graded and not self.excused

    def is_overdue(self, now: datetime) -> bool:
        """Return whether the work is past its due date and was not handed in."""
        return self.is_open and self.due is not None and self.due < now


def key_of(title: str, due: date | None) -> str:
    """Return what identifies work without an id in its course: the title, and the due date if there is one.

    >>> key_of("Test", date(2030, 3, 5)), key_of("Test", None)
    ('Test (due 2030-03-05)', 'Test')
    """
    return title if due is None else f"{title} (due {due})"


def key_without_due(key: str) -> str:
    """Return a key without its due date.

    >>> key_without_due("Latin/Test (due 2030-03-05)"), key_without_due("Latin/Test")
    ('Latin/Test', 'Latin/Test')
    """
    return re.sub(r" \(due \d{4}-\d\d-\d\d\)$", "", key)


def subject_key(course: str) -> str:
    """Return the subject of a course. Courses with the same name are one subject, even across accounts."""
    return course.strip().casefold()


class Result(BaseModel):
    """One graded piece of work, for a chart."""

    at: AwareDatetime
    score: float


class SubjectMastery(BaseModel):
    """How well a student has mastered a subject. ``mastery`` is None without graded work."""

    subject: str
    mastery: float | None = Field(ge=0, le=1)
    confidence: float = Field(ge=0, le=1)
    graded: int = 0
    late: int = 0
    missing: int = 0
    trend: Literal["rising", "steady", "falling"] | None = None
    history: list[Result] = []

    @property
    def need(self) -> float:
        """How much attention the subject needs, from 0 to 1. It is 0.5 if nothing is known."""
        known = 0.5 if self.mastery is None else 1 - self.mastery
        return self.confidence * known + (1 - self.confidence) * 0.5


class SkillProfile(BaseModel):
    """The result of SkillMastery: the mastery of each subject."""

    subjects: list[SubjectMastery]
    overall: float | None = Field(default=None, ge=0, le=1)

    def level(self, subject: str) -> float | None:
        """Return the mastery of a subject, or None if it is unknown."""
        key = subject_key(subject)
        return next((each.mastery for each in self.subjects if subject_key(each.subject) == key), None)


class DailyPlanItem(BaseModel):
    """One sitting: the work, its start and end, and the reason for its place in the plan."""

    assignment_id: str
    course: str
    title: str
    start: AwareDatetime
    end: AwareDatetime
    due: AwareDatetime | None
    why: str

    @property
    def minutes(self) -> int:
        """The length of the sitting."""
        return round((self.end - self.start).total_seconds() / 60)


class Unplanned(BaseModel):
    """Work, or the remaining part of it, that does not fit into the plan."""

    assignment_id: str
    course: str
    title: str
    due: AwareDatetime | None
    minutes: int
    why: str


class DayLoad(BaseModel):
    """The load of a day in minutes: the free time within the daily limit, and the planned work."""

    start: AwareDatetime
    free: int
    planned: int


def in_danger(unplanned: Sequence[Unplanned], load: Sequence[DayLoad], now: datetime) -> list[Unplanned]:
    """Return the unplanned work that is due within the planned days. Work due later can still use later days."""
    end = load[-1].start + A_DAY if load else now
    return [each for each in unplanned if each.due is not None and now <= each.due <= end]


class Standing(StrEnum):
    """How far a piece of work is."""

    OPEN = "open"
    OVERDUE = "overdue"
    HANDED_IN = "handed in"
    EXCUSED = "excused"
    GRADED = "graded"


def standing(work: Assignment, now: datetime) -> Standing:
    """Return how far a piece of work is."""
    if work.is_graded:
        return Standing.GRADED
    if work.excused:
        return Standing.EXCUSED
    if work.handed_in:
        return Standing.HANDED_IN
    return Standing.OVERDUE if work.is_overdue(now) else Standing.OPEN


class LastReport(BaseModel):
    """What a session remembers of the student's previous one: how far each piece of work was, and the levels."""

    session_id: str
    as_of: AwareDatetime
    work: dict[str, Standing]
    profile: SkillProfile


class ParentReport(BaseModel):
    """The report of ParentInsight, and the paths of its files. Reports of earlier versions have no mail."""

    stress: Literal["low", "moderate", "high"]
    stress_because: str
    summary: list[str]
    markdown: Path
    html: Path
    mail: Path | None = None


def _without_zone(hour: time) -> time:
    if hour.tzinfo is not None:
        raise ValueError("The time of day has a UTC offset. Write a local time such as 15:00, and set time_zone.")
    return hour


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def _absolute_place(place: str) -> str:
    prefix = LIVE if place.startswith(LIVE) else ""
    return f"{prefix}{_absolute(Path(place.removeprefix(prefix)))}"


Hour = Annotated[time, AfterValidator(_without_zone)]

Place = Annotated[Path, AfterValidator(_absolute)]
"""An absolute path, so that a resume from another folder finds the file."""


class AuraState(BaseModel):
    """The state of a session: its settings and the results of each agent.

    ``time_zone`` is fixed when the session is created. Without ``now``, the start of the session counts. A resume on
    another day or machine therefore computes with the same values.
    """

    student_id: Annotated[str, Field(min_length=1, description="the student's id, e-mail address or name in the data")]
    data: list[Annotated[str, AfterValidator(_absolute_place)]] = Field(
        min_length=1, description="a Takeout, a folder with an export, a .csv file, or classroom:TOKEN.json"
    )
    calendar: Place | None = Field(default=None, description="an iCalendar file; its events are busy time")
    time_zone: Annotated[str, AfterValidator(known_zone)] = Field(
        default_factory=local_zone, validate_default=True, description="the time zone; by default this machine's"
    )
    now: Moment | None = Field(
        default=None, description="plan from this time; by default from the start of the session"
    )
    day_start: Hour = Field(default=time(15), description="no work before this time of day")
    day_end: Hour = Field(default=time(20), description="no work after this time of day")
    days: int = Field(default=7, ge=1, le=60, description="the number of days to plan")
    limit: int = Field(default=120, ge=15, le=960, description="the maximum minutes of work per day")
    reports: Place = Field(
        default_factory=lambda: _absolute(Path(".pausepoint", "aura")), description="the folder for the report"
    )
    language: Literal["en", "de"] = Field(default="en", description="the language of the report: en or de")
    name: Title = Field(default="", description="the student's name in the report; by default as in the data")
    mail_to: str = Field(default="", description="the address that the e-mail file is for")
    dates: Literal["day-first", "month-first"] | None = Field(
        default=None, description="how to read dates such as 3/4/2030 in .csv files"
    )
    previous: LastReport | None = Field(default=None, description="the previous report, which this one compares with")
    assignments: list[Assignment] = []
    skill_profile: SkillProfile | None = None
    daily_plan: list[DailyPlanItem] = []
    unplanned: list[Unplanned] = []
    load: list[DayLoad] = []
    advice: list[str] = []
    notes: list[str] = Field(default=[], description="what the small print of the report says about this session")
    report: ParentReport | None = None


class WorkflowState(AuraState):
    """A session as one document: its state, position and status. ``document["name"]`` equals ``document.name``.

    ``current_step``, ``status``, ``pause_requested`` and ``error`` are derived from the session.
    """

    session_id: str
    current_step: CurrentStep = CurrentStep.SYNCING
    status: Status = Status.CREATED
    pause_requested: bool = False
    error: str | None = None

    def __getitem__(self, name: str) -> Any:
        if name not in type(self).model_fields:
            raise KeyError(name)
        return getattr(self, name)
