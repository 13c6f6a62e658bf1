"""Follows the changes of all sessions, whichever process makes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import suppress

from pausepoint.engine.base import Service
from pausepoint.errors import DamagedRecord, UnknownSession
from pausepoint.log import events as history
from pausepoint.model.changes import Change, Mark, Moved
from pausepoint.model.sessions import Event

LOOK_EVERY = 1.0
"""Seconds between two checks of a session that another process drives."""

PAGE = 256
"""About how many records and signals are read at a time."""

TURN = 16
"""How many changes are read before other tasks get a turn: a few milliseconds of the loop's time."""


class Changes(Service):
    """The verb that follows all sessions, and the wait that it shares with those that follow one."""

    async def changes(
        self, after: str | None = "", *, follow: bool = False, types: Collection[str] | None = None
    ) -> AsyncIterator[Change]:
        """Yield what changed in all sessions after a mark, in the order in which it was stored.

        Each `Change` names one session and has its new events: of every process, each event once. Only facts without
        an event, such as the end of the process that drove a session, are not changes.

        - ``after``: the ``mark`` of the last change that you have handled. ``""`` is the beginning of the store. None
          is the present.
        - ``follow``: keep yielding changes until the engine closes.
        - ``types``: the event types that you want. Other events are left out; the changes remain, so that your mark
          moves on. With ``()``, no events are read.

        **Reset.** The first change after ``None`` has ``reset=True`` and no session: read what you need from the store
        now, then handle the changes that follow. The same change comes if a mark is lost. That happens if the session
        that changed last before the mark was removed since, or if the mark belongs to another store.

        Raises `ValueError` if ``after`` is not a mark.

        >>> import asyncio
        >>> from pausepoint import Context, Engine, workflow
        >>> @workflow
        ... async def greet(name: str, ctx: Context) -> str:
        ...     return f"Hello, {name}!"
        >>> async def main() -> None:
        ...     async with Engine(":memory:") as engine:
        ...         await (await engine.start(greet, name="Ada", session_id="ada")).outcome()
        ...         async for change in engine.changes(types=["session.completed"]):
        ...             print(change.session_id, change.seq, [event.event_type for event in change.events])
        ...             mark = change.mark
        ...         print([change async for change in engine.changes(mark)])
        >>> asyncio.run(main())
        ada 2 ['session.completed']
        []
        """
        self._check_open()
        if isinstance(types, str):
            raise TypeError(f"types must be a list of event types, not a string: [{types!r}].")
        wanted = None if types is None else frozenset(types)
        mark = None if after is None else Mark.parse(after)
        with self.driver.listening_to_all() as news:
            while True:
                last = self.driver.released
                page = None if mark is None else await self.store.changes(mark, PAGE)
                if page is None:
                    page = await self.store.changes(None, PAGE)
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
                await self._wait_for_change(news)

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
        signals = await self.store.signals(moved.key, moved.after, moved.last) if moved.after < moved.last else []
        records = await self.store.records(moved.key, moved.since, moved.until) if moved.since <= moved.until else []
        start = history.Cursor(moved.since - 1, moved.after)
        return list(history.events(moved.session_id, start, records, signals))

    async def _wait_for_change(self, news: asyncio.Event) -> None:
        """Wait until something may have changed, or for `LOOK_EVERY`, since a killed process sends no notice."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY):  # Python 3.11's wait_for() can lose a cancellation
                await news.wait()
        news.clear()  # before the next check, so that no change is missed in between
        self._check_open()
