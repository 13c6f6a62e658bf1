"""The event bus: who wants to hear what happens to a run is told, in order, and cannot disturb it.

An event goes into the log first and to the listeners then, so that what somebody heard can be read again, from any
cursor on. What a listener raises is logged and ends nothing.
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

from pausepoint.errors import said
from pausepoint.name import NAME

logger = logging.getLogger(f"{NAME}.orchestrator")


class BusEvent(msgspec.Struct, frozen=True, rename="camel"):
    """What all events of a run have. Each kind says its ``type`` and which fields go with it."""

    type: ClassVar[str] = ""

    @classmethod
    def in_history(cls) -> str:
        """What it is called in the history of a session, whose names have no colons."""
        return cls.type.replace(":", ".")

    @property
    def data(self) -> dict[str, Any]:
        """Its fields, as a listener in another language would see them."""
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return found


class OrchestratorPaused(BusEvent, frozen=True, rename="camel"):
    """Every agent stands still and the snapshot is on disk. ``timestamp`` is in milliseconds since 1970."""

    type: ClassVar[str] = "orchestrator:paused"
    timestamp: int
    active_agent_ids: tuple[str, ...]
    reason: str = ""
    by: str | None = None
    stopped_in: float = 0.0


class OrchestratorResumed(BusEvent, frozen=True, rename="camel"):
    """The agents go on from the snapshot."""

    type: ClassVar[str] = "orchestrator:resumed"
    timestamp: int
    active_agent_ids: tuple[str, ...]


class TaskStarted(BusEvent, frozen=True, rename="camel"):
    """An agent has begun a task, or begun it again. ``attempt`` counts how often somebody wanted it done."""

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
    """The task has failed; what needs it waits."""

    type: ClassVar[str] = "task:failed"
    task: str
    agent: str
    error: str
    attempt: int = 1


KINDS: tuple[type[BusEvent], ...] = (OrchestratorPaused, OrchestratorResumed, TaskStarted, TaskCompleted, TaskFailed)

E = TypeVar("E", bound=BusEvent)
Listener = Callable[[Any], Awaitable[None] | None]


class Logged(msgspec.Struct, frozen=True):
    """An event of the log, and the cursor to read on from."""

    cursor: str
    event: BusEvent


class EventLog(Protocol):
    """Where a bus keeps what it carries."""

    async def append(self, event: BusEvent) -> None:
        """Keep an event, after all that were kept before."""

    async def read(self, after: str = "") -> list[Logged]:
        """What was kept after a cursor, in order."""


class MemoryLog:
    """A log for as long as the process lives."""

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
            raise ValueError(f"{after!r} is not a cursor; use one that an event carried, or ''") from None
        return [Logged(str(start + n), event) for n, event in enumerate(self.events[start:], 1)]


class _Subscription:
    """One listener and what it has yet to hear."""

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
        """A plain function hears it now. An async one hears it as soon as it is done with what came before."""
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
            self._complain(event, error)  # something that the listener waited for was cancelled, not the listening
        except Exception as error:
            self._complain(event, error)

    def _complain(self, event: BusEvent, error: BaseException) -> None:
        logger.error("a listener to %s raised %s: %s", event.type, type(error).__name__, said(error), exc_info=error)


class EventBus:
    """See the module's text. ``log`` is where events are kept; by default in memory."""

    def __init__(self, log: EventLog | None = None) -> None:
        self.log: EventLog = MemoryLog() if log is None else log
        self._subscriptions: list[_Subscription] = []

    def on(self, what: str | type[E], listener: Callable[[E], Awaitable[None] | None]) -> Callable[[], None]:
        """Have a plain or async function told of a kind of event: its class, or a pattern (``"task:*"``, ``"*"``).

        Call what comes back to hear no more, not even of what an async listener has yet to hear.
        """
        found = _Subscription(what, listener)
        self._subscriptions.append(found)

        def off() -> None:
            found.queue.clear()
            if found in self._subscriptions:
                self._subscriptions.remove(found)

        return off

    async def emit(self, event: BusEvent) -> None:
        """Log an event, then tell the listeners; they are told even if the log refuses, whose error comes out."""
        try:
            await self.log.append(event)
        finally:
            self.tell(event)

    def tell(self, event: BusEvent) -> None:
        """Tell the listeners, in the order in which they came, of an event that is in the log already."""
        for each in list(self._subscriptions):
            if each.wants(event):
                each.tell(event)

    async def replay(self, after: str = "") -> list[Logged]:
        """What was carried after a cursor, in order."""
        return await self.log.read(after)

    async def heard(self) -> None:
        """Wait until every async listener has heard everything; one that waits here is not waited for."""
        here = asyncio.current_task()
        while pumps := [each.pump for each in self._subscriptions if each.pump is not None and each.pump is not here]:
            await asyncio.wait(pumps)
