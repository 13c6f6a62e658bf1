"""The JSON documents of the API. Those that the command line prints too are in the engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pausepoint.clock import to_datetime
from pausepoint.engine.documents import (
    AskedQuestion,
    DamagedDocument,
    FinishingDocument,
    PauseDocument,
    SessionDocument,
    damaged,
)
from pausepoint.engine.documents import standing_pause as whole_standing_pause
from pausepoint.engine.history_documents import EventsDocument
from pausepoint.engine.store_documents import (
    BulkItemDocument,
    CheckDocument,
    HealthDocument,
    HolderDocument,
    WorkflowSummary,
)
from pausepoint.model.descriptions import Description
from pausepoint.model.documents import Document, Moment
from pausepoint.model.views import QueueInfo
from pausepoint.server.problems import ProblemDocument
from pausepoint.server.roles import Role
from pausepoint.server.words import with_requests

if TYPE_CHECKING:
    from pausepoint.engine.spans import Part, Span, Totals
    from pausepoint.model.questions import Question
    from pausepoint.model.schemas import File
    from pausepoint.model.stores import Holder, Tombstone
    from pausepoint.model.views import Listing, Misfit, SessionInfo, StandingPause
    from pausepoint.server.people import Person

LARGE = 64 * 2**10
"""A field of a state that takes more bytes is left out, and has an address of its own."""

PARTS = 200
"""The most operations and waits of one visit that are listed."""

# engines


class EngineDocument(Document):
    """An engine that has the store open. The sessions that it holds may belong to others, and are left out."""

    pid: int
    host: str
    since: Moment


class DriverDocument(Document):
    """The open engines that pick up the sessions of a workflow. If there are none, ``advice`` says what to do."""

    workflow: str
    engines: Sequence[EngineDocument]
    advice: str | None


def engines(holders: Iterable[Holder], workflow: str) -> list[EngineDocument]:
    """Return the open engines that pick up sessions of a workflow."""
    return [
        EngineDocument.of(holder, since=to_datetime(holder.since)) for holder in holders if workflow in holder.workflows
    ]


def driver(workflow: str, holders: Iterable[Holder]) -> DriverDocument:
    """Return the open engines that pick up sessions of a workflow, and what to do if there are none."""
    picks_up = engines(holders, workflow)
    advice = None if picks_up else f"No engine drives {workflow!r}. Start `pausepoint worker`."
    return DriverDocument(workflow, picks_up, advice)


# questions


class ReceiptDocument(Document):
    """The answer that counts."""

    session_id: str
    question_id: str | None
    key: str | None
    version: int
    by: str | None
    channel: str
    answered_at: Moment


class HttpQuestion(AskedQuestion):
    """A question with what a form needs.

    Send ``digest`` as ``seen`` with the answer. ``receipt`` is the answer that counts.
    """

    n: int
    receipt: ReceiptDocument | None

    @classmethod
    def of(cls, record: Question, **fields: Any) -> Self:
        receipt = None if record.receipt is None else ReceiptDocument.of(record.receipt)
        return super().of(record, receipt=receipt, **fields)


class QuestionPage(Document):
    """Questions. Send ``next`` as ``after``, with the same sort and filters, to get more."""

    questions: Sequence[HttpQuestion]
    next: str | None
    damaged: Sequence[DamagedDocument]


# sessions


class HeadDocument(SessionDocument):
    """A session's facts.

    ``etag`` marks them: send it as If-Match with a change. ``pause`` is the first open pause. ``kept_by`` is the
    process that keeps the step of a paused session in memory.
    """

    seq: int
    fence: int
    signals: int
    kept_by: str | None
    etag: str

    @classmethod
    def of(cls, record: SessionInfo, **fields: Any) -> Self:
        return super().of(record, etag=etag(record), **fields)


class HandedOver(HeadDocument):
    """A session's facts after a start, resume or fork.

    ``drivers`` is there if this server does not drive the session: the engines that pick it up.
    """

    drivers: Sequence[DriverDocument] | UnsetType = UNSET


class ImportedSession(HeadDocument):
    """The facts of a session that was imported. ``sha256`` is the digest of its bundle."""

    sha256: str


class HeadsDocument(Document):
    """Sessions.

    ``next`` is the cursor of the next page, or null. ``total`` is the number of all matches, if ``count`` was asked
    for.
    """

    sessions: Sequence[HeadDocument]
    next: str | None
    damaged: Sequence[DamagedDocument]
    total: int | UnsetType = UNSET


class OriginDocument(Document):
    """The session and the record that a fork comes from."""

    session_id: str
    seq: int


class AgentNoteDocument(Document):
    """Of an agent started by hand: the tool call that it waits to make, and what it has left running.

    ``prompt`` is what its person has told it last, and ``folder``, ``branch`` and ``terminal`` are where.
    """

    call: str
    background: str
    prompt: str
    folder: str
    branch: str
    terminal: str


class SessionPage(HeadDocument):
    """A session. An answerer gets only its facts."""

    pauses: Sequence[PauseDocument] | UnsetType = UNSET
    questions: Sequence[HttpQuestion] | UnsetType = UNSET
    origin: OriginDocument | UnsetType | None = UNSET
    description: Description | UnsetType = UNSET
    agent: AgentNoteDocument | UnsetType | None = UNSET


class RefusalDocument(Document):
    """A session that a bulk verb could not treat, and why."""

    session_id: str
    problem: ProblemDocument


class BulkResultDocument(Document):
    """What a bulk verb did, or would do.

    ``refused`` has a problem for each session that it could not treat. ``drivers`` are the engines that pick up resumed
    sessions, by workflow.
    """

    verb: str
    dry_run: bool
    done: Sequence[BulkItemDocument]
    skipped: Sequence[BulkItemDocument]
    refused: Sequence[RefusalDocument]
    drivers: Sequence[DriverDocument]


class TombstoneDocument(Document):
    """What is left of a removed session."""

    session_id: str
    workflow: str
    owner: str | None
    status: str
    by: str | None
    reason: str
    created_at: Moment
    removed_at: Moment


class MisfitDocument(Document):
    """A parked session that cannot be resumed, the reasons, and what to do."""

    session: HeadDocument
    reasons: Sequence[str]
    ways: Sequence[str]


class MisfitsDocument(Document):
    """Parked sessions that cannot be resumed with the code of this server, the reasons, and what to do.

    Send ``next`` as ``after`` to examine the next sessions. Workflows whose code this server does not have are left
    out.
    """

    misfits: Sequence[MisfitDocument]
    next: str | None
    damaged: Sequence[DamagedDocument]


def etag(info: SessionInfo) -> str:
    """Return the mark of a session's present facts, for If-Match and If-None-Match."""
    return f'"{info.seq}.{info.signals}.{info.fence}"'


