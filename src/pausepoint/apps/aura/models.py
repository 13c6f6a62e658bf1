"""What Aura's agents hand to each other, and the state of its sessions.

All moments are aware and kept in UTC; they are shown in the time zone that the state names.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, Field

from pausepoint import Status
from pausepoint.apps.input import known_zone, local_zone
from pausepoint.apps.words import one_line

LIVE = "classroom:"
"""What stands before the token of an account on the live API."""

A_DAY = timedelta(days=1)


Title = Annotated[str, AfterValidator(one_line)]
"""A name that somebody else gave to something."""


def in_utc(moment: datetime) -> datetime:
    """A moment in UTC. One at the very end of the calendar is refused: in another time zone it would lie behind it."""
    try:
        found = moment.astimezone(UTC)
    except OverflowError:
        found = datetime.max
    if not 1 < found.year < 9999:
        raise ValueError("it lies outside of the years 2 to 9998")
    return found


Moment = Annotated[AwareDatetime, AfterValidator(in_utc)]


class CurrentStep(StrEnum):
    """Where a session is: the step that comes next, or the end."""

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


class Assignment(BaseModel):
    """One piece of work that a student was given. ``minutes``: how long it takes, if somebody said so."""

    id: str
    account: str
    course: Title
    title: Title
    kind: str = "ASSIGNMENT"
    due: AwareDatetime | None = None
    handed_in: bool = False
    handed_in_at: AwareDatetime | None = None
    graded_at: AwareDatetime | None = None
    late: bool = False
    points: float | None = None
    max_points: float | None = None
    minutes: Annotated[int, Field(gt=0)] | None = None

    @property
    def score(self) -> float | None:
        """From 0 to 1; None without a grade, or where no points can be had. More than all points count as all."""
        if self.points is None or self.max_points is None or self.max_points <= 0:
            return None
        return min(max(self.points / self.max_points, 0.0), 1.0)

    @property
    def is_open(self) -> bool:
        """Whether there is still something to do."""
        return not self.handed_in and self.points is None

    def is_overdue(self, now: datetime) -> bool:
        """Whether it should have been handed in by now, and was not."""
        return self.is_open and self.due is not None and self.due < now


def subject_key(course: str) -> str:
    """Courses of the same name are one subject, whichever account they belong to."""
    return course.strip().casefold()


class Result(BaseModel):
    """One graded piece of work, for a chart."""

    at: AwareDatetime
    score: float


class SubjectMastery(BaseModel):
    """How well a subject is mastered. ``mastery`` is None as long as there is nothing to tell it from."""

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
        """How much the subject needs attention, from 0 to 1: 0.5 as long as nothing is known."""
        known = 0.5 if self.mastery is None else 1 - self.mastery
        return self.confidence * known + (1 - self.confidence) * 0.5


class SkillProfile(BaseModel):
    """What SkillMastery found."""

    subjects: list[SubjectMastery]
    overall: float | None = Field(default=None, ge=0, le=1)

    def need(self, subject: str) -> float:
        """The need of a subject; 0.5 for one that nothing is known about."""
        key = subject_key(subject)
        return next((each.need for each in self.subjects if subject_key(each.subject) == key), 0.5)


class DailyPlanItem(BaseModel):
    """One sitting: which work, from when to when, and why then."""

    assignment_id: str
    course: str
    title: str
    start: AwareDatetime
    end: AwareDatetime
    due: AwareDatetime | None
    why: str

    @property
    def minutes(self) -> int:
        """How long it is."""
        return round((self.end - self.start).total_seconds() / 60)


class Unplanned(BaseModel):
    """Work, or the rest of it, that has no place in the plan."""

    assignment_id: str
    course: str
    title: str
    due: AwareDatetime | None
    minutes: int
    why: str


class DayLoad(BaseModel):
    """How full a day is, in minutes: what the calendar leaves free within the limit, and what is planned."""

    start: AwareDatetime
    free: int
    planned: int


def in_danger(unplanned: Sequence[Unplanned], load: Sequence[DayLoad], now: datetime) -> list[Unplanned]:
    """What is due within the planned days and will not be finished in time. What is due later has other days, too."""
    end = load[-1].start + A_DAY if load else now
    return [each for each in unplanned if each.due is not None and now <= each.due <= end]


class ParentReport(BaseModel):
    """What ParentInsight wrote, and where it lies."""

    stress: Literal["low", "moderate", "high"]
    stress_because: str
    summary: list[str]
    markdown: Path
    html: Path


def _without_zone(hour: time) -> time:
    if hour.tzinfo is not None:
        raise ValueError("it is a time of day where the student lives, such as 15:00; its zone is time_zone")
    return hour


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def _seen_from_everywhere(place: str) -> str:
    prefix = LIVE if place.startswith(LIVE) else ""
    return f"{prefix}{_absolute(Path(place.removeprefix(prefix)))}"


Hour = Annotated[time, AfterValidator(_without_zone)]

Place = Annotated[Path, AfterValidator(_absolute)]
"""Kept absolute, so that a resume from another folder finds it."""


class AuraState(BaseModel):
    """The state of a session: what it was asked, and what each agent left.

    ``time_zone`` is settled when the session is made, and without ``now`` the start of the session counts, so that a
    resume on another day or machine computes with the same.
    """

    student_id: Annotated[str, Field(min_length=1, description="the student's id or e-mail address in the data")]
    data: list[Annotated[str, AfterValidator(_seen_from_everywhere)]] = Field(
        min_length=1, description="a folder with an export, a .csv file, or classroom:TOKEN.json"
    )
    calendar: Place | None = Field(default=None, description="an iCalendar file; what is in it is not free")
    time_zone: Annotated[str, AfterValidator(known_zone)] = Field(
        default_factory=local_zone, validate_default=True, description="by default that of this machine"
    )
    now: Moment | None = Field(
        default=None, description="plan from this moment; by default from the start of the session"
    )
    day_start: Hour = Field(default=time(15), description="no work before this time of day")
    day_end: Hour = Field(default=time(20), description="no work after this time of day")
    days: int = Field(default=7, ge=1, le=60, description="how many days to plan")
    limit: int = Field(default=120, ge=15, le=960, description="at most so many minutes of work a day")
    reports: Place = Field(
        default_factory=lambda: _absolute(Path(".pausepoint", "aura")), description="the folder for the report"
    )
    assignments: list[Assignment] = []
    skill_profile: SkillProfile | None = None
    daily_plan: list[DailyPlanItem] = []
    unplanned: list[Unplanned] = []
    load: list[DayLoad] = []
    advice: list[str] = []
    report: ParentReport | None = None


class WorkflowState(AuraState):
    """A session as one document: its state, position and status. ``document["name"]`` is ``document.name``.

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
