"""Measure what ``retry=`` and ``timeout=`` add to an operation that succeeds at its first attempt."""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import median

from pydantic import BaseModel

from benchmarks.baseline import Moment
from benchmarks.results import Figure
from benchmarks.steps import Scale
from pausepoint import Context, Engine, Retry, Workflow, step

RETRY = Retry(attempts=3)


class Loop(BaseModel):
    """A loop of operations: how many blocks, and how many operations in each."""

    blocks: int
    block: int
    n: int = 0


plain: list[float] = []
limited: list[float] = []


async def work(n: int) -> int:
    """Do as little as an operation can."""
    return n


@step(writes="n")
async def loop(blocks: int, block: int, ctx: Context) -> int:
    """Alternate blocks of operations with and without the options, so that the machine is the same for both."""
    n = 0
    for number in range(blocks):
        for has_limits in (True, False) if number % 2 else (False, True):
            begin = Moment.now()
            for _ in range(block):
                n += 1
                if has_limits:
                    await ctx.do(work, n, retry=RETRY, timeout=60)
                else:
                    await ctx.do(work, n)
            (limited if has_limits else plain).append((Moment.now().cpu - begin.cpu) / block)
    return n


looping = Workflow("looping", state=Loop, steps=[loop])


def operations(folder: Path, scale: Scale) -> list[Figure]:
    """Measure processor time in memory, where an operation is cheapest and the options weigh most."""
    rounds = [asyncio.run(_round(scale)) for _ in range(scale.rounds)]
    notes = {"plain µs": median(plain for plain, _ in rounds) * 1e6,
             "with both µs": median(limited for _, limited in rounds) * 1e6}  # fmt: skip
    ratios = tuple(limited / plain for plain, limited in rounds)
    what = "an operation with retry and timeout, to one without, processor time"
    return [Figure("operations", what, "×", 1.08, ratios, notes)]


async def _round(scale: Scale) -> tuple[float, float]:
    plain.clear()
    limited.clear()
    async with Engine(":memory:", signals=False) as engine:
        session = await engine.start(looping, blocks=scale.operations // scale.block, block=scale.block)
        assert (await session.outcome()).status == "completed"
    return min(plain), min(limited)  # the blocks that other programs disturbed least
