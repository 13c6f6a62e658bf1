"""Reacts to requests from outside while a session is driven: a pause, a cancel, a shutdown, or the loss of the hold.

A request takes effect at the step's next safe point.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from pausepoint.errors import HoldLost, StoreError
from pausepoint.model.commits import Flags
from pausepoint.model.records import SignalRecord
from pausepoint.runtime.hold import Held
from pausepoint.runtime.interrupts import Interrupter

CONFIRM_AFTER = 0.2
"""After how many seconds a session that cannot stop yet records what it is finishing."""

FRESH = 0.001
"""For how many seconds the flags that a commit has returned count as current."""

LEASE_MARGIN = 2.0
"""In this many last seconds of its lease, an engine begins no operation."""


class Requests:
    """Reacts to the requests that reach a held session."""

    __slots__ = (
        "confirming", "heard", "held", "interrupter", "is_unread", "looked_at", "news", "nudge", "seen",
    )  # fmt: skip

    def __init__(self, held: Held, interrupter: Interrupter) -> None:
        self.held = held
        self.interrupter = interrupter
        self.heard = held.row.signals  # the number of the last signal that was read as news
        self.nudge = asyncio.Event()
        self.looked_at = 0.0  # when the flags were last read
        self.is_unread: Callable[[], bool] = lambda: False  # whether the engine noticed a change and is about to read
        self.confirming: asyncio.Task[None] | None = None
        self.news: asyncio.Event  # set while the step is kept, to look at the session again
        self.seen: tuple[int, Flags] = held.fence, held.flags  # while the step is kept
        held.ledger.on_commit = self._committed

    def notice(self, fence: int, flags: Flags) -> None:
        """React to the fence and the flags that the store has for this session now."""
        held = self.held
        if held.is_kept:
            self.seen = fence, flags
            self.news.set()
            return
        if held.ledger.parking:
            return  # this drive is releasing the hold, and another drive may hold the session already
        if fence < held.row.fence:
            return  # read before this engine claimed the session again
        if fence > held.row.fence:
            held.ledger.breaks(_overtaken(held.session_id))
            self.interrupter.interrupt("abort")
            return
        self.apply_flags(flags)

    async def read(self) -> None:
        """Read the requests that arrived since the session was claimed. A pause then takes effect before any step."""
        for fence, flags in (await self.held.store.flags([self.held.row.key])).values():
            self.notice(fence, flags)

    def may_have_news(self) -> bool:
        """Whether requests may have arrived since the flags were last read. A commit has just read them."""
        age = asyncio.get_running_loop().time() - self.looked_at
        return age > FRESH and (self.is_unread() or self.held.store.has_news())

    async def look(self) -> None:
        """Read the requests that have arrived."""
        self.looked_at = asyncio.get_running_loop().time()
        await self.read()

    async def new_signals(self) -> list[SignalRecord]:
        """Return the signals that have arrived since the last call, or since the session was claimed."""
        signals = await self.held.store.signals(self.held.row.key, self.heard)
        self.heard = max((self.heard, *(signal.n for signal in signals[-1:])))
        return signals

    @property
    def lease_is_short(self) -> bool:
        """Whether the engine may lose the session before something that begins now has run for long."""
        left = self.held.store.lease_left(self.held.row.holder or 0)
        return left is not None and left < LEASE_MARGIN

    async def renewed(self) -> bool:
        """Wait until the lease is long enough to begin something. Return False, and abort the step, if it has ended."""
        while self.lease_is_short:
            if self.held.broken is not None or self.end_with_lease():
                return False
            await asyncio.sleep(0.05)
        return True

    def end_with_lease(self) -> bool:
        """Abort the drive if the engine's lease has ended. Its session stays at its last record. Return whether."""
        held = self.held
        left = held.store.lease_left(held.row.holder or 0)
        if left is None or left > 0 or held.ledger.parked:
            return False
        self.give_up(_unleased(held.session_id))
        return True

    def _committed(self, flags: Flags) -> None:
        held = self.held
        if held.visit is not None:  # only operations look for news
            self.looked_at = held.visit.loop.time()
        if flags is not held.flags or flags.mail:
            self.apply_flags(flags)
        held.changed(held.session_id)

    def apply_flags(self, flags: Flags) -> None:
        """React to a change of the flags."""
        held = self.held
        if flags.mail and held.visit is not None:
            held.visit.arrivals.come()
        if flags == held.flags:
            held.flags = flags  # the store returns the same object again, so later comparisons are by identity
            return
        if held.flags.pause_requested and not flags.pause_requested:
            self._pause_withdrawn()
        elif flags.pause_requested and not held.flags.pause_requested and self.interrupter.in_step:
            self.confirming = asyncio.get_running_loop().create_task(self._confirm_pause())
        is_mail_alone = replace(flags, mail=held.flags.mail) == held.flags
        held.flags = flags
        self.nudge.set()
        if is_mail_alone:
            return
        if flags.pause_requested and flags.pause_mode == "abort":
            self.interrupter.interrupt("abort")
        elif held.visit is not None:
            held.visit.reconsider()

    def _pause_withdrawn(self) -> None:
        """React to a pause that was withdrawn before it took effect. A new budget may apply; timers were not frozen."""
        self.held.budgeted = None
        self.held.ledger.thaws = True

    async def _confirm_pause(self) -> None:
        """If operations delay the pause, record their names, so that `pause(wait=True)` can report them."""
        held = self.held
        await asyncio.sleep(CONFIRM_AFTER)
        if (
            not self.interrupter.in_step
            or held.keeping is not None
            or held.ledger.parking
            or not held.flags.pause_requested
        ):
            return
        operations = [] if held.visit is None else held.visit.in_flight
        what = ", ".join(operations) or f"{held.line.step}#{held.line.visit}"
        with suppress(StoreError, HoldLost):  # the drive finds out itself
            await held.ledger.note("session.pausing", f"finishing {what} before the pause", {"operations": operations})

    def stop(self, reason: str, now: bool = False) -> None:
        """Stop driving after the current operation, or immediately if ``now``. The session's status becomes ready."""
        held = self.held
        held.stop_reason = held.stop_reason or reason
        self.nudge.set()
        if held.keeping is not None:
            self.news.set()
        if now:
            self.interrupter.interrupt("abort")
        elif held.visit is not None:
            held.visit.settle()
        else:
            self.interrupter.interrupt("exit")

    def give_up(self, error: Exception) -> None:
        """End the drive because the store has failed, and make the step exit."""
        self.held.ledger.breaks(error)
        self.interrupter.interrupt("abort")


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
