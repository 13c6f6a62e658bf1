"""Every exception that Pausepoint raises.

PausepointError
├── DefinitionError        a workflow definition is wrong; raised when it is created
├── SessionError           a call is not possible for the session that it names
│   ├── UnknownSession · AmbiguousSession · InvalidSessionId · InputConflict · WrongOwner
│   ├── AlreadyRunning · HoldLost · SessionEnded · NotFinished · UnknownCheckpoint · UnknownOperation
│   ├── VerbRefused
│   │   ├── SessionChanged   the session has changed since the record that ``based_on`` names
│   │   └── LimitReached     no slot is free for the session; an engine picks it up when there is one
│   ├── UnknownFile · FileRefused · FolderRefused
│   │   ├── FolderMisfit   its session needs newer code, or cannot be migrated to this version
│   │   └── FolderUnavailable   its disk is full or failing
│   ├── Parked             the block of a guest session was left, because the session must stop
│   ├── UndecidedEdits     artifacts were edited; lists the files, the steps to run again, the edits they replace
│   └── QuestionError      an answer was not accepted; names the question
│       ├── UnknownQuestion · SeveralQuestions · WrongSession
│       ├── AnswerRefused · AnswerConflict · QuestionChanged · QuestionClosed
├── CallRefused            a method was called where it cannot work
│   └── OutsideStep        the code that asked for its context does not run inside a step
├── ScheduleRefused        a schedule is not valid, or cannot do what was asked
│   └── UnknownSchedule    no schedule has this name
├── DrawerRefused          a drawer does not take what it was given
│   └── VersionConflict    a value in a drawer has another version than ``if_version``
├── OrchestratorError      an orchestrator cannot do what was asked
│   ├── AgentsStuck        some agents did not stop in time; names them
│   ├── GateRefused        the gate of agents cannot be opened, or does not accept a report
│   ├── SnapshotMissing · SnapshotNotSaved · DamagedSnapshot · RestoreRefused
├── StepError              a step did or returned something that is not allowed
│   ├── ValueRefused       a value cannot be stored; names the path to it
│   │   └── OversizedValue
│   ├── StateRefused       a value does not fit the state model; names the field
│   ├── WriteRefused · LentValueChanged · IllegalTransition · EventRefused
│   ├── StepTimeout · OperationTimeout · MapFailed · ChildFailed · TasksFailed · ContextClosed · NotReplayable
│   ├── Declined           a person said no
│   ├── Unanswered         a question got no usable answer; the session pauses
│   │   ├── QuestionExpired · RoundsExhausted
└── StoreError             the store cannot do what was asked
    ├── StoreClosed · StoreMissing · NewerSchema · DamagedRecord · DamagedFile · Redacted
    ├── KeyLost            a request was not carried out, because another engine has its key
    ├── StoreDamaged       acknowledged commits are lost; nothing was changed
    ├── StoreUnavailable
    │   └── StoreReadOnly  the disk is full or failing; reading still works
    │       └── StoreRemoved  the database was removed or replaced while it was open; also a StoreMissing

Signals derive from BaseException, not from PausepointError. They end a step early, and an ``except Exception`` in user
code does not catch them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the closest known name, or all of them.

    The result ends the sentence before it, so append it to a message without a full stop.

    >>> did_you_mean("topci", ["topic", "draft"])
    ". Did you mean 'topic'?"
    >>> did_you_mean("--id", ["--field", "--session-id"])
    ". Did you mean '--session-id'?"
    >>> did_you_mean("zzz", ["topic", "draft"])
    '. Known: draft, topic.'
    """
    from difflib import get_close_matches  # imported here because only a wrong name needs it

    names, name = sorted(set(known)), str(name)[:200]  # a name from outside may be anything
    word = name.strip("-_")
    near = [each for each in names if word and word in each.replace("_", "-").split("-")]
    near = near or get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f". Did you mean {near[0]!r}?"
    return f". Known: {', '.join(names)}." if names else "."


