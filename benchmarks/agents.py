"""How long a thousand agents take to stand still, beyond the step that each of them is in."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from benchmarks.results import Figure
from benchmarks.steps import Scale
from holdfast import Engine, Workflow, route, step
from holdfast.orchestrator import (
    Agent,
    Agents,
    EventBus,
    FileStateStore,
    Orchestrator,
    PauseResumeController,
    SessionAgents,
    Task,
    TaskAgent,
)

LIMIT = 50.0
"""Milliseconds."""

WARM = 1.0
"""Seconds that all agents work before the button is pressed, so that their steps do not end together."""


class Steps:
    """Steps of 300 to 900 ms; when the last of those in flight is to end is known."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.draw = random.Random(count)
        self.ends: dict[str, float] = {}

    async def step(self, agent: str) -> None:
        """One step of an agent."""
        duration = self.draw.uniform(0.3, 0.9)
        self.ends[agent] = time.perf_counter() + duration
        await asyncio.sleep(duration)

    async def beyond(self, controller: PauseResumeController) -> float:
        """Pause, and say how many milliseconds after the end of the last step all stood still."""
        while len(self.ends) < self.count:
            await asyncio.sleep(0.01)
        await asyncio.sleep(WARM)
        called = time.perf_counter()
        await controller.pause()
        assert controller.stopped_in is not None
        return max(0.0, called + controller.stopped_in - max(called, *self.ends.values())) * 1000


def agents(folder: Path, scale: Scale) -> list[Figure]:
    """Loops, agents of one run, and sessions: a thousand of each."""
    count = scale.agents
    what = f"a pause of {count:,}"
    kinds: list[tuple[str, str, Callable[[Path, Steps], Awaitable[float]]]] = [
        ("agents-loops", f"{what} loops, beyond the longest step", _loops),
        ("agents-run", f"{what} agents of a run, their calls on disk, likewise", _run),
        ("agents-sessions", f"{what} sessions, each parked on disk, likewise", _sessions),
    ]
    figures = []
    for name, text, measured in kinds:
        rounds = range(scale.rounds)
        values = tuple(asyncio.run(_measured(measured, folder / f"{name}-{n}", count)) for n in rounds)
        figures.append(Figure(name, text, "ms", LIMIT, values))
    return figures


async def _measured(measured: Callable[[Path, Steps], Awaitable[float]], folder: Path, count: int) -> float:
    folder.mkdir()
    return await measured(folder, Steps(count))


async def _loops(folder: Path, steps: Steps) -> float:
    async def work(agent: Agent) -> AsyncGenerator[None, None]:
        while True:
            await steps.step(agent.id)
            yield

    registry = Agents()
    kept = [registry.add(Agent(f"agent-{n}", work)) for n in range(steps.count)]
    beyond = await steps.beyond(PauseResumeController(EventBus(), FileStateStore(folder), registry))
    assert all(agent.idle for agent in kept)
    return beyond


async def _run(folder: Path, steps: Steps) -> float:
    async def work(agent: TaskAgent) -> None:
        for n in range(1_000_000):
            await agent.call(steps.step, agent.task.id, key=n)

    async with Engine(folder / "agents.db", signals=False) as engine:
        run = Orchestrator(engine, "run", work, agents=steps.count, snapshot_store=FileStateStore(folder))
        await run.start([Task(id=f"task-{n}") for n in range(steps.count)])
        return await steps.beyond(run.controller)


class Lap(BaseModel):
    """A session that goes round."""

    n: int


async def _sessions(folder: Path, steps: Steps) -> float:
    @step
    async def lap(n: int) -> None:
        await steps.step(str(n))

    @route(after=lap)
    def once_more() -> Literal["lap"]:
        return "lap"

    laps = Workflow("laps", state=Lap, steps=[lap], routes=[once_more])
    async with Engine(folder / "agents.db", signals=False) as engine:
        await asyncio.gather(*[engine.start(laps, n=n) for n in range(steps.count)])
        return await steps.beyond(PauseResumeController(EventBus(), FileStateStore(folder), SessionAgents(engine)))
