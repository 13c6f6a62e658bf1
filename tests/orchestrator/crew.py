"""What the tests of this folder share: loops whose steps a test opens, and a registry and a store that tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

from pausepoint.orchestrator import (
    Agent,
    Agents,
    AgentState,
    EventBus,
    FileStateStore,
    OrchestratorPaused,
    OrchestratorResumed,
    PauseResumeController,
    RunStateSnapshot,
)


class Crew:
    """Loops that count in their memory. Each step waits for the gate; ``trail`` is what happened, in order."""

    def __init__(self, folder: Path, *ids: str, idle_timeout: float | None = 5.0) -> None:
        self.trail: list[str] = []
        self.gate = asyncio.Event()
        self.in_step: set[str] = set()
        self.registry = TellingAgents(self.trail, self.revive)
        self.store = TellingStore(self.trail, folder)
        self.bus = EventBus()
        self.events: list[OrchestratorPaused | OrchestratorResumed] = []
        self.bus.on("orchestrator:*", self._heard)
        self.controller = PauseResumeController(self.bus, self.store, self.registry, idle_timeout=idle_timeout)
        self.agents = {id: self.registry.add(self.agent(id)) for id in ids}

    def _heard(self, event: OrchestratorPaused | OrchestratorResumed) -> None:
        self.trail.append(event.type)
        self.events.append(event)

    def agent(self, id: str) -> Agent:
        return Agent(id, self.count, task={"goal": f"count in {id}"}, memory={"n": 0})

    def revive(self, state: AgentState) -> Agent:
        agent = self.agents[state.id] = self.agent(state.id)
        return agent

    async def count(self, agent: Agent) -> AsyncGenerator[None, None]:
        """Each step counts at its beginning and at its end; cut in the middle, the two would differ."""
        while True:
            agent.memory["begun"] = agent.memory.get("begun", 0) + 1
            self.in_step.add(agent.id)
            await self.gate.wait()
            self.in_step.discard(agent.id)
            agent.memory["n"] += 1
            yield

    async def busy(self) -> None:
        """Until every agent is in the middle of a step."""
        while self.in_step != set(self.agents):
            await asyncio.sleep(0)

    def counts(self) -> dict[str, int]:
        return {id: agent.memory["n"] for id, agent in self.agents.items()}

    async def pause_opening(self) -> None:
        """Pause, and let the steps end once the pause waits for them."""
        pausing = asyncio.ensure_future(self.controller.pause())
        await self.until(lambda: "await_all_idle" in self.trail)
        self.gate.set()
        await pausing

    async def until(self, true: Callable[[], bool]) -> None:
        while not true():
            await asyncio.sleep(0)

    async def end(self) -> None:
        """Let no loop outlive its test."""
        self.gate.set()
        await self.registry.signal_pause()
        await self.registry.await_all_idle(5)


class TellingAgents(Agents):
    """The real registry, and what is asked of it."""

    def __init__(self, trail: list[str], revive: Callable[[AgentState], Agent]) -> None:
        super().__init__(revive)
        self.trail = trail
        self.restore_fails = False
        self.timeouts: list[float | None] = []

    async def signal_pause(self, reason: str = "", by: str | None = None) -> None:
        self.trail.append("signal_pause")
        await super().signal_pause(reason, by)

    async def await_all_idle(self, timeout: float | None = 30.0) -> None:
        self.trail.append("await_all_idle")
        self.timeouts.append(timeout)
        await super().await_all_idle(timeout)
        self.trail.append("all idle")

    async def restore_from_snapshot(self, snapshot: RunStateSnapshot) -> None:
        self.trail.append("restore")
        if self.restore_fails:
            raise RuntimeError("no such agent")
        await super().restore_from_snapshot(snapshot)

    async def signal_resume(self) -> None:
        self.trail.append("signal_resume")
        await super().signal_resume()


class TellingStore(FileStateStore):
    """The real store, and what is asked of it."""

    def __init__(self, trail: list[str], folder: Path) -> None:
        super().__init__(folder)
        self.trail = trail

    async def save_snapshot(self, snapshot: RunStateSnapshot) -> None:
        await super().save_snapshot(snapshot)
        self.trail.append("saved")

    async def load_snapshot(self) -> RunStateSnapshot | None:
        self.trail.append("load")
        return await super().load_snapshot()


def ids(states: Sequence[AgentState]) -> list[str]:
    return [state.id for state in states]