def error_text(error: BaseException) -> str:
    """Return an error's message as text that can always be stored as UTF-8.

    >>> error_text(ValueError("bad \\udcff name"))
    'bad \\\\udcff name'
    """
    try:
        text = str(error)
    except Exception:
        text = f"{type(error).__name__} (its message cannot be read)"
    return text[:10_000].encode("utf-8", "backslashreplace").decode()


class PausepointError(Exception):
    """Base class of all errors. Keyword arguments become attributes and survive pickling."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields
        self.__dict__.update(fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.fields)


def _rebuild(cls: type[PausepointError], message: str, fields: dict[str, Any]) -> PausepointError:
    return cls(message, **fields)


class DefinitionError(PausepointError):
    """A workflow definition is wrong."""


class SessionError(PausepointError):
    """A call is not possible for the session that it names."""

    session_id: str


class UnknownSession(SessionError):
    """No session has this id. ``near`` is the only id that begins with it, if there is one."""

    near: str | None = None


class AmbiguousSession(SessionError):
    """Several session ids start with the given prefix; ``candidates`` lists them."""

    candidates: list[str]


class InvalidSessionId(SessionError):
    """The given value is not a valid session id."""


class InputConflict(SessionError):
    """The session already exists and was started with different input."""


class WrongOwner(SessionError):
    """The session belongs to another owner."""

    owner: str


class AlreadyRunning(SessionError):
    """An engine is already driving the session; ``holder`` says which one."""

    holder: str


class HoldLost(SessionError):
    """This engine no longer holds the session, or the session changed since it was read. Nothing was written."""


class SessionEnded(SessionError):
    """The session has ended and accepts no more input."""

    status: str


class VerbRefused(SessionError):
    """The call is not possible in the session's current status."""

    status: str


class SessionChanged(VerbRefused):
    """The session has changed since it was read: its log is at record ``seq``, not at ``based_on``."""

    seq: int
    based_on: int


class LimitReached(VerbRefused):
    """No slot is free for the session. It is ready, and an engine picks it up when a slot is free."""


class NotFinished(SessionError):
    """The session has not completed, so that it has no result."""

    status: str


class Parked(SessionError):
    """The block of ``engine.visit`` was left or not entered, because the session must stop or wait.

    ``status`` is the session's status, and ``reason`` says why it is parked. Finished operations are kept: the next
    visit continues after them.
    """

    status: str
    reason: str


class UnknownCheckpoint(SessionError):
    """The session's log has no such checkpoint, or the checkpoint cannot be used for this call."""

    at_checkpoint: str | int


class UnknownOperation(SessionError):
    """The session's log has no operation with this id that has ended."""

    operation: str


class QuestionError(SessionError):
    """An answer was not accepted. ``question_id`` is empty if the answer names no question."""

    question_id: str


class UnknownQuestion(QuestionError):
    """No question has this id, or the session is not waiting for an answer.

    ``near`` is the only id that begins with it, if a person typed the beginning of one.
    """

    near: str | None = None


class SeveralQuestions(QuestionError):
    """Several questions of the session are waiting; ``candidates`` lists their ids."""

    candidates: list[str]


class WrongSession(QuestionError):
    """The question belongs to another session."""


class AnswerRefused(QuestionError):
    """The answer does not match the requested form; ``reason`` says why. The question stays open."""

    reason: str


class AnswerConflict(QuestionError):
    """Another answer was accepted first; ``by``, ``channel`` and ``answered_at`` describe it."""

    by: str | None
    channel: str
    answered_at: str


class QuestionChanged(QuestionError):
    """The question has changed since it was shown; it is now in round ``version``."""

    version: int
    digest: str


class QuestionClosed(QuestionError):
    """The question no longer accepts answers; ``status`` is EXPIRED, CANCELLED or COMPLETED."""

    status: str


