"""Notifies the tasks that wait for news of a session, and no others: it finds out which sessions have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pausepoint.errors import StoreError
from pausepoint.model.changes import Mark
from pausepoint.model.sessions import Pause
from pausepoint.name import NAME
from pausepoint.stores.base import Store

PAGE = 256
"""About how many records and signals are read at a time. It is a few milliseconds of the loop's time."""


class Listeners:
    """The tasks that wait for news of one session, and those that wait for news of any."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.sessions: dict[str, set[asyncio.Event]] = {}
        self.everything: set[asyncio.Event] = set()
        self._mark: Mark | None = None  # None: what has changed since the listeners came is not known
        self._standing: Pause | None = None
        self._looking: asyncio.Task[None] | None = None
        self._again = False

    def tell(self, session_id: str) -> None:
        """Notify the listeners of a session. Every commit calls it, so it does little if there are none."""
        if session_id in self.sessions:
            _set(self.sessions[session_id])
        if self.everything:
            _set(self.everything)

    def tell_all(self) -> None:
        """Notify all listeners."""
        for listeners in self.sessions.values():
            _set(listeners)
        _set(self.everything)

    def look(self) -> None:
        """Notify the listeners of the sessions that have changed in the store, and of their ancestors."""
        _set(self.everything)
        if not self.sessions:
            self._mark = None
        elif self._looking is not None and not self._looking.done():
            self._again = True
        else:
            self._looking = asyncio.get_running_loop().create_task(self._look(), name=f"{NAME} listeners")

    async def _look(self) -> None:
        while True:
            self._again = False
            try:
                moved = await self._moved()
            except StoreError:
                moved = None  # the waiting tasks get the same error
            if moved is None:
                self.tell_all()
            for session_id in moved or ():
                self.tell(session_id)
            if not self._again:
                return

    async def _moved(self) -> set[str] | None:
        """Return the sessions that have changed since the last look, with their ancestors; None if that is unknown."""
        standing = await self.store.standing_pause()
        since = self._mark if standing == self._standing else None  # a pause of everything changes all sessions
        self._mark, self._standing = None, standing
        found: set[str] = set()
        while (page := await self.store.changes(since, PAGE)) is not None:
            for moved in page.moved:
                found.update((moved.session_id, *moved.above))
            if since is None:
                self._mark = page.mark
                return None
            since = page.mark
            if not page.more:
                self._mark = since
                return found
            await asyncio.sleep(0)  # other tasks get a turn
        return None

    @contextmanager
    def listening(self, session_id: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever the session may have changed."""
        listener = asyncio.Event()
        self.sessions.setdefault(session_id, set()).add(listener)
        try:
            yield listener
        finally:
            self.sessions[session_id].discard(listener)
            if not self.sessions[session_id]:
                del self.sessions[session_id]

    @contextmanager
    def listening_to_all(self) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever any session may have changed."""
        listener = asyncio.Event()
        self.everything.add(listener)
        try:
            yield listener
        finally:
            self.everything.discard(listener)


def _set(listeners: Iterable[asyncio.Event]) -> None:
    for listener in listeners:
        listener.set()
