"""A run whose tool calls a test opens, fails and counts."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from pausepoint import Engine
from pausepoint.orchestrator import BusEvent, Orchestrator, Task, TaskAgent


class Shop:
    """Each task makes two tool calls, ``first`` and ``second``; a call named in ``held`` waits for `open`."""

    def __init__(self, engine: Engine, name: str = "run", **options: Any) -> None:
        self.calls: Counter[str] = Counter()
        self.order: list[str] = []
        self.held: dict[str, asyncio.Event] = {}
        self.failing: dict[str, str] = {}
        self.at_once = self.most_at_once = 0
        self.heard: list[BusEvent] = []
        self.run = Orchestrator(engine, name, self.work, **options)
        self.run.bus.on("*", self.heard.append)

    def hold(self, *calls: str) -> None:
        self.held.update({call: asyncio.Event() for call in calls})

    def open(self) -> None:
        for event in self.held.values():
            event.set()

    async def work(self, agent: TaskAgent) -> dict[str, Any]:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            agent.memory["first"] = await agent.call(self.use, f"{agent.task.id}/first")
            if agent.task.id in self.failing:
                raise ValueError(self.failing[agent.task.id])
            await agent.call(self.use, f"{agent.task.id}/second")
        finally:
            self.at_once -= 1
        return {"by": agent.id, "needs": agent.results}

    async def use(self, call: str) -> str:
        self.calls[call] += 1
        self.order.append(call)
        if call in self.held:
            await self.held[call].wait()
        await asyncio.sleep(0)
        return f"used {call}"

    async def reached(self, *calls: str) -> None:
        while not all(self.calls[call] for call in calls):
            await asyncio.sleep(0.001)

    def begun(self) -> list[str]:
        return [call.partition("/")[0] for call in self.order if call.endswith("first")]


CHAIN = [Task(id="a"), Task(id="b", needs=["a"]), Task(id="c", needs=["b"]), Task(id="x"), Task(id="y", needs=["x"])]
