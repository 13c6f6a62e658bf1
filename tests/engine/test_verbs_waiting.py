"""The table of verbs for sessions that wait or sleep, and its row "timer due". One test for every cell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Session, Status, Workflow, step
from pausepoint.testing import ManualClock
from tests.support.loop import on_loop

HOUR = 3600.0


class Desk(BaseModel):
    said: str = ""
    ended: bool = False


class Stage(NamedTuple):
    """A session that waits for a message, for an hour, or for the first of both."""

    engine: Engine
    session: Session[Desk]
    clock: ManualClock
    calls: list[str]
    go: asyncio.Event


def desk(calls: list[str], go: asyncio.Event, timer: bool, message: bool) -> Workflow[Desk]:
    async def listen(ctx: Context) -> str:
        return await ctx.receive() if message else "nothing"

    async def doze(ctx: Context) -> None:
        if timer:
            await ctx.sleep(HOUR)
            calls.append("awake")

    @step(writes="said")
    async def wait(ctx: Context) -> str:
        calls.append("wait")
        said, _ = await asyncio.gather(listen(ctx), doze(ctx))
        return said

    @step(writes="ended")
    async def end() -> bool:
        calls.append("end")
        await go.wait()
        return True

    return Workflow("desk", state=Desk, steps=[wait, end])


@asynccontextmanager
async def standing(status: str, path: Path, timer: bool = False) -> AsyncIterator[Stage]:
    calls, go, clock = list[str](), asyncio.Event(), ManualClock()
    sleeping = status == "sleeping"
    workflow = desk(calls, go, timer or sleeping, not sleeping)
    async with Engine(path, workflows=[workflow], clock=clock) as engine:
        session = await engine.start(workflow, session_id="one")
        await came_to(session, status)
        calls.clear()
        yield Stage(engine, session, clock, calls, go)


async def came_to(session: Session[Any], status: str) -> None:
    while await session.status() != status or session.id in session._engine._service.driver.running:
        await asyncio.sleep(0.001)


async def nothing_happens() -> None:
    for _ in range(20):
        await asyncio.sleep(0.001)


STATUSES = ("waiting", "sleeping")


@pytest.mark.parametrize("status", STATUSES)
@on_loop
async def test_pause(status: str, tmp_path: Path) -> None:
    async with standing(status, tmp_path / "h.db") as stage:
        assert (await stage.session.pause("later", by="ann"))[0].status is Status.PAUSED
        assert [pause.by for pause in await stage.session.pauses()] == ["ann"]
        assert (await stage.session.info()).step == "wait"
        assert stage.calls == []


@pytest.mark.parametrize("status", STATUSES)
@on_loop
async def test_resume_leaves_it_as_it_is(status: str, tmp_path: Path) -> None:
    async with standing(status, tmp_path / "h.db") as stage:
        before = await stage.session.info()
        await stage.session.resume()
        await nothing_happens()
        assert await stage.session.info() == before
        assert stage.calls == []


@pytest.mark.parametrize("status", STATUSES)
@on_loop
async def test_resume_of_a_paused_one_comes_to_what_the_facts_say(status: str, tmp_path: Path) -> None:
    async with standing(status, tmp_path / "h.db") as stage:
        await stage.session.pause()
        await stage.session.resume()
        assert await stage.session.status() == status
        assert stage.calls == []


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_resume_with_wake_runs_a_sleeping_one(tmp_path: Path) -> None:
    async with standing("sleeping", tmp_path / "h.db") as stage:
        await stage.session.resume(wake=True)
        await came_to_step(stage, "end")
        assert await stage.session.status() is Status.RUNNING
        assert stage.calls == ["wait", "awake", "end"]
        stage.go.set()
        assert (await stage.session.outcome()).status is Status.COMPLETED


async def came_to_step(stage: Stage, name: str) -> None:
    while name not in stage.calls:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("status", STATUSES)
@on_loop
async def test_cancel(status: str, tmp_path: Path) -> None:
    async with standing(status, tmp_path / "h.db") as stage:
        assert await stage.session.cancel() is Status.CANCELLED
        stage.clock.advance(2 * HOUR)
        await nothing_happens()
        assert (await stage.session.status(), stage.calls) == (Status.CANCELLED, [])


# timer due


@on_loop
async def test_a_due_timer_runs_a_sleeping_session_here(tmp_path: Path) -> None:
    async with standing("sleeping", tmp_path / "h.db") as stage:
        stage.clock.advance(HOUR)
        await came_to_step(stage, "end")
        assert await stage.session.status() is Status.RUNNING
        stage.go.set()
        assert (await stage.session.outcome()).status is Status.COMPLETED


@on_loop
async def test_a_due_timer_of_a_waiting_session_is_taken_note_of_and_it_waits_on(tmp_path: Path) -> None:
    async with standing("waiting", tmp_path / "h.db", timer=True) as stage:
        stage.clock.advance(HOUR)
        await came_to_step(stage, "awake")
        await came_to(stage.session, "waiting")
        assert (await stage.session.info()).wakes_at is None
        await stage.session.send("good morning")
        stage.go.set()
        outcome = await stage.session.outcome()
        assert (outcome.status, outcome.state.said) == (Status.COMPLETED, "good morning")


@pytest.mark.parametrize("status", STATUSES)
@on_loop
async def test_a_due_timer_leaves_a_session_ready_where_nobody_knows_its_workflow(status: str, tmp_path: Path) -> None:
    async with standing(status, tmp_path / "h.db", timer=True) as stage:
        stage.engine.workflows.clear()
        stage.clock.advance(HOUR)
        await nothing_happens()
        assert await stage.session.status() is Status.READY
        assert stage.calls == []


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("status", STATUSES)
@on_loop
async def test_a_due_timer_of_a_paused_session_is_kept_or_late_by_the_pause(
    status: str, freeze: bool, tmp_path: Path
) -> None:
    async with standing(status, tmp_path / "h.db", timer=True) as stage:
        await stage.session.pause(freeze=freeze)
        stage.clock.advance(2 * HOUR)
        await nothing_happens()
        assert (await stage.session.status(), stage.calls) == (Status.PAUSED, [])
        await stage.session.resume()
        if freeze:
            await came_to(stage.session, status)
            assert "awake" not in stage.calls
            stage.clock.advance(HOUR)
        await came_to_step(stage, "awake")


@on_loop
async def test_a_timer_that_is_due_while_another_branch_keeps_the_session_pausing_is_not_lost(tmp_path: Path) -> None:
    clock, busy, go = ManualClock(), asyncio.Event(), asyncio.Event()
    awake: list[bool] = []

    async def work() -> bool:
        busy.set()
        await go.wait()
        return True

    @step(writes="ended")
    async def both(ctx: Context) -> bool:
        async def doze() -> None:
            await ctx.sleep(HOUR)
            awake.append(True)

        await asyncio.gather(doze(), ctx.do(work))
        return True

    @step(writes="said")
    async def rest() -> str:
        return "done"

    async with Engine(tmp_path / "h.db", clock=clock) as engine:
        session = await engine.start(Workflow("both", state=Desk, steps=[both, rest]))
        await busy.wait()
        assert (await session.pause())[0].status is Status.PAUSING
        clock.advance(HOUR)
        go.set()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.said) == (Status.PAUSED, "")
        await session.resume()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.ended, outcome.state.said) == (Status.COMPLETED, True, "done")
        assert awake


@pytest.mark.no_always_replay("counts the runs of the step's body")
@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
@on_loop
async def test_an_ended_session_has_no_timer(end: str, tmp_path: Path) -> None:
    clock, go = ManualClock(), asyncio.Event()
    calls: list[str] = []

    @step(writes="ended")
    async def race(ctx: Context) -> bool:
        calls.append("race")
        dozing = asyncio.ensure_future(ctx.sleep(HOUR))
        await ctx.do(work)
        dozing.cancel()
        if end == "failed":
            raise RuntimeError("no paper left")
        return True

    @step(writes="said")
    async def rest() -> str:
        return "done"

    async def work() -> bool:
        await go.wait()
        return True

    async with Engine(tmp_path / "h.db", clock=clock) as engine:
        session = await engine.start(Workflow("race", state=Desk, steps=[race, rest]))
        while not calls:
            await asyncio.sleep(0.001)
        if end == "cancelled":
            await session.cancel()
        go.set()
        assert (await session.outcome()).status == end
        before = await session.info()
        assert before.wakes_at is None
        clock.advance(2 * HOUR)
        await nothing_happens()
        assert await session.info() == before
        assert calls == ["race"]
