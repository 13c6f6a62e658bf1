"""The state of a planner's session: the inputs and the results of each agent, also as one document.

Dates are days in the student's time zone; timestamps are in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime, time
from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, field_validator

from pausepoint.apps.input import known_zone
from pausepoint.apps.planner.dates import read_date
from pausepoint.apps.words import one_line

Stage = Literal[
    "created", "collecting_inputs", "ingesting", "estimating", "planning", "reviewing", "completed", "failed"
]  # fmt: skip
Weekday = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
WEEKDAYS: tuple[Weekday, ...] = get_args(Weekday)
Priority = Literal["high", "medium", "low"]
ResultType = Literal["approved_plan", "capacity_limited_plan", "needs_revision"]
Basis = Literal["outline", "heading", "model", "terms", "nothing"]
Role = Literal["book", "exercises", "old_exam"]
Difficulty = Literal["easy", "normal", "hard"]
Strategy = Literal["with_review", "without_review", "with_cuts"]
"""Plans of earlier versions may have ``without_review``; a new plan never omits its reviews."""

DEFAULT_MINUTES = 240
"""The default daily limit: four hours of work on one's own, beside lectures and a life."""

STEP = 5
"""Minutes come in steps of 5."""

PAGES_PER_CHUNK = 20
QUESTIONS = 3
"""A topic that a language model has read has so many questions."""


def _name(text: str) -> str:
    shown = one_line(text)
    if not 0 < len(shown) <= 300:
        raise ValueError("Give a name of 1 to 300 characters.")
    return shown


Title = Annotated[str, AfterValidator(_name)]
"""A name from the user or a file, on one line and without control characters."""


