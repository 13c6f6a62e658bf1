"""A store that dies as its process would: its hold is free at once, and nothing more is written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw

from pausepoint import Engine
from pausepoint.errors import StoreClosed
from pausepoint.model.sessions import Commit, Flags
from pausepoint.runtime.drive import Drive
from pausepoint.stores.sqlite import SqliteStore

T = TypeVar("T")


class MortalStore(SqliteStore):
    """Dies when told to: at once, or at a write to come, before or after that took effect."""

    def __init__(self, path: str | Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.dead = False
        self._writes_left: int | None = None
        self._after = False

    def doom(self, writes: int, after: bool) -> None:
        """Die at the write after the next ``writes``; ``after``: it takes effect, but nobody is told."""
        self._writes_left, self._after = writes, after

    def spare(self) -> None:
        """Take the doom back."""
        self._writes_left = None

    def die(self) -> None:
        """What the system does for a process that was killed."""
        self.dead = True
        self._hold.drop()

    async def bury(self) -> None:
        """Free what a test process needs back: thread, connections, watcher. The hold's row stays, as after a kill."""
        self.die()
        if self._watcher is not None:
            self._watcher.cancel()
        await self._disconnect()
        self._state = "closed"

    async def commit(self, commit: Commit) -> Flags | None:
        return await self._write(lambda: super(MortalStore, self).commit(commit))

    async def _do(self, verb: Callable[[apsw.Connection], T], *, urgent: bool = False) -> T:
        return await self._write(lambda: super(MortalStore, self)._do(verb, urgent=urgent))

    async def _write(self, write: Callable[[], Awaitable[T]]) -> T:
        self._check()
        if self._writes_left is not None:
            self._writes_left -= 1
            if self._writes_left < 0:
                if self._after:
                    await write()
                self.die()
        return await write()

    def _check(self) -> None:
        if self.dead:
            raise StoreClosed(f"the process that had {self.path} open is dead")
        super()._check()


def driven(engine: Engine) -> dict[str, Drive]:
    """The sessions that an engine drives at this moment."""
    return {session_id: run.drive for session_id, run in engine.driver.runs.items() if run.drive is not None}


async def crash(engine: Engine) -> None:
    """End an engine as a kill would: no goodbye, and nothing that its tasks still try is written."""
    store = engine.store
    assert isinstance(store, MortalStore)
    store.die()
    tasks = [run.task for run in engine.driver.runs.values()]
    if engine.driver.refreshing is not None:
        tasks.append(engine.driver.refreshing)
    if engine.waker.task is not None:
        tasks.append(engine.waker.task)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.bury()
    engine.is_open = False


def woke(engine: Engine, session_id: str) -> bool:
    """Whether an engine drives a session that it picked up by itself: to resume it there is no conflict."""
    drive = driven(engine).get(session_id)
    return drive is not None and drive.taken_up and not drive.resumed
