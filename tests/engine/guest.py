"""A guest workflow, and a block that counts what it runs."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel

from pausepoint import Context, Engine, Workflow
from pausepoint.runtime import GuestContext


class Talk(BaseModel):
    topic: str = ""
    answer: str = ""
    turns: int = 0


AGENT = Workflow.guest("agent", state=Talk, events=["turn"])


class Counter:
    """An agent loop of operations. ``ran`` lists the operations that really ran."""

    def __init__(self, count: int = 4) -> None:
        self.count = count
        self.ran: list[int] = []
        self.began = asyncio.Event()
        self.go = asyncio.Event()
        self.stops_at: int | None = None

    async def turn(self, n: int) -> int:
        self.ran.append(n)
        if n == self.stops_at:
            self.began.set()
            await self.go.wait()
        return n

    async def loop(self, ctx: Context) -> int:
        return sum([await ctx.do(self.turn, n) for n in range(self.count)])

    async def visit(self, engine: Engine, session_id: str = "t", **options: Any) -> int:
        """Visit the session as a web handler does, and return the sum of the turns."""
        async with engine.visit(AGENT, session_id=session_id, **options) as ctx:
            total = await self.loop(ctx)
            ctx.output = {"turns": total}
        return total

    async def stop_at(self, n: int, engine: Engine, session_id: str = "t") -> asyncio.Task[int]:
        """Begin a visit, and return it when its operation ``n`` is in flight."""
        self.stops_at = n
        self.began.clear()
        self.go.clear()
        visit = asyncio.create_task(self.visit(engine, session_id))
        await self.began.wait()
        return visit


async def caught(ctx: GuestContext[Talk], work: Any) -> BaseException | None:
    """Return what an operation raises, whatever it is."""
    try:
        await work
    except BaseException as error:
        return error
    return None
