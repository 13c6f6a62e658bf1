"""The sessions that this process drives, and who wants to hear of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.engine import Drive
from holdfast.store import Store


class LocalDriver:
    """Runs a `Drive` per session as a task of this event loop."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.drives: dict[str, Drive] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.listeners: dict[str, set[asyncio.Event]] = {}
        self.refreshing: asyncio.Task[None] | None = None

    def begin(self, drive: Drive) -> None:
        """Drive a session in the background."""
        session_id = drive.session_id
        self.drives[session_id] = drive
        task = asyncio.get_running_loop().create_task(drive.run(), name=f"holdfast {session_id}")
        self.tasks[session_id] = task
        task.add_done_callback(lambda done: self._ended(session_id, done))

    def _ended(self, session_id: str, task: asyncio.Task[None]) -> None:
        if self.tasks.get(session_id) is task:
            del self.tasks[session_id]
        if not task.cancelled():
            task.exception()  # kept in the drive; looked at here so that asyncio does not complain

    async def finished(self, session_id: str) -> Drive | None:
        """Wait until this process no longer drives the session; the last drive of it here, if any."""
        while (task := self.tasks.get(session_id)) is not None:
            await asyncio.wait([task])
            await asyncio.sleep(0)
        return self.drives.get(session_id)

    async def stop(self, reason: str, now: bool = False) -> None:
        """End every drive after its current operation, or at once."""
        for session_id in list(self.tasks):
            self.drives[session_id].stop(reason, now)
        while self.tasks:
            await asyncio.wait(list(self.tasks.values()))
            await asyncio.sleep(0)

    # news

    def changed(self, session_id: str) -> None:
        """A session of ours moved."""
        for listener in self.listeners.get(session_id, ()):
            listener.set()

    def on_change(self) -> None:
        """Somebody wrote to the store: tell the listeners, and look for requests to the sessions that we drive."""
        for listeners in self.listeners.values():
            for listener in listeners:
                listener.set()
        if self.tasks and (self.refreshing is None or self.refreshing.done()):
            self.refreshing = asyncio.get_running_loop().create_task(self._refresh(), name="holdfast refresh")

    async def _refresh(self) -> None:
        driven = {self.drives[session_id].row.key: self.drives[session_id] for session_id in self.tasks}
        for key, (fence, flags) in (await self.store.flags(list(driven))).items():
            driven[key].notice(fence, flags)

    @contextmanager
    def listening(self, session_id: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the session may have moved."""
        listener = asyncio.Event()
        self.listeners.setdefault(session_id, set()).add(listener)
        try:
            yield listener
        finally:
            self.listeners[session_id].discard(listener)
            if not self.listeners[session_id]:
                del self.listeners[session_id]
