"""Measure the reads of a store with many sessions, and how long the event loop waits for its turn meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw

from benchmarks.parked import napping
from benchmarks.results import Figure
from benchmarks.steps import Scale
from benchmarks.workloads import counting
from pausepoint import Engine
from pausepoint.stores.sqlite import checksums
from pausepoint.stores.sqlite.sql import QUERIES

REAL = 2_000
"""At most so many sessions are real. The others are copies of their rows, without logs."""

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
    asyncio.run(_real_sessions(path, min(scale.listed, REAL)))
    _copy(path, scale.listed)
    return asyncio.run(_measured(path, scale))


async def _real_sessions(path: Path, count: int) -> None:
    """Run sessions, of which one in five sleeps and the others have completed."""
    async with Engine(path, workflows=[counting, napping], signals=False) as engine:
        for begin in range(0, count, 200):
            some = range(begin, min(begin + 200, count))
            await asyncio.gather(*[
                engine.start(napping, n=n) if n % 5 == 0 else engine.start(counting, target=1) for n in some
            ])  # fmt: skip
            while engine.driver.runs:
                await asyncio.sleep(0.01)


def _copy(path: Path, count: int) -> None:
    """Fill the store up with copies of its sessions, under other ids and with their own checksums."""
    connection = apsw.Connection(str(path))
    real = connection.execute("SELECT max(key) FROM sessions").get
    columns = [row[1] for row in connection.execute("PRAGMA table_info(sessions)")]
    names = ", ".join(name for name in columns if name not in ("key", "session_id"))
    with connection:
        for n in range(1, -(-count // real)):
            connection.execute(
                f"INSERT INTO sessions (session_id, {names}) SELECT session_id || '-{n}', {names} FROM sessions"
                f" WHERE key <= {min(real, count - n * real)}"
            )
        for (key,) in connection.execute(f"SELECT key FROM sessions WHERE key > {real}").fetchall():
            given = connection.execute(QUERIES["given"], (key,)).fetchone()
            assert given is not None
            connection.execute(QUERIES["seal_given"], (checksums.given(*given), key))
    connection.close()


async def _measured(path: Path, scale: Scale) -> list[Figure]:
    what = f"{scale.listed:,} sessions:"
    figures: list[Figure] = []
    waits: list[float] = []
    async with Engine(path, workflows=[counting, napping], signals=False, drives="none") as engine:
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
