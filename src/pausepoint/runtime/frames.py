"""The operations of a visit: what tells them apart, and those in flight, also map items that contain operations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

import msgspec

from pausepoint.codec.arguments import NOT_RECORDED, arguments_of
from pausepoint.log.events import label_of
from pausepoint.model.chunks import Part


class Operation(msgspec.Struct, frozen=True):
    """The identity of an operation: (scope, name, key), or (scope, name, input, number among identical calls).

    ``part`` is the chunk of a file that it processes. Without a key, ``nth`` is which call of the function in its scope
    it is, whatever the arguments, and ``digests`` has a digest of each. ``arguments`` is what the log keeps of them.
    """

    id: str
    name: str
    input: str
    keyed: bool
    part: Part | None = None
    nth: int = 0
    digests: str = ""
    arguments: msgspec.Raw = NOT_RECORDED

    @property
    def label(self) -> str:
        """What tells it from other calls of its function; empty if that is not known."""
        return label_of(self.id, self.name, arguments_of(self.arguments))


class Cancels:
    """Stands for a task on the event loop of another thread: what a frame needs to end an attempt there."""

    __slots__ = ("cancel",)

    def __init__(self, cancel: Callable[[], None]) -> None:
        self.cancel = cancel

    def cancelling(self) -> int:
        """Return 0: the thread of the task counts for itself."""
        return 0

    def uncancel(self) -> int:
        """Return 0, like `cancelling`."""
        return 0


class Frame:
    """A piece of a visit in flight: an operation, or a map item that contains operations."""

    __slots__ = (
        "attempt", "branch", "cancelling", "closed", "due", "ended", "expired", "follows", "generation", "halted",
        "left", "parent", "scope", "span", "task", "used",
    )  # fmt: skip

    cancelling: int  # of `task`, when its time was over

    def __init__(self, scope: str, parent: Frame | None) -> None:
        self.scope = scope
        self.parent = parent
        self.generation: int = 0 if parent is None else parent.generation  # see `Visit.nth`
        self.used = False  # whether an operation was called inside, in this attempt or an earlier one
        self.follows = False  # whether the last operation that was called inside was remembered
        self.halted = 0  # how many branches inside are halted or wait
        self.attempt = 1
        self.branch: Callable[[], str] | None = None  # see `Context.branch_by`
        self.due = inf  # when the time of the attempt is over, as the loop counts; see `pausepoint.runtime.timeouts`
        self.left: float | None = None  # the rest of this time, while it is stopped
        self.expired = False
        self.task: asyncio.Task[Any] | Cancels | None = None
        self.closed = False  # its attempt has failed; what still runs inside no longer counts
        self.ended: asyncio.Event | None = None
        self.span: object = None

    async def wait(self) -> None:
        """Wait until the frame is no longer in flight."""
        if self.ended is None:
            self.ended = asyncio.Event()
        await self.ended.wait()

    def successor(self, generation: int) -> Frame:
        """Return a frame for the next attempt at the same operation."""
        fresh = Frame(self.scope, self.parent)
        fresh.generation, fresh.branch = generation, self.branch
        fresh.attempt, fresh.ended, fresh.span, fresh.used = self.attempt, self.ended, self.span, self.used
        return fresh

    @property
    def is_closed(self) -> bool:
        """Whether the attempt that this frame belongs to has failed, so that another one may run instead."""
        return self.closed or (self.parent is not None and self.parent.is_closed)

    @property
    def is_inside_expired(self) -> bool:
        """Whether the time of an operation around this frame is over, too."""
        return self.parent is not None and (self.parent.expired or self.parent.is_inside_expired)

    @property
    def attempts(self) -> str:
        """The numbers of the attempts that this frame is in, as a mark for what they spend; empty for first ones."""
        numbers, frame = [self.attempt], self.parent
        while frame is not None:
            numbers.append(frame.attempt)
            frame = frame.parent
        return f"!{'.'.join(map(str, reversed(numbers)))}" if any(number > 1 for number in numbers) else ""
