"""The pause button (1_PRD-REQ-UI-008): its two sequences, and what it claims when something goes wrong on the way."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import time
import weakref
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pausepoint.errors import AgentsStuck, DamagedSnapshot, SnapshotMissing, SnapshotNotSaved
from pausepoint.orchestrator import (
    Agent,
    AgentRegistry,
    Agents,
    EventBus,
    FileStateStore,
    OrchestratorPaused,
    OrchestratorResumed,
    OrchestratorState,
    PauseResumeController,
    Phase,
    RunStateSnapshot,
    SnapshotStore,
)
from tests.orchestrator.crew import Crew, ids
from tests.support.loop import PATIENCE, on_loop

RUNNING, PAUSED = OrchestratorState.RUNNING, OrchestratorState.PAUSED
PAUSE = ["signal_pause", "await_all_idle", "all idle", "saved", "orchestrator:paused"]
RESUME = ["load", "restore", "signal_resume", "orchestrator:resumed"]


@pytest.mark.covers("S5.1")
def test_a_run_is_either_running_or_paused() -> None:
    assert {state.name: state.value for state in OrchestratorState} == {"RUNNING": "running", "PAUSED": "paused"}


@pytest.mark.covers("S5.2", "S5.3", "S5.5", "S5.25", "S5.53", "S5.60")
@on_loop
async def test_the_state_is_running_then_paused_then_running_again(tmp_path: Path) -> None:
    crew = Crew(tmp_path, "a")
    assert crew.controller.get_state() is RUNNING
    crew.gate.set()
    await crew.controller.pause()
    assert crew.controller.get_state() is PAUSED
    await crew.controller.resume()
    assert crew.controller.get_state() is RUNNING
    await crew.end()


@pytest.mark.covers("S5.8", "S5.9", "S5.12", "S5.16", "S5.17", "S5.19", "S5.20", "S5.27", "S5.28", "S5.29", "S5.30")
@on_loop
async def test_a_pause_signals_waits_saves_and_tells_and_a_resume_loads_restores_signals_and_tells(
    tmp_path: Path,
) -> None:
    crew = Crew(tmp_path, "a", "b", "c")
    await crew.busy()
    await crew.pause_opening()
    assert crew.trail == PAUSE
    crew.trail.clear()
    await crew.controller.resume()
    assert crew.trail == RESUME
    await crew.end()


@pytest.mark.covers("S5.31", "S5.20")
@on_loop
async def test_whoever_hears_an_event_finds_the_state_consistent(tmp_path: Path) -> None:
    crew = Crew(tmp_path, "a")
    seen: list[tuple[OrchestratorState, bool, bool]] = []

    def look(event: OrchestratorPaused | OrchestratorResumed) -> None:
        seen.append((crew.controller.get_state(), crew.agents["a"].idle, crew.store.path.exists()))

    crew.bus.on("*", look)
    crew.gate.set()
    await crew.controller.pause()
    await crew.controller.resume()
    assert seen == [(PAUSED, True, True), (RUNNING, False, True)]
    await crew.end()


@pytest.mark.covers("S5.6", "S5.7")
@on_loop
async def test_a_second_pause_returns_at_once_and_does_nothing(tmp_path: Path) -> None:
    crew = Crew(tmp_path, "a")
    crew.gate.set()
    await crew.controller.pause()
    crew.trail.clear()
    await crew.controller.pause()
    assert (crew.trail, crew.controller.get_state()) == ([], PAUSED)
    await crew.end()


@pytest.mark.covers("S5.26")
@on_loop
async def test_a_resume_of_what_is_running_loads_signals_and_tells_nothing(tmp_path: Path) -> None:
    crew = Crew(tmp_path, "a")
    await crew.controller.resume()
    assert (crew.trail, crew.controller.get_state()) == ([], RUNNING)
    await crew.end()


@pytest.mark.covers("S5.18", "S5.39")
@on_loop
async def test_the_event_has_the_time_in_milliseconds_and_the_agents_that_were_active(tmp_path: Path) -> None:
    crew = Crew(tmp_path, "b", "a")
    before = time.time() * 1000
    await crew.busy()
    await crew.pause_opening()
    [event] = crew.events
    assert event.data["activeAgentIds"] == ["a", "b"]
    assert before - 1 <= event.data["timestamp"] <= time.time() * 1000 + 1
    assert json.loads(crew.store.path.read_text())["pausedAt"] == event.data["timestamp"]
    await crew.end()


@pytest.mark.covers("S5.10", "S5.11", "S5.59")
@on_loop
async def test_every_agent_ends_its_step_and_none_begins_another(tmp_path: Path) -> None:
    crew = Crew(tmp_path, "a", "b", "c")
    await crew.busy()
    await crew.pause_opening()
    assert crew.counts() == {"a": 1, "b": 1, "c": 1}
    assert all(agent.memory["begun"] == agent.memory["n"] for agent in crew.agents.values())
    await asyncio.sleep(0.02)
    assert crew.counts() == {"a": 1, "b": 1, "c": 1}
    await crew.end()


@pytest.mark.covers("S5.4", "S5.12")
@on_loop
async def test_while_agents_finish_the_phase_is_pausing_and_the_state_does_not_claim_more(tmp_path: Path) -> None:
    crew = Crew(tmp_path, "a")
    await crew.busy()
    pausing = asyncio.ensure_future(crew.controller.pause())
    await crew.until(lambda: "await_all_idle" in crew.trail)
    await asyncio.sleep(0.01)
    assert not pausing.done()
    assert (crew.controller.phase, crew.controller.get_state()) == (Phase.PAUSING, RUNNING)
    crew.gate.set()
    await pausing
    assert (crew.controller.phase, crew.controller.get_state()) == (Phase.PAUSED, PAUSED)
    assert crew.controller.stopped_in is not None
    assert crew.controller.stopped_in >= 0.01
    await crew.end()


@pytest.mark.covers("S5.32", "S5.37", "S5.61")
@on_loop
async def test_a_loop_in_progress_halts_after_its_step_and_goes_on_where_it_left_off(tmp_path: Path) -> None:
    crew = Crew(tmp_path, "a")
    crew.gate.set()
    await crew.until(lambda: crew.counts()["a"] >= 3)
    crew.gate.clear()
    await crew.busy()
    at = crew.counts()["a"]
    await crew.pause_opening()
    assert crew.counts()["a"] == at + 1, "the step that ran was completed, and no other"
    assert crew.agents["a"].idle
    crew.gate.clear()
    crew.in_step.clear()
    await crew.controller.resume()
    await crew.busy()
    assert crew.agents["a"].memory == {"n": at + 1, "begun": at + 2}
    await crew.end()


@pytest.mark.covers("S5.32", "S5.52", "S5.37")
@on_loop
async def test_the_persisted_state_is_what_the_agents_go_on_from(tmp_path: Path) -> None:
    crew = Crew(tmp_path, "a")
    crew.gate.set()
    await crew.controller.pause()
    kept = json.loads(crew.store.path.read_text())
    assert kept["activeAgents"][0]["task"] == {"goal": "count in a"}
    kept["activeAgents"][0]["memory"]["n"] = 1000
    crew.store.path.unlink()
    crew.store.path.write_text(json.dumps(kept))
    crew.gate.clear()
    await crew.controller.resume()
    assert crew.agents["a"].memory["n"] == 1000
    await crew.end()


@pytest.mark.covers("S5.52", "S5.32")
@on_loop
async def test_another_process_resumes_from_the_snapshot_alone(tmp_path: Path) -> None:
    former = Crew(tmp_path, "a", "b")
    former.gate.set()
    await former.controller.pause()
    counts = former.counts()
    later = Crew(tmp_path)  # nothing in common but the folder
    later.controller.found_paused()
    await later.controller.resume()
    assert later.counts() == counts
    assert later.controller.get_state() is RUNNING
    await later.busy()
    await later.end()


@pytest.mark.covers("S5.13")
def test_the_wait_for_idle_agents_takes_30_seconds_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    controller = PauseResumeController(EventBus(), FileStateStore(tmp_path), Agents())
    assert controller.idle_timeout == 30.0
    asyncio.run(controller.pause())
    other = Crew(tmp_path, idle_timeout=0.25)
    asyncio.run(other.controller.pause())
    assert other.registry.timeouts == [0.25]


@pytest.mark.covers("S5.14", "S5.15")
@on_loop
async def test_agents_that_are_stuck_are_named_and_nothing_is_claimed(tmp_path: Path) -> None:
    crew = Crew(tmp_path, "a", "b", idle_timeout=0.02)
    await crew.busy()
    with pytest.raises(AgentsStuck, match=r"within 0\.02 s: a, b\. The pause is still requested") as stuck:
        await crew.controller.pause()
    assert stuck.value.agent_ids == ["a", "b"]
    assert (crew.controller.get_state(), crew.controller.phase) == (RUNNING, Phase.PAUSING)
    assert (crew.events, crew.store.path.exists()) == ([], False)
    crew.gate.set()
    await crew.controller.pause()  # it was still asked for, and now they stop
    assert (crew.controller.get_state(), len(crew.events)) == (PAUSED, 1)
    assert crew.counts() == {"a": 1, "b": 1}
    await crew.end()


@pytest.mark.covers("S5.15")
@on_loop
async def test_a_pause_that_did_not_come_about_can_be_taken_back(tmp_path: Path) -> None:
    crew = Crew(tmp_path, "a", idle_timeout=0.02)
    await crew.busy()
    with pytest.raises(AgentsStuck):
        await crew.controller.pause()
    await crew.controller.resume()
    assert (crew.controller.phase, crew.events) == (Phase.RUNNING, [])
    crew.gate.set()
    await crew.until(lambda: crew.counts()["a"] > 2)  # it never stopped
    await crew.end()


@on_loop
async def test_an_agent_that_was_closing_when_the_pause_was_taken_back_goes_on(tmp_path: Path) -> None:
    closed, open_again = asyncio.Event(), asyncio.Event()

    async def work(agent: Agent) -> AsyncGenerator[None, None]:
        try:
            while True:
                agent.memory["n"] += 1
                yield
        finally:
            closed.set()
            await open_again.wait()

    registry = Agents()
    agent = registry.add(Agent("slow to close", work, memory={"n": 0}))
    controller = PauseResumeController(EventBus(), FileStateStore(tmp_path), registry, idle_timeout=0.02)
    await asyncio.sleep(0)
    with pytest.raises(AgentsStuck, match="slow to close"):
        await controller.pause()
    await closed.wait()
    await controller.resume()
    reached = agent.memory["n"]
    open_again.set()
    while agent.memory["n"] <= reached:
        await asyncio.sleep(0)
    await controller.pause()


@on_loop
async def test_a_pause_that_somebody_else_has_signalled_is_carried_through_without_another_signal(
    tmp_path: Path,
) -> None:
    crew = Crew(tmp_path, "a")
    crew.gate.set()
    await crew.registry.signal_pause()
    crew.trail.clear()
    await crew.controller.pause("theirs", by="ben", signalled=1.5)
    assert crew.trail == PAUSE[1:]
    assert isinstance(crew.events[0], OrchestratorPaused)
    assert 1.5 <= crew.events[0].stopped_in < 1.5 + PATIENCE, "from the moment at which they were told"
    assert (crew.controller.get_state(), crew.events[0].active_agent_ids) == (PAUSED, ("a",))
    await crew.end()


@on_loop
async def test_agents_that_somebody_else_had_go_on_are_no_longer_taken_for_paused(tmp_path: Path) -> None:
    crew = Crew(tmp_path, "a")
    crew.gate.set()
    await crew.controller.pause()
    await crew.registry.signal_resume()
    await crew.controller.found_running()
    await crew.controller.found_running()
    assert (crew.controller.get_state(), crew.controller.phase) == (RUNNING, Phase.RUNNING)
    assert [event.type for event in crew.events] == ["orchestrator:paused", "orchestrator:resumed"]
    assert crew.events[-1].active_agent_ids == ("a",)
    await crew.end()


@pytest.mark.covers("S5.21")
@on_loop
async def test_a_snapshot_that_cannot_be_saved_leaves_no_claim_and_the_next_attempt_mends_it(tmp_path: Path) -> None:
    crew = Crew(tmp_path, "a")
    crew.gate.set()
    (tmp_path / ".devs").write_text("in the way")
    with pytest.raises(SnapshotNotSaved, match=r"state_snapshot\.json: .*pause again"):
        await crew.controller.pause()
    assert (crew.controller.get_state(), crew.controller.phase, crew.events) == (RUNNING, Phase.PAUSING, [])
    (tmp_path / ".devs").unlink()
    await crew.controller.pause()
    assert (crew.controller.get_state(), len(crew.events)) == (PAUSED, 1)
    await crew.end()


@pytest.mark.covers("S5.22")
@on_loop
async def test_a_pause_without_agents_writes_an_empty_snapshot(tmp_path: Path) -> None:
    crew = Crew(tmp_path)
    await crew.controller.pause()
    kept = json.loads(crew.store.path.read_text())
    assert (kept["activeAgents"], kept["pendingTasks"]) == ([], [])
    assert crew.events[0].active_agent_ids == ()


@pytest.mark.covers("S5.23")
@on_loop
async def test_simultaneous_pauses_and_resumes_act_once(tmp_path: Path) -> None:
    crew = Crew(tmp_path, "a")
    crew.gate.set()
    await asyncio.gather(*[crew.controller.pause() for _ in range(5)])
    assert crew.trail == PAUSE
    crew.trail.clear()
    await asyncio.gather(*[crew.controller.resume() for _ in range(5)])
    assert crew.trail == RESUME
    await crew.end()


@pytest.mark.covers("S5.35")
@on_loop
async def test_a_resume_during_a_pause_waits_for_it_and_never_interleaves(tmp_path: Path) -> None:
    crew = Crew(tmp_path, "a")
    await crew.busy()
    pausing = asyncio.ensure_future(crew.controller.pause())
    await crew.until(lambda: "await_all_idle" in crew.trail)
    resuming = asyncio.ensure_future(crew.controller.resume())
    await asyncio.sleep(0.01)
    assert not resuming.done()
    crew.gate.set()
    await asyncio.gather(pausing, resuming)
    assert crew.trail == PAUSE + RESUME
    assert crew.controller.get_state() is RUNNING
    await crew.end()


@pytest.mark.covers("S5.24")
@on_loop
async def test_a_listener_that_raises_disturbs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    crew = Crew(tmp_path, "a")
    told: list[str] = []

    def plain(event: OrchestratorPaused | OrchestratorResumed) -> None:
        raise ValueError("plain trouble")

    async def slow(event: OrchestratorPaused | OrchestratorResumed) -> None:
        raise ValueError("async trouble")

    crew.bus.on("*", plain)
    crew.bus.on("*", slow)
    crew.bus.on("*", lambda event: told.append(event.type))
    crew.gate.set()
    with caplog.at_level(logging.ERROR, "pausepoint.orchestrator"):
        await crew.controller.pause()
        await crew.controller.resume()
        await crew.bus.heard()
    assert told == ["orchestrator:paused", "orchestrator:resumed"]
    assert (crew.trail, crew.controller.get_state()) == (PAUSE + RESUME, RUNNING)
    assert caplog.text.count("plain trouble") >= 2
    assert caplog.text.count("async trouble") >= 2
    await crew.end()


@pytest.mark.covers("S5.33")
@on_loop
async def test_without_a_snapshot_a_resume_says_so_and_stays_paused(tmp_path: Path) -> None:
    crew = Crew(tmp_path, "a")
    crew.gate.set()
    await crew.controller.pause()
    crew.store.path.unlink()
    with pytest.raises(SnapshotMissing, match=r"state_snapshot\.json.*Restore the snapshot"):
        await crew.controller.resume()
    assert (crew.controller.get_state(), crew.agents["a"].idle, len(crew.events)) == (PAUSED, True, 1)
    await crew.end()


@pytest.mark.covers("S5.34")
@pytest.mark.parametrize("damage", ["", "{", '{"pausedAt": "noon"}', "[]", "\udcff"])
@on_loop
async def test_with_a_damaged_snapshot_a_resume_says_so_and_stays_paused(tmp_path: Path, damage: str) -> None:
    crew = Crew(tmp_path, "a")
    crew.gate.set()
    await crew.controller.pause()
    crew.store.path.unlink()
    crew.store.path.write_bytes(damage.encode("utf-8", "surrogateescape"))
    with pytest.raises(DamagedSnapshot, match=r"state_snapshot\.json cannot be read"):
        await crew.controller.resume()
    assert (crew.controller.get_state(), crew.agents["a"].idle, len(crew.events)) == (PAUSED, True, 1)
    await crew.end()


@pytest.mark.covers("S5.36")
@on_loop
async def test_a_restore_that_fails_leaves_all_paused_and_tells_nobody(tmp_path: Path) -> None:
    crew = Crew(tmp_path, "a")
    crew.gate.set()
    await crew.controller.pause()
    crew.registry.restore_fails = True
    with pytest.raises(RuntimeError, match="no such agent"):
        await crew.controller.resume()
    assert (crew.controller.get_state(), crew.agents["a"].idle, len(crew.events)) == (PAUSED, True, 1)
    crew.registry.restore_fails = False
    await crew.controller.resume()
    assert crew.controller.get_state() is RUNNING
    await crew.end()


@pytest.mark.long
@pytest.mark.covers("S5.54")
@on_loop
async def test_the_controller_keeps_no_agent_alive_that_has_ended_or_failed(tmp_path: Path) -> None:
    may_end = asyncio.Event()

    async def work(agent: Agent) -> AsyncGenerator[None, None]:
        while not may_end.is_set():
            await asyncio.sleep(0)
            yield
        if agent.id == "failing":
            raise ValueError("out of luck")

    agents = Agents()
    controller = PauseResumeController(EventBus(), FileStateStore(tmp_path), agents)
    references = [weakref.ref(agents.add(Agent(id, work))) for id in ("ending", "failing")]
    await controller.pause()
    await controller.resume()
    gc.collect()
    assert all(reference() is not None for reference in references), "the registry owns them while they work"
    may_end.set()
    while agents.get("ending") or agents.get("failing"):
        await asyncio.sleep(0)
    await asyncio.sleep(0)  # the tasks of the loops end
    gc.collect()
    assert [reference() for reference in references] == [None, None]
    assert agents.active_ids() == ()


@pytest.mark.covers("S5.54", "S5.37")
@on_loop
async def test_agents_that_only_the_registry_knows_survive_a_pause(tmp_path: Path) -> None:
    crew = Crew(tmp_path, "a", "b", "c")
    crew.agents.clear()
    crew.gate.set()
    await crew.until(lambda: crew.registry.active_ids() == ("a", "b", "c"))
    await crew.controller.pause()
    gc.collect()
    snapshot = await crew.store.load_snapshot()
    assert snapshot is not None
    assert crew.events[0].data["activeAgentIds"] == ids(snapshot.active_agents) == ["a", "b", "c"]
    await crew.controller.resume()
    assert crew.agents == {}, "no agent had to be created again"
    reached = {state.id: state.memory["n"] for state in snapshot.active_agents}
    for id, count in reached.items():
        agent = crew.registry.get(id)
        assert agent is not None
        await crew.until(lambda agent=agent, count=count: agent.memory["n"] > count)  # type: ignore[misc]
    await crew.end()


class InMemory:
    """A store of somebody else's: two methods, and no class of ours."""

    def __init__(self) -> None:
        self.kept: RunStateSnapshot | None = None

    async def save_snapshot(self, snapshot: RunStateSnapshot) -> None:
        self.kept = snapshot

    async def load_snapshot(self) -> RunStateSnapshot | None:
        return self.kept