def heads(infos: Listing[SessionInfo], total: int | None = None) -> HeadsDocument:
    """Return a list of sessions. ``next`` is the cursor of the next page."""
    sessions = [HeadDocument.of(info) for info in infos]
    return HeadsDocument(sessions, infos.next, damaged(infos.damaged), UNSET if total is None else total)


def misfit(record: Misfit) -> MisfitDocument:
    """Return a session that does not fit the present code, the reasons, and what to do."""
    ways = [with_requests(way, record.session.session_id) for way in record.ways]
    return MisfitDocument(HeadDocument.of(record.session), record.reasons, ways)


def tombstone(record: Tombstone) -> TombstoneDocument:
    """Return what is left of a removed session."""
    times = {"created_at": to_datetime(record.created_at), "removed_at": to_datetime(record.removed_at)}
    return TombstoneDocument.of(record, **times)


# history and state


class EventPage(EventsDocument):
    """Events, oldest first. ``next`` is the cursor to continue after."""

    next: str


class AttemptDocument(Document):
    """An attempt that failed. ``again_at`` is the time of the next one; null if the session failed.

    ``began_at`` is estimated until the operation has ended.
    """

    began_at: Moment
    ended_at: Moment
    error: str
    again_at: Moment | None


class PartDocument(Document):
    """Something inside a visit.

    ``ended_at`` is null while it is open, and for a map. ``retries`` counts the attempts that failed, and ``error`` is
    the last failure; ``failed`` are the last ten. ``total`` is the number of a map's items. ``label`` is the key of an
    operation, or the beginning of its arguments.
    """

    id: str
    kind: Literal["operation", "map", "timer", "question", "child"]
    name: str
    began_at: Moment
    ended_at: Moment | None
    retries: int
    error: str
    total: int
    label: str
    failed: Sequence[AttemptDocument]


