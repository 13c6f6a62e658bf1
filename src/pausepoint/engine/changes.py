"""Follows the changes of all sessions, and the live output of one, whichever process makes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import suppress

from pausepoint.engine.base import Service, Until, check_until
from pausepoint.engine.queries import Queries
from pausepoint.errors import DamagedRecord, UnknownSession
from pausepoint.log import events as history
from pausepoint.model.changes import Change, Mark, Moved
from pausepoint.model.ids import shortened
from pausepoint.model.sessions import Event
from pausepoint.model.streams import StreamItem

PAGE = 256
"""About how many records and signals are read at a time."""

TURN = 16
"""How many changes are read before other tasks get a turn: a few milliseconds of the loop's time."""

POLL = 0.05
"""Seconds between two looks for chunks of live output that another process sent."""

LOOK_EVERY = 1.0
"""Seconds between two checks of the session's status, if nothing reports a change: a killed process does not."""


class Changes:
    """The verb that follows all sessions."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def changes(
        self, after: str | None = "", *, follow: bool = False, types: Collection[str] | None = None
    ) -> AsyncIterator[Change]:
        """Yield what changed in all sessions after a mark, in the order in which it was stored."""
        self.service.check_open()
        if isinstance(types, str):
            raise TypeError(f"types must be a list of event types, not a string: [{shortened(types)}].")
        wanted = None if types is None else frozenset(types)
        mark = None if after is None else Mark.parse(after)
        with self.service.driver.listening_to_all() as news:
            while True:
                last = self.service.driver.released
                page = None if mark is None else await self.service.store.changes(mark, PAGE)
                if page is None:
                    page = await self.service.store.changes(None, PAGE)
                    assert page is not None  # the present is never lost
                    yield Change("", 0, (), str(page.mark), reset=True)
                for n, moved in enumerate(page.moved, 1):
                    change = await self._change(moved, wanted)
                    if change is not None:
                        yield change
                    if not n % TURN:
                        await asyncio.sleep(0)
                mark = page.mark
                if page.more:
                    continue
                if not follow or last:
                    return
                await self.service.wait_for_change(news)

    async def _change(self, moved: Moved, wanted: frozenset[str] | None) -> Change | None:
        """Return a session's change with the events that are wanted; None if the session was removed meanwhile."""
        damaged: DamagedRecord | None = None
        events: list[Event] = []
        try:
            if wanted is None or wanted:
                events = await self._moved_events(moved)
        except UnknownSession:
            return None  # its tombstone is one of the next changes
        except DamagedRecord as damage:
            damaged = damage
        shown = tuple(event for event in events if wanted is None or event.event_type in wanted)
        return Change(moved.session_id, moved.until, shown, str(moved.mark), damaged=damaged)

    async def _moved_events(self, moved: Moved) -> list[Event]:
        if moved.stone is not None:
            return [history.of_tombstone(moved.stone)]
        signals = (
            await self.service.store.signals(moved.key, moved.after, moved.last) if moved.after < moved.last else []
        )
        records = (
            await self.service.store.records(moved.key, moved.since, moved.until) if moved.since <= moved.until else []
        )
        start = history.Cursor(moved.since - 1, moved.after)
        return list(history.events(moved.session_id, start, records, signals))


class StreamVerbs:
    """The verb that follows live output."""

    def __init__(self, service: Service, queries: Queries) -> None:
        self.service = service
        self.queries = queries

    async def stream(
        self, session_id: str, after: int | None = 0, *, follow: bool = True, until: Until = "parked"
    ) -> AsyncIterator[StreamItem]:
        """Yield the live output that the session's steps send with ``ctx.stream``, until the session stops."""
        self.service.check_open()
        check_until(until)
        row = await self.service.row(session_id)
        looked = 0.0
        streams, driver = self.service.streams, self.service.driver
        with streams.following(row, after) as (reader, news), driver.listening(session_id) as changed:
            while True:
                over = not follow
                if follow and (changed.is_set() or time.monotonic() - looked >= LOOK_EVERY):
                    changed.clear()
                    over = await self._is_over(session_id, until)
                    looked = time.monotonic()
                news.clear()
                for item in reader.read():
                    yield item
                while reader.more:  # everything that was there at the last look at the status, so nothing is missed
                    await asyncio.sleep(0)  # a flood from another process must not block this loop
                    for item in reader.read():
                        yield item
                if over:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL):
                        await news.wait()
                self.service.check_open()

    async def _is_over(self, session_id: str, until: Until) -> bool:
        row = await self.service.row(session_id)
        if self.service.driver.released or row.ended is not None:
            return True
        return until == "parked" and not (row.live or await self.queries.continues_on_its_own(row))
