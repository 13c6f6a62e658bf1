"""Steps that fail at their end and run again, so that a test sees which operations were remembered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel

from pausepoint import Context, Engine, Workflow, step
from pausepoint.model import Event
from pausepoint.testing import ManualClock


class State(BaseModel):
    done: list[str] = []
    text: str = ""


async def run(*steps: Any, **fields: Any) -> Any:
    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(Workflow("work", state=State, steps=list(steps)), **fields)
        return await session.outcome()


class Twice:
    """Runs a step whose first attempt fails at its end. ``ran`` then shows which operations ran again."""

    def __init__(self) -> None:
        self.ran: list[Any] = []
        self.tops = 0
        self.events: list[Event] = []

    async def run(self, body: Callable[[Context], Awaitable[Any]]) -> Any:
        @step(writes="text", retry=2)
        async def work(ctx: Context) -> str:
            self.tops += 1
            value = await body(ctx)
            if ctx.attempt == 1:
                raise ConnectionError("leave and come again")
            return str(value)

        async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
            session = await engine.start(Workflow("work", state=State, steps=[work], events=["note"]))
            outcome = await session.outcome()
            self.events = [event async for event in session.events()]
            return outcome
