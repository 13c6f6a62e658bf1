"""The time-outs of a visit's operations: one timer for all of them, because almost none of them ever expires.

The limit of an attempt is in its frame. It is stopped while the operation waits or is paused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from math import inf

from pausepoint.runtime.frames import Frame


class Timeouts:
    """Watches the frames in flight, and cancels the task of a frame whose ``due`` has passed."""

    __slots__ = ("loop", "rings_at", "running", "time", "timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, running: Mapping[str, Frame]) -> None:
        self.loop = loop
        self.time = loop.time
        self.running = running
        self.rings_at = inf
        self.timer: asyncio.TimerHandle | None = None

    def watch(self, due: float) -> None:
        """Make the timer ring at ``due``, unless it rings earlier anyway."""
        if due < self.rings_at:
            self.close()
            self.rings_at, self.timer = due, self.loop.call_at(due, self._ring)

    def stop(self, frame: Frame) -> None:
        """Stop the limit of a frame, if it has one."""
        if frame.due < inf:
            frame.left, frame.due = frame.due - self.time(), inf

    def go(self, frame: Frame) -> None:
        """Continue the limit of a frame, if it was stopped."""
        if frame.left is not None:
            frame.due, frame.left = self.time() + frame.left, None
            self.watch(frame.due)

    def has_expired(self, frame: Frame, raised: BaseException | None) -> bool:
        """End the limit of a frame. Return whether the attempt ended because of it, and for no other reason."""
        frame.due, frame.left = inf, None
        if not frame.expired or frame.task is None:
            return False
        frame.expired = False
        # The task may have been cancelled from elsewhere too, or for an operation around this one, which counts more.
        alone = frame.task.uncancel() <= frame.cancelling and not frame.is_inside_expired
        return alone and isinstance(raised, asyncio.CancelledError)

    def close(self) -> None:
        """Stop the timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _ring(self) -> None:
        self.rings_at, self.timer = inf, None
        now = self.time()
        for frame in self.running.values():
            if frame.due <= now and frame.task is not None:
                frame.due, frame.expired, frame.cancelling = inf, True, frame.task.cancelling()
                frame.task.cancel()
        self.watch(min((frame.due for frame in self.running.values()), default=inf))
