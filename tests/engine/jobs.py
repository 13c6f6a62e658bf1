"""Workflows that do not end on their own, for the tests that end their process."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from pydantic import BaseModel

from pausepoint import Context, Workflow, step


class Job(BaseModel):
    rounds: int = 0


async def tick(number: int) -> int:
    await asyncio.sleep(0.02)
    return number


@step(writes="rounds")
async def work(ctx: Context) -> int:
    for number in range(1_000_000):
        await ctx.do(tick, number)
    return 1_000_000


@step
async def nap(ctx: Context) -> None:
    await ctx.sleep(timedelta(days=1))


ticking = Workflow("ticking", state=Job, steps=[work])
napping = Workflow("napping", state=Job, steps=[nap])
