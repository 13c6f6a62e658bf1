"""What a visit needs from the session that it belongs to: the drive, and the children of the session."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Protocol

from pausepoint.artifacts.publisher import Publisher
from pausepoint.clock import Clock
from pausepoint.codec.values import Limits
from pausepoint.definition.workflow import Workflow
from pausepoint.log.ledger import Ledger
from pausepoint.log.replay import Line, OperationBody, WaitBody
from pausepoint.log.state import Blobs
from pausepoint.model.ids import SessionId
from pausepoint.model.questions import QuestionRow
from pausepoint.model.records import SignalRecord
from pausepoint.model.sessions import PauseKind, SessionRow
from pausepoint.runtime.frames import Frame

if TYPE_CHECKING:
    from pausepoint.runtime.visit import Visit


class Family(Protocol):
    """The children of one session."""

    async def child(self, child_id: str) -> SessionRow | None:
        """Return a child's row; None if the child was never started."""

    async def child_state(self, workflow: Workflow[Any], row: SessionRow) -> Any:
        """Return the state of a child."""

    async def begin_child(self, workflow: Workflow[Any], child_id: SessionId, given: Any) -> None:
        """Start a child with this id in this engine."""

    async def resume_child(self, workflow: Workflow[Any], row: SessionRow) -> None:
        """Resume a child that no engine drives, in this engine."""

    async def cancel_child(self, child_id: str, reason: str) -> None:
        """Cancel a child and its children."""


class Host(Protocol):
    """The services that a visit needs from the drive of its session."""

    session_id: str
    row: SessionRow
    clock: Clock
    limits: Limits
    line: Line
    ledger: Ledger
    events: frozenset[str]
    fence: int
    publisher: Publisher | None
    family: Family
    resumed: bool
    budgeted: bool | None
    workflow: Workflow[Any]
    questions_expire: timedelta | EllipsisType | None

    @property
    def must_stop(self) -> bool:
        """Whether the session must stop at its next safe point."""

    @property
    def stopping(self) -> bool:
        """Whether the engine is shutting down, so that no new operation may start."""

    @property
    def keeps_step(self) -> bool:
        """Whether the session is parked, or about to be, with its step in memory, so that nothing may start."""

    def may_have_news(self) -> bool:
        """Whether requests may have arrived since they were last read."""

    async def look(self) -> None:
        """Read the requests that have arrived."""

    async def over_budget(self, asking: int = 0) -> str:
        """Return why no more may be spent; an empty string if it may. ``asking``: that many in flight ask for it."""

    def give_up(self, error: Exception) -> None:
        """End the drive because the store has failed, and make the step exit."""

    def exit_step(self, waits: bool = False) -> None:
        """Make the step exit, or keep it in memory; nothing is in flight.

        ``waits``: every branch waits, so it is known what wakes it.
        """

    def demand_pause(self, kind: PauseKind, reason: str) -> None:
        """Pause the session with this reason once the step has exited."""

    async def remember(self, body: OperationBody | WaitBody, blobs: Blobs, **facts: Any) -> None:
        """Commit an operation or an opened wait, together with ``facts`` such as the signals it consumes."""

    async def note(self, type: str, summary: str, data: Mapping[str, Any], **facts: Any) -> bool:
        """Commit an event. Return False, with nothing written, if a condition in ``facts`` no longer holds."""

    async def question(self, id: str) -> QuestionRow | None:
        """Return a question of the session, or None if there is none with this id."""

    async def mail(
        self, limit: int | None = None, kind: str | None = None, about: str | None = None
    ) -> list[SignalRecord]:
        """Return the signals that are not consumed yet; see `Store.mail`."""

    async def take_mail(self, signal: SignalRecord, type: str, summary: str, noticed: str) -> None:
        """Consume a signal without an operation and record an event. ``noticed`` is the child that it reports on."""

    async def fetch(self, value: Any) -> bytes:
        """Return the bytes of a remembered value."""

    def send_live(self, visit: Visit, frame: Frame, chunk: str | bytes, kind: str) -> None:
        """Send a chunk of live output to all followers of the session. May be called in any thread."""

    def void_live(self, scope: str) -> None:
        """Declare void what an attempt at the operation ``scope`` has sent, because the attempt has failed."""

    def show_progress(self, done: int, total: int) -> None:
        """Show progress to followers now; it is stored with the next record."""
