"""Follows the changes of all sessions, whichever process makes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

from pausepoint.engine.base import Service
from pausepoint.errors import DamagedRecord, UnknownSession
from pausepoint.log import events as history
from pausepoint.model.changes import Change, Mark, Moved
from pausepoint.model.ids import shortened
from pausepoint.model.sessions import Event

PAGE = 256
"""About how many records and signals are read at a time."""

TURN = 16
"""How many changes are read before other tasks get a turn: a few milliseconds of the loop's time."""


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
