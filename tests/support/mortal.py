"""A store that dies like its process: it releases its hold immediately and writes nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from pausepoint import Engine
from pausepoint.errors import StoreClosed
from pausepoint.model.commits import Commit, Flags
from pausepoint.runtime.drive import Drive
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sqlite import SqliteStore

T = TypeVar("T")


class MortalStore(SqliteStore):
    """A store that dies on request: immediately, or at a later write, before or after the write took effect."""

    def __init__(self, path: str | Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.dead = False
        self._writes_left: int | None = None
        self._after = False

    def doom(self, writes: int, after: bool) -> None:
        """Die at the write after the next ``writes``. With ``after``, that write takes effect, but without a reply."""
        self._writes_left, self._after = writes, after

    def spare(self) -> None:
        """Cancel the planned death."""
        self._writes_left = None

    def die(self) -> None:
        """Release what the system releases when a process is killed."""
        self.dead = True
        self._hold.drop()

    async def bury(self) -> None:
        """Free the thread, connections and watcher for the test process. The holder's row stays, as after a kill."""
        self.die()
        if self._watcher is not None:
            self._watcher.cancel()
        await self._disconnect()
        self._state = "closed"

    async def commit(self, commit: Commit) -> Flags | None:
        return await self._write(lambda: super(MortalStore, self).commit(commit))

    async def _scan(self, read: Callable[[Connection], T], *, at_once: bool = False) -> T:
        try:
            return await super()._scan(read, at_once=at_once)
        except OSError:
            self._check()  # a reader thread may meet the files that die() has closed
            raise

    async def _do(self, verb: Callable[[Connection], T], *, urgent: bool = False) -> T:
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
    """Return the sessions that an engine currently drives."""
    return {session_id: run.drive for session_id, run in engine._service.driver.runs.items() if run.drive is not None}


async def crash(engine: Engine) -> None:
    """End an engine like a kill: without a clean shutdown, and refusing what its tasks still try to write."""
    store = engine.store
    assert isinstance(store, MortalStore)
    store.die()
    tasks: list[asyncio.Task[Any]] = [run.task for run in engine._service.driver.runs.values()]
    tasks += [drive.keeping for drive in driven(engine).values() if drive.keeping is not None]
    if engine._service.driver.refreshing is not None:
        tasks.append(engine._service.driver.refreshing)
    if engine._service.waker.task is not None:
        tasks.append(engine._service.waker.task)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.bury()
    engine._service.is_open = False


def woke(engine: Engine, session_id: str) -> bool:
    """Return whether an engine drives a session that it picked up on its own. Resuming it is then not a conflict."""
    drive = driven(engine).get(session_id)
    return drive is not None and drive.picked_up and not drive.resumed
