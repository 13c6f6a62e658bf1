"""Measure live streams: what sending costs a step, and how soon another process sees a chunk."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from statistics import median, quantiles

from pydantic import BaseModel

from benchmarks.results import Figure
from benchmarks.steps import Scale
from pausepoint import Context, Engine, Workflow, step
from pausepoint.model import StreamChunk

TOKEN = "token "
PACE = 0.001
"""Seconds between two chunks."""

_BLOCK = bytes(1_000)  # short, so that hashing it neither releases the interpreter's lock nor empties the caches


class Talk(BaseModel):
    """The state of a session that sends chunks."""

    chunks: int
    work: int = 0
    out: list[float] = []


async def _send(chunks: int, work: int, ctx: Context) -> list[float]:
    """Alternate between a piece of work and the same with a chunk, and return the seconds of both, wall and CPU."""
    spent = [0.0, 0.0, 0.0, 0.0]
    for _ in range(chunks):
        for streams in (0, 1):
            wall, cpu = time.perf_counter(), time.thread_time()
            _work(work)
            if streams:
                ctx.stream(TOKEN)
            spent[streams] += time.perf_counter() - wall
            spent[2 + streams] += time.thread_time() - cpu
        await asyncio.sleep(0)
    return spent


@step(writes="out")
async def send(chunks: int, work: int, ctx: Context) -> list[float]:
    """Send from an operation, as a call of a model does."""
    return await ctx.do(_send, chunks, work)


@step(writes="out")
async def tick(chunks: int, ctx: Context) -> list[float]:
    """Send the time with every chunk."""
    for _ in range(chunks):
        ctx.stream(repr(time.time()))
        await asyncio.sleep(PACE)
    return []


sending = Workflow("sending", state=Talk, steps=[send])
ticking = Workflow("ticking", state=Talk, steps=[tick])


def streams(folder: Path, scale: Scale) -> list[Figure]:
    """Measure a step that sends a chunk per millisecond of work, and a follower in another process."""
    work = _calibrated()
    rounds = [asyncio.run(_cost(folder / f"streams-{n}.db", scale.chunks, work)) for n in range(scale.rounds)]
    late = [asyncio.run(_latency(folder / f"ticks-{n}.db", scale.chunks)) for n in range(max(scale.processes // 5, 1))]
    costs = {
        "µs per chunk": median((found[1] - found[0]) / scale.chunks for found in rounds) * 1e6,
        "CPU µs per chunk": median((found[3] - found[2]) / scale.chunks for found in rounds) * 1e6,
        "CPU ×": median(found[3] / found[2] for found in rounds),
    }
    times = {"p50 ms": median(median(each) for each in late), "longest ms": max(max(each) for each in late)}
    return [
        Figure(
            "stream-step", "a step with a chunk per millisecond, to one without", "×", 1.05,
            tuple(found[1] / found[0] for found in rounds), costs,
        ),
        Figure(
            "stream-latency", "a chunk reaches another process, 99 of 100", "ms", 200.0,
            tuple(quantiles(each, n=100)[98] for each in late), times,
        ),
    ]  # fmt: skip


def _work(amount: int) -> None:
    for _ in range(amount):
        sha256(_BLOCK).digest()


def _calibrated() -> int:
    """Return how much work takes about a millisecond."""
    amount, best = 1_000, float("inf")
    for _ in range(9):
        begin = time.perf_counter()
        _work(amount)
        best = min(best, time.perf_counter() - begin)
    return int(amount * PACE / best)


async def _cost(path: Path, chunks: int, work: int) -> list[float]:
    async with Engine(path, signals=False) as engine:
        session = await engine.start(sending, chunks=chunks, work=work)
        return (await session.outcome()).state.out


async def _latency(path: Path, chunks: int) -> list[float]:
    """Return the milliseconds from sending to seeing, of every chunk."""
    async with Engine(path, workflows=[ticking], signals=False) as engine:
        session = await engine.start(ticking, chunks=chunks, session_id="s", paused=True)
        command = [sys.executable, "-m", "benchmarks.streams", str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            await asyncio.to_thread(process.stdout.readline)  # it has begun to follow
            await session.resume()
            await session.outcome()
            found: list[float] = json.loads(await asyncio.to_thread(process.stdout.read))
    return found


async def _follow(path: Path) -> list[float]:
    seen: list[float] = []
    async with Engine(path, drives="none", signals=False) as engine:
        print("following", flush=True)
        async for item in engine.session("s").stream(until="ended"):
            if isinstance(item, StreamChunk):
                seen.append((time.time() - float(item.data)) * 1e3)
    return seen


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_follow(Path(sys.argv[1])))))
