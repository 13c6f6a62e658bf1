"""A workflow whose sessions fail while a switch is off, for the tests of bulk verbs. It counts what really ran."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step


class Item(BaseModel):
    number: int
    looked_up: int = 0
    kept: int = 0


class World:
    """What sessions meet outside. ``broken`` numbers fail; ``ran`` counts the operations per session."""

    def __init__(self) -> None:
        self.broken: set[int] = set()
        self.ran: Counter[int] = Counter()
        self.most = 0
        self.busy = 0


world = World()


async def fetched(number: int) -> int:
    world.ran[number] += 1
    return number


@step(writes="looked_up")
async def look_up(number: int, ctx: Context) -> int:
    return await ctx.do(fetched, number)


@step(writes="kept")
async def keep(number: int) -> int:
    if number in world.broken:
        raise ConnectionError(f"no way to {number}")
    return number


batch = Workflow("batch", state=Item, steps=[look_up, keep])


async def ran_batch(engine: Engine, count: int, workflow: Workflow[Any] = batch, **options: Any) -> None:
    """Run sessions that fail or complete, as the world is now."""
    sessions = [
        await engine.start(workflow, session_id=f"{workflow.name}-{n:04}", number=n, **options) for n in range(count)
    ]
    for session in sessions:
        assert (await session.outcome()).status in (Status.FAILED, Status.COMPLETED)