class UnknownFile(SessionError):
    """The session has no file with this id."""

    file_id: str


class FileRefused(SessionError):
    """A file cannot be added, or a call tried to change an uploaded file. Uploaded files never change."""


class FolderRefused(SessionError):
    """An artifact folder, or a file in it, cannot be used; ``path`` names it.

    If the system refused a file operation, ``errno`` is its error number, ``problem`` says what happened, and
    ``way_out`` what to do about it.
    """

    session_id: str = ""
    path: str
    errno: int = 0
    problem: str = ""
    way_out: str = ""


class FolderMisfit(FolderRefused):
    """This code cannot resume the folder's session: a newer version wrote it, or it cannot be migrated to this version.

    The folder was not changed. You can start a new session in another folder.
    """


class FolderUnavailable(FolderRefused):
    """The disk under an artifact folder is full or failing.

    A session that is being driven pauses (kind ``disk``), and its finished results are kept. Repair the disk, then
    resume the session: the resume publishes the files.
    """


class UndecidedEdits(SessionError):
    """Artifacts were edited or damaged, and someone must decide whether to accept or discard the edits.

    Nothing was changed. ``paths`` lists the files, ``stale`` the finished steps that would run again if the edits are
    accepted. ``replaced`` lists the files whose edits these steps would replace, also edits that were accepted earlier.
    """

    paths: list[str]
    stale: list[str]
    replaced: list[str]


class CallRefused(PausepointError):
    """A method was called where it cannot work.

    The call would wait for itself, the engine was opened for blocking calls and this call is async (or vice versa), or
    the call would run a session on an ``Engine(drives="none")``.
    """


class OutsideStep(CallRefused):
    """`current` was called by code that does not run inside a step."""


class ScheduleRefused(PausepointError):
    """A schedule is not valid, or cannot do what was asked. Nothing was stored."""


class UnknownSchedule(ScheduleRefused):
    """No schedule has this name."""


class DrawerRefused(PausepointError):
    """A drawer does not take what it was given: a name, a key or bytes. Nothing was stored."""


class VersionConflict(DrawerRefused):
    """A value in a drawer has changed since it was read. Nothing was stored.

    ``key`` names the value. ``expected`` is the version that the call named, ``found`` the present one; 0 means none.
    """

    key: str
    expected: int
    found: int


class OrchestratorError(PausepointError):
    """An orchestrator cannot do what was asked."""


class AgentsStuck(OrchestratorError):
    """Some agents did not finish their current step in time. The pause stays requested."""

    agent_ids: list[str]


class GateRefused(OrchestratorError):
    """The gate cannot be opened, or an agent is not known there."""


class SnapshotMissing(OrchestratorError):
    """There is no snapshot to resume from."""


class SnapshotNotSaved(OrchestratorError):
    """A snapshot could not be saved. The previous snapshot is unchanged."""


class DamagedSnapshot(OrchestratorError):
    """A stored snapshot cannot be read; ``path`` names the file."""

    path: str


class RestoreRefused(OrchestratorError):
    """A snapshot's agents are missing, or do not match the snapshot."""

    agent_ids: list[str]


class StepError(PausepointError):
    """A step did or returned something that is not allowed."""


class ValueRefused(StepError):
    """A value cannot be stored; ``path`` leads to it."""

    path: str


class OversizedValue(ValueRefused):
    """A value exceeds a documented limit."""


class StateRefused(StepError):
    """A value does not fit the state model; ``field`` names the field."""

    field: str


class WriteRefused(StepError):
    """A step tried to write a field that it does not declare."""

    field: str


class LentValueChanged(StepError):
    """A step changed a field's value in place, but does not declare that it writes the field."""

    field: str


class IllegalTransition(StepError):
    """A route returned a step that its return type does not list."""


class EventRefused(StepError):
    """A step emitted an event type that the workflow does not declare."""


