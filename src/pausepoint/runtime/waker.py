"""Picks up the sessions that could go on by themselves: a timer is due, a message or the end of a child has come.

One task per engine, whatever the number of sessions. It looks when somebody wrote, and when
the next timer is due.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from pausepoint.clock import LONGEST_NAP, Clock
from pausepoint.errors import (
    AlreadyRunning,
    DamagedRecord,
    HoldLost,
    PausepointError,
    Redacted,
    SessionEnded,
    StoreError,
    UnknownSession,
    said,
)
from pausepoint.log.telemetry import alone, logger, tell
from pausepoint.model.sessions import SessionRow
from pausepoint.name import NAME
from pausepoint.stores.base import Store

AT_ONCE = 64
"""How many sessions are picked up before the others have a turn."""

MANY = 64
"""How many asked sessions are remembered before those that have ended are forgotten."""

CROWD = 500
"""How many sessions this process drives before it leaves what is due to others, or for later."""


class Waker:
    """See the module's text. ``take`` drives a session; ``running`` is how many are driven here."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        workflows: Callable[[], Sequence[str]],
        take: Callable[[SessionRow], Awaitable[object]],
        running: Callable[[], int],
    ) -> None:
        self.store = store
        self.clock = clock
        self.workflows = workflows
        self.take = take
        self.running = running
        self.asked: set[str] | None = None  # the sessions to pick up, each with its children; None: all of them
        self._room = MANY  # how many asked sessions there may be before the ended ones are forgotten
        self.refused: dict[int, int] = {}  # sessions that cannot be picked up here, and where they stood then
        self.news = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.stopping = False

    def start(self) -> None:
        """From now on, until `stop`."""
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"{NAME} waker")

    async def stop(self) -> None:
        """Pick up nothing more. What is being picked up is: left half-way, it would be held and driven by nobody."""
        self.stopping = True
        self.poke()
        if self.task is not None:
            await asyncio.wait([self.task])

    def ask(self, session_id: str) -> None:
        """Pick up this session and its children from now on, where only asked sessions are picked up."""
        if self.asked is not None:
            self.asked.add(session_id)
            self.poke()

    def poke(self) -> None:
        """Something may be due."""
        self.news.set()

    def leaves(self, row: SessionRow) -> bool:
        """Whether this engine could not pick the session up as it stands."""
        return self.refused.get(row.key) == row.seq

    async def _run(self) -> None:
        alone()
        while not self.stopping:
            self.news.clear()
            now = self.clock.now()  # one moment for both looks: nothing may become due in between
            try:
                if await self._look(now):
                    continue
                wakes_at = await self._next_wake(now)
            except StoreError as error:
                logger.warning("looking for sessions that are due failed: %s", said(error))
                wakes_at = now + 1_000_000
            await self._rest(wakes_at)

    async def _look(self, now: int) -> bool:
        """Pick up what is due. True if there may be more."""
        room = min(AT_ONCE, CROWD - self.running())
        if room <= 0:
            return False  # whoever ends next pokes
        rows = [row for row in await self._due(now, room + len(self.refused)) if not self.leaves(row)]
        for row in rows:
            if not self.stopping:
                await self._pick_up(row)
        await asyncio.sleep(0)
        return len(rows) >= room

    async def _due(self, now: int, limit: int) -> list[SessionRow]:
        if self.asked is None:
            return await self.store.due(now, self.workflows(), limit)
        await self._forget_ended(self.asked)
        found: dict[int, SessionRow] = {}
        for session_id in tuple(self.asked):
            if len(found) < limit:
                rows = await self.store.due(now, self.workflows(), limit - len(found), session_id)
                found |= {row.key: row for row in rows}
        return list(found.values())

    async def _next_wake(self, now: int) -> int | None:
        if self.asked is None:
            return await self.store.next_wake(now, self.workflows())
        found = [await self.store.next_wake(now, self.workflows(), session_id) for session_id in tuple(self.asked)]
        return min((wakes_at for wakes_at in found if wakes_at is not None), default=None)

    async def _forget_ended(self, asked: set[str]) -> None:
        if len(asked) < self._room:
            return
        for session_id in tuple(asked):
            row = await self.store.get(session_id)
            if row is None or row.ended is not None:
                asked.discard(session_id)
        self._room = max(MANY, 2 * len(asked))

    async def _pick_up(self, row: SessionRow) -> None:
        try:
            await self.take(row)
        except (AlreadyRunning, HoldLost, SessionEnded, UnknownSession):
            pass  # another engine was quicker, or somebody ended it
        except (DamagedRecord, Redacted) as error:
            self._refuse(row, error)  # it alone cannot be read; the others must not wait for it
        except StoreError:
            raise
        except PausepointError as error:
            self._refuse(row, error)

    def _refuse(self, row: SessionRow, error: PausepointError) -> None:
        self.refused[row.key] = row.seq
        tell(logging.WARNING, f"is due and cannot go on here: {said(error)}", row.session_id)

    async def _rest(self, wakes_at: int | None) -> None:
        if wakes_at is None:
            await self.news.wait()
            return
        nap = asyncio.ensure_future(self._nap(wakes_at))
        news = asyncio.ensure_future(self.news.wait())
        try:
            await asyncio.wait([nap, news], return_when=asyncio.FIRST_COMPLETED)
        finally:
            nap.cancel()
            news.cancel()

    async def _nap(self, wakes_at: int) -> None:
        seconds = (wakes_at - self.clock.now()) / 1e6
        if seconds > 0:
            await self.clock.sleep(min(seconds, LONGEST_NAP))
