"""Sessions as agents: one button for those of this process and of others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.errors import AgentsStuck, DefinitionError, RestoreRefused
from pausepoint.orchestrator import (
    AgentState,
    EventBus,
    FileStateStore,
    OrchestratorState,
    PauseResumeController,
    RunStateSnapshot,
    SessionAgents,
    ToolCall,
)
from tests.support.children import child
from tests.support.loop import on_loop
from tests.support.pipeline import Doc, Pipeline

HELD = """
    pipeline = Pipeline()
    gate = pipeline.hold("draft")
    async with Engine(args[0]) as engine:
        session = await engine.start(pipeline.workflow, session_id="theirs")
        await gate.reached.wait()
        say("reached")
        assert await heard() == "go"
        gate.opened.set()
        say((await session.outcome()).status)
"""


@pytest.mark.covers("S5.9", "S5.10", "S5.12", "S5.59", "S5.32")
@on_loop
async def test_sessions_of_two_processes_stop_after_their_steps_and_go_on_where_they_were(tmp_path: Path) -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("outline")
    async with Engine(tmp_path / "hold.db") as engine:
        agents = SessionAgents(engine, workflow="pipeline")
        controller = PauseResumeController(EventBus(), FileStateStore(tmp_path), agents)
        with child(HELD, tmp_path / "hold.db") as other:
            await asyncio.to_thread(other.expect, "reached")
            ours = await engine.start(pipeline.workflow, session_id="ours")
            await gate.reached.wait()
            waiting = await engine.start(pipeline.workflow, session_id="waiting", paused=True)
            pausing = asyncio.ensure_future(controller.pause("all hands", by="ann"))
            while (await engine.session("theirs").info()).status is not Status.PAUSING:
                await asyncio.sleep(0.005)
            assert not pausing.done()
            gate.opened.set()
            other.tell("go")
            await asyncio.to_thread(other.expect, "paused")
            await pausing
            assert other.ended() == 0
        assert controller.get_state() is OrchestratorState.PAUSED
        assert pipeline.calls == ["outline"]
        snapshot = await FileStateStore(tmp_path).load_snapshot()
        assert snapshot is not None
        steps = {agent.id: (agent.task or {})["step"] for agent in snapshot.active_agents}
        assert steps == {"ours": "draft", "theirs": "verdict"}
        assert {agent.id: agent.memory["draft"] for agent in snapshot.active_agents}["theirs"].startswith("draft of")
        assert [task.id for task in snapshot.pending_tasks] == ["waiting"]
        await controller.resume()
        for session in (ours, engine.session("theirs")):
            assert (await session.outcome()).status is Status.COMPLETED
        assert pipeline.calls.count("outline") == 1
        assert await waiting.status() is Status.PAUSED


@on_loop
async def test_a_session_that_is_started_while_all_are_asked_to_stop_stops_too(tmp_path: Path) -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("outline")
    async with Engine(tmp_path / "hold.db") as engine:
        first = await engine.start(pipeline.workflow, session_id="first")
        await gate.reached.wait()
        agents = SessionAgents(engine, workflow="pipeline")
        await agents.signal_pause()
        late = await engine.start(pipeline.workflow, session_id="late")
        idle = asyncio.ensure_future(agents.await_all_idle(5))
        while not (await engine.session("late").info()).pause_requested:
            await asyncio.sleep(0.001)
        gate.opened.set()
        await idle
        assert [await session.status() for session in (first, late)] == [Status.PAUSED, Status.PAUSED]
        assert agents.active_ids() == ("first", "late")
        [pause] = await late.pauses()
        assert pause.reason == "it was started while all sessions were being paused"
        await agents.signal_resume()
        assert [(await session.outcome()).status for session in (first, late)] == [Status.COMPLETED] * 2


@pytest.mark.long
@on_loop
async def test_one_that_does_not_stop_is_named_and_all_of_a_store_can_be_meant(tmp_path: Path) -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("draft")
    async with Engine(tmp_path / "hold.db") as engine, Engine(tmp_path / "hold.db", signals=False) as other:
        session = await engine.start(pipeline.workflow, session_id="slow")
        await gate.reached.wait()
        for driver in (engine, other):
            controller = PauseResumeController(
                EventBus(), FileStateStore(tmp_path), SessionAgents(driver), idle_timeout=0.05
            )
            with pytest.raises(AgentsStuck, match="slow") as stuck:
                await controller.pause()
            assert (stuck.value.agent_ids == ["slow"]) is (driver is engine), "of another engine's, it says whose"
        gate.opened.set()
        assert (await session.outcome()).status is Status.PAUSED


@step(writes="report")
async def ask(ctx: Context) -> str:
    return await ctx.ask("Which otter?", expires=None)


asking = Workflow("asking", state=Doc, steps=[ask])


@on_loop
async def test_each_session_is_afterwards_what_it_was_before(tmp_path: Path) -> None:
    """One waits for an answer, one failed, one was cancelled meanwhile, one was paused by somebody else."""
    pipeline = Pipeline()
    pipeline.errors["outline"] = [ValueError("no")]
    async with Engine(tmp_path / "hold.db") as engine:
        await (await engine.start(pipeline.workflow, session_id="failed")).outcome()
        paused = await engine.start(pipeline.workflow, session_id="paused", paused=True)
        waits = [await engine.start(asking, session_id=id) for id in ("waits", "cancelled")]
        for session in waits:
            await session.outcome()
        controller = PauseResumeController(EventBus(), FileStateStore(tmp_path), SessionAgents(engine))
        await controller.pause()
        snapshot = await FileStateStore(tmp_path).load_snapshot()
        assert snapshot is not None
        [question] = await engine.session("waits").questions()
        pending = {agent.id: agent.pending_tool_calls for agent in snapshot.active_agents}
        assert pending["waits"] == (ToolCall(question.id, "ask", {"question": "Which otter?"}),)
        assert {task.id: task.status for task in snapshot.pending_tasks} == {"failed": "failed", "paused": "paused"}
        await waits[1].cancel()
        await controller.resume()
        found = {info.session_id: info.status.value for info in await engine.sessions()}
        assert found == {"failed": "failed", "paused": "paused", "waits": "waiting", "cancelled": "cancelled"}
        assert (pipeline.calls, await paused.status()) == (["outline"], Status.PAUSED)


@pytest.mark.covers("S5.36")
@on_loop
async def test_a_session_that_is_not_in_the_store_is_named() -> None:
    async with Engine(":memory:") as engine:
        snapshot = RunStateSnapshot(0, (AgentState("gone", session_id="gone"),))
        with pytest.raises(RestoreRefused, match="Session 'gone' of agent 'gone' is not in this store"):
            await SessionAgents(engine).restore_from_snapshot(snapshot)


@on_loop
async def test_what_is_started_after_all_were_resumed_is_not_paused(tmp_path: Path) -> None:
    pipeline = Pipeline()
    async with Engine(tmp_path / "hold.db") as engine:
        controller = PauseResumeController(EventBus(), FileStateStore(tmp_path), SessionAgents(engine))
        await controller.pause()
        meanwhile = await engine.start(pipeline.workflow, session_id="meanwhile")
        assert await meanwhile.status() is Status.PAUSED
        await controller.resume()
        later = await engine.start(pipeline.workflow, session_id="later")
        assert [(await each.outcome()).status for each in (meanwhile, later)] == [Status.COMPLETED] * 2


@on_loop
async def test_somebody_elses_pause_of_everything_stays_when_ours_is_over(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db") as engine:
        await engine.pause_all(by="ben")
        controller = PauseResumeController(EventBus(), FileStateStore(tmp_path), SessionAgents(engine))
        await controller.pause()
        await controller.resume()
        assert await (await engine.start(Pipeline().workflow)).status() is Status.PAUSED


@pytest.mark.covers("S5.36")
@on_loop
async def test_if_one_cannot_go_on_none_does(tmp_path: Path) -> None:
    """One that this process does not know, seen before; and one that refuses when it is its turn."""
    pipeline, others = Pipeline(), Workflow("others", state=Doc, steps=[ask])
    gate = pipeline.hold("outline")
    async with Engine(tmp_path / "hold.db") as engine:
        await engine.start(pipeline.workflow, session_id="a")
        await (await engine.start(others, session_id="b")).outcome()
        await gate.reached.wait()
        controller = PauseResumeController(EventBus(), FileStateStore(tmp_path), SessionAgents(engine))
        pausing = asyncio.ensure_future(controller.pause())
        while not (await engine.session("a").info()).pause_requested:
            await asyncio.sleep(0)
        gate.opened.set()
        await pausing
    async with Engine(tmp_path / "hold.db", workflows=[pipeline.workflow]) as engine:
        controller = PauseResumeController(EventBus(), FileStateStore(tmp_path), SessionAgents(engine))
        controller.found_paused()
        with pytest.raises(RestoreRefused, match="'b' belongs to workflow 'others'"):
            await controller.resume()
        found = {info.session_id: info.status for info in await engine.sessions()}
        assert found == {"a": Status.PAUSED, "b": Status.PAUSED}
        controller.agent_registry._check_known = AsyncMock()  # type: ignore[attr-defined]
        with pytest.raises(DefinitionError, match="'b' belongs to workflow 'others'"):
            await controller.resume()
        found = {info.session_id: info.status for info in await engine.sessions()}
        assert found == {"a": Status.PAUSED, "b": Status.PAUSED}
        assert controller.get_state() is OrchestratorState.PAUSED