class StepTimeout(StepError):
    """An attempt at a step took longer than its ``timeout``."""


class OperationTimeout(StepError, TimeoutError):
    """An attempt at an operation took longer than its ``timeout``."""


class MapFailed(StepError):
    """Some items of a ``ctx.map`` failed; the results of all other items are kept.

    ``failed`` maps each failed item to its error message; ``errors`` are the exceptions, in the order of the items.
    """

    failed: dict[str, str]
    errors: tuple[Exception, ...] = ()  # not in `fields`, because not every exception survives pickling


class ChildFailed(StepError):
    """A child session failed or was cancelled."""

    child_id: str
    status: str


class TasksFailed(StepError):
    """Some tasks of an orchestrator's run failed; every task that did not depend on them is done.

    ``failed`` maps each failed task to its error message; ``waiting`` lists the tasks that depend on a failed one.
    """

    failed: dict[str, str]
    waiting: list[str]
    retryable = False


class Declined(StepError):
    """A person declined an action, so its operation cannot run in this visit; ``reason`` is the person's reason.

    ``question`` is the question's text. ``answer`` and ``collected`` (the parameters collected so far, if any) are JSON
    text. The ``understand`` function of `collect` may raise it to report that the person no longer wants the action.
    """

    retryable = False
    question_id: str = ""
    reason: str = ""
    question: str = ""
    answer: str = ""
    collected: str = ""


class Unanswered(StepError):
    """A question got no usable answer. If the step does not catch this, the session pauses; resuming asks again.

    ``question`` is the question's text. ``answer`` (the last answer, if any) and ``collected`` (the parameters
    collected so far, if any) are JSON text.
    """

    question_id: str
    reason: str
    question: str = ""
    answer: str = ""
    collected: str = ""


class QuestionExpired(Unanswered):
    """Nobody answered in time."""


class RoundsExhausted(Unanswered):
    """No answer was usable within the allowed rounds; ``reason`` says what was wrong with the last one."""


class ContextClosed(StepError):
    """A context was used after its step ended."""


class NotReplayable(StepError):
    """In tests: a step that runs again does not repeat the operations of its earlier run."""

    step: str
    visit: int
    operations: list[str]


class StoreError(PausepointError):
    """The store cannot do what was asked."""


class StoreClosed(StoreError):
    """The store or its engine is not open, or was opened by another process."""


class StoreMissing(StoreError):
    """There is no store at ``path``, and the caller did not ask to create one."""

    path: str


class StoreUnavailable(StoreError):
    """The disk or the database refused the operation. Nothing was written."""


class StoreReadOnly(StoreUnavailable):
    """The disk is full (``full=True``) or failing. Reading works; writing works again once the disk is healthy."""

    path: str
    full: bool


class StoreRemoved(StoreReadOnly, StoreMissing):
    """The database at ``path`` was removed or replaced while it was open. Nothing is acknowledged any more."""


class KeyLost(StoreError):
    """A write under the key of a request was refused, because this engine does not hold the key any more."""

    key: str


class NewerSchema(StoreError):
    """The database was written by a newer version of Pausepoint."""


class StoreDamaged(StoreError):
    """The write-ahead log of the store at ``path`` is damaged: acknowledged commits cannot be read.

    The store was not changed. ``kept`` is the path of a copy of the damaged log; None if it could not be written.
    """

    path: str
    kept: str | None


class DamagedRecord(StoreError):
    """A stored record does not match its digest, or cannot be read."""


class DamagedFile(StoreError):
    """A file's content is missing, or differs from what was uploaded."""

    session_id: str
    file_id: str


class Redacted(StoreError):
    """The call needs record ``seq``, whose content was redacted."""

    seq: int


class Signal(BaseException):
    """Base class of the control signals, which are not errors."""


class StepExited(Signal):
    """Raised to end a step early: in the thread of a blocking step, and in the block of a guest session."""
