"""Jobs that remove sessions and die while doing so."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from pausepoint import Engine
from pausepoint.engine import retention
from pausepoint.model.stores import Removal, Tombstone
from pausepoint.stores.sqlite import SqliteStore
from tests.faults.vfs import Act, FaultVFS, Kill, Recorder, Touch, Variant
from tests.support.forkserver import say


def warm_up() -> None:
    """Open a store once, in memory."""
    asyncio.run(_warm_up())


async def _warm_up() -> None:
    async with Engine(":memory:", signals=False) as engine:
        await engine.gc(apply=True)


def count(path: str) -> None:
    """Remove without a fault, and report every touch of the disk."""
    recorder = Recorder()
    asyncio.run(_clean(path, recorder))
    for touch in recorder.trace:
        say({"index": touch.index, "kind": touch.kind, "file": touch.file, "variants": list(touch.variants)})
    say({})


def die(path: str, index: int, variant: Variant, twin: str) -> None:
    """Remove, and die at one touch of the disk."""
    if twin == "files last":
        files_last()

    def announce(touch: Touch) -> None:
        say({"fired": touch.index})

    asyncio.run(_clean(path, Kill(index, variant, announce)))


async def _clean(path: str, act: Act) -> None:
    """Remove one session by hand, then all expired sessions."""
    retention.ROWS = 8
    retention.BYTES = 16 * 4096
    vfs = FaultVFS("cleaning", act)
    async with Engine(SqliteStore(Path(path), vfs="cleaning", ballast=0), signals=False) as engine:
        await engine.session("by-hand").remove(by="ann", reason="test")
        await engine.gc(apply=True)
    vfs.unregister()


def files_last() -> None:
    """Delete the record before the files. A process that dies in between leaves files without a record."""
    keep = retention.Retention._complete

    async def complete(self: retention.Retention, removal: Removal) -> Tombstone:
        store = self.service.store
        files_of = partial(type(store).files_of, store)
        store.files_of = lambda session_id: None  # type: ignore[method-assign]
        stone = await keep(self, removal)
        store.files_of = files_of  # type: ignore[method-assign]
        found = files_of(stone.session_id)
        assert found is not None
        await found.delete_all()
        return stone

    retention.Retention._complete = complete  # type: ignore[method-assign]