@pytest.mark.covers("S5.51", "S5.44", "S5.55")
@on_loop
async def test_another_store_can_take_the_place_of_the_file() -> None:
    store: SnapshotStore = InMemory()
    registry: AgentRegistry = Agents()
    controller = PauseResumeController(EventBus(), store, registry)
    assert await store.load_snapshot() is None
    await controller.pause()
    assert await store.load_snapshot() is not None
    await controller.resume()
    assert controller.get_state() is RUNNING


@pytest.mark.parametrize("there", ["none", "the one that it keeps", "damaged"])
@on_loop
async def test_what_another_process_has_said_is_told_on_and_its_snapshot_is_kept_if_it_is_there(
    tmp_path: Path, there: str
) -> None:
    crew = Crew(tmp_path, "a")
    crew.gate.set()
    paused = OrchestratorPaused(1234, ("elsewhere",))

    async def said() -> OrchestratorPaused:
        return paused

    if there == "damaged":
        crew.store.path.parent.mkdir(exist_ok=True)
        crew.store.path.write_text("{")
    elif there != "none":
        await FileStateStore(tmp_path).save_snapshot(RunStateSnapshot(1234))
    heard: list[OrchestratorPaused] = []
    crew.bus.on(OrchestratorPaused, heard.append)
    await crew.controller.pause(said=said)
    assert (heard, await crew.bus.replay(), crew.controller.get_state()) == ([paused], [], PAUSED)
    snapshot = await FileStateStore(tmp_path).load_snapshot()
    assert snapshot is not None
    assert (snapshot.paused_at, len(snapshot.active_agents)) == (1234, 0 if there == "the one that it keeps" else 1)
    await crew.end()
