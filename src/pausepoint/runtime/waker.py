"""Picks up sessions that can continue on their own: a timer is due, a message has arrived, or a child has ended.

It also starts the sessions of schedules that are due.

An engine has one waker task, whatever the number of sessions. It checks when the store changes and when the next timer
is due.
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
    VerbRefused,
    error_text,
)
from pausepoint.log.telemetry import detach_task, log_line, logger
from pausepoint.model.sessions import SessionRow, Status
from pausepoint.name import NAME
from pausepoint.stores.base import Store

AT_ONCE = 64
"""The number of sessions picked up before other tasks get a turn."""

MOST_ASKED = 64
"""The number of asked sessions that are remembered before ended ones are forgotten."""

MOST_RUNNING = 500
"""The most sessions an engine picks up by default. Others that are due wait, or are picked up by other processes."""


class Waker:
    """The waker of one engine. ``running`` returns the number of sessions driven here.

    The engine sets ``take``, which drives a session, before it starts the waker.
    """

    take: Callable[[SessionRow], Awaitable[object]]

    def __init__(
        self,
        store: Store,
        clock: Clock,
        workflows: Callable[[], Sequence[str]],
        running: Callable[[], int],
    ) -> None:
        self.store = store
        self.clock = clock
        self.workflows = workflows
        self.running = running
        self.most = MOST_RUNNING
        self.queues: Sequence[str] | None = None  # the queues whose sessions are picked up; None: all of them
        self.lock = asyncio.Lock()  # held while sessions are picked up, so that `most` holds for all ways to do so
        self.prepare: Callable[[], Awaitable[None]] | None = None  # called before sessions are picked up
        # starts the sessions of due schedules; returns when it must be called again, if a time is known
        self.fire: Callable[[int], Awaitable[int | None]] | None = None
        self.fenced: set[str] = set()  # sessions that this engine stopped because its lease ended
        self.asked: set[str] | None = None  # the sessions to pick up, with their children; None: all sessions
        self._room = MOST_ASKED  # the number of asked sessions at which ended ones are forgotten
        self.refused: dict[int, int] = {}  # sessions that cannot be picked up here, and their seq at that time
        self.news = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.stopping = False

    def start(self) -> None:
        """Start the task; it runs until `stop`."""
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"{NAME} waker")

    async def stop(self) -> None:
        """Stop picking up sessions. Finish the one in progress, so that no session is held without being driven."""
        self.stopping = True
        self.poke()
        if self.task is not None:
            await asyncio.wait([self.task])

    def ask(self, session_id: str) -> None:
        """Pick up this session and its children from now on, if this engine picks up only asked sessions."""
        if self.asked is not None:
            self.asked.add(session_id)
            self.poke()

    def poke(self) -> None:
        """Check again, because a session may be due."""
        self.news.set()

    def skips(self, row: SessionRow) -> bool:
        """Return whether this engine failed to pick up the session and it has not changed since."""
        return self.refused.get(row.key) == row.seq

    async def _run(self) -> None:
        detach_task()
        while not self.stopping:
            self.news.clear()
            now = self.clock.now()  # one time for both queries, so that nothing becomes due in between
            again_at: int | None = None
            try:
                if self.fire is not None and self.asked is None:  # an engine for few sessions starts no others
                    async with self.lock:
                        again_at = await self.fire(now)
                if await self._pick_up_due(now):
                    continue
                wakes_at = min((at for at in (again_at, await self._next_wake(now)) if at is not None), default=None)
            except StoreError as error:
                logger.warning("cannot check for due sessions, retrying in 1 s: %s", error_text(error))
                wakes_at = now + 1_000_000
            await self._rest(wakes_at)

    async def _pick_up_due(self, now: int) -> bool:
        """Pick up due sessions. Return whether there may be more."""
        if self.prepare is not None:
            await self.prepare()
        async with self.lock:
            room = min(AT_ONCE, self.room)
            if room <= 0:
                return False  # the next drive that ends calls poke()
            rows = await self._due(now, room)
            if self.fenced:
                rows = await self._stopped() + rows
            for row in rows[:room]:
                if not self.stopping:
                    await self._pick_up(row)
        await asyncio.sleep(0)
        return len(rows) >= room

    @property
    def room(self) -> int:
        """How many more sessions may be picked up here."""
        return max(self.most - self.running(), 0)

    async def _due(self, now: int, limit: int) -> list[SessionRow]:
        if self.asked is None:
            return await self.store.due(now, self.workflows(), limit, None, self.queues, self.refused)
        await self._forget_ended(self.asked)
        found: dict[int, SessionRow] = {}
        for session_id in tuple(self.asked):
            if len(found) < limit:
                left = limit - len(found)
                rows = await self.store.due(now, self.workflows(), left, session_id, self.queues, self.refused)
                found |= {row.key: row for row in rows}
        return list(found.values())

    async def _stopped(self) -> list[SessionRow]:
        """Return the sessions that this engine stopped when its lease ended, and that are free to be continued."""
        free = []
        for session_id in tuple(self.fenced):
            row = await self.store.get(session_id)
            if row is not None and row.holder is not None and not row.live:
                continue  # the former number of this engine still holds it
            if row is not None and row.status in (Status.READY, Status.CREATED) and not self.skips(row):
                free.append(row)
            else:
                self.fenced.discard(session_id)
        return free

    async def _next_wake(self, now: int) -> int | None:
        if self.asked is None:
            return await self.store.next_wake(now, self.workflows())
        found = [await self.store.next_wake(now, self.workflows(), session_id) for session_id in tuple(self.asked)]
        return min((wakes_at for wakes_at in found if wakes_at is not None), default=None)

    async def _forget_ended(self, asked: set[str]) -> None:
        if len(asked) < self._room:
            return
        for session_id in tuple(asked):
            try:
                row = await self.store.get(session_id)
            except (DamagedRecord, UnknownSession):  # it cannot be driven any more; others still must be
                row = None
            if row is None or row.ended is not None:
                asked.discard(session_id)
        self._room = max(MOST_ASKED, 2 * len(asked))

    async def _pick_up(self, row: SessionRow) -> None:
        try:
            await self.take(row)
        except (AlreadyRunning, HoldLost, SessionEnded, UnknownSession, VerbRefused):
            pass  # another engine picked it up first, or it was ended or paused
        except (DamagedRecord, Redacted) as error:
            self.refuse(row, error)  # only this session is unreadable; it must not block the others
        except StoreError:
            raise
        except PausepointError as error:
            self.refuse(row, error)

    def refuse(self, row: SessionRow, error: PausepointError) -> None:
        """Do not try this session again before it has changed, and log why."""
        self.refused[row.key] = row.seq
        log_line(logging.WARNING, f"is due but cannot resume here: {error_text(error)}", row.session_id)

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
