"""`pause(wait=True)` is the promise that nothing begins afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.engine import pauses, selection
from pausepoint.errors import CallRefused
from tests.faults.standstill import begun_after, fleet
from tests.support.children import outside_sql
from tests.support.loop import on_loop
from tests.support.waits import async_until

ROUNDS = 20
"""`tests.faults.standstill` does more."""


class State(BaseModel):
    out: str = ""


def slow_fetch() -> tuple[asyncio.Event, asyncio.Event, Callable[[], Coroutine[Any, Any, str]]]:
    """Return an operation with two events: it has begun, and it may end."""
    began, go = asyncio.Event(), asyncio.Event()

    async def fetch() -> str:
        began.set()
        await go.wait()
        return "done"

    return began, go, fetch


@pytest.mark.long
@on_loop
async def test_nothing_begins_after_a_pause_that_waited(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (engine, file):
        assert sum([await begun_after(engine, file) for _ in range(ROUNDS)]) == 0


@pytest.mark.long
@on_loop
async def test_a_pause_that_only_pretends_to_wait_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(*_: object) -> tuple[()]:
        return ()

    for each in (pauses, selection):
        monkeypatch.setattr(each, "standstill", at_once)
    async with fleet(tmp_path, "--deaf") as (engine, file):
        while not await begun_after(engine, file):
            pass


@pytest.mark.long
@on_loop
async def test_a_pause_names_who_still_works_and_with_what(tmp_path: Path) -> None:
    began, go, fetch = slow_fetch()

    @step(writes="out")
    async def work(ctx: Context) -> str:
        await ctx.do(fetch)
        return await ctx.do(fetch, key="again")

    path = tmp_path / "s.db"
    async with Engine(path, signals=False) as engine, Engine(path, drives="none", signals=False) as other:
        session = await engine.start(Workflow("w", state=State, steps=[work]), session_id="s")
        await began.wait()
        [working] = (found := await other.session("s").pause(wait=True, timeout=0.5)).working
        while not working.confirmed:  # a busy machine takes longer
            [working] = (found := await other.session("s").pause(wait=True, timeout=0.5)).working
        assert [info.status for info in found] == [Status.PAUSING]
        assert (working.session_id, working.step, working.operations, working.confirmed) == (
            "s", "work#1", ("fetch",), True,
        )  # fmt: skip
        assert working.holder.startswith("process ")
        go.set()
        found = await other.session("s").pause(wait=True)
        assert ([info.status for info in found], found.working) == ([Status.PAUSED], ())
        await session.resume()
        assert (await session.outcome()).state.out == "done"


@on_loop
async def test_a_session_that_is_removed_during_the_wait_does_not_fail_the_pause() -> None:
    began, go = asyncio.Event(), asyncio.Event()

    @step(writes="out")
    async def work(ctx: Context) -> str:
        began.set()
        await go.wait()
        return "done"

    async with Engine(":memory:", signals=False) as engine:
        workflow = Workflow("w", state=State, steps=[work])
        await engine.start(workflow, session_id="gone", paused=True)
        await engine.start(workflow, session_id="s")
        await began.wait()
        pausing = asyncio.create_task(engine.pause_all(wait=True))
        while await engine.standing_pause() is None:
            await asyncio.sleep(0)
        await engine.session("gone").remove()
        go.set()
        assert [(info.session_id, info.status) for info in await pausing] == [("s", Status.COMPLETED)]


@on_loop
async def test_a_damaged_session_that_is_still_driven_has_not_stopped(tmp_path: Path) -> None:
    began, go, fetch = slow_fetch()

    @step(writes="out")
    async def work(ctx: Context) -> str:
        return await ctx.do(fetch)

    path = tmp_path / "s.db"
    async with Engine(path, signals=False) as engine, Engine(path, drives="none", signals=False) as other:
        await engine.start(Workflow("w", state=State, steps=[work]), session_id="s")
        await began.wait()
        outside_sql(path, "UPDATE sessions SET owner = 'mallory'")
        found = await other.select(workflow="w").pause(wait=True, timeout=0.1)
        assert [(each.session_id, each.confirmed) for each in found.working] == [("s", False)]
        go.set()
        assert (await other.select(workflow="w").pause(wait=True)).working == ()


@pytest.mark.long
@on_loop
async def test_a_process_that_does_not_react_is_unconfirmed(tmp_path: Path) -> None:
    async with fleet(tmp_path, "--blocked", processes=1, each="a") as (engine, file):
        while not file.stat().st_size:
            await asyncio.sleep(0.01)
        found = await engine.select(workflow="looping").pause(wait=True, timeout=0.5)
        assert {(each.step, each.confirmed) for each in found.working} == {("turn#1", False)}
        file.with_name("begun.go").touch()
        assert (await engine.select(workflow="looping").pause(wait=True)).working == ()
        size = file.stat().st_size
        await asyncio.sleep(0.05)
        assert file.stat().st_size == size


@on_loop
async def test_a_timeout_needs_wait() -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(ValueError, match="Pass wait=True with it"):
            await engine.pause_all(timeout=1)


@pytest.mark.parametrize("where", ["its session", "its parent", "everything", "all that match"])
@on_loop
async def test_a_pause_that_would_wait_for_the_step_that_calls_it_is_refused(where: str) -> None:
    """As a tool of an agent that stops all agents would. Without the wait it works."""
    refusals: list[CallRefused] = []

    async def stop_all(ctx: Context) -> None:
        verbs: dict[str, Any] = {
            "its session": engine.session(ctx.session_id).pause, "its parent": engine.session("parent").pause,
            "everything": engine.pause_all, "all that match": engine.select(tag="night").pause,
        }  # fmt: skip
        pause = verbs[where]
        try:
            await pause(wait=True)
        except CallRefused as error:
            refusals.append(error)
        assert await engine.standing_pause() is None
        assert not await engine.session(ctx.session_id).pauses()
        await pause()

    @step
    async def stop(ctx: Context) -> None:
        await ctx.do(stop_all)
        await ctx.do(asyncio.sleep, 0)

    stopping = Workflow("stopping", state=State, steps=[stop])

    @step
    async def delegate(ctx: Context) -> None:
        await ctx.call(stopping)

    async with Engine(":memory:", workflows=[stopping]) as engine:
        session = await engine.start(
            Workflow("parent", state=State, steps=[delegate]), session_id="parent", tags=["night"]
        )
        await async_until(lambda: refusals)
        [child] = [info.session_id for info in await engine.sessions() if info.parent_id == "parent"]
        assert (await engine.session(child).outcome()).status is Status.PAUSED
        assert (await session.info()).failure is None
        assert "would wait for itself" in str(refusals[0])
        assert refusals[0].fields["session_id"] == child


@on_loop
async def test_a_step_may_wait_for_the_pause_of_another_session() -> None:
    began, go, fetch = slow_fetch()

    @step(writes="out")
    async def work(ctx: Context) -> str:
        return await ctx.do(fetch)

    @step(writes="out")
    async def stop(ctx: Context) -> str:
        await began.wait()
        go.set()
        return (await engine.session("other").pause(wait=True))[0].status.value

    async with Engine(":memory:") as engine:
        await engine.start(Workflow("other", state=State, steps=[work], pause="operation"), session_id="other")
        session = await engine.start(Workflow("stopping", state=State, steps=[stop]))
        assert (await session.outcome()).state.out in ("paused", "completed")
