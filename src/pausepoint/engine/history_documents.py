"""The JSON documents about the history of a session: its checkpoints, operations, turns and events."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Self

from pausepoint.clock import to_datetime
from pausepoint.model.documents import Document, Moment
from pausepoint.model.streams import Restarted, StreamChunk
from pausepoint.model.views import Role, ToolUse

if TYPE_CHECKING:
    from pausepoint.model.sessions import Event
    from pausepoint.model.streams import StreamItem
    from pausepoint.model.views import Checkpoint, OperationInfo, Turn


class CheckpointDocument(Document):
    """One finished visit.

    ``name`` is its name in commands: `write#2`. ``left_behind``: a rewind has undone it.
    """

    seq: int
    name: str
    step: str
    visit: int
    ended_at: Moment
    took_seconds: float
    skipped: str
    attempts: int
    fields: Sequence[str]
    version: int
    left_behind: bool
    redacted: bool

    @classmethod
    def of(cls, record: Checkpoint, **fields: Any) -> Self:
        return super().of(record, took_seconds=record.took, **fields)


class CheckpointsDocument(Document):
    """The checkpoints of a session, newest last."""

    session_id: str
    checkpoints: Sequence[CheckpointDocument]


class OperationDocument(Document):
    """An operation that has ended.

    ``label`` is its key, or the beginning of its arguments. ``arguments`` is null if they were not recorded. ``bytes``
    is the size of the result; a list has only the beginning of a large one. ``outcome`` says why a wait ended without a
    result. ``usd`` and ``tokens`` are what it spent itself. ``left_behind``: a rewind has undone it.
    """

    seq: int
    id: str
    name: str
    label: str
    step: str
    visit: int
    began_at: Moment
    ended_at: Moment
    took_seconds: float
    arguments: dict[str, Any] | None
    result: Any
    bytes: int
    outcome: Literal["", "expired", "rounds", "declined", "timeout"]
    usd: float
    tokens: int
    left_behind: bool

    @classmethod
    def of(cls, record: OperationInfo, **fields: Any) -> Self:
        return super().of(record, took_seconds=record.took, **fields)


class OperationsDocument(Document):
    """The operations of a session that have ended, oldest first."""

    session_id: str
    operations: Sequence[OperationDocument]


class TurnDocument(Document):
    """One turn of a conversation.

    ``system`` and ``user`` are what a model was told, ``assistant`` is what it answered, ``tool`` is another operation;
    ``question``, ``answer`` and ``message`` are between the session and people. ``name`` is the function that called
    the model, the tool, the person or the step. ``calls`` are the tools that a model wants to call. ``operation`` is
    the id of the operation, if the turn is one. Several turns may have the same ``seq``. ``left_behind``: a rewind has
    undone the operation.
    """

    seq: int
    at: Moment
    role: Role
    name: str
    text: str
    thinking: str
    calls: Sequence[ToolUse]
    arguments: dict[str, Any] | None
    result: Any
    operation: str
    took_seconds: float
    usd: float
    tokens: int
    left_behind: bool

    @classmethod
    def of(cls, record: Turn, **fields: Any) -> Self:
        return super().of(record, took_seconds=record.took, **fields)


class ConversationDocument(Document):
    """A session as a conversation, oldest turn first."""

    session_id: str
    turns: Sequence[TurnDocument]


class EventDocument(Document):
    """One event of a session's history.

    Pass ``cursor`` to read the events after it. It is empty for events that are only shown live: ``progress``, and
    output of steps (``stream.chunk``, ``stream.restarted``, ``stream.gap``).
    """

    cursor: str
    session_id: str
    created_at: Moment
    agent_name: str
    event_type: str
    summary: str
    data: dict[str, Any]

    @classmethod
    def of(cls, record: Event, **fields: Any) -> Self:
        return super().of(record, created_at=to_datetime(record.created_at), **fields)


class EventsDocument(Document):
    """The history of a session, oldest first."""

    session_id: str
    events: Sequence[EventDocument]


def conversation(session_id: str, records: Sequence[Turn]) -> ConversationDocument:
    """Return a session as a conversation, oldest turn first."""
    return ConversationDocument(session_id, [TurnDocument.of(record) for record in records])


def operations(session_id: str, records: Sequence[OperationInfo]) -> OperationsDocument:
    """Return the operations of a session that have ended, oldest first."""
    return OperationsDocument(session_id, [OperationDocument.of(record) for record in records])


def checkpoints(session_id: str, records: Sequence[Checkpoint]) -> CheckpointsDocument:
    """Return the checkpoints of a session, newest last."""
    return CheckpointsDocument(session_id, [CheckpointDocument.of(record) for record in records])


def history(session_id: str, events: Sequence[Event]) -> EventsDocument:
    """Return the events of a session, oldest first."""
    return EventsDocument(session_id, [EventDocument.of(event) for event in events])


def stream_item(session_id: str, item: StreamItem) -> EventDocument:
    """Return an item of a session's live stream in the shape of an event. It is not stored, so it has no cursor."""
    data: dict[str, Any] = {"n": item.n}
    summary = step = ""
    if isinstance(item, StreamChunk):
        kind, step = "stream.chunk", item.step
        data |= {"kind": item.kind, "source": item.source, "operation": item.operation}
        data |= {"run": item.run, "attempt": item.attempt}
        if isinstance(item.data, str):
            data["text"] = summary = item.data
        else:
            data["base64"] = b64encode(item.data).decode()
    elif isinstance(item, Restarted):
        kind, summary = "stream.restarted", f"{len(item.sources)} started again"
        data["sources"] = list(item.sources)
    else:
        kind, summary = "stream.gap", f"{item.lost} lost"
        data["lost"] = item.lost
    return EventDocument("", session_id, datetime.now(UTC).isoformat(), step, kind, summary, data)
