"""Where a snapshot is kept, and that there always is a whole one."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pausepoint import Engine
from pausepoint.errors import DamagedSnapshot, SnapshotNotSaved, UnknownSession
from pausepoint.orchestrator import (
    Agent,
    Agents,
    AgentState,
    EventBus,
    FileStateStore,
    Orchestrator,
    PauseResumeController,
    Phase,
    RunStateSnapshot,
    SessionStateStore,
    Task,
    TaskAgent,
    TaskState,
    ToolCall,
)
from pausepoint.orchestrator.snapshot import from_json, to_json
from tests.support.loop import on_loop

SNAPSHOT = RunStateSnapshot(
    1_700_000_000_123,
    (AgentState("a", {"goal": "x"}, {"facts": [1, 2]}, (ToolCall("c1", "search", {"q": "octopus"}),), "s1", 7),),
    (TaskState("t1", ("t0",), 3, data={"command": "make"}),),
)


@pytest.mark.covers("S5.38", "S5.39")
def test_the_json_has_the_three_keys_and_the_agents_theirs() -> None:
    kept = json.loads(to_json(SNAPSHOT))
    assert list(kept) == ["pausedAt", "activeAgents", "pendingTasks"]
    assert kept["pausedAt"] == 1_700_000_000_123
    assert {"id", "task", "memory", "pendingToolCalls"} <= kept["activeAgents"][0].keys()
    assert kept["pendingTasks"][0]["id"] == "t1"


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)
MEMORY = st.dictionaries(st.text(), PLAIN, max_size=3)
CALLS = st.builds(ToolCall, st.text(), st.text(), MEMORY)
AGENTS = st.builds(
    AgentState, st.text(), st.none() | MEMORY, MEMORY, st.lists(CALLS, max_size=2).map(tuple)
)  # fmt: skip
TASKS = st.builds(TaskState, st.text(), st.lists(st.text()).map(tuple), st.integers(-9, 9), st.text(), PLAIN)


@pytest.mark.long
@pytest.mark.covers("S5.41")
@settings(max_examples=30)
@given(st.builds(RunStateSnapshot, st.integers(0, 2**52), st.tuples(AGENTS), st.tuples(TASKS)))
def test_what_is_read_back_equals_what_was_written(snapshot: RunStateSnapshot) -> None:
    assert from_json(to_json(snapshot), "memory") == snapshot


@pytest.mark.covers("S5.41", "S5.46", "S5.47", "S5.44")
@on_loop
async def test_a_file_is_made_with_its_folders_and_read_back(tmp_path: Path) -> None:
    store = FileStateStore(tmp_path / "not" / "there" / "yet")
    assert await store.load_snapshot() is None
    await store.save_snapshot(SNAPSHOT)
    assert store.path == (tmp_path / "not/there/yet/.devs/state_snapshot.json").resolve()
    assert await FileStateStore(tmp_path / "not" / "there" / "yet").load_snapshot() == SNAPSHOT
    newer = RunStateSnapshot(2)
    await store.save_snapshot(newer)
    assert await store.load_snapshot() == newer
    assert os.listdir(store.path.parent) == ["state_snapshot.json"]


@pytest.mark.covers("S5.43")
@on_loop
async def test_the_path_can_be_chosen(tmp_path: Path) -> None:
    store = FileStateStore(tmp_path, "state/run 1.json")
    await store.save_snapshot(SNAPSHOT)
    assert json.loads((tmp_path / "state" / "run 1.json").read_text())["pausedAt"] == SNAPSHOT.paused_at
    elsewhere = FileStateStore(path=tmp_path / "other" / "file.json")
    await elsewhere.save_snapshot(SNAPSHOT)
    assert (tmp_path / "other" / "file.json").exists()
    assert repr(elsewhere) == f"FileStateStore('{tmp_path / 'other' / 'file.json'}')"


@pytest.mark.covers("S5.48")
@on_loop
async def test_a_reader_never_sees_anything_but_a_whole_snapshot(tmp_path: Path) -> None:
    """What is open keeps its old content: the file is replaced, never written to."""
    store = FileStateStore(tmp_path)
    await store.save_snapshot(SNAPSHOT)
    with store.path.open("rb") as reader:
        first = store.path.stat().st_ino
        await store.save_snapshot(RunStateSnapshot(2))
        assert from_json(reader.read(), "open file") == SNAPSHOT
    assert store.path.stat().st_ino != first


@pytest.mark.covers("S5.50")
@on_loop
async def test_what_an_interrupted_writer_left_is_cleared_and_nothing_else(tmp_path: Path) -> None:
    store = FileStateStore(tmp_path)
    await store.save_snapshot(SNAPSHOT)
    left, other = store.path.parent / f".{'0' * 32}.part", store.path.parent / "plan.toml"
    left.write_text('{"pausedAt"')
    other.write_text("mine")
    assert await store.load_snapshot() == SNAPSHOT, "it does no harm"
    await store.save_snapshot(RunStateSnapshot(2))
    assert (left.exists(), other.read_text()) == (False, "mine")


@on_loop
async def test_a_state_that_json_cannot_hold_is_refused_and_the_former_snapshot_stays(tmp_path: Path) -> None:
    store = FileStateStore(tmp_path)
    await store.save_snapshot(SNAPSHOT)
    with pytest.raises(SnapshotNotSaved, match="cannot be written as JSON"):
        await store.save_snapshot(RunStateSnapshot(2, (AgentState("a", memory={"file": object()}),)))
    assert await store.load_snapshot() == SNAPSHOT


@on_loop
async def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    store = FileStateStore(tmp_path)
    store.path.mkdir(parents=True)
    with pytest.raises(DamagedSnapshot, match=r"state_snapshot\.json cannot be read"):
        await store.load_snapshot()


async def nothing(agent: TaskAgent) -> None:
    """No task of these tests has anything to do."""


@pytest.mark.long
@pytest.mark.covers("S5.51", "S5.41")
@on_loop
async def test_the_engines_own_store_keeps_one_too_in_the_log_of_the_run(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db") as engine:
        run = Orchestrator(engine, "run", nothing)
        store = SessionStateStore(engine, "run")
        with pytest.raises(UnknownSession):
            await store.load_snapshot()
        await run.run([Task(id=f"t{n}") for n in range(150)])
        assert await store.load_snapshot() is None
        await store.save_snapshot(SNAPSHOT)
        await store.save_snapshot(RunStateSnapshot(2))
        assert await store.load_snapshot() == RunStateSnapshot(2)
        assert (await engine.session("run").info()).status == "completed", "the session stays as it is"
        assert (await engine.session("run").verify()).ok
        assert repr(store) == "SessionStateStore('run')"
    async with Engine(tmp_path / "hold.db") as engine:
        assert await SessionStateStore(engine, "run").load_snapshot() == RunStateSnapshot(2)


@pytest.mark.covers("S5.41")
@pytest.mark.parametrize(
    ("memory", "what"),
    [
        ({"seen": {1, 2}}, r"memory\['seen'\]"),
        ({"mean": float("nan")}, r"memory\['mean'\]"),
        ({"by number": {1: "one"}}, r"memory\['by number'\]"),
        ({"pair": (1, 2)}, r"memory\['pair'\]"),
        ({"name": "\ud800"}, "cannot be written as JSON"),
    ],
)
@on_loop
async def test_a_memory_that_would_come_back_as_something_else_is_refused_naming_it(
    tmp_path: Path, memory: dict[str, Any], what: str
) -> None:
    agents = Agents()
    agent = agents.add(Agent("ada", forever, memory=memory))
    controller = PauseResumeController(EventBus(), FileStateStore(tmp_path), agents)
    with pytest.raises(SnapshotNotSaved, match=rf"{what}.*Use plain values"):
        await controller.pause()
    assert (controller.phase, FileStateStore(tmp_path).path.exists()) == (Phase.PAUSING, False)
    agent.memory = {"plain": [1, 2.5, None, {"text": "Otter 水獺"}]}
    await controller.pause()
    snapshot = await FileStateStore(tmp_path).load_snapshot()
    assert snapshot is not None
    assert snapshot.active_agents == (agent.state,)


async def forever(agent: Agent) -> AsyncGenerator[None, None]:
    while True:
        await asyncio.sleep(0)
        yield
