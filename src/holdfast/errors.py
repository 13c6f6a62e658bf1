"""Everything Holdfast can raise.

HoldfastError
├── DefinitionError        a workflow that cannot be right; raised when it is made
├── SessionError           a verb that does not fit a session
│   ├── UnknownSession · AmbiguousSession · InvalidSessionId · InputConflict · WrongOwner
│   ├── AlreadyRunning · HoldLost · SessionEnded · VerbRefused · UnknownCheckpoint
├── CallRefused            a verb that was called where it cannot work
├── StepError              what a step did or returned cannot be accepted
│   ├── ValueRefused       cannot be stored; names the path to the value
│   │   └── OversizedValue
│   ├── StateRefused       the model does not admit it; names the field
│   ├── WriteRefused · LentValueChanged · IllegalTransition · EventRefused
│   ├── StepTimeout · MapFailed · ChildFailed · ContextClosed · NotReplayable
└── StoreError             the store cannot do what was asked
    ├── StoreClosed · NewerSchema · DamagedRecord · Redacted
    ├── StoreUnavailable
    │   └── StoreReadOnly  the disk is full or broken; reading works

Signals derive from BaseException: they steer a step that is being left, and an
``except Exception`` in user code must not be able to swallow them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The tail of a refusal: the nearest right name, or the list of them.

    >>> did_you_mean("topci", ["topic", "draft"])
    "; did you mean 'topic'?"
    >>> did_you_mean("zzz", ["topic", "draft"])
    '; known: draft, topic'
    """
    from difflib import get_close_matches  # only who has mistaken a name needs it

    names = sorted(set(known))
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known: {', '.join(names)}" if names else ""


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


class HoldfastError(Exception):
    """Base of all errors. Fields given by keyword become attributes and survive pickling."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields
        self.__dict__.update(fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.fields)


def _rebuild(cls: type[HoldfastError], message: str, fields: dict[str, Any]) -> HoldfastError:
    return cls(message, **fields)


class DefinitionError(HoldfastError):
    """A workflow that cannot be right."""


class SessionError(HoldfastError):
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

    at: str | int


class CallRefused(HoldfastError):
    """A verb was called where it cannot work: it would wait for itself, or its engine was opened the other way."""


class StepError(HoldfastError):
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
    """Items of a ``ctx.map`` failed; all others are done and kept."""

    failed: dict[str, str]


class ChildFailed(StepError):
    """A child session failed or was cancelled."""

    child_id: str
    status: str


class ContextClosed(StepError):
    """A context was used after its step had ended."""


class NotReplayable(StepError):
    """In tests: a step that is run again does not ask for the operations that it left before."""

    step: str
    visit: int
    operations: list[str]


class StoreError(HoldfastError):
    """The store cannot do what was asked."""


class StoreClosed(StoreError):
    """The store (or its engine) is not open, or was opened by another process."""


class StoreUnavailable(StoreError):
    """The disk or the database refused; nothing was written."""


class StoreReadOnly(StoreUnavailable):
    """The disk is full or broken: reading works, writing will when it is well again. ``full``: which of the two."""

    path: str
    full: bool


class NewerSchema(StoreError):
    """The database was written by a newer Holdfast."""


class DamagedRecord(StoreError):
    """A stored record does not match its digest, or cannot be read."""


class Redacted(StoreError):
    """What was asked for needs a record whose content somebody has taken away."""

    seq: int


class Signal(BaseException):
    """Base of the control signals; not errors."""


class StepLeft(Signal):
    """Raised in a blocking step's thread when the step is being left."""
