"""Children that fail, are retried, or are called twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.errors import ChildFailed
from pausepoint.testing import ManualClock
from tests.runtime.kit import HOUR, Data, listening
from tests.support.loop import on_loop
from tests.support.status import settled


@pytest.mark.no_always_replay("counts the runs of the step's body")
@pytest.mark.parametrize("how", ["map", "gather"])
@on_loop
async def test_children_that_fail_one_after_another_are_tried_once_each(how: str) -> None:
    runs: list[int] = []

    @step(writes="out")
    async def fail(n: int) -> str:
        runs.append(n)
        await asyncio.sleep(0.02 * n)
        raise ValueError(f"{n} is unlucky")

    part = Workflow("part", state=Data, steps=[fail])

    async def item(n: int, ctx: Context) -> str:
        return (await ctx.call(part, n=n)).out

    @step(writes="n")
    async def many(ctx: Context) -> int:
        if how == "map":
            return len((await ctx.map(item, [1, 3, 5], on_error="collect")).failed)
        calls = [ctx.call(part, n=n) for n in (1, 3, 5)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        return sum(isinstance(each, ChildFailed) for each in found)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("many", state=Data, steps=[many]))
        assert (await session.outcome()).state.n == 3
        assert sorted(runs) == [1, 3, 5]


@on_loop
async def test_a_failure_that_the_step_was_told_is_the_same_after_a_wait_and_another_in_the_next_attempt() -> None:
    runs, told = list[int](), list[str]()
    clock = ManualClock(auto=True)

    @step(writes="out")
    async def fail() -> str:
        runs.append(1)
        if len(runs) < 2:
            raise ValueError("unlucky")
        return "fine"

    part = Workflow("part", state=Data, steps=[fail])

    @step(writes="out", retry=2)
    async def careful(ctx: Context) -> str:
        try:
            return (await ctx.call(part)).out
        except ChildFailed as error:
            told.append(error.status)
            await ctx.sleep(HOUR)
            await ctx.sleep(2 * HOUR)
            raise

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("careful", state=Data, steps=[careful]))
        assert (await session.outcome()).state.out == "fine"
        assert len(runs) == 2
        assert len(told) >= 3  # reported before each wait and after the last


@on_loop
async def test_a_child_that_goes_on_by_itself_after_it_failed_does_not_keep_its_parent_busy() -> None:
    gate, unlucky = asyncio.Event(), [True]

    @step(writes="out")
    async def work() -> str:
        await gate.wait()
        if unlucky:
            raise ValueError("unlucky")
        return "fine"

    part = Workflow("part", state=Data, steps=[work])

    @step(writes="out")
    async def top(ctx: Context) -> str:
        return (await ctx.call(part)).out

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("top", state=Data, steps=[top]))
        await settled(session, Status.WAITING)
        await session.pause()
        [info] = await session.children()
        child = engine.session(info.session_id)
        gate.set()
        await settled(child, Status.PAUSED)
        gate.clear()
        unlucky.clear()
        await child.resume()
        await session.resume()
        await settled(session, Status.WAITING)
        seq = (await session.info()).seq
        await asyncio.sleep(0.05)
        assert (await session.info()).seq == seq
        gate.set()
        assert (await session.outcome()).state.out == "fine"


@on_loop
async def test_a_key_that_names_a_child_with_other_input_than_before_pauses_the_parent() -> None:
    part = listening()

    @step(writes="out")
    async def top(n: int, ctx: Context) -> str:
        return (await ctx.call(part, n=n, key="one")).out

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("top", state=Data, steps=[top]), n=1)
        await settled(session, Status.WAITING)
        await session.edit(n=2)
        await session.resume()
        outcome = await session.outcome()
        assert [pause.kind for pause in outcome.pauses] == ["mismatch"]
        await session.edit(n=1)
        await session.resume()
        [info] = await session.children()
        await engine.session(info.session_id).send("hello")
        assert (await session.outcome()).state.out == "hello"


@on_loop
async def test_two_branches_that_make_the_same_call_get_the_same_child(tmp_path: Path) -> None:
    part = listening()

    @step(writes="out")
    async def top(ctx: Context) -> str:
        both = await asyncio.gather(ctx.call(part, key="one"), ctx.call(part, key="one"))
        return " ".join(each.out for each in both)

    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(Workflow("top", state=Data, steps=[top]))
        await settled(session, Status.WAITING)
        [info] = await session.children()
        await engine.session(info.session_id).send("ay")
        assert (await session.outcome()).state.out == "ay ay"
