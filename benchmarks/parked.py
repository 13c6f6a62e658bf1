"""Measure what sleeping sessions cost: bytes on disk, and nothing else."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from benchmarks.results import Figure
from benchmarks.steps import Scale
from pausepoint import Context, Engine, Workflow, step
from pausepoint.model.sessions import Status


class Nap(BaseModel):
    """The state of a session that sleeps."""

    n: int
    slept: bool = False


@step(writes="slept")
async def nap(ctx: Context) -> bool:
    """Sleep longer than any benchmark takes."""
    await ctx.sleep(30 * 86400)
    return True


napping = Workflow("napping", state=Nap, steps=[nap])


class Load(NamedTuple):
    """The resources of a process at one moment."""

    tasks: int
    threads: int
    memory: int
    disk: int


def parked(folder: Path, scale: Scale) -> list[Figure]:
    """Measure ten thousand sleeping sessions, in the process that has just put them to sleep."""
    before, after, look = asyncio.run(_measured(folder / "parked.db", scale.parked))
    count = scale.parked
    what = f"{count:,} sessions asleep:"
    notes = {"look for what is due µs": look * 1e6, "memory bytes each": (after.memory - before.memory) / count}
    return [
        Figure("parked-tasks", f"{what} tasks", "tasks", 0, (float(after.tasks - before.tasks),)),
        Figure("parked-threads", f"{what} threads", "threads", 0, (float(after.threads - before.threads),)),
        Figure(
            "parked-bytes", f"{what} bytes on disk, each", "bytes", 4096, ((after.disk - before.disk) / count,), notes
        ),
    ]


async def _measured(path: Path, count: int) -> tuple[Load, Load, float]:
    async with Engine(path, workflows=[napping], signals=False) as engine:
        await _put_to_sleep(engine, 200)  # so that caches reach their size
        before = _load(path)
        for begin in range(0, count, 200):
            await _put_to_sleep(engine, min(200, count - begin))
        after = _load(path)
        start = asyncio.get_running_loop().time()
        assert await engine.store.due(engine.clock.now(), ["napping"], 64) == []
        return before, after, asyncio.get_running_loop().time() - start


async def _put_to_sleep(engine: Engine, count: int) -> None:
    sessions = await asyncio.gather(*[engine.start(napping, n=n) for n in range(count)])
    while engine._service.driver.runs:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)  # until the one task that waits for the next timer has found it
    assert await sessions[-1].status() is Status.SLEEPING


def _load(path: Path) -> Load:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if os.path.exists("/proc/self/statm") else 0
    disk = sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
    return Load(len(asyncio.all_tasks()), threading.active_count(), pages * os.sysconf("SC_PAGE_SIZE"), disk)
