"""Measure the reads of a store with many sessions, and how long the event loop waits for its turn meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.many import WORKFLOWS, fill
from benchmarks.results import Figure
from benchmarks.steps import Scale
from pausepoint import Engine

READS: dict[str, tuple[str, float | None, Callable[[Engine], Awaitable[object]]]] = {
    "page": ("the newest 50", 10.0, lambda engine: engine.sessions(limit=50)),
    "updated": ("50 open ones, last updated first", None, lambda engine: engine.sessions(
        status=("waiting", "sleeping", "ready", "paused", "failed"), sort="updated", limit=50)),
    "tally": ("counted by workflow and status", None, lambda engine: engine.tally()),
    "health": ("health()", None, lambda engine: engine.health()),
}  # fmt: skip


def listings(folder: Path, scale: Scale) -> list[Figure]:
    """Measure each read, and the wait of a task that ticks every millisecond."""
    path = folder / "listings.db"
    fill(path, scale.listed)
    return asyncio.run(_measured(path, scale))


async def _measured(path: Path, scale: Scale) -> list[Figure]:
    what = f"{scale.listed:,} sessions:"
    figures: list[Figure] = []
    waits: list[float] = []
    async with Engine(path, workflows=WORKFLOWS, signals=False, drives="none") as engine:
        ticking = asyncio.create_task(_tick(waits))
        for name, (text, limit, read) in READS.items():
            values = tuple([await _milliseconds(read, engine) for _ in range(scale.rounds)])
            figures.append(Figure(f"listings-{name}", f"{what} {text}", "ms", limit, values))
        ticking.cancel()
    late = sorted(waits)
    notes = {"99th of 100 ms": late[int(len(late) * 0.99)]}
    return [*figures, Figure("listings-lag", f"{what} the longest wait of the loop", "ms", None, (late[-1],), notes)]


async def _milliseconds(read: Callable[[Engine], Awaitable[object]], engine: Engine) -> float:
    begin = time.perf_counter()
    await read(engine)
    return (time.perf_counter() - begin) * 1e3


async def _tick(waits: list[float]) -> None:
    while True:
        begin = time.perf_counter()
        await asyncio.sleep(0.001)
        waits.append((time.perf_counter() - begin) * 1e3 - 1)
