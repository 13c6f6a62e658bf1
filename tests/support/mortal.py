"""A store that dies as its process would: its hold is free at once, and nothing more is written."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from holdfast import Engine
from holdfast.engine import Drive
from holdfast.errors import StoreClosed
from holdfast.model import Commit, Flags
from holdfast.stores.sqlite import SqliteStore


class MortalStore(SqliteStore):
    """Dies when told to: at once, or at a commit to come, before or after that took effect."""

    def __init__(self, path: str | Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.dead = False
        self._commits_left: int | None = None
        self._after = False

    def doom(self, commits: int, after: bool) -> None:
        """Die at the commit after the next ``commits``; ``after``: it takes effect, but nobody is told."""
        self._commits_left, self._after = commits, after

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
        self._check()
        if self._commits_left is not None:
            self._commits_left -= 1
            if self._commits_left < 0:
                if self._after:
                    await super().commit(commit)
                self.die()
        return await super().commit(commit)

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
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.bury()
    engine.is_open = False