class SpanDocument(Document):
    """One visit of a step.

    ``seq`` is the number of the record that ended it, 0 while it is open. ``took_seconds`` is the time that its code
    ran. ``left_behind``: a rewind has undone it. ``failed`` are the last ten attempts at the step that failed.
    ``parts`` are its first 200 operations, maps and waits, of ``part_count``.
    """

    step: str
    visit: int
    seq: int
    began_at: Moment
    ended_at: Moment | None
    took_seconds: float
    attempts: int
    skipped: str
    usd: float
    tokens: int
    left_behind: bool
    failed: Sequence[AttemptDocument]
    parts: Sequence[PartDocument]
    part_count: int


class SpansDocument(Document):
    """Visits, oldest first. The open one comes last.

    Send the ``seq`` of the first one as ``before`` to get earlier ones, and one more than that of the last one as
    ``at`` to get later ones.
    """

    session_id: str
    spans: Sequence[SpanDocument]


class TotalDocument(Document):
    """What a step, or an operation, has done in a session.

    ``count`` visits or calls have ended; a rewind has undone ``undone`` others, which count as cost only.
    ``longest_at``, ``first`` and ``last`` are numbers of records. ``failures`` counts attempts that failed, for a step
    also those of its operations.
    """

    name: str
    count: int
    undone: int
    took_seconds: float
    longest_seconds: float
    longest_at: int
    first: int
    last: int
    failures: int
    usd: float
    tokens: int


class TotalsDocument(Document):
    """A session as a whole: what has ended, without open visits and waits.

    ``visits`` and ``took_seconds`` leave out what a rewind has undone. ``earlier`` visits, undone ones among them,
    ended before the record ``before``. ``operations`` are at most 200, the longest first.
    """

    session_id: str
    visits: int
    took_seconds: float
    earlier: int
    steps: Sequence[TotalDocument]
    operations: Sequence[TotalDocument]


class StateDocument(Document):
    """A state. A large field is replaced by its size in bytes and its address."""

    session_id: str
    seq: int
    values: dict[str, Any]


class FieldDocument(Document):
    """One field of a state."""

    session_id: str
    seq: int
    field: str
    value: Any


class FileDocument(Document):
    """A file of a session. Its place on the server's disk is left out."""

    file_id: str
    filename: str
    content_type: str
    size_bytes: int
    sha256: str
    upload_status: Literal["uploading", "uploaded"]
    created_at: str
    metadata: dict[str, Any]
    reused: bool

    @classmethod
    def of(cls, record: File, **fields: Any) -> Self:
        return cls(**record.model_dump(mode="json", exclude={"storage_uri"}), **fields)


class FilesDocument(Document):
    """The files of a session."""

    session_id: str
    files: Sequence[FileDocument]


def spans(session_id: str, visits: Sequence[Span]) -> SpansDocument:
    """Return visits as the bars of a chart, oldest first."""
    return SpansDocument(session_id, [
        SpanDocument.of(
            visit, took_seconds=visit.took, failed=_failed(visit),
            parts=[PartDocument.of(part, failed=_failed(part)) for part in visit.parts[:PARTS]],
            part_count=len(visit.parts),
        )
        for visit in visits
    ])  # fmt: skip


def _failed(record: Span | Part) -> list[AttemptDocument]:
    return [AttemptDocument.of(attempt) for attempt in record.failed]


def totals(session_id: str, found: Totals) -> TotalsDocument:
    """Return what each step and each operation of a session has done."""
    steps, operations = (
        [TotalDocument.of(each, took_seconds=each.took, longest_seconds=each.longest) for each in some]
        for some in (found.steps, found.operations)
    )
    return TotalsDocument(session_id, found.visits, found.took.total_seconds(), found.earlier, steps, operations)


