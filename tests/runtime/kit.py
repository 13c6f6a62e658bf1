"""A workflow that waits for a message, and an operation that a test holds."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from pausepoint import Context, Workflow, step
from pausepoint.runtime.visit import Visit

HOUR = 3600.0


class Data(BaseModel):
    n: int = 0
    out: str = ""


def listening() -> Workflow[Data]:
    """Make a workflow that waits for a message."""

    @step(writes="out")
    async def listen(ctx: Context) -> str:
        return await ctx.receive()

    return Workflow("part", state=Data, steps=[listen])


def pass_time(visit: Visit, seconds: float) -> None:
    """Let time pass for the time-outs of a visit's operations, and let those expire that are over."""
    timeouts = visit.timeouts
    now = timeouts.time() + seconds
    timeouts.time = lambda: now
    timeouts._ring()


class Gate:
    """An operation that runs until `open` is set."""

    def __init__(self) -> None:
        self.begun, self.open = asyncio.Event(), asyncio.Event()

    async def pass_through(self) -> int:
        self.begun.set()
        await self.open.wait()
        return 1
