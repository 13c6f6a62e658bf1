"""The time-outs of a visit's operations: one timer for all of them, because almost none of them ever expires."""

from __future__ import annotations

import asyncio
from asyncio import current_task
from math import inf

from pausepoint.runtime.frames import Frame


class Timeouts:
    """The frames of a visit whose attempt has a time limit.

    The limit of a frame stands still while the operation waits or is paused.
    """

    __slots__ = ("armed", "loop", "rings_at", "time", "timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.time = loop.time
        self.armed: set[Frame] = set()
        self.rings_at = inf
        self.timer: asyncio.TimerHandle | None = None

    def start(self, frame: Frame, seconds: float) -> None:
        """Cancel the calling task if the attempt in this frame takes longer than this."""
        frame.due = due = self.time() + seconds
        frame.task = current_task()
        self.armed.add(frame)
        if due < self.rings_at:
            self._watch(due)

    def stop(self, frame: Frame) -> None:
        """Let the limit of a frame stand still."""
        if frame in self.armed and frame.due < inf:
            frame.left, frame.due = frame.due - self.time(), inf

    def go(self, frame: Frame) -> None:
        """Let the limit of a frame count again."""
        if frame in self.armed and frame.due == inf and not frame.expired:
            frame.due = self.time() + frame.left
            self._watch(frame.due)

    def expired(self, frame: Frame, raised: BaseException | None) -> bool:
        """End a limit that has expired. Return whether the attempt ended for that reason, and for no other."""
        frame.expired = False
        assert frame.task is not None
        # The task may have been cancelled from elsewhere too, which counts more.
        return frame.task.uncancel() <= frame.cancelling and isinstance(raised, asyncio.CancelledError)

    def close(self) -> None:
        """Stop the timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _watch(self, due: float) -> None:
        """Make the timer ring at ``due``, unless it rings earlier anyway."""
        if due < self.rings_at:
            self.close()
            self.rings_at, self.timer = due, self.loop.call_at(due, self._ring)

    def _ring(self) -> None:
        self.rings_at, self.timer = inf, None
        now = self.time()
        for frame in self.armed:
            if frame.due <= now and frame.task is not None:
                frame.due, frame.expired, frame.cancelling = inf, True, frame.task.cancelling()
                frame.task.cancel()
        self._watch(min((frame.due for frame in self.armed), default=inf))
