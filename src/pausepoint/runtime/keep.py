"""Keeps the step of a paused session in memory, so that a resume continues it in place.

A kept session is parked like any other: no engine holds it, and every verb works on it. In addition, its row names the
engine that still has the step in memory. To continue, that engine claims the session again under the fence that it
remembers. Any other claim or change raises the fence. The step is then out of date, and exits as after any pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from pausepoint.errors import (
    AlreadyRunning,
    HoldLost,
    LimitReached,
    SessionEnded,
    StoreError,
    UnknownSession,
    VerbRefused,
)
from pausepoint.model.commits import Flags
from pausepoint.name import NAME
from pausepoint.runtime.hold import Held
from pausepoint.runtime.interrupts import Interrupter
from pausepoint.runtime.park import Parking
from pausepoint.runtime.pickup import deferred_questions, idle
from pausepoint.runtime.requests import Requests


class Keeper:
    """Keeps the step of a held session in memory while the session is paused."""

    __slots__ = (
        "gives_up", "held", "hold", "interrupter", "kept_for", "on_parked", "on_resumed", "parking", "quiet",
        "requests",
    )  # fmt: skip

    def __init__(self, held: Held, interrupter: Interrupter, requests: Requests, parking: Parking) -> None:
        self.held = held
        self.interrupter = interrupter
        self.requests = requests
        self.parking = parking
        self.hold = 0.0  # how many seconds a paused step is kept
        self.gives_up = False
        self.on_parked: Callable[[], None] = lambda: None  # the session's slot is free
        self.on_resumed: Callable[[], None] = lambda: None  # the session continues in place
        self.kept_for = 0.0  # seconds that the step was kept; they do not count as its run time
        self.quiet = asyncio.Event()  # the session is parked: its drive has ended, or keeps the step

    def exit_step(self, waits: bool = False) -> None:
        """Make the step exit or keep it; no operation is in flight. ``waits``: all branches wait, so it is known what
        wakes them.
        """
        held = self.held
        visit = held.visit
        if held.keeping is not None:
            return
        if not waits and self.interrupter.why is None and self.interrupter.demand is None and self._may_keep():
            self.keep_step()
            return
        held.parks = visit.waits_for() if visit is not None and waits else None
        held.awaited = frozenset(wait.child for wait in visit.waits.waits) if visit is not None else frozenset()
        held.asked = frozenset(wait.question for wait in visit.waits.waits) if visit is not None else frozenset()
        self.interrupter.interrupt("exit")

    def _may_keep(self) -> bool:
        """Return whether only the operator's pause stops the step, and an operation waits to continue it."""
        held = self.held
        visit, flags = held.visit, held.flags
        return (
            self.hold > 0
            and visit is not None
            and bool(visit.halted)
            and not visit.refused
            and self.interrupter.in_step
            and held.broken is None
            and not held.stop_reason
            and flags.pause_requested
            and flags.pause_mode == "finish"
            and not flags.cancel_requested
        )

    def keep_step(self) -> None:
        """Park the session and keep its step, in a task of its own because the drive's task is inside the step."""
        self.requests.news = asyncio.Event()
        self.held.keeping = asyncio.get_running_loop().create_task(
            self._keep(), name=f"{NAME} keeps {self.held.session_id}"
        )

    async def step_may_end(self) -> bool:
        """Wait while the step is kept, and return whether it continues in place. A step can end while it is kept."""
        return self.held.keeping is None or await asyncio.shield(self.held.keeping)

    def stop_keeping(self) -> None:
        """Make the step exit instead of waiting for a resume."""
        self.gives_up = True
        if self.held.keeping is not None:
            self.requests.news.set()

    async def _keep(self) -> bool:
        """Keep the step until the session is resumed. Return whether it continues in place."""
        held = self.held
        began, left = asyncio.get_running_loop().time(), self.interrupter.stop_timer()
        continues = False
        try:
            continues = await self._parked_until_resumed()
        except (StoreError, HoldLost) as error:
            held.ledger.breaks(error)
            with suppress(StoreError):
                await held.store.unkeep(held.row.key, held.fence)
        finally:
            self.kept_for += asyncio.get_running_loop().time() - began
            held.keeping = None
            if continues:
                if left is not None and self.interrupter.in_step:
                    self.interrupter.start_timer(left)
                if held.visit is not None:
                    held.visit.reconsider()
            else:
                self.quiet.clear()  # the drive has not ended yet
                self.interrupter.interrupt("exit")
        return continues

    async def _parked_until_resumed(self) -> bool:
        if not await self.parking.park_paused(kept=True):
            return True  # the pause was withdrawn first
        self.quiet.set()
        self.held.changed(self.held.session_id)
        self.on_parked()
        return await self._resumed_in_place()

    async def _resumed_in_place(self) -> bool:
        """Wait until the pause is withdrawn and the session is claimed again. Return False if the step must exit."""
        held = self.held
        loop = asyncio.get_running_loop()
        until = loop.time() + self.hold
        # Requests that arrived while the session parked were ignored.
        found = await held.store.flags([held.row.key])
        if held.row.key not in found:
            return False
        self.requests.seen = found[held.row.key]
        while True:
            self.requests.news.clear()  # before it is read: what arrives during the claim below must not be lost
            fence, flags = self.requests.seen
            if fence != held.fence:
                return False
            # The step stays paused until the claim: an operation that began before would not be protected by the hold.
            held.flags = replace(flags, pause_requested=True)
            gives_up = self.gives_up or held.stop_reason or flags.cancel_requested or flags.pause_mode == "abort"
            if not gives_up and not flags.pause_requested and await self._claim_again():
                return True
            if gives_up or loop.time() >= until:
                await held.store.unkeep(held.row.key, held.fence)
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(until - loop.time()):  # Python 3.11's wait_for() can lose a cancellation
                    await self.requests.news.wait()

    async def _claim_again(self) -> bool:
        """Claim the session under the fence that this engine knows, and record that it continues in place."""
        held = self.held
        try:
            row = await held.store.claim(held.session_id, fence=held.fence)
        except (AlreadyRunning, HoldLost, SessionEnded, UnknownSession):
            self.requests.seen = -1, held.flags  # the step is out of date
            self.requests.news.set()
            return False
        except LimitReached:
            self.gives_up = True  # it is due: the waker of any engine picks it up when a slot is free
            self.requests.news.set()
            return False
        except VerbRefused:
            return False  # it was paused again meanwhile
        held.row, held.fence = row, row.fence
        held.ledger.claimed_again(row)
        self.quiet.clear()
        self.on_resumed()
        held.flags = Flags(row.pause_requested, row.pause_mode, row.cancel_requested, row.mail)
        held.budgeted = None if row.may_have_budget else False
        await self._note_resumed_in_place()
        return True

    async def _note_resumed_in_place(self) -> None:
        held = self.held
        pauses = await held.store.pauses(held.row.key, open_only=False)
        closed = [pause for pause in pauses if pause.kind == "operator" and pause.closed_at is not None]
        by = closed[-1].closed_by if closed else None
        summary = f"resumed{f' by {by}' if by else ''} in place at {held.line.step}#{held.line.visit}"
        frozen = held.row.frozen
        data = {
            "step": held.line.step,
            "by": by,
            "skipped": 0,
            "saved_seconds": 0.0,
            "saved_usd": 0.0,
            "in_place": True,
        }
        await held.ledger.note(
            "session.resumed", summary, data, shift=frozen, thaw=bool(frozen), questions=deferred_questions(held),
            idle=await idle(held),
        )  # fmt: skip
