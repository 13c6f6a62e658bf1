"""A run that is started while everything in the store is paused waits, visibly, and resumes with all the others."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pausepoint import Engine, Status
from pausepoint.orchestrator import (
    EventBus,
    FileStateStore,
    OrchestratorState,
    PauseResumeController,
    SessionAgents,
    Task,
)
from pausepoint.testing import ManualClock
from tests.orchestrator.shop import Shop
from tests.support.loop import PATIENCE, on_loop

TASKS = [Task(id="a"), Task(id="b", needs=["a"])]


@on_loop
async def test_a_run_that_is_started_meanwhile_waits_and_says_why(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db", signals=False, clock=ManualClock()) as other:  # it shows a past year
        await other.pause_all(reason="fire drill", by="ben")
    async with Engine(tmp_path / "hold.db") as engine:
        shop = Shop(engine, agents=1)
        await shop.run.start(TASKS)
        report = await shop.run.outcome()
        assert (report.status, report.reason, report.counts) == (Status.PAUSED, "fire drill", {"pending": 2})
        assert shop.run.controller.stopped_in is not None
        assert shop.run.controller.stopped_in < PATIENCE, "what never ran need not be waited for"
        assert (shop.run.get_state(), shop.calls) == (OrchestratorState.PAUSED, {})


@on_loop
async def test_it_goes_on_in_its_own_process_when_another_one_lifts_the_pause(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db") as engine, Engine(tmp_path / "hold.db", signals=False) as other:
        await other.pause_all()
        shop = Shop(engine, agents=1)
        await shop.run.start(TASKS)
        await shop.run.outcome()
        await other.lift_pause(by="ben")
        while (await shop.run.report()).status is not Status.COMPLETED:
            await asyncio.sleep(0.005)
        assert (await shop.run.outcome()).counts == {"done": 2}
        assert shop.run.get_state() is OrchestratorState.RUNNING


@on_loop
async def test_a_button_over_all_sessions_lifts_what_it_let_stand_and_leaves_what_stood_before(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db") as engine:
        controller = PauseResumeController(EventBus(), FileStateStore(tmp_path), SessionAgents(engine))
        for stood in (False, True):
            if stood:
                await engine.pause_all(by="ann")
            await controller.pause()
            assert await engine.standing_pause() is not None
            await controller.resume()
            assert (await engine.standing_pause() is not None) is stood
