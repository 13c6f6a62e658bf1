"""Measure how long a thousand agents take to stop, beyond the step that each of them is in."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

from pydantic import BaseModel

from benchmarks.results import Figure
from benchmarks.steps import Scale
from pausepoint import Engine, Workflow, route, step
from pausepoint.orchestrator import (
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


class Stop(NamedTuple):
    """Milliseconds from the end of the last step until the last agent stopped, and until everything was on disk."""

    idle: float
    parked: float


class Steps:
    """Steps of different lengths that record when each step in flight will end."""

    def __init__(self, scale: Scale) -> None:
        self.count = scale.agents
        self.average, self.warm = scale.agents_step, scale.agents_warm
        self.draw = random.Random(self.count)
        self.ends: dict[str, float] = {}
        self.stood = 0.0

    async def step(self, agent: str) -> None:
        """Run one step of an agent."""
        duration = self.average * self.draw.uniform(0.5, 1.5)
        self.ends[agent] = time.perf_counter() + duration
        await asyncio.sleep(duration)

    async def stop(self, controller: PauseResumeController) -> Stop:
        """Let all agents work for a while, then pause them."""
        while len(self.ends) < self.count:
            await asyncio.sleep(0.01)
        await asyncio.sleep(self.warm)
        called = time.perf_counter()
        await controller.pause()
        assert controller.stopped_in is not None
        parked, last = called + controller.stopped_in, max(called, *self.ends.values())
        return Stop(max(0.0, (self.stood or parked) - last) * 1000, max(0.0, parked - last) * 1000)


Kind = Callable[[Path, Steps], Awaitable[Stop]]


def agents(folder: Path, scale: Scale) -> list[Figure]:
    """Measure a thousand loops, a thousand agents of one run, and a thousand sessions."""
    what = f"a pause of {scale.agents:,}"
    loops = [_measured(_loops, folder / f"loops-{n}", scale) for n in range(scale.rounds)]
    runs = [_measured(_run, folder / f"run-{n}", scale) for n in range(scale.rounds)]
    sessions = [_measured(_sessions, folder / f"sessions-{n}", scale) for n in range(scale.rounds)]
    notes = {"parked ms": median(stop.parked for stop in runs)}
    return [
        _figure("agents-loops", f"{what} loops, beyond the longest step", loops),
        _figure("agents-run", f"{what} agents of a run, their calls on disk, likewise", runs, notes),
        _figure("agents-sessions", f"{what} sessions, each parked on disk, likewise", sessions),
    ]


def _figure(name: str, what: str, stops: list[Stop], notes: dict[str, float] | None = None) -> Figure:
    return Figure(name, what, "ms", LIMIT, tuple(stop.idle for stop in stops), notes or {})


def _measured(kind: Kind, folder: Path, scale: Scale) -> Stop:
    async def measure() -> Stop:
        folder.mkdir()
        return await kind(folder, Steps(scale))

    return asyncio.run(measure())


async def _loops(folder: Path, steps: Steps) -> Stop:
    async def work(agent: Agent) -> AsyncGenerator[None, None]:
        while True:
            await steps.step(agent.id)
            yield

    registry = Agents()
    kept = [registry.add(Agent(f"agent-{n}", work)) for n in range(steps.count)]
    stop = await steps.stop(PauseResumeController(EventBus(), FileStateStore(folder), registry))
    assert all(agent.idle for agent in kept)
    return stop


async def _run(folder: Path, steps: Steps) -> Stop:
    async def work(agent: TaskAgent) -> None:
        for n in range(1_000_000):
            await agent.call(steps.step, agent.task.id, key=n)
            steps.stood = time.perf_counter()  # its call is on disk, and it is about to check for the pause

    async with Engine(folder / "agents.db", signals=False) as engine:
        run = Orchestrator(engine, "run", work, agents=steps.count, snapshot_store=FileStateStore(folder))
        await run.start([Task(id=f"task-{n}") for n in range(steps.count)])
        return await steps.stop(run.controller)


class Lap(BaseModel):
    """The state of a session that loops."""

    n: int


async def _sessions(folder: Path, steps: Steps) -> Stop:
    @step
    async def lap(n: int) -> None:
        await steps.step(str(n))

    @route(after=lap)
    def once_more() -> Literal["lap"]:
        return "lap"

    laps = Workflow("laps", state=Lap, steps=[lap], routes=[once_more])
    async with Engine(folder / "agents.db", signals=False) as engine:
        await asyncio.gather(*[engine.start(laps, n=n) for n in range(steps.count)])
        return await steps.stop(PauseResumeController(EventBus(), FileStateStore(folder), SessionAgents(engine)))
