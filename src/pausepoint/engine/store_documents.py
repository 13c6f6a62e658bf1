"""The JSON documents about a store as a whole: schedules, limits, health, bulk verbs, checks, clean-ups and moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, field

from pausepoint.clock import to_datetime
from pausepoint.engine.documents import (
    DamagedDocument,
    PauseDocument,
    SessionDocument,
    StandingPauseDocument,
    damaged,
    standing_pause,
)
from pausepoint.model.bulk import BulkResult, BulkVerb
from pausepoint.model.documents import Document, Moment
from pausepoint.model.limits import LimitKey, Scope
from pausepoint.model.schedules import CatchUp, Overlap
from pausepoint.model.sessions import Status

if TYPE_CHECKING:
    from pausepoint.engine.bundle import Bundle
    from pausepoint.engine.copies import Move
    from pausepoint.engine.redaction import Redaction
    from pausepoint.engine.retention import CleanUp
    from pausepoint.engine.verify import Verification
    from pausepoint.errors import DamagedRecord
    from pausepoint.model.bulk import BulkItem, BulkReport
    from pausepoint.model.descriptions import Description
    from pausepoint.model.schedules import ScheduleInfo
    from pausepoint.model.sessions import Pause
    from pausepoint.model.stores import Holder
    from pausepoint.model.views import Health, LimitInfo, Listing, SessionInfo, StandingPause

# schedules


class ScheduleDocument(Document):
    """When sessions of a workflow start on their own."""

    name: str
    workflow: str
    cron: str
    zone: str
    overlap: Overlap
    catch_up: CatchUp
    input: Annotated[dict[str, Any], Meta(description="The given fields of each session's input.")]
    owner: str | None
    tags: Sequence[str]
    created_at: Moment
    by: str | None
    next_at: Annotated[Moment | None, Meta(description="Null while the schedule is paused.")]
    triggered_at: Moment | None
    paused_at: Moment | None
    paused_by: str | None
    last_at: Moment | None
    last_session_id: str | None
    skipped: Annotated[
        int, Meta(description="The runs that were left out, because the previous session had not ended.")
    ]
    queue: Annotated[str | None, Meta(description="Null for the queue of the workflow.")]
    priority: Annotated[int | None, Meta(description="Null for the priority of the workflow.")]
    lane: Annotated[str | None, Meta(description="Null for the owner.")]


class DamagedSchedule(Document):
    """A schedule that cannot be read."""

    name: str
    message: str


class SchedulesDocument(Document):
    """All schedules of a store."""

    schedules: Sequence[ScheduleDocument]
    damaged: Sequence[DamagedSchedule]


class ScheduleChanged(Document):
    """A schedule after a change, and the id of the session that a trigger starts."""

    schedule: ScheduleDocument
    session_id: str | None


class ScheduleRemoved(Document):
    """The name of the schedule that was removed."""

    removed: str


def schedules(infos: Listing[ScheduleInfo]) -> SchedulesDocument:
    """Return all schedules, and those that cannot be read."""
    damaged = [DamagedSchedule(error.fields["name"], str(error)) for error in infos.damaged]
    return SchedulesDocument([ScheduleDocument.of(info) for info in infos], damaged)


# limits


class LimitDocument(Document):
    """How many sessions of a queue, workflow or lane may be at work at once.

    With ``per_seconds``, so many may get to work in that time. ``most`` is null if the limit of the code is lifted.
    ``declared``: the code of the workflow has it. ``counts``: it is not overridden.
    """

    scope: Scope
    name: str
    most: int | None
    per_seconds: float | None
    by: LimitKey | None
    declared: bool
    counts: bool
    at_work: Annotated[int, Meta(description="How many sessions of the queue, workflow or lane are at work now.")]


class LimitsDocument(Document):
    """All limits of a store, and the errors of those that cannot be read."""

    limits: Sequence[LimitDocument]
    damaged: Sequence[str]


class LimitChanged(Document):
    """A limit after a change."""

    limit: LimitDocument


class LimitsRemoved(Document):
    """How many limits were removed."""

    removed: int


def limit(info: LimitInfo) -> LimitDocument:
    """Return a limit of the sessions at work."""
    return LimitDocument.of(info, per_seconds=info.per)


def limits(infos: Listing[LimitInfo]) -> LimitsDocument:
    """Return all limits, and the errors of those that cannot be read."""
    return LimitsDocument([limit(info) for info in infos], [str(error) for error in infos.damaged])


# health


class HolderDocument(Document):
    """An engine, the sessions it holds or held when it died, and what it picks up.

    ``workflows`` and ``queues`` are those whose due sessions it picks up. ``queues`` is null if it picks up those of
    all queues.
    """

    pid: int
    host: str
    since: Moment
    sessions: Sequence[str]
    workflows: Sequence[str]
    queues: Sequence[str] | None


class HealthDocument(Document):
    """The store, its disk, and the engines that have it open.

    ``gone`` are engines that died while they held sessions.
    """

    kind: str
    place: str
    schema: int
    size_bytes: int
    free_bytes: int
    versions: dict[str, str]
    file_system: str | None
    disk_free_bytes: int | None
    ballast_bytes: int | None
    server: str | None
    latency_ms: float | None
    clock_skew_us: int | None
    trouble: str | None
    standing_pause: PauseDocument | None
    sessions: dict[Status, int]
    engines: Sequence[HolderDocument]
    gone: Sequence[HolderDocument]
    crashes: dict[str, int]


def holder(record: Holder) -> HolderDocument:
    """Return an engine that has a store open, or that died while it held sessions."""
    return HolderDocument.of(record, since=to_datetime(record.since))


def health(facts: Health) -> HealthDocument:
    """Return the health of a store: its size, its disk, and the engines that have it open."""
    about = facts.store
    return HealthDocument.of(
        about, size_bytes=about.size, free_bytes=about.free, disk_free_bytes=about.disk_free,
        ballast_bytes=about.ballast, trouble=facts.trouble,
        standing_pause=None if facts.standing_pause is None else PauseDocument.of(facts.standing_pause),
        sessions=facts.sessions, engines=[holder(engine) for engine in facts.engines],
        gone=[holder(engine) for engine in facts.gone], crashes=facts.crashes,
    )  # fmt: skip


# what all sessions are doing


class AwaitedSession(Document):
    """A child session."""

    session_id: str
    status: Status


class FinishingTask(Document):
    """An agent of a run and its task."""

    agent: str
    task: str


class BusySession(SessionDocument):
    """A session, its pauses, and the sessions it waits for.

    ``finishing``: the tasks that agents of a run are finishing while it pauses.
    """

    pauses: Sequence[PauseDocument]
    waits_for: Sequence[AwaitedSession]
    finishing: Sequence[FinishingTask]


class StoreStatus(Document):
    """What all sessions are doing. ``counts`` is the number of sessions in each status."""

    store: str
    trouble: str | None
    standing_pause: StandingPauseDocument | None
    counts: dict[str, int]
    sessions: Sequence[BusySession]
    damaged: Sequence[DamagedDocument]


def busy_session(
    info: SessionInfo, pauses: Iterable[Pause], children: Iterable[SessionInfo], agents: Mapping[str, str]
) -> BusySession:
    """Return a session with what explains its status. ``agents`` are those still at work, by task."""
    return BusySession.of(
        info, pauses=[PauseDocument.of(pause) for pause in pauses],
        waits_for=[AwaitedSession.of(child) for child in children],
        finishing=[FinishingTask(agent, task) for task, agent in agents.items()],
    )  # fmt: skip


def store_status(
    store: str, trouble: str | None, standing: StandingPause | None, counts: dict[str, int],
    sessions: Sequence[BusySession], errors: Iterable[DamagedRecord],
) -> StoreStatus:  # fmt: skip
    """Return the result of ``status``."""
    return StoreStatus(store, trouble, standing_pause(standing), counts, sessions, damaged(errors))


# bulk verbs


class BulkItemDocument(Document, kw_only=True):
    """One session of a bulk verb, with its status afterwards.

    ``reason`` says why it was skipped, or what failed. ``status`` is null if the session is damaged. Only lines of
    `--jsonl` have ``result``.
    """

    result: BulkResult | UnsetType = UNSET
    session_id: str
    workflow: str
    status: Status | None
    reason: str


class BulkDocument(Document):
    """The result of `resume`, `pause` or `cancel` with filters.

    ``left`` is the number of sessions that were not reached because the command was interrupted; the command in
    ``continue`` continues with them. ``unattended`` are the workflows of sessions that were handed over, but that no
    open process has.
    """

    verb: BulkVerb
    dry_run: bool
    done: Sequence[BulkItemDocument]
    skipped: Sequence[BulkItemDocument]
    failed: Sequence[BulkItemDocument]
    left: int
    unattended: Sequence[str]
    again: str | None = field(name="continue")


def bulk_items(items: Iterable[BulkItem]) -> list[BulkItemDocument]:
    """Return sessions of a bulk verb."""
    return [BulkItemDocument.of(item, result=UNSET) for item in items]


def bulk(report: BulkReport, left: int, again: str | None) -> BulkDocument:
    """Return the result of a bulk verb. ``left`` sessions were not reached; the command ``again`` continues."""
    done, skipped, failed = (bulk_items(items) for items in (report.done, report.skipped, report.failed))
    return BulkDocument.of(report, done=done, skipped=skipped, failed=failed, left=left, again=again)


# findings


CheckLevel = Literal["ok", "warn", "bad"]


class CheckDocument(Document):
    """One line of a report about a store, a project or a gate."""

    level: CheckLevel
    about: str
    text: str
    way_out: str | None


class ExaminationDocument(Document):
    """The report of `doctor`. ``store`` is null if there is no store, or if it cannot be opened."""

    ok: bool
    checks: Sequence[CheckDocument]
    place: str
    python: str
    packages: dict[str, str]
    store: HealthDocument | None


class GateCheck(Document):
    """What was found about the gate of a project."""

    ok: bool
    checks: Sequence[CheckDocument]


# checks and removals


class DamageDocument(Document):
    """One piece of damaged data."""

    what: str
    text: str
    session_id: str | None
    seq: int | None


class VerificationDocument(Document):
    """What was checked, and what is damaged.

    ``session_id`` is null for the whole store. For each log only the first bad record is listed, by its ``seq``.
    """

    ok: bool
    session_id: str | None
    sessions: int
    records: int
    redacted: int
    signals: int
    values: int
    files: int
    tombstones: int
    problems: Sequence[DamageDocument]


class RedactionDocument(Document):
    """The numbers of the records and signals that `redact` has emptied.

    If not ``erased``, another process was reading the database; `gc --apply` erases the old bytes.
    """

    session_id: str
    records: Sequence[int]
    signals: Sequence[int]
    erased: bool


class KeptSession(Document):
    """A session that could not be removed."""

    session_id: str
    why: str


class CleanUpDocument(Document):
    """What `gc` did, or would do if not ``applied``. ``expired_bytes`` is known only if not ``applied``."""

    applied: bool
    expired: Sequence[str]
    expired_bytes: int
    completed: Sequence[str]
    kept: Sequence[KeptSession]
    values: int
    value_bytes: int
    questions: int
    requests: int
    descriptions: int
    drawers: int
    streams: int
    strays: int
    stray_bytes: int
    unknown_folders: Sequence[str]
    free_bytes: int
    given_back_bytes: int
    folded: bool
    total_bytes: int


def verification(report: Verification, session_id: str | None) -> VerificationDocument:
    """Return the result of ``verify``: what was checked, and what is damaged."""
    problems = [DamageDocument.of(problem) for problem in report.problems]
    return VerificationDocument.of(report, session_id=session_id, problems=problems)


def redaction(session_id: str, report: Redaction) -> RedactionDocument:
    """Return the result of ``redact``: the records and signals that lost their content."""
    return RedactionDocument.of(report, session_id=session_id)


def clean_up(report: CleanUp, total: int) -> CleanUpDocument:
    """Return the result of ``gc``: what it did, or would do. Sizes are in bytes."""
    return CleanUpDocument.of(
        report, kept=[KeptSession(session_id, why) for session_id, why in report.kept.items()],
        unknown_folders=report.unknown, given_back_bytes=report.given_back, total_bytes=total,
    )  # fmt: skip


# transfers


class Exported(Document):
    """What `export` wrote. ``sessions`` are the session and its children."""

    session_id: str
    file: str
    bytes: int
    sessions: Sequence[str]
    records: int
    signals: int
    values: int


class MovedDocument(Document):
    """What `move` did, or would do with --dry-run. ``refused`` maps ids to reasons; children move along."""

    source: str = field(name="from")
    target: str = field(name="to")
    dry_run: bool
    moved: Sequence[str]
    there: Sequence[str]
    removed: Sequence[str]
    running: Sequence[str]
    refused: dict[str, str]
    schedules: Sequence[str]
    limits: Sequence[str]
    drawers: Sequence[str]


def exported(bundle: Bundle, file: str, count: int) -> Exported:
    """Return the result of ``export``: what was written, including the session's children."""
    return Exported.of(
        bundle, file=file, bytes=count, sessions=[session.session_id for session in bundle.sessions],
        records=sum(len(session.records) for session in bundle.sessions),
        signals=sum(len(session.signals) for session in bundle.sessions), values=len(bundle.blobs),
    )  # fmt: skip


def moved(source: str, target: str, dry_run: bool, report: Move) -> MovedDocument:
    """Return the result of ``move``: the sessions that were moved, were there already, or could not be moved."""
    return MovedDocument.of(report, source=source, target=target, dry_run=dry_run)


# workflows


class WorkflowSummary(Document):
    """A workflow, the names of its steps, and the number of its sessions."""

    name: str
    version: int | None
    steps: Sequence[str]
    sessions: int


class WorkflowsDocument(Document):
    """The workflows of the stored sessions. ``version`` is null if a workflow was never described."""

    workflows: Sequence[WorkflowSummary]


def workflows(rows: Sequence[tuple[str, Description | None, int]]) -> WorkflowsDocument:
    """Return the result of ``workflows``: names, with what is known about each, and the number of its sessions."""
    return WorkflowsDocument([
        WorkflowSummary(
            name, None if description is None else description.version,
            [] if description is None else description.outline, sessions,
        )
        for name, description, sessions in rows
    ])  # fmt: skip
