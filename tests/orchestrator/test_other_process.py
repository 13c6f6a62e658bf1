"""A run is paused, and its pause withdrawn, by a process that does not drive it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pausepoint import Engine, Session, Status
from pausepoint.errors import VerbRefused
from pausepoint.model import SessionInfo
from pausepoint.orchestrator import FileStateStore, Phase
from pausepoint.orchestrator.sessions import parked
from tests.orchestrator.shop import CHAIN, Shop
from tests.support.loop import on_loop


@pytest.mark.parametrize("how", ["here", "elsewhere", "aborted elsewhere"])
@on_loop
async def test_a_snapshot_is_the_same_whichever_process_paused_the_run(tmp_path: Path, how: str) -> None:
    path = tmp_path / "hold.db"
    store = FileStateStore(tmp_path)
    async with Engine(path) as engine, Engine(path, drives="none", signals=False) as other:
        shop = Shop(engine, agents=2, snapshot_store=store)
        call = "second" if how == "aborted elsewhere" else "first"  # a finished second call would end the task
        shop.hold(f"a/{call}", f"x/{call}")
        await shop.run.start(CHAIN)
        outcome = asyncio.ensure_future(shop.run.outcome())
        await shop.reached(f"a/{call}", f"x/{call}")
        pausing: asyncio.Future[None] | None = None
        if how == "here":
            pausing = asyncio.ensure_future(shop.run.pause("lunch", "ann"))
        elif how == "elsewhere":
            await other.session("run").pause(reason="lunch", by="ann")
        else:
            await other.session("run").pause(reason="lunch", by="ann", mode="abort")
        while not (await engine.session("run").info()).pause_requested:
            await asyncio.sleep(0.001)
        if how != "aborted elsewhere":
            shop.open()
        await outcome
        if pausing is not None:
            await pausing
        snapshot = await store.load_snapshot()
        assert snapshot is not None
        assert [
            (state.id, state.task and state.task["id"], state.memory, [call.name for call in state.pending_tool_calls])
            for state in snapshot.active_agents
        ] == [
            ("agent-1", "a", {"first": "used a/first"}, ["use"]),
            ("agent-2", "x", {"first": "used x/first"}, ["use"]),
        ]
        pending = [call for state in snapshot.active_agents for call in state.pending_tool_calls]
        assert [(call.id, call.arguments) for call in pending] == [
            ("a/2", {"args": ["a/second"]}), ("x/2", {"args": ["x/second"]}),
        ]  # fmt: skip
        assert sorted(task.id for task in snapshot.pending_tasks) == ["b", "c", "y"]


@on_loop
async def test_a_run_that_is_still_pausing_is_taken_back_from_another_process(tmp_path: Path) -> None:
    path = tmp_path / "hold.db"
    async with Engine(path) as engine, Engine(path, signals=False) as other:
        shop, elsewhere = Shop(engine, agents=1), Shop(other, agents=1)
        shop.hold("a/first")
        await shop.run.start(CHAIN)
        await shop.reached("a/first")
        await other.session("run").pause(by="ann")
        await elsewhere.run.resume()
        assert not (await engine.session("run").info()).pause_requested
        shop.open()
        report = await shop.run.outcome()
        assert (report.status, report.counts) == (Status.COMPLETED, {"done": 5})
        assert set(shop.calls.values()) == {1}
        assert not elsewhere.calls


@on_loop
async def test_a_pause_that_is_withdrawn_elsewhere_ends_with_an_error_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "hold.db"
    async with Engine(path) as engine, Engine(path, drives="none", signals=False) as other:
        shop = Shop(engine, agents=1)
        shop.hold("a/first")
        await shop.run.start(CHAIN)
        await shop.reached("a/first")
        pausing = asyncio.ensure_future(shop.run.pause())
        while not (await other.session("run").info()).pause_requested:
            await asyncio.sleep(0.001)
        await other.session("run").resume(here=False)
        with pytest.raises(VerbRefused, match="was withdrawn while its agents were stopping"):
            await pausing
        assert shop.run.phase is Phase.RUNNING
        shop.open()
        assert (await shop.run.outcome()).status is Status.COMPLETED


@pytest.mark.parametrize("runs_here", [True, False])
@on_loop
async def test_an_error_while_agents_stop_is_raised_and_not_taken_for_a_change(
    runs_here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read() -> SessionInfo:
        raise OSError("the store cannot be read")

    async def broken(*_: Any) -> AsyncGenerator[SessionInfo, None]:
        yield await read()

    async with Engine(":memory:") as engine:
        shop = Shop(engine, agents=1)
        shop.hold("a/first")
        await shop.run.start(CHAIN)
        await shop.reached("a/first")
        info = await engine.session("run").info()
        info = info if runs_here else replace(info, session_id="elsewhere")
        monkeypatch.setattr(Session, "watch", broken)

        async def find() -> list[SessionInfo]:
            return [replace(info, pause_requested=True)]

        with pytest.raises(OSError, match="the store cannot be read"):
            await parked(engine, find, 0.5)
        shop.open()
        await shop.run.outcome()
