"""Keeps the step of a paused session in memory, so that a resume continues it in place.

A kept session is parked like any other: no engine holds it, and every verb works on it. In addition, its row names the
engine that still has the step in memory. To continue, that engine claims the session again under the fence that it
remembers. Any other claim or change raises the fence. The step is then out of date, and exits as after any pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

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
from pausepoint.runtime.hold import Holding
from pausepoint.runtime.visit import Visit


class Keeping(Holding):
    """A held session whose step can be kept in memory while it is paused."""

    __slots__ = (
        "gives_up", "hold", "in_step", "keeping", "kept_for", "news", "on_parked", "on_resumed", "quiet", "seen",
        "timer", "visit",
    )  # fmt: skip

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.hold = 0.0  # how many seconds a paused step is kept
        self.in_step = False
        self.visit: Visit | None = None
        self.timer: asyncio.TimerHandle | None = None  # the timeout of the running step
        self.keeping: asyncio.Task[bool] | None = None
        self.gives_up = False
        self.on_parked: Callable[[], None] = lambda: None  # the session's slot is free
        self.on_resumed: Callable[[], None] = lambda: None  # the session continues in place
        self.kept_for = 0.0  # seconds that the step was kept; they do not count as its run time
        self.quiet = asyncio.Event()  # the session is parked: its drive has ended, or keeps the step
        self.news: asyncio.Event  # set while the step is kept, to look at the session again
        self.seen: tuple[int, Flags] = self.fence, self.flags

    @property
    def is_kept(self) -> bool:
        """Whether the session is parked with its step in memory."""
        return self.keeping is not None and self.ledger.parked

    def _in_flight(self) -> int:
        return 0 if self.visit is None else len(self.visit.running)

    def _release_step(self) -> None:
        """Make the step exit."""
        raise NotImplementedError

    def _time_out(self) -> None:
        """Interrupt the step, because its timeout has passed."""
        raise NotImplementedError

    def _may_keep(self) -> bool:
        """Return whether only the operator's pause stops the step, and an operation waits to continue it."""
        visit, flags = self.visit, self.flags
        return (
            self.hold > 0
            and visit is not None
            and bool(visit.halted)
            and not visit.refused
            and self.in_step
            and self.broken is None
            and not self.stop_reason
            and flags.pause_requested
            and flags.pause_mode == "finish"
            and not flags.cancel_requested
        )

    def keep_step(self) -> None:
        """Park the session and keep its step, in a task of its own because the drive's task is inside the step."""
        self.news = asyncio.Event()
        self.keeping = asyncio.get_running_loop().create_task(self._keep(), name=f"{NAME} keeps {self.session_id}")

    async def step_may_end(self) -> bool:
        """Wait while the step is kept, and return whether it continues in place. A step can end while it is kept."""
        return self.keeping is None or await asyncio.shield(self.keeping)

    def stop_keeping(self) -> None:
        """Make the step exit instead of waiting for a resume."""
        self.gives_up = True
        if self.keeping is not None:
            self.news.set()

    async def _keep(self) -> bool:
        """Keep the step until the session is resumed. Return whether it continues in place."""
        began, left = asyncio.get_running_loop().time(), self._stop_timer()
        continues = False
        try:
            continues = await self._parked_until_resumed()
        except (StoreError, HoldLost) as error:
            self.ledger.breaks(error)
            with suppress(StoreError):
                await self.store.unkeep(self.row.key, self.fence)
        finally:
            self.kept_for += asyncio.get_running_loop().time() - began
            self.keeping = None
            if continues:
                self._start_timer(left)
                if self.visit is not None:
                    self.visit.reconsider()
            else:
                self.quiet.clear()  # the drive has not ended yet
                self._release_step()
        return continues

    async def _parked_until_resumed(self) -> bool:
        if not await self._park_paused(kept=True):
            return True  # the pause was withdrawn first
        self.quiet.set()
        self._parked_in_place()
        self.on_parked()
        return await self._resumed_in_place()

    def _parked_in_place(self) -> None:
        """Notify those who wait for the session to stop."""
        raise NotImplementedError

    def _stop_timer(self) -> float | None:
        """Stop the step's timeout, and return how many seconds it had left."""
        if self.timer is None:
            return None
        self.timer.cancel()
        return max(self.timer.when() - asyncio.get_running_loop().time(), 0.0)

    def _start_timer(self, left: float | None) -> None:
        if left is not None and self.in_step:
            self.timer = asyncio.get_running_loop().call_later(left, self._time_out)

    async def _resumed_in_place(self) -> bool:
        """Wait until the pause is withdrawn and the session is claimed again. Return False if the step must exit."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.hold
        # Requests that arrived while the session parked were ignored.
        found = await self.store.flags([self.row.key])
        if self.row.key not in found:
            return False
        self.seen = found[self.row.key]
        while True:
            self.news.clear()  # before it is read: what arrives during the claim below must not be lost
            fence, flags = self.seen
            if fence != self.fence:
                return False
            # The step stays paused until the claim: an operation that began before would not be protected by the hold.
            self.flags = replace(flags, pause_requested=True)
            gives_up = self.gives_up or self.stop_reason or flags.cancel_requested or flags.pause_mode == "abort"
            if not gives_up and not flags.pause_requested and await self._claim_again():
                return True
            if gives_up or loop.time() >= until:
                await self.store.unkeep(self.row.key, self.fence)
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(until - loop.time()):  # Python 3.11's wait_for() can lose a cancellation
                    await self.news.wait()

    async def _claim_again(self) -> bool:
        """Claim the session under the fence that this engine knows, and record that it continues in place."""
        try:
            row = await self.store.claim(self.session_id, fence=self.fence)
        except (AlreadyRunning, HoldLost, SessionEnded, UnknownSession):
            self.seen = -1, self.flags  # the step is out of date
            self.news.set()
            return False
        except LimitReached:
            self.gives_up = True  # it is due: the waker of any engine picks it up when a slot is free
            self.news.set()
            return False
        except VerbRefused:
            return False  # it was paused again meanwhile
        self.row, self.fence = row, row.fence
        self.ledger.claimed_again(row)
        self.quiet.clear()
        self.on_resumed()
        self.flags = Flags(row.pause_requested, row.pause_mode, row.cancel_requested, row.mail)
        self.budgeted = None if row.may_have_budget else False
        await self._note_resumed_in_place()
        return True

    async def _note_resumed_in_place(self) -> None:
        pauses = await self.store.pauses(self.row.key, open_only=False)
        closed = [pause for pause in pauses if pause.kind == "operator" and pause.closed_at is not None]
        by = closed[-1].closed_by if closed else None
        summary = f"resumed{f' by {by}' if by else ''} in place at {self.line.step}#{self.line.visit}"
        frozen = self.row.frozen
        data = {
            "step": self.line.step,
            "by": by,
            "skipped": 0,
            "saved_seconds": 0.0,
            "saved_usd": 0.0,
            "in_place": True,
        }
        await self.ledger.note(
            "session.resumed", summary, data, shift=frozen, thaw=bool(frozen), questions=self._deferred_questions(),
            idle=await self._idle(),
        )  # fmt: skip