def state(session_id: str, seq: int, values: dict[str, Any], base: str, at: str | None) -> StateDocument:
    """Return a state. Large fields are replaced by their size and address."""
    query = "" if at is None else f"?at={quote(at, safe='')}"
    shown = {}
    for name, value in values.items():
        size = len(msgspec.json.encode(value))
        shown[name] = value if size <= LARGE else {"large": size, "href": f"{base}/state/{quote(name, safe='')}{query}"}
    return StateDocument(session_id, seq, shown)


# what is going on


class VisiblePause(PauseDocument):
    """The pause of everything. A person who sees the sessions of one owner only is not shown how it took effect."""

    asked: int | UnsetType = UNSET
    stopped: int | UnsetType = UNSET
    finishing: Sequence[FinishingDocument] | UnsetType = UNSET
    longest_seconds: float | UnsetType | None = UNSET


class StandingDocument(Document):
    """The pause of everything, or null. After a change, ``sessions`` are the first that it concerns."""

    standing_pause: VisiblePause | None
    sessions: Sequence[HeadDocument] | UnsetType = UNSET


class NowDocument(Document):
    """What is going on.

    ``mark`` is the position in the stream. At most 50 sessions are in each list; ``paused`` are those with a pause of
    their own. ``standing_pause`` and ``engines`` have less in them for a person who sees the sessions of one owner
    only.
    """

    mark: str
    counts: Annotated[dict[str, dict[str, int]], Meta(description="The number of sessions by workflow and status.")]
    failures: Annotated[
        dict[str, int],
        Meta(description="The number of sessions that have failed, by workflow, even if they are paused."),
    ]
    questions: int
    running: Sequence[HeadDocument]
    paused: Sequence[HeadDocument]
    failed: Sequence[HeadDocument]
    waking: Sequence[HeadDocument]
    spending: Annotated[
        dict[str, float],
        Meta(description="The dollars that were spent, by workflow. A session's figure includes its children's."),
    ]
    spent_usd: float
    standing_pause: VisiblePause | None
    engines: Sequence[HolderDocument]


def standing_pause(record: StandingPause | None, person: Person) -> VisiblePause | None:
    """Return the pause of everything. How it took effect is only for people who see all sessions."""
    if record is None:
        return None
    effect = ("asked", "stopped", "finishing", "longest_seconds")
    whole = whole_standing_pause(record)
    return VisiblePause.of(record, **{name: getattr(whole, name) if person.sees_all else UNSET for name in effect})


# workflows and queues


class DrivenWorkflow(WorkflowSummary):
    """A workflow. ``drives``: this server drives it; ``engines`` are all that do."""

    drives: bool
    engines: Sequence[EngineDocument]


class HttpWorkflows(Document):
    """The workflows that this server or its store knows, and the number of their sessions.

    ``version`` is null if a workflow was never described.
    """

    workflows: Sequence[DrivenWorkflow]


class HttpWorkflow(Description, frozen=True, kw_only=True):
    """A workflow, without its code. ``drives``: this server drives it; ``engines`` are all that do."""

    drives: bool
    engines: Sequence[EngineDocument]


class QueuesDocument(Document):
    """The queues that have sessions ready or at work, or a limit. ``ready`` sessions wait for an engine or a slot."""

    queues: Sequence[QueueInfo]


# the store and the server


class StoreDocument(HealthDocument):
    """The store, its disk, the engines that have it open, and what needs attention."""

    checks: Sequence[CheckDocument]


class JobDocument(Document):
    """A long job. ``result`` is a ``verification`` or a ``clean_up``."""

    job: int
    kind: str
    status: Literal["running", "done", "failed"] = "running"
    result: dict[str, Any] | None = None
    problem: ProblemDocument | None = None


class MeDocument(Document):
    """The signed-in person."""

    name: str
    role: Role
    owner: str | None
    question: str | None


class Openapi(Document):
    """This description."""

    openapi: str
    paths: dict[str, Any]
