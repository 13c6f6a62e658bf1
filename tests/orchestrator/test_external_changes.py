"""What is done to a run past its button, or while somebody presses it: the button says what is true."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine, Status
from pausepoint.errors import DamagedSnapshot, SnapshotMissing, VerbRefused
from pausepoint.orchestrator import (
    FileStateStore,
    OrchestratorPaused,
    OrchestratorResumed,
    OrchestratorState,
    Phase,
    orchestrator,
)
from tests.orchestrator.shop import CHAIN, Shop
from tests.support.loop import on_loop

PAUSED, RUNNING = OrchestratorState.PAUSED, OrchestratorState.RUNNING


@on_loop
async def test_a_run_whose_session_was_resumed_by_itself_is_running_and_can_be_paused() -> None:
    async with Engine(":memory:") as engine:
        shop = Shop(engine, agents=1)
        shop.hold("a/first", "b/first")
        await shop.run.start(CHAIN)
        await shop.reached("a/first")
        await paused_opening(shop, "a/first")
        await engine.session("run").resume(by="ben")
        await shop.reached("b/first")
        assert (shop.run.get_state(), shop.run.phase) == (RUNNING, Phase.RUNNING)
        await paused_opening(shop, "b/first")
        assert ((await shop.run.report()).status, shop.run.get_state()) == (Status.PAUSED, PAUSED)
        changes = [each for each in shop.heard if isinstance(each, OrchestratorPaused | OrchestratorResumed)]
        assert [each.type.partition(":")[2] for each in changes] == ["paused", "resumed", "paused"]
        logged = [each.event for each in await shop.run.bus.replay()]
        assert [each for each in logged if each in changes] == changes


async def paused_opening(shop: Shop, call: str) -> None:
    """Pause, and let a call end once it is asked to."""
    pausing = asyncio.ensure_future(shop.run.pause())
    while not (await shop.run.engine.session("run").info()).pause_requested:
        await asyncio.sleep(0)
    shop.held[call].set()
    await pausing


@on_loop
async def test_a_run_that_another_process_worked_on_meanwhile_can_be_started_and_paused_here(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db") as engine:
        shop = Shop(engine, agents=1)
        await shop.run.start(CHAIN)
        await shop.run.pause()
        async with Engine(tmp_path / "hold.db", signals=False) as other:
            elsewhere = Shop(other, agents=1)
            await elsewhere.run.start()
            await elsewhere.run.resume()
            assert (await elsewhere.run.outcome()).counts == {"done": 5}
        assert shop.run.get_state() is PAUSED, "it has not looked since"
        await shop.run.start()
        assert (shop.run.get_state(), (await shop.run.outcome()).status) == (RUNNING, Status.COMPLETED)


@on_loop
async def test_a_button_that_was_pressed_long_ago_stops_what_another_process_works_on_since(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db") as engine, Engine(tmp_path / "hold.db", signals=False) as other:
        shop, elsewhere = Shop(engine, agents=1), Shop(other, agents=1)
        await shop.run.start(CHAIN)
        await shop.run.pause()
        await elsewhere.run.start()
        elsewhere.hold("c/first")
        await elsewhere.run.resume()
        await elsewhere.reached("c/first")
        await shop.run.resume()
        assert shop.run.get_state() is RUNNING, "it goes on already, elsewhere"
        pausing = asyncio.ensure_future(shop.run.pause("enough", by="ann"))
        while not (await other.session("run").info()).pause_requested:
            await asyncio.sleep(0.001)
        elsewhere.open()
        await pausing
        assert ((await shop.run.report()).status, shop.run.get_state()) == (Status.PAUSED, PAUSED)
        assert not elsewhere.calls["c/second"]


@on_loop
async def test_a_run_that_somebody_else_paused_is_resumed_by_who_has_not_looked_since(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db") as engine, Engine(tmp_path / "hold.db", signals=False) as other:
        async with Engine(tmp_path / "hold.db", signals=False) as first:
            await Shop(first, agents=1).run.start(CHAIN)
            await other.session("run").pause()
        shop = Shop(engine, agents=1)
        await shop.run.resume()
        assert (await shop.run.outcome()).counts == {"done": 5}


@on_loop
async def test_a_run_that_was_resumed_right_after_somebody_paused_it_is_not_paused_again(tmp_path: Path) -> None:
    """While this process looks at what was paused, another one has the run go on."""
    async with Engine(tmp_path / "hold.db") as engine, Engine(tmp_path / "hold.db", signals=False) as other:
        shop, elsewhere = Shop(engine, agents=1), Shop(other, agents=1)
        looks = shop.run.registry.remember
        elsewhere.hold("b/first")

        async def resumed_while_it_looks() -> None:
            if not elsewhere.calls:
                await other.session("run").resume()
                await elsewhere.reached("b/first")
            await looks()

        shop.run.registry.remember = resumed_while_it_looks  # type: ignore[method-assign]
        shop.hold("a/second")
        await shop.run.start(CHAIN)
        await shop.reached("a/second")
        await other.session("run").pause(reason="by mistake")
        shop.open()
        while not elsewhere.calls["b/first"]:
            await asyncio.sleep(0.001)
        elsewhere.open()
        assert (await shop.run.outcome()).counts == {"done": 5}
        assert not [each for each in shop.heard if isinstance(each, OrchestratorPaused)]
        assert len([each async for each in engine.session("run").events() if each.event_type == "session.paused"]) == 1


@on_loop
async def test_a_budget_for_a_run_that_is_not_paused_is_refused_and_not_kept_for_later() -> None:
    async with Engine(":memory:") as engine:
        shop = Shop(engine, agents=1)
        shop.hold("a/first")
        await shop.run.start(CHAIN, budget=3)
        await shop.reached("a/first")
        with pytest.raises(VerbRefused, match=r"not paused\. Pause it before you change its budget"):
            await shop.run.resume(budget=5)
        await shop.run.resume()
        await paused_opening(shop, "a/first")
        await shop.run.resume()
        await shop.run.outcome()
        assert (await engine.session("run").info()).budget_usd == 3


@on_loop
async def test_without_its_snapshot_a_run_goes_on_as_the_message_says(tmp_path: Path) -> None:
    async with Engine(":memory:") as engine:
        shop = Shop(engine, agents=1, snapshot_store=FileStateStore(tmp_path))
        await shop.run.start(CHAIN)
        await shop.run.pause()
        FileStateStore(tmp_path).path.write_text("{")
        with pytest.raises(DamagedSnapshot, match="or resume the sessions one by one"):
            await shop.run.resume()
        FileStateStore(tmp_path).path.unlink()
        with pytest.raises(SnapshotMissing, match="or resume the sessions one by one"):
            await shop.run.resume()
        await engine.session("run").resume()
        assert (await shop.run.outcome()).counts == {"done": 5}
        assert shop.run.get_state() is RUNNING


async def stopped_at(shop: Shop, call: str, *presses: Coroutine[Any, Any, None]) -> list[OrchestratorPaused]:
    """Press while a call is under way, and let it end then. What the log says of pauses afterwards."""
    pressing = [asyncio.ensure_future(press) for press in presses]
    while not (await shop.run.engine.session("run").info()).pause_requested:
        await asyncio.sleep(0.001)
    shop.held[call].set()
    await asyncio.gather(*pressing)
    return [each.event for each in await shop.run.bus.replay() if isinstance(each.event, OrchestratorPaused)]


@pytest.mark.long
@pytest.mark.parametrize("own_snapshots", [False, True])
@on_loop
async def test_a_run_that_two_processes_pause_at_once_is_paused_once_by_the_one_that_works_on_it(
    tmp_path: Path, own_snapshots: bool
) -> None:
    async with Engine(tmp_path / "hold.db") as engine, Engine(tmp_path / "hold.db", signals=False) as other:
        shop = Shop(engine, agents=1, snapshot_store=FileStateStore(tmp_path) if own_snapshots else None)
        works = Shop(other, agents=1)
        works.hold("a/first")
        await works.run.start(CHAIN)
        await works.reached("a/first")
        paused = await stopped_at(works, "a/first", shop.run.pause("by one"), works.run.pause("by two"))
        assert len(paused) == 1
        for each in (shop, works):
            assert [event for event in each.heard if isinstance(event, OrchestratorPaused)] == paused
            assert each.run.get_state() is PAUSED
        snapshot = await works.run.controller.snapshot_store.load_snapshot()
        assert snapshot is not None
        memories = [agent.memory for agent in snapshot.active_agents]
        assert memories == [{"first": "used a/first"}], "what only the process that works on it could know"
        await shop.run.resume()
        assert (await shop.run.outcome()).counts == {"done": 5}


@on_loop
async def test_who_waits_for_a_run_of_another_process_says_nothing_of_its_pause_but_hears_it(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db") as engine, Engine(tmp_path / "hold.db", signals=False) as other:
        waits, works = Shop(engine, agents=1), Shop(other, agents=1)
        works.hold("a/first")
        await works.run.start(CHAIN)
        await works.reached("a/first")
        outcome = asyncio.ensure_future(waits.run.outcome())
        await asyncio.sleep(0)
        paused = await stopped_at(works, "a/first", works.run.pause())
        assert (await outcome).status is Status.PAUSED
        assert (len(paused), waits.heard) == (1, paused)


@on_loop
async def test_if_the_process_that_works_on_a_run_says_nothing_of_a_pause_the_other_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orchestrator, "PATIENCE", 0.01)
    async with Engine(tmp_path / "hold.db") as engine, Engine(tmp_path / "hold.db", signals=False) as other:
        shop, works = Shop(engine, agents=1), Shop(other, agents=1)

        async def says_nothing() -> bool:
            return True

        monkeypatch.setattr(works.run, "_follow", says_nothing)
        works.hold("a/first")
        await works.run.start(CHAIN)
        await works.reached("a/first")
        (paused,) = await stopped_at(works, "a/first", shop.run.pause("lunch", by="ann"))
        assert (paused.reason, paused.by, shop.heard, shop.run.get_state()) == ("lunch", "ann", [paused], PAUSED)
