"""Everything Pausepoint can raise.

PausepointError
├── DefinitionError        a workflow that cannot be right; raised when it is made
├── SessionError           a verb that does not fit a session
│   ├── UnknownSession · AmbiguousSession · InvalidSessionId · InputConflict · WrongOwner
│   ├── AlreadyRunning · HoldLost · SessionEnded · VerbRefused · UnknownCheckpoint
│   ├── UnknownFile · FileRefused · FolderRefused
│   │   └── FolderMisfit   its session is of newer code, or cannot be carried up to this one
│   ├── UndecidedEdits         files of the session were changed by another hand; says which, and what that costs
│   └── QuestionError      an answer that is not taken; names the question
│       ├── UnknownQuestion · SeveralQuestions · WrongSession
│       ├── AnswerRefused · AnswerConflict · QuestionChanged · QuestionClosed
├── CallRefused            a verb that was called where it cannot work
├── OrchestratorError      a run of many agents cannot do what was asked
│   ├── AgentsStuck        some did not stop in time; names them
│   ├── SnapshotMissing · SnapshotNotSaved · DamagedSnapshot · RestoreRefused
├── StepError              what a step did or returned cannot be accepted
│   ├── ValueRefused       cannot be stored; names the path to the value
│   │   └── OversizedValue
│   ├── StateRefused       the model does not admit it; names the field
│   ├── WriteRefused · LentValueChanged · IllegalTransition · EventRefused
│   ├── StepTimeout · MapFailed · ChildFailed · TasksFailed · ContextClosed · NotReplayable
│   ├── Declined           a person said no
│   ├── Unanswered         nobody gave an answer that could be taken; the session pauses
│   │   ├── QuestionExpired · RoundsExhausted
└── StoreError             the store cannot do what was asked
    ├── StoreClosed · StoreMissing · NewerSchema · DamagedRecord · DamagedFile · Redacted
    ├── StoreUnavailable
    │   └── StoreReadOnly  the disk is full or broken; reading works

Signals derive from BaseException: they steer a step that is being left, and an
``except Exception`` in user code must not be able to swallow them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the closest known name, or all of them.

    The result ends the sentence before it, so append it to a message without a full stop.

    >>> did_you_mean("topci", ["topic", "draft"])
    ". Did you mean 'topic'?"
    >>> did_you_mean("zzz", ["topic", "draft"])
    '. Known: draft, topic.'
    """
    from difflib import get_close_matches  # imported here because only a wrong name needs it

    names = sorted(set(known))
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f". Did you mean {near[0]!r}?"
    return f". Known: {', '.join(names)}." if names else "."


def said(error: BaseException) -> str:
    """What an error says, as a text that can be stored, whatever its author did.

    >>> said(ValueError("bad \\udcff name"))
    'bad \\\\udcff name'
    """
    try:
        text = str(error)
    except Exception:
        text = f"{type(error).__name__}, whose text cannot be read"
    return text[:10_000].encode("utf-8", "backslashreplace").decode()


class PausepointError(Exception):
    """Base of all errors. Fields given by keyword become attributes and survive pickling."""

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
    """A workflow that cannot be right."""


class SessionError(PausepointError):
    """A verb that does not fit the session it was used on."""

    session_id: str


class UnknownSession(SessionError):
    """No session has this id."""


class AmbiguousSession(SessionError):
    """Several ids begin like that."""

    candidates: list[str]


class InvalidSessionId(SessionError):
    """The text cannot be a session id."""


class InputConflict(SessionError):
    """The session exists already and was started with other input."""


class WrongOwner(SessionError):
    """The session belongs to somebody else."""

    owner: str


class AlreadyRunning(SessionError):
    """Another engine drives the session."""

    holder: str


class HoldLost(SessionError):
    """This engine no longer holds the session: another one took it over. Nothing was written."""


class SessionEnded(SessionError):
    """The session has ended and takes no more input."""

    status: str


class VerbRefused(SessionError):
    """The verb is not possible in the session's present status."""

    status: str


class UnknownCheckpoint(SessionError):
    """The session's log has no such checkpoint, or none that can serve."""

    at_checkpoint: str | int


class QuestionError(SessionError):
    """An answer that is not taken. ``question_id`` is empty if no question is meant by it."""

    question_id: str


class UnknownQuestion(QuestionError):
    """No question has this id, or the session waits for no answer."""


class SeveralQuestions(QuestionError):
    """Several questions of the session wait: ``candidates`` are their ids."""

    candidates: list[str]


class WrongSession(QuestionError):
    """The question is another session's."""


class AnswerRefused(QuestionError):
    """The answer cannot be right: it is of another form than was asked for. It is asked again, and the round counts."""

    reason: str


class AnswerConflict(QuestionError):
    """Another answer was first: ``by``, ``channel`` and ``answered_at`` say whose."""

    by: str | None
    channel: str
    answered_at: str


class QuestionChanged(QuestionError):
    """What was answered is not what is asked now, which is round ``version``."""

    version: int
    digest: str


class QuestionClosed(QuestionError):
    """The question takes no answer any more: ``status`` is EXPIRED, CANCELLED or COMPLETED."""

    status: str


class UnknownFile(SessionError):
    """The session has no file of this id."""

    file_id: str