def _id(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", text):
        raise ValueError(
            f"{text!r} is not a valid id. Use up to 64 letters, digits or . _ -, and start with a letter or digit."
        )
    return text


Identifier = Annotated[str, AfterValidator(_id)]


def _day(given: object) -> object:
    return read_date(given) if isinstance(given, str) else given


Day = Annotated[date, BeforeValidator(_day)]
"""A day, as people write it."""


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


# user input


Pace = Annotated[float, Field(ge=0.2, le=5)]
"""The time that a person needs, as a multiple of the estimate."""


class Course(BaseModel):
    """A course. Without a date it can be stored, but not planned. ``exam``: what it covers, if it is not everything."""

    course_id: Identifier
    course_name: Title
    midterm_date: Day | None = None
    pace: Pace = 1.0
    exam: Annotated[str, AfterValidator(one_line), Field(max_length=1000)] = ""


def _window(text: str) -> str:
    found = re.fullmatch(r"\s*(\d{1,2})(?:[:.](\d\d))?\s*[-–]\s*(\d{1,2})(?:[:.](\d\d))?\s*", text)
    if found is None:
        raise ValueError(f"{text!r} is not a time of day. Write it like 16:00-20:00.")
    first, last = (int(found[at]) * 60 + int(found[at + 1] or 0) for at in (1, 3))
    if not (first < last <= 1440 and int(found[2] or 0) < 60 > int(found[4] or 0)):
        raise ValueError(f"{text!r} must begin before it ends, on the same day. Write it like 16:00-20:00.")
    return f"{first // 60:02}:{first % 60:02}-{last // 60:02}:{last % 60:02}"


Window = Annotated[str, AfterValidator(_window)]
"""A part of the day, such as ``16:00-20:00``."""


class SharedConstraints(BaseModel):
    """The limits that apply to every day. ``study_hours`` has windows by weekday; other weekdays are then free."""

    max_minutes_per_day: int | None = Field(default=None, ge=1, le=1440)
    preferred_rest_day: Weekday | None = None
    pace: Pace = 1.0
    study_hours: dict[Weekday, list[Window]] = {}

    @property
    def limit(self) -> int:
        """The maximum minutes of work per day."""
        return self.max_minutes_per_day or DEFAULT_MINUTES


class Busy(BaseModel):
    """A time without study, from a calendar."""

    start: datetime
    end: datetime


class OwnEstimate(BaseModel):
    """The user's own estimate of a topic. It replaces the one of EstimationAgent, and no pace changes it."""

    course_id: str
    topic: str
    minutes: int = Field(ge=5, le=100_000)


class Progress(BaseModel):
    """A part of a topic that the user has done or skipped.

    ``first`` and ``last`` are the extent of the section in thousandths. ``minutes`` is the time in the plan.
    """

    course_id: str
    topic: str
    section: str = ""
    first: int = 0
    last: int = 1000
    status: Literal["done", "skipped"]
    on: date
    minutes: int = 0
    row_id: str = ""


class UserInputs(BaseModel):
    """The user's inputs. Without ``start_date``, the plan starts on the day the session was created.

    ``busy_until`` is the last day that the calendar of the busy times was read for, ``busy_skipped`` the number of its
    events that could not be read.
    """

    timezone: Annotated[str, AfterValidator(known_zone)] = "UTC"
    start_date: Day | None = None
    courses: list[Course] = []
    shared_constraints: SharedConstraints = SharedConstraints()
    busy: list[Busy] = []
    busy_until: date | None = None
    busy_skipped: int = 0
    own_estimates: list[OwnEstimate] = []
    progress: list[Progress] = []

    @field_validator("courses")
    @classmethod
    def each_course_once(cls, courses: list[Course]) -> list[Course]:
        ids: set[str] = set()
        names: dict[str, str] = {}
        for course in courses:
            if course.course_id in ids:
                raise ValueError(f"course_id {course.course_id!r} occurs twice. Give every course its own id.")
            other = names.setdefault(course.course_name.casefold(), course.course_id)
            if other != course.course_id:
                raise ValueError(
                    f"{course.course_name!r} is the name of both {other!r} and {course.course_id!r}. Rename one."
                )
            ids.add(course.course_id)
        return courses

    @property
    def last_midterm(self) -> date | None:
        """The latest of all midterms."""
        return max((course.midterm_date for course in self.courses if course.midterm_date), default=None)


class Upload(BaseModel):
    """A file that the session takes in when it starts. ``title``: the one that the plan shows instead of its own.

    A chapter of a ``book`` is one of several files. ``name`` is then its path in the folder of the book. Without a
    ``role`` the file is a book, or what it was before. ``chapter``: the one that exercises belong to.
    """

    path: Annotated[Path, AfterValidator(_absolute)]
    course_ids: list[str] = []
    is_shared: bool = False
    book: str = ""
    name: str = ""
    title: str = ""
    role: Role | None = None
    chapter: str = ""

    @property
    def filename(self) -> str:
        """The name under which the session knows the file."""
        return one_line(self.name or self.path.name) or "file"


class FileEntry(BaseModel):
    """A file of the session. A shared file belongs to all courses. ``title`` is empty if the file has none.

    A file of a ``book`` is one of its chapters, in the order of the registry. ``chapter`` is the one that the user
    names for exercises; otherwise it is found by their words.
    """

    filename: str
    content_type: str
    size_bytes: int
    storage_uri: str
    sha256: str
    upload_status: Literal["uploading", "uploaded"]
    course_ids: list[str] = []
    is_shared: bool = False
    book: str = ""
    title: str = ""
    role: Role = "book"
    chapter: str = ""


# results of the agents


class Chunking(BaseModel):
    """How a file is divided into chunks."""

    mode: Literal["page_window"] = "page_window"
    max_pages_per_chunk: int = PAGES_PER_CHUNK
    total_chunks: int = 0


class FileProgress(BaseModel):
    """The progress of reading a file. ``warning`` is set when the user accepts a partial file."""

    chunking: Chunking = Chunking()
    processed_chunks: int = 0
    failed_chunks: list[int] = []
    status: Literal["pending", "partial", "complete", "failed"] = "pending"
    last_error: str | None = None
    warning: str | None = None


class Section(BaseModel):
    """A part of a topic: what a student can read at a time. Pages count from 1, as a PDF viewer shows them."""

    title: Title
    number: str = ""
    filename: str = ""
    first_page: int | None = None
    last_page: int | None = None
    words: int = 0
    signs: int = 0
    tasks: int = 0
    role: Role = "book"
    duration: int = Field(default=0, description="the minutes that an old exam says it takes")


class SetAside(BaseModel):
    """A part of a file that is not studied: its contents, its index, its licence, or pages without text."""

    filename: str
    title: Title
    first_page: int | None = None
    last_page: int | None = None
    why: str


class Measure(BaseModel):
    """How much there is to learn about a topic, and how the topic was found.

    ``signs`` counts mathematical signs and numbers. ``tasks`` counts exercises and examples.
    """

    pages: int = 0
    words: int = 0
    signs: int = 0
    tasks: int = 0
    basis: Basis = "nothing"
    exams: int = Field(default=0, description="how many old exams its course has")
    asked: int = Field(default=0, description="how many of them ask about it")
    missing: float = Field(default=0.0, ge=0, le=1, description="the share of its files that could not be read")
    filenames: list[str] = []
    titles: dict[str, str] = Field(default={}, description="how the plan names its files, by their names")
    sections: list[Section] = []


class Study(BaseModel):
    """What a language model says about a topic. ``prerequisites`` are earlier topics of the course."""

    difficulty: Difficulty = "normal"
    prerequisites: list[str] = []
    questions: list[str] = []

    @classmethod
    def joined(cls, studies: Sequence[Study]) -> Study:
        """Return one study of several parts: the hardest part counts, and each part has its questions in turn."""
        in_turn = chain.from_iterable(zip_longest(*(each.questions for each in studies)))
        return cls(
            difficulty=max((each.difficulty for each in studies), key=get_args(Difficulty).index),
            prerequisites=list(dict.fromkeys(name for each in studies for name in each.prerequisites)),
            questions=list(dict.fromkeys(each for each in in_turn if each))[:QUESTIONS],
        )


class Evidence(BaseModel):
    """A topic of a course, and where it was found. Topics of a course are in the order of the book.

    ``study`` is null if no language model has read the topic.
    """

    course_id: str
    topic: Title
    evidence_summary: str
    source_files: list[str] = []
    source_chunks: list[str] = []
    measure: Measure = Measure()
    study: Study | None = None


class IngestionState(BaseModel):
    """The results of IngestionAgent. ``warnings`` say what a language model has not done."""

    files: dict[str, FileProgress] = {}
    course_topic_evidence: list[Evidence] = []
    set_aside: list[SetAside] = []
    warnings: list[str] = []


class SectionEstimate(BaseModel):
    """The estimate for a section. ``section`` is its name within the topic: its number and title.

    ``book`` is the title of its file, or empty if the file has none. ``role`` is that of its file.
    """

    section: str
    number: str = ""
    title: str = ""
    filename: str = ""
    book: str = ""
    role: Role = "book"
    first_page: int | None = None
    last_page: int | None = None
    minutes: int = Field(ge=0)


class TopicEstimate(BaseModel):
    """The estimate for a topic. ``source_files`` are file names, for the plan. Sections are in reading order."""

    course_id: str
    topic: Title
    estimated_minutes: int = Field(gt=0)
    priority: Priority
    confidence: float = Field(ge=0, le=1)
    source_files: list[str] = []
    sections: list[SectionEstimate] = []


class EstimationState(BaseModel):
    """The results of EstimationAgent."""

    topic_estimates: list[TopicEstimate] = []
    uncertainty_flags: list[str] = []


class RowPart(BaseModel):
    """A part of a topic in a row. ``first`` and ``last`` are the extent of the section in thousandths."""

    topic: str
    section: str = ""
    first: int = 0
    last: int = 1000
    minutes: int = 0


class PlanRow(BaseModel):
    """One entry of the plan: work, a midterm, or a day without work.

    ``row_id`` names the course, topic and section where the row begins, so it is the same in the next plan.
    ``sequence`` rises when a later plan changes the row, or when its mark is removed.
    """

    date: date
    course: str
    topic: str
    task_description: str
    estimated_minutes: int = Field(ge=0)
    priority: Priority
    source_files: list[str] = []
    status: Literal["planned"] = "planned"
    starts_at: time | None = None
    parts: list[RowPart] = []
    row_id: str = ""
    sequence: int = 0


class Cut(BaseModel):
    """A topic or a review that has less time than it needs, because there is no more."""

    course_id: str
    topic: str
    needed_minutes: int
    planned_minutes: int


class ValidationReport(BaseModel):
    """The results of the reviewer's checks."""

    coverage_ok: bool
    date_range_ok: bool
    load_balance_ok: bool


class Review(BaseModel):
    """The reviewer's verdict. For a capacity-limited plan, ``revision_reasons`` lists the cuts."""

    result_type: ResultType
    revision_reasons: list[str] = []
    validation_report: ValidationReport


class PlanningState(BaseModel):
    """The results of PlanningReviewerAgent. ``planned_for`` contains the inputs that the plan was made for.

    ``withdrawn`` has the rows of earlier plans that no later plan has, so that a calendar can remove them and their
    sequence numbers are known if they come back. ``added`` has the ids of the rows that no earlier plan had.
    ``enough_minutes`` is the daily limit with which nothing would be cut, if there is one.
    """

    plan_version: int = 0
    last_midterm_date: date | None = None
    plan_rows: list[PlanRow] = []
    review: Review | None = None
    strategy: Strategy = "with_review"
    planned_for: UserInputs | None = None
    cuts: list[Cut] = []
    withdrawn: list[PlanRow] = []
    added: list[str] = []
    made_at: datetime | None = None
    enough_minutes: int | None = None


class Artifacts(BaseModel):
    """The paths of the finished plan."""

    markdown_path: str | None = None
    csv_path: str | None = None
    calendar_path: str | None = None
    page_path: str | None = None


class PlannerState(BaseModel):
    """The state of a session, as its steps see it."""

    status: Stage = "created"
    user_inputs: UserInputs = UserInputs()
    uploads: list[Upload] = []
    file_registry: dict[str, FileEntry] = {}
    ingestion_state: IngestionState = IngestionState()
    estimation_state: EstimationState = EstimationState()
    planning_state: PlanningState = PlanningState()
    artifacts: Artifacts = Artifacts()


# the whole document


class EventEntry(BaseModel):
    """One event of the history."""

    timestamp: datetime
    agent_name: str
    event_type: str
    summary: str


class SessionDocument(BaseModel):
    """A session as one document: its identity, times and events, and its state."""

    session_id: str
    created_at: datetime
    updated_at: datetime
    status: Stage
    user_inputs: UserInputs
    file_registry: dict[str, FileEntry]
    ingestion_state: IngestionState
    estimation_state: EstimationState
    planning_state: PlanningState
    artifacts: Artifacts
    events: list[EventEntry]


class Payload(BaseModel):
    """The input of an agent. It always contains the session id."""

    session_id: str = Field(min_length=1)


class IngestionPayload(Payload):
    """The input of IngestionAgent."""

    user_inputs: UserInputs
    file_registry: dict[str, FileEntry]


class EstimationPayload(Payload):
    """The input of EstimationAgent."""

    course_topic_evidence: list[Evidence]


class PlanningPayload(Payload):
    """The input of PlanningReviewerAgent. ``start`` is the first day of the plan, ``now`` the time of planning."""

    user_inputs: UserInputs
    estimation_state: EstimationState
    planning_state: PlanningState
    start: date
    now: datetime | None = None
