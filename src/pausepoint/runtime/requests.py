"""Reacts to requests from outside while a session is driven: a pause, a cancel, a shutdown, or the loss of the hold.

A request takes effect at the step's next safe point. To make a step exit, the drive's task is cancelled once, at an
await of the step; the drive then takes the cancellation back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from msgspec.structs import replace

from pausepoint.errors import HoldLost, StoreError
from pausepoint.model.commits import Flags
from pausepoint.model.pauses import Paused
from pausepoint.model.records import SignalRecord
from pausepoint.model.sessions import PauseKind
from pausepoint.runtime.keep import Keeping

Interrupt = Literal["exit", "abort", "timeout"]

CONFIRM_AFTER = 0.2
"""After how many seconds a session that cannot stop yet records what it is finishing."""

FRESH = 0.001
"""For how many seconds the flags that a commit has returned count as current."""

LEASE_MARGIN = 2.0
"""In this many last seconds of its lease, an engine begins no operation."""


class Requests(Keeping):
    """A held session that reacts to requests from outside."""

    __slots__ = (
        "cancels",
        "changed",
        "confirming",
        "demand",
        "heard",
        "interrupt",
        "is_unread",
        "looked_at",
        "nudge",
        "stale_cancels",
        "task",
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.changed: Callable[[str], None] = lambda session_id: None
        self.demand: Paused | None = None
        self.heard = self.row.signals  # the number of the last signal that was read as news
        self.interrupt: Interrupt | None = None
        self.cancels = 0
        # A task group in the step cancels this task when a branch fails; before Python 3.13 it may not take that back.
        self.stale_cancels = 0
        self.task: asyncio.Task[None] | None = None
        self.nudge = asyncio.Event()
        self.looked_at = 0.0  # when the flags were last read
        self.is_unread: Callable[[], bool] = lambda: False  # whether the engine noticed a change and is about to read
        self.confirming: asyncio.Task[None] | None = None

    @property
    def code_task(self) -> asyncio.Task[Any] | None:
        """The task that runs the step's own code."""
        return self.task

    @property
    def must_stop(self) -> bool:
        """Whether the session must stop at its next safe point: for a pause, a cancel or a shutdown."""
        return bool(self.flags.pause_requested or self.flags.cancel_requested or self.stop_reason)

    @property
    def stopping(self) -> bool:
        """Whether the engine is shutting down, so that no new operation may start."""
        return bool(self.stop_reason)

    @property
    def keeps_step(self) -> bool:
        """Whether the session is parked, or about to be, with its step in memory."""
        return self.keeping is not None

    def notice(self, fence: int, flags: Flags) -> None:
        """React to the fence and the flags that the store has for this session now."""
        if self.is_kept:
            self.seen = fence, flags
            self.news.set()
            return
        if self.ledger.parking:
            return  # this drive is releasing the hold, and another drive may hold the session already
        if fence < self.row.fence:
            return  # read before this engine claimed the session again
        if fence > self.row.fence:
            self.ledger.breaks(_overtaken(self.session_id))
            self._interrupt("abort")
            return
        self._apply_flags(flags)

    def may_have_news(self) -> bool:
        """Whether requests may have arrived since the flags were last read. A commit has just read them."""
        age = asyncio.get_running_loop().time() - self.looked_at
        return age > FRESH and (self.is_unread() or self.store.has_news())

    async def look(self) -> None:
        """Read the requests that have arrived."""
        self.looked_at = asyncio.get_running_loop().time()
        await self._read_requests()

    async def new_signals(self) -> list[SignalRecord]:
        """Return the signals that have arrived since the last call, or since the session was claimed."""
        signals = await self.store.signals(self.row.key, self.heard)
        self.heard = max((self.heard, *(signal.n for signal in signals[-1:])))
        return signals

    @property
    def lease_is_short(self) -> bool:
        """Whether the engine may lose the session before something that begins now has run for long."""
        left = self.store.lease_left(self.row.holder or 0)
        return left is not None and left < LEASE_MARGIN

    async def renewed(self) -> bool:
        """Wait until the lease is long enough to begin something. Return False, and abort the step, if it has ended."""
        while self.lease_is_short:
            if self.broken is not None or self.end_with_lease():
                return False
            await asyncio.sleep(0.05)
        return True

    def end_with_lease(self) -> bool:
        """Abort the drive if the engine's lease has ended. Its session stays at its last record. Return whether."""
        left = self.store.lease_left(self.row.holder or 0)
        if left is None or left > 0 or self.ledger.parked:
            return False
        self.give_up(_unleased(self.session_id))
        return True

    def _committed(self, flags: Flags) -> None:
        if self.visit is not None:  # only operations look for news
            self.looked_at = self.visit.loop.time()
        if flags is not self.flags or flags.mail:
            self._apply_flags(flags)
        self.changed(self.session_id)

    def _apply_flags(self, flags: Flags) -> None:
        if flags.mail and self.visit is not None:
            self.visit.arrivals.come()
        if flags == self.flags:
            self.flags = flags  # the store returns the same object again, so later comparisons are by identity
            return
        if self.flags.pause_requested and not flags.pause_requested:
            self._pause_withdrawn()
        elif flags.pause_requested and not self.flags.pause_requested and self.in_step:
            self.confirming = asyncio.get_running_loop().create_task(self._confirm_pause())
        is_mail_alone = replace(flags, mail=self.flags.mail) == self.flags
        self.flags = flags
        self.nudge.set()
        if is_mail_alone:
            return
        if flags.pause_requested and flags.pause_mode == "abort":
            self._interrupt("abort")
        elif self.visit is not None:
            self.visit.reconsider()

    async def _confirm_pause(self) -> None:
        """If operations delay the pause, record their names, so that `pause(wait=True)` can report them."""
        await asyncio.sleep(CONFIRM_AFTER)
        if not self.in_step or self.keeping is not None or self.ledger.parking or not self.flags.pause_requested:
            return
        operations = [] if self.visit is None else self.visit.in_flight
        what = ", ".join(operations) or f"{self.line.step}#{self.line.visit}"
        with suppress(StoreError, HoldLost):  # the drive finds out itself
            await self.ledger.note("session.pausing", f"finishing {what} before the pause", {"operations": operations})

    def stop(self, reason: str, now: bool = False) -> None:
        """Stop driving after the current operation, or immediately if ``now``. The session's status becomes ready."""
        self.stop_reason = self.stop_reason or reason
        self.nudge.set()
        if self.keeping is not None:
            self.news.set()
        if now:
            self._interrupt("abort")
        elif self.visit is not None:
            self.visit.settle()
        else:
            self._interrupt("exit")

    def give_up(self, error: Exception) -> None:
        """End the drive because the store has failed, and make the step exit."""
        self.ledger.breaks(error)
        self._interrupt("abort")

    def exit_step(self, waits: bool = False) -> None:
        """Make the step exit or keep it; no operation is in flight. ``waits``: all branches wait, so it is known what
        wakes them.
        """
        visit = self.visit
        if self.keeping is not None:
            return
        if not waits and self.interrupt is None and self.demand is None and self._may_keep():
            self.keep_step()
            return
        self.parks = visit.waits_for() if visit is not None and waits else None
        self.awaited = frozenset(wait.child for wait in visit.waits.waits) if visit is not None else frozenset()
        self.asked = frozenset(wait.question for wait in visit.waits.waits) if visit is not None else frozenset()
        self._interrupt("exit")

    def _release_step(self) -> None:
        self._interrupt("exit")

    def _time_out(self) -> None:
        self._interrupt("timeout")

    def _parked_in_place(self) -> None:
        self.changed(self.session_id)

    def demand_pause(self, kind: PauseKind, reason: str) -> None:
        """Pause the session with this reason once the step has exited."""
        self.demand = self.demand or Paused(kind, reason)

    def _interrupt(self, why: Interrupt) -> None:
        # A step may swallow a cancellation. Only "abort" cancels it again.
        if self.in_step and self.task is not None and (self.interrupt is None or why == "abort"):
            self.interrupt = self.interrupt or why
            if not self.cancels:
                self.stale_cancels = self.task.cancelling()
            self.cancels += 1
            if self.visit is not None:
                self.visit.close()
            self.task.cancel()


def _unleased(session_id: str) -> HoldLost:
    return HoldLost(
        f"The lease of this engine on session {session_id!r} has ended: the engine was stopped, or could not reach the"
        " database. It stopped the session at its last record, and continues it unless another engine does.",
        session_id=session_id,
    )


def _overtaken(session_id: str) -> HoldLost:
    return HoldLost(
        f"Another engine took over session {session_id!r} and drives it now. This engine has written nothing since."
        f" Let the other engine continue, or take the session back with"
        f" engine.session({session_id!r}).resume(steal=True).",
        session_id=session_id,
    )