class FileRefused(SessionError):
    """A file that cannot be taken in, or an attempt to change one: what was uploaded stays as it is."""


class FolderRefused(SessionError):
    """A folder for artifacts that cannot be used, or something in it that is none: ``path`` names it."""

    session_id: str = ""
    path: str


class FolderMisfit(FolderRefused):
    """A folder whose session this code cannot go on with: it is a newer version's, or cannot be carried up to this one.

    It was not touched. Another one can be begun.
    """


class UndecidedEdits(SessionError):
    """Artifacts were edited or damaged, and what becomes of them is somebody's to say. Nothing was changed.

    ``paths`` are the files, ``stale`` the finished steps that would run again if the edits are accepted.
    """

    paths: list[str]
    stale: list[str]


class CallRefused(PausepointError):
    """A verb was called where it cannot work: it would wait for itself, or its engine was opened the other way."""


class OrchestratorError(PausepointError):
    """A run of many agents cannot do what was asked."""


class AgentsStuck(OrchestratorError):
    """Agents did not come to a boundary in time. The pause stays asked for."""

    agent_ids: list[str]


class SnapshotMissing(OrchestratorError):
    """There is nothing to resume from."""


class SnapshotNotSaved(OrchestratorError):
    """A snapshot could not be kept; the former one is as it was."""


class DamagedSnapshot(OrchestratorError):
    """What is kept cannot be read as a snapshot."""

    path: str


class RestoreRefused(OrchestratorError):
    """The agents of a snapshot are not here, or are not as it says."""

    agent_ids: list[str]


class StepError(PausepointError):
    """What a step did or returned cannot be accepted."""


class ValueRefused(StepError):
    """A value that cannot be stored; ``path`` leads to it."""

    path: str


class OversizedValue(ValueRefused):
    """A value above a documented limit."""


class StateRefused(StepError):
    """The state's model does not admit a value; ``field`` names where."""

    field: str


class WriteRefused(StepError):
    """A step tried to write outside what it owns."""

    field: str


class LentValueChanged(StepError):
    """A step changed, in place, a value that it had only been lent."""

    field: str


class IllegalTransition(StepError):
    """A route named a step that its return type does not list."""


class EventRefused(StepError):
    """An event type that neither the engine nor the workflow declares."""


class StepTimeout(StepError):
    """The step took longer than its time-out."""


class MapFailed(StepError):
    """Items of a ``ctx.map`` failed; all others are done and kept. ``errors``: theirs, in the order of the items."""

    failed: dict[str, str]
    errors: tuple[Exception, ...] = ()  # beside the fields: not every error survives pickling


class ChildFailed(StepError):
    """A child session failed or was cancelled."""

    child_id: str
    status: str


class TasksFailed(StepError):
    """Tasks of an orchestrator's run failed (``failed``: which, and how); all that did not need them is done."""

    failed: dict[str, str]
    waiting: list[str]
    retryable = False


class Declined(StepError):
    """A person said no to an act; ``reason`` is theirs. The act's operation cannot run in this visit.

    ``question`` is what was asked, ``answer`` what was said, as JSON. Raised by the ``understand`` of `collect`, it
    says that the person wants none of it any more.
    """

    retryable = False
    question_id: str = ""
    reason: str = ""
    question: str = ""
    answer: str = ""
    collected: str = ""


class Unanswered(StepError):
    """A question came to nothing. Not caught, it pauses the session; resume asks anew.

    ``question`` is what was asked. ``answer``, if there was one, and ``collected``, if parameters were asked for, are
    texts of JSON.
    """

    question_id: str
    reason: str
    question: str = ""
    answer: str = ""
    collected: str = ""


class QuestionExpired(Unanswered):
    """Nobody answered in time."""


class RoundsExhausted(Unanswered):
    """No answer could be taken, in as many rounds as there were; ``reason`` is what was wrong with the last one."""


class ContextClosed(StepError):
    """A context was used after its step had ended."""


class NotReplayable(StepError):
    """In tests: a step that is run again does not ask for the operations that it left before."""

    step: str
    visit: int
    operations: list[str]


class StoreError(PausepointError):
    """The store cannot do what was asked."""


class StoreClosed(StoreError):
    """The store (or its engine) is not open, or was opened by another process."""


class StoreMissing(StoreError):
    """There is no store, and nobody asked for one to be made."""

    path: str


class StoreUnavailable(StoreError):
    """The disk or the database refused; nothing was written."""


class StoreReadOnly(StoreUnavailable):
    """The disk is full or broken: reading works, writing will when it is well again. ``full``: which of the two."""

    path: str
    full: bool


class NewerSchema(StoreError):
    """The database was written by a newer Pausepoint."""


class DamagedRecord(StoreError):
    """A stored record does not match its digest, or cannot be read."""


class DamagedFile(StoreError):
    """The bytes of a file are missing, or are not those that were uploaded."""

    session_id: str
    file_id: str


class Redacted(StoreError):
    """What was asked for needs a record whose content somebody has taken away."""

    seq: int


class Signal(BaseException):
    """Base of the control signals; not errors."""


class StepLeft(Signal):
    """Raised in a blocking step's thread when the step is being left."""
