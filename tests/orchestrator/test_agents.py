"""Agents that are loops of this process: what they are, how they are known, and their pending tool calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pausepoint.errors import DefinitionError, RestoreRefused
from pausepoint.orchestrator import (
    Agent,
    Agents,
    AgentState,
    EventBus,
    FileStateStore,
    PauseResumeController,
    RunStateSnapshot,
    ToolCall,
)
from tests.support.loop import on_loop


async def twice(agent: Agent) -> AsyncGenerator[None, None]:
    for _ in range(2):
        agent.memory["steps"] = agent.memory.get("steps", 0) + 1
        yield


async def failing(agent: Agent) -> AsyncGenerator[None, None]:
    yield
    raise ValueError("out of luck")


@on_loop
async def test_an_agent_whose_work_is_done_is_no_longer_active() -> None:
    agents = Agents()
    agent = agents.add(Agent("a", twice))
    assert (agents.active_ids(), repr(agent)) == (("a",), "Agent('a')")
    await agent.finished()
    assert (agent.ended, agent.memory, agents.active_ids()) == (True, {"steps": 2}, ())
    await agent.finished()
    await agents.signal_resume()  # what has ended does not begin anew
    assert agent.idle


@on_loop
async def test_what_an_agent_fails_with_is_told_to_who_waits_for_it_and_ends_no_other() -> None:
    agents = Agents()
    bad, good = agents.add(Agent("bad", failing)), agents.add(Agent("good", twice))
    with pytest.raises(ValueError, match="out of luck"):
        await bad.finished()
    await good.finished()
    assert agents.active_ids() == ()


@on_loop
async def test_an_id_is_for_one_agent_at_a_time() -> None:
    agents = Agents()
    first = agents.add(Agent("a", twice))
    with pytest.raises(DefinitionError, match="An agent with the id 'a' exists already"):
        agents.add(Agent("a", twice))
    await first.finished()
    second = agents.add(Agent("a", twice))
    assert agents.get("a") is second
    await second.finished()


@on_loop
async def test_agents_that_come_during_a_pause_wait_and_are_seen_to() -> None:
    agents = Agents()
    assert agents.waiting() == ()
    await agents.signal_pause()
    await agents.signal_pause()
    late = agents.add(Agent("late", twice))
    assert (agents.waiting(), agents.active_ids(), late.idle) == (("late",), (), True)
    await agents.signal_resume()
    await late.finished()
    assert late.memory == {"steps": 2}


@on_loop
async def test_a_snapshot_stays_as_it_is_while_the_agents_go_on_from_it() -> None:
    agents = Agents()
    agent = agents.add(Agent("a", twice))
    snapshot = RunStateSnapshot(0, (AgentState("a", {"goal": "count"}, {"steps": 5}),))
    await agents.signal_pause()
    await agents.await_all_idle(5)
    await agents.restore_from_snapshot(snapshot)
    await agents.signal_resume()
    await agent.finished()
    assert (agent.memory, snapshot.active_agents[0].memory) == ({"steps": 7}, {"steps": 5})


@on_loop
async def test_a_snapshot_with_agents_that_are_not_here_is_refused_naming_them() -> None:
    snapshot = RunStateSnapshot(0, (AgentState("a"), AgentState("b")))
    with pytest.raises(RestoreRefused, match=r"does not have: a, b\. Add them, or pass revive=") as refused:
        await Agents().restore_from_snapshot(snapshot)
    assert refused.value.agent_ids == ["a", "b"]


class Tools:
    """An agent decides on all its calls in one step, and makes one call in each that follows."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.steps = 0

    async def use(self, agent: Agent) -> AsyncGenerator[None, None]:
        if not agent.memory.get("decided"):
            agent.pending_tool_calls = [ToolCall(f"call-{n}", "search", {"n": n}) for n in range(4)]
            agent.memory["decided"] = True
            self.steps += 1
            yield
        while agent.pending_tool_calls:
            self.made.append(agent.pending_tool_calls.pop(0).id)
            self.steps += 1
            yield


@pytest.mark.covers("S5.42", "S5.37")
@on_loop
async def test_pending_tool_calls_are_neither_lost_nor_made_twice(tmp_path: Path) -> None:
    tools, store, kept = Tools(), FileStateStore(tmp_path), list[Agent]()

    def revive(state: AgentState) -> Agent:
        kept.append(Agent(state.id, tools.use))
        return kept[-1]

    for life in range(5):  # a new process after every step
        agents = Agents(revive)
        controller = PauseResumeController(EventBus(), store, agents)
        if life:
            controller.found_paused()
            await controller.resume()
        else:
            agents.add(revive(AgentState("a")))
        while tools.steps == life:
            await asyncio.sleep(0)
        await controller.pause()
        snapshot = await store.load_snapshot()
        assert snapshot is not None
        pending = [call.id for state in snapshot.active_agents for call in state.pending_tool_calls]
        assert tools.made + pending == [f"call-{n}" for n in range(4)]
    assert (len(kept), tools.made) == (5, [f"call-{n}" for n in range(4)])
