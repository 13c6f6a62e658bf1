"""Makes the running step of a drive exit, at an await of its code.

The step's code runs inside the drive's own task. To make it exit, that task is cancelled once, and the cancellation is
then taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

from pausepoint.definition.workflow import BoundStep
from pausepoint.errors import StepTimeout
from pausepoint.model.pauses import Paused
from pausepoint.model.sessions import PauseKind
from pausepoint.runtime.hold import Held

Interrupt = Literal["exit", "abort", "timeout"]


class Exited(Exception):
    """Raised when a step exits before it ends, because of a pause, a shutdown or an abort."""


class Interrupter:
    """The task that runs the steps of a held session, and why it is interrupted."""

    __slots__ = ("cancels", "demand", "held", "in_step", "on_interrupt", "stale_cancels", "task", "timer", "why")

    def __init__(self, held: Held) -> None:
        self.held = held
        self.task: asyncio.Task[Any] | None = None
        self.in_step = False
        self.timer: asyncio.TimerHandle | None = None  # the timeout of the running step
        self.why: Interrupt | None = None
        self.demand: Paused | None = None
        self.cancels = 0
        # A task group in the step cancels this task when a branch fails; before Python 3.13 it may not take that back.
        self.stale_cancels = 0
        self.on_interrupt: Callable[[], None] = lambda: None

    def interrupt(self, why: Interrupt) -> None:
        """Make the step exit, if one is running."""
        self.on_interrupt()
        # A step may swallow a cancellation. Only "abort" cancels it again.
        if self.in_step and self.task is not None and (self.why is None or why == "abort"):
            self.why = self.why or why
            if not self.cancels:
                self.stale_cancels = self.task.cancelling()
            self.cancels += 1
            if self.held.visit is not None:
                self.held.visit.close()
            self.task.cancel()

    def demand_pause(self, kind: PauseKind, reason: str) -> None:
        """Pause the session with this reason once the step has exited."""
        self.demand = self.demand or Paused(kind, reason)

    def start_timer(self, seconds: float) -> None:
        """Interrupt the step when its timeout has passed."""
        self.timer = asyncio.get_running_loop().call_later(seconds, self.interrupt, "timeout")

    def stop_timer(self) -> float | None:
        """Stop the step's timeout, and return how many seconds it had left."""
        if self.timer is None:
            return None
        timer, self.timer = self.timer, None
        timer.cancel()
        return max(timer.when() - asyncio.get_running_loop().time(), 0.0)

    def forget_stale_cancels(self) -> None:
        """Forget cancellations that an earlier attempt or step has left behind. A real one would have ended it."""
        while self.task is not None and self.task.cancelling():
            self.task.uncancel()

    async def take_back(self, cancelled: bool = True) -> tuple[Interrupt | None, bool]:
        """Return why the step was interrupted, if it was, and whether it ended before it saw the cancellation.

        ``cancelled``: whether it may have been cancelled from outside too. A step with another error was not.
        """
        why, self.why = self.why, None
        if why is None:
            return None, False
        unseen = False
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            unseen = True
        cancels, self.cancels = self.cancels, 0
        left = [self.task.uncancel() for _ in range(cancels)] if self.task is not None else []
        if cancelled and left and left[-1] > self.stale_cancels:
            raise asyncio.CancelledError  # the task was cancelled from outside too
        return why, unseen

    def exit_of(self, step: BoundStep, why: Interrupt) -> Exception:
        """Return the exception that an interrupted step ends with."""
        if why == "timeout":
            return StepTimeout(
                f"Step {step.name!r} exceeded its timeout of {step.timeout:g} s. Raise @step(timeout=...), or split"
                " the step."
            )
        demand, self.demand = self.demand, None
        if demand is None or why == "abort" or self.held.ledger.parked:  # parked: the step was kept in memory
            return Exited()
        return demand

    @property
    def is_cancelled(self) -> bool:
        """Whether the task is being cancelled from outside."""
        return self.task is not None and self.task.cancelling() > 0
