"""The event bus of a run: listeners receive events in order and cannot disturb the run.

An event is written to the log first and passed to the listeners afterwards, so every event that a listener received can
be read again from a cursor. An exception in a listener is logged and stops nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from pausepoint.errors import error_text
from pausepoint.name import NAME

logger = logging.getLogger(f"{NAME}.orchestrator")


class BusEvent(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all events of a run. Each kind has a ``type`` and fields of its own."""

    type: ClassVar[str] = ""

    @classmethod
    def in_history(cls) -> str:
        """Return the event's name in the history of a session, where names have no colons."""
        return cls.type.replace(":", ".")

    @property
    def data(self) -> dict[str, Any]:
        """The fields as plain JSON values with camelCase names."""
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return found


class OrchestratorPaused(BusEvent, frozen=True, rename="camel"):
    """Every agent is idle and the snapshot is on disk. ``timestamp`` is in milliseconds since 1970."""

    type: ClassVar[str] = "orchestrator:paused"
    timestamp: int
    active_agent_ids: tuple[str, ...]
    reason: str = ""
    by: str | None = None
    stopped_in: float = 0.0


class OrchestratorResumed(BusEvent, frozen=True, rename="camel"):
    """The agents continue from the snapshot."""

    type: ClassVar[str] = "orchestrator:resumed"
    timestamp: int
    active_agent_ids: tuple[str, ...]


class TaskStarted(BusEvent, frozen=True, rename="camel"):
    """An agent has begun a task. ``attempt`` starts at 1 and rises by one each time someone requests the task again."""

    type: ClassVar[str] = "task:started"
    task: str
    agent: str
    attempt: int = 1


class TaskCompleted(BusEvent, frozen=True, rename="camel"):
    """The task is done and its result is on disk."""

    type: ClassVar[str] = "task:completed"
    task: str
    agent: str
    attempt: int = 1


class TaskFailed(BusEvent, frozen=True, rename="camel"):
    """The task has failed. Tasks that need it wait."""

    type: ClassVar[str] = "task:failed"
    task: str
    agent: str
    error: str
    attempt: int = 1


KINDS: tuple[type[BusEvent], ...] = (OrchestratorPaused, OrchestratorResumed, TaskStarted, TaskCompleted, TaskFailed)

E = TypeVar("E", bound=BusEvent)
Listener = Callable[[Any], Awaitable[None] | None]


class Logged(msgspec.Struct, frozen=True):
    """An event of the log, and the cursor to continue reading from."""

    cursor: str
    event: BusEvent


class EventLog(Protocol):
    """Where a bus stores its events."""

    async def append(self, event: BusEvent) -> None:
        """Append an event."""

    async def read(self, after: str = "") -> list[Logged]:
        """Return the events after a cursor, in order."""


class MemoryLog:
    """An event log in memory."""

    def __init__(self) -> None:
        self.events: list[BusEvent] = []

    async def append(self, event: BusEvent) -> None:
        """See `EventLog`."""
        self.events.append(event)

    async def read(self, after: str = "") -> list[Logged]:
        """See `EventLog`."""
        try:
            start = int(after or "0")
        except ValueError:
            raise ValueError(
                f"{after!r:.80} is not a cursor. Use the cursor of an event, or '' for the beginning."
            ) from None
        return [Logged(str(start + n), event) for n, event in enumerate(self.events[start:], 1)]


class _Subscription:
    """One listener and the events that it has not received yet."""

    def __init__(self, what: str | type[BusEvent], listener: Listener) -> None:
        self.what = what
        self.listener = listener
        self.queue: deque[BusEvent] = deque()
        self.pump: asyncio.Task[None] | None = None

    def wants(self, event: BusEvent) -> bool:
        if isinstance(self.what, str):
            return fnmatchcase(event.type, self.what)
        return isinstance(event, self.what)

    def tell(self, event: BusEvent) -> None:
        """Call a plain listener now, and an async listener after the events before this one."""
        if self.pump is not None:
            self.queue.append(event)
            return
        waiting = self._called(event)
        if waiting is not None:
            self.pump = asyncio.get_running_loop().create_task(self._drain(event, waiting))

    def _called(self, event: BusEvent) -> Awaitable[None] | None:
        try:
            waiting = self.listener(event)
        except Exception as error:
            self._complain(event, error)
            return None
        return waiting if inspect.isawaitable(waiting) else None

    async def _drain(self, event: BusEvent, waiting: Awaitable[None] | None) -> None:
        try:
            while True:
                if waiting is not None:
                    await self._listened(event, waiting)
                if not self.queue:
                    return
                event = self.queue.popleft()
                waiting = self._called(event)
        finally:
            self.pump = None

    async def _listened(self, event: BusEvent, waiting: Awaitable[None]) -> None:
        try:
            await waiting
        except asyncio.CancelledError as error:
            pump = asyncio.current_task()
            if pump is None or pump.cancelling():
                raise
            self._complain(event, error)  # the listener awaited something that was cancelled
        except Exception as error:
            self._complain(event, error)

    def _complain(self, event: BusEvent, error: BaseException) -> None:
        name, text = type(error).__name__, error_text(error)
        logger.error("A listener to %s raised %s: %s", event.type, name, text, exc_info=error)


class EventBus:
    """Passes the events of a run to listeners. ``log`` stores the events; by default in memory."""

    def __init__(self, log: EventLog | None = None) -> None:
        self.log: EventLog = MemoryLog() if log is None else log
        self._subscriptions: list[_Subscription] = []

    def on(self, what: str | type[E], listener: Callable[[E], Awaitable[None] | None]) -> Callable[[], None]:
        """Call a plain or async function for events of a class, or of a pattern such as ``"task:*"`` or ``"*"``.

        Return a function that ends the subscription and drops the events that an async listener has not received yet.
        """
        found = _Subscription(what, listener)
        self._subscriptions.append(found)

        def off() -> None:
            found.queue.clear()
            if found in self._subscriptions:
                self._subscriptions.remove(found)

        return off

    async def emit(self, event: BusEvent) -> None:
        """Log an event, then pass it to the listeners, even if the log raises an error."""
        try:
            await self.log.append(event)
        finally:
            self.tell(event)

    def tell(self, event: BusEvent) -> None:
        """Pass an event that is already in the log to the listeners, in the order in which they subscribed."""
        for each in list(self._subscriptions):
            if each.wants(event):
                each.tell(event)

    async def replay(self, after: str = "") -> list[Logged]:
        """Return the events after a cursor, in order."""
        return await self.log.read(after)

    async def heard(self) -> None:
        """Wait until every async listener has received all events, except a listener that calls this itself."""
        here = asyncio.current_task()
        while pumps := [each.pump for each in self._subscriptions if each.pump is not None and each.pump is not here]:
            await asyncio.wait(pumps)
