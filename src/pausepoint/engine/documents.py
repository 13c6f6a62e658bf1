"""The JSON documents about sessions that ``--json`` prints and the server answers: sessions, pauses, questions.

`history_documents` has those about the history of a session, `store_documents` those about a store as a whole. A record
whose fields are all shown in the same form, such as `Failure`, is a document itself. docs/cli.md shows all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from msgspec import UNSET, UnsetType

from pausepoint.artifacts.status import ArtifactState, ReplacedEdit
from pausepoint.clock import to_datetime
from pausepoint.engine.history_documents import CheckpointDocument
from pausepoint.engine.operations import PlannedOperation
from pausepoint.engine.plans import PlannedStep, Verdict
from pausepoint.errors import StateRefused
from pausepoint.model.documents import Document, Moment
from pausepoint.model.questions import Kind, OnExpiry
from pausepoint.model.sessions import Failure, PauseKind, PauseMode, QuestionStatus, Status
from pausepoint.model.views import Stale

if TYPE_CHECKING:
    from pausepoint.engine.plans import Plan
    from pausepoint.errors import DamagedRecord
    from pausepoint.model.questions import Receipt
    from pausepoint.model.sessions import Pause
    from pausepoint.model.views import (
        Checkpoint,
        Outcome,
        SessionInfo,
        StandingPause,
        StoredState,
    )

# pauses


class PauseDocument(Document):
    """A pause: why a session does not run. ``standing``: it is part of a pause of everything."""

    kind: PauseKind
    reason: str
    by: str | None
    created_at: Moment
    step: str
    mode: PauseMode
    freeze: bool
    standing: bool

    @classmethod
    def of(cls, record: Pause, **fields: Any) -> Self:
        return super().of(record, created_at=to_datetime(record.created_at), **fields)


class FinishingDocument(Document):
    """An operation that a session still finishes. ``since`` is when it was asked to stop."""

    session_id: str
    step: str
    operation: str
    since: Moment


class StandingPauseDocument(PauseDocument):
    """The pause of everything, and how it took effect.

    ``asked``: the sessions that ran then. ``stopped``: those of them that no longer run. ``finishing``: what the others
    still do; ``operation`` is empty if the step finishes outside of operations. ``longest_seconds``: the longest time
    that a session took until it paused.
    """

    asked: int
    stopped: int
    finishing: Sequence[FinishingDocument]
    longest_seconds: float | None


def standing_pause(record: StandingPause | None) -> StandingPauseDocument | None:
    """Return the pause of everything, and how it took effect."""
    if record is None:
        return None
    finishing = [FinishingDocument.of(operation) for operation in record.finishing]
    return StandingPauseDocument.of(record, finishing=finishing, longest_seconds=record.longest)


# sessions


class ProgressDocument(Document):
    """The progress of a map, or of a step that reports it."""

    done: int
    total: int


class SessionDocument(Document):
    """A session without its state.

    ``holder`` is the process that drives it, or null. ``held_by_guard``: its step has ended, and a guard holds the
    session there, or the next step is not decided yet. ``guest``: its code runs in a program of its own, and no engine
    picks it up. ``waits_for_slot`` is the limit that keeps a ready session from work, for people. The lowest
    ``priority`` goes first.
    """

    session_id: str
    workflow: str
    version: int
    status: Status
    step: str | None
    visit: int
    held_by_guard: bool
    guest: bool
    owner: str | None
    tags: Sequence[str]
    created_at: Moment
    updated_at: Moment
    pause_requested: bool
    cancel_requested: bool
    holder: str | None
    failure: Failure | None
    spent_usd: float
    spent_tokens: int
    spent_operations: int
    budget_usd: float | None
    budget_tokens: int | None
    budget_operations: int | None
    progress: ProgressDocument | None
    waiting: Sequence[str]
    wakes_at: Moment | None
    parent_id: str | None
    pause: PauseDocument | None
    queue: str
    priority: int
    lane: str | None
    waits_for_slot: str | None

    @classmethod
    def of(cls, record: SessionInfo, **fields: Any) -> Self:
        progress = None if record.progress is None else ProgressDocument(*record.progress)
        pause = None if record.pause is None else PauseDocument.of(record.pause)
        return super().of(record, progress=progress, pause=pause, **fields)


class DamagedDocument(Document):
    """A session whose facts cannot be read. `pausepoint verify` shows details."""

    session_id: str | None
    error: str


class ListingDocument(Document):
    """Sessions.

    ``total`` is the number of all matches, even if not all are listed. ``next`` is the cursor of the next page, for
    --after. ``standing_pause`` is the pause of everything, while it is in effect.
    """

    standing_pause: StandingPauseDocument | None
    sessions: Sequence[SessionDocument]
    total: int
    next: str | None
    damaged: Sequence[DamagedDocument]


class StoppingDocument(ListingDocument):
    """Sessions that were asked to pause.

    ``stopped_in``: with --wait, the seconds until all of them were paused; null if no process drove them.
    """

    stopped_in: float | None


class Candidates(Document):
    """Several sessions match; none was resumed."""

    candidates: Sequence[SessionDocument]


class Worked(Document):
    """The sessions that a worker drove, as they are afterwards."""

    sessions: Sequence[SessionDocument]


def damaged(errors: Iterable[DamagedRecord]) -> list[DamagedDocument]:
    """Return sessions or questions that cannot be read, with the errors."""
    return [DamagedDocument(error.fields["session_id"], str(error)) for error in errors]


def listing(
    infos: Iterable[SessionInfo], total: int, errors: Iterable[DamagedRecord],
    standing: StandingPause | None = None, next: str | None = None,
) -> ListingDocument:  # fmt: skip
    """Return the result of ``ls``: sessions up to the limit, the number of all matches, and unreadable sessions."""
    sessions = [SessionDocument.of(info) for info in infos]
    return ListingDocument(standing_pause(standing), sessions, total, next, damaged(errors))


def stopping(
    infos: Sequence[SessionInfo], errors: Iterable[DamagedRecord], standing: StandingPause | None,
    stopped_in: float | None,
) -> StoppingDocument:  # fmt: skip
    """Return the result of ``pause``: the sessions that it asked to pause, and how long they took to stop."""
    return StoppingDocument.of(listing(infos, len(infos), errors, standing), stopped_in=stopped_in)


# questions


class AskedQuestion(Document):
    """A question, with the names of its record (docs/questions.md) and the details a front end needs.

    ``answer_schema`` is null if any text is valid. ``complaint`` is the reason why it is asked again. ``payload`` is
    structured context, or null. ``digest`` marks the question as it was shown.
    """

    id: str
    session_id: str
    workflow_id: str
    sub_chain_id: str | None
    llm_node_id: str
    pause_reason: str
    context_json: str | None
    tool_call_state_json: str | None
    collected_params_json: str | None
    current_round: int
    max_rounds: int
    pending_tool_id: str | None
    pending_tool_name: str | None
    next_question: str
    chat_history_json: str | None
    status: QuestionStatus
    created_at: Moment
    updated_at: Moment
    expired_at: Moment | None
    kind: Kind
    key: str | None
    version: int
    digest: str
    answer_schema: dict[str, Any] | None
    choices: Sequence[Any] | None
    complaint: str
    default: Any
    payload: Any
    on_expiry: OnExpiry
    instead_of: str | None
    owner: str | None
    failure: str | None


class QuestionDocument(AskedQuestion):
    """A question, and the command that answers it: ``answer``.

    ``digest`` is the value for `answer --seen`. Only `answer --later` gives ``context_json``, ``tool_call_state_json``
    and ``chat_history_json``.
    """

    answer: str


class InboxDocument(Document):
    """Questions.

    ``total`` is the number of all matches, even if not all are listed. ``next`` is the cursor of the next page, for
    --after.
    """

    questions: Sequence[QuestionDocument]
    total: int
    next: str | None
    damaged: Sequence[DamagedDocument]


class AnsweredDocument(Document):
    """An accepted answer: who gave it, and the session afterwards.

    ``resume`` is the command that resumes the session.
    """

    question_id: str | None
    key: str | None
    version: int
    by: str | None
    channel: str
    answered_at: Moment
    session: SessionDocument
    resume: str


def answered(receipt: Receipt, info: SessionInfo, resume: str) -> AnsweredDocument:
    """Return the result of ``answer``: the receipt, the session, and the command that resumes it."""
    return AnsweredDocument.of(receipt, session=SessionDocument.of(info), resume=resume)


# one session


class OutcomeDocument(SessionDocument):
    """The outcome of a session that ran here.

    ``saved_…`` is the time and cost of the skipped visits when they ran. ``resume`` is the command that resumes it,
    null if it has completed. ``questions`` are its open questions. ``state`` is null if the stored state does not fit
    the code.
    """

    pauses: Sequence[PauseDocument]
    skipped_visits: int
    saved_seconds: float
    saved_usd: float
    questions: Sequence[QuestionDocument]
    state: Any
    resume: str | None


class StoppedDocument(SessionDocument):
    """A session that continues elsewhere or later, because this process had to end before it."""

    resume: str | None


class ShownDocument(SessionDocument):
    """A session with its stored state, now or at a checkpoint.

    ``questions`` are its open questions. ``state`` is null if it cannot be read; ``state_error`` is the reason.
    ``artifacts`` are the files that its steps published; empty while it runs.
    """

    pauses: Sequence[PauseDocument]
    questions: Sequence[QuestionDocument]
    checkpoint: CheckpointDocument | None
    seq: int | None
    state: dict[str, Any] | None
    state_error: str | None
    artifacts: Sequence[ArtifactState]


class PlanDocument(Document, kw_only=True):
    """What a resume would do. ``obstacles`` are the reasons why it would not run at all.

    ``left_behind`` are the visits that a rewind undoes. ``artifacts`` are the files of its steps. ``stale`` are the
    finished steps that would run again. ``undecided`` are the edited files that need a decision first. ``changed`` are
    the steps that are reused although their code has changed. ``replaces`` are the edits of people that steps replace
    when they run again. ``operations`` are those of the interrupted step.
    """

    session_id: str
    status: Status
    obstacles: Sequence[str]
    steps: Sequence[PlannedStep]
    left_behind: Sequence[str] | UnsetType = UNSET
    artifacts: Sequence[ArtifactState]
    stale: Sequence[Stale]
    undecided: Sequence[str]
    changed: Sequence[str]
    replaces: Sequence[ReplacedEdit]
    operations: Sequence[PlannedOperation]


class ArtifactsDocument(Document):
    """The files that the steps of a session published.

    ``changed`` are the files that were adopted or restored. ``stale`` are the finished steps that must run again
    because of that.
    """

    session_id: str
    artifacts: Sequence[ArtifactState]
    changed: Sequence[str]
    stale: Sequence[Stale]


class ReasonDocument(Document):
    """Why a resume would run a step or not.

    ``last`` is its last visit. ``artifacts`` are its published files with their states.
    """

    session_id: str
    status: Status
    step: str
    verdict: Verdict
    why: str
    visits: int
    obstacles: Sequence[str]
    last: CheckpointDocument | None
    artifacts: Sequence[ArtifactState]


class EditedDocument(SessionDocument):
    """A session after an edit, or after a question is asked again. ``changed`` are the edited places."""

    changed: Sequence[str]
    resume: str


class Rewound(SessionDocument):
    """A session after a rewind.

    ``left_behind`` are the visits that it has undone. ``changed`` are the edited places.
    """

    left_behind: Sequence[str]
    changed: Sequence[str]
    resume: str


class Forked(SessionDocument):
    """A new session and the session it was forked from."""

    forked_from: str
    resume: str


class Imported(Document):
    """What `import` stored."""

    file: str
    session: SessionDocument


def state(model: Any) -> Any:
    """Return a state as plain JSON, serialised by its model."""
    return model.model_dump(mode="json")


def outcome(
    record: Outcome[Any], info: SessionInfo, resume: str | None = None, questions: Sequence[QuestionDocument] = ()
) -> OutcomeDocument:
    """Return the outcome of a session that ran here. ``resume`` is the command that resumes it; None if it completed.

    ``state`` is None if the stored state does not fit the present code.
    """
    try:
        content = state(record.state)
    except StateRefused:
        content = None
    return OutcomeDocument.of(
        info, pauses=[PauseDocument.of(pause) for pause in record.pauses], skipped_visits=record.skipped_visits,
        saved_seconds=record.saved_time, saved_usd=record.saved_usd, questions=questions, state=content, resume=resume,
    )  # fmt: skip


def shown(
    info: SessionInfo, pauses: Sequence[Pause], questions: Sequence[QuestionDocument], reached: Checkpoint | None,
    stored: StoredState | None, error: str, artifacts: Sequence[ArtifactState] = (),
) -> ShownDocument:  # fmt: skip
    """Return the result of ``show``: a session with its state at record ``seq``, or why that cannot be read."""
    return ShownDocument.of(
        info, pauses=[PauseDocument.of(pause) for pause in pauses], questions=questions,
        checkpoint=None if reached is None else CheckpointDocument.of(reached),
        seq=None if stored is None else stored.seq, state=None if stored is None else stored.values,
        state_error=error or None, artifacts=artifacts,
    )  # fmt: skip


def why(plan: Plan, step: str, last: Checkpoint | None) -> ReasonDocument:
    """Return the result of ``why`` for a step. ``last`` is its last visit that was not undone by a rewind."""
    return ReasonDocument.of(
        plan[step], session_id=plan.session_id, status=plan.status, obstacles=plan.obstacles,
        last=None if last is None else CheckpointDocument.of(last),
        artifacts=[artifact for artifact in plan.artifacts if artifact.step == step],
    )  # fmt: skip
