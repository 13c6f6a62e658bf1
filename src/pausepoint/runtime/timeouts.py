"""The time-outs of a visit's operations: one timer for all of them, because almost none of them ever expires."""

from __future__ import annotations

import asyncio
from math import inf


class Limit:
    """The time-out of one attempt at an operation. It stands still while the operation waits or is paused."""

    __slots__ = ("cancelling", "due", "expired", "left", "task", "timeouts")

    def __init__(self, timeouts: Timeouts, due: float) -> None:
        self.timeouts = timeouts
        self.due = due
        self.left = 0.0  # seconds, while it stands still
        self.expired = False
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.cancelling = task.cancelling()

    def stop(self) -> None:
        """Stand still."""
        self.left, self.due = self.due - self.timeouts.loop.time(), inf

    def go(self) -> None:
        """Continue to count."""
        if self.due == inf:
            self.due = self.timeouts.loop.time() + self.left
            self.timeouts.watch(self.due)

    def ends(self, raised: BaseException | None = None) -> bool:
        """End the limit. Return whether the attempt ended because its time was over, and for no other reason."""
        self.timeouts.armed.discard(self)
        if not self.expired:
            return False
        # The task may have been cancelled from elsewhere too, which counts more.
        return self.task.uncancel() <= self.cancelling and isinstance(raised, asyncio.CancelledError)


class Timeouts:
    """The running limits of one visit."""

    __slots__ = ("armed", "loop", "rings_at", "timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.armed: set[Limit] = set()
        self.rings_at = inf
        self.timer: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> Limit:
        """Cancel the calling task if it takes longer than this."""
        due = self.loop.time() + seconds
        limit = Limit(self, due)
        self.armed.add(limit)
        if due < self.rings_at:
            self.watch(due)
        return limit

    def watch(self, due: float) -> None:
        """Make the timer ring at ``due``, unless it rings earlier anyway."""
        if due >= self.rings_at:
            return
        self.close()
        self.rings_at, self.timer = due, self.loop.call_at(due, self._ring)

    def close(self) -> None:
        """Stop the timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _ring(self) -> None:
        self.rings_at, self.timer = inf, None
        now = self.loop.time()
        for limit in self.armed:
            if limit.due <= now:
                limit.due, limit.expired = inf, True
                limit.task.cancel()
        self.watch(min((limit.due for limit in self.armed), default=inf))
