"""Calls of child sessions that are retried, and that time out."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Retry, Status, Workflow, step
from pausepoint.errors import StoreClosed
from pausepoint.testing import ManualClock
from tests.runtime.kit import Data, listening
from tests.support.loop import on_loop
from tests.support.mortal import MortalStore, crash
from tests.support.status import settled

ran: Counter[str] = Counter()
RETRY = Retry(attempts=3, first=1, jitter=0)


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def flaky(times: int) -> Workflow[Data]:
    """Make a child whose second step fails at first."""

    @step(writes="n")
    async def first(n: int) -> int:
        ran["first"] += 1
        return n + 1

    @step(writes="out")
    async def second(n: int) -> str:
        ran["second"] += 1
        if ran["second"] <= times:
            raise ConnectionError("down")
        return f"n is {n}"

    return Workflow("child", state=Data, steps=[first, second])


def parent(child: Workflow[Any], *given: Any, **options: Any) -> Workflow[Data]:
    @step(writes="out")
    async def top(ctx: Context) -> str:
        ran["top"] += 1
        return str((await ctx.call(child, *given, **options)).out)

    return Workflow("parent", state=Data, steps=[top])


@on_loop
async def test_a_failed_child_is_resumed_where_it_failed_after_a_back_off() -> None:
    clock = ManualClock(auto=True)
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(parent(flaky(2), n=4, retry=RETRY))
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.out) == (Status.COMPLETED, "n is 5")
        assert (ran["first"], ran["second"]) == (1, 3)
        [child] = await engine.session(session.id).children()
        events = [event async for event in session.events() if event.event_type == "operation.retried"]
        assert [event.data["attempt"] for event in events] == [1, 2]
        assert f"child session {str(child.session_id)!r} failed." in events[0].summary
        assert (await session.verify()).ok


@on_loop
async def test_when_the_attempts_are_used_up_the_failure_is_raised_and_a_resume_tries_again() -> None:
    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(parent(flaky(5), n=4, retry=RETRY))
        outcome = await session.outcome()
        assert outcome.failure is not None
        assert (outcome.failure.type, ran["second"]) == ("ChildFailed", 3)
        await session.resume()
        assert ((await session.outcome()).state.out, ran["first"], ran["second"]) == ("n is 5", 1, 6)


@on_loop
async def test_a_child_that_a_person_cancels_is_not_retried() -> None:
    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(parent(listening(), retry=RETRY))
        await settled(session)
        [child] = await engine.session(session.id).children()
        await engine.session(child.session_id).cancel()
        outcome = await session.outcome()
        assert outcome.failure is not None
        assert (outcome.failure.type, len(await engine.session(session.id).children())) == ("ChildFailed", 1)


@on_loop
async def test_a_child_that_takes_too_long_is_cancelled_and_another_one_is_tried() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(parent(listening(), timeout=60, retry=Retry(attempts=2, first=0)))
        await settled(session)
        [first] = await engine.session(session.id).children()
        clock.advance(61)
        await waits_for_another(engine, session.id)
        second = next(
            each for each in await engine.session(session.id).children() if each.session_id != first.session_id
        )
        assert (await engine.session(first.session_id).info()).status is Status.CANCELLED
        await engine.session(second.session_id).send("hello")
        assert (await session.outcome()).state.out == "hello"
        noticed = [event.summary async for event in session.events() if event.event_type == "child.noticed"]
        assert noticed == [f"child session {first.session_id} exceeded the timeout of 'call:part' and is cancelled"]
        assert (await session.verify()).ok


async def waits_for_another(engine: Engine, session_id: str) -> None:
    session = engine.session(session_id)
    while len(await engine.session(session_id).children()) < 2:
        await settled(session)
    await settled(session)


@on_loop
async def test_the_last_time_out_is_raised_and_a_resume_starts_another_child() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(parent(listening(), timeout=60))
        await settled(session)
        clock.advance(61)
        outcome = await session.outcome()
        assert outcome.failure is not None
        assert outcome.failure.type == "OperationTimeout"
        await session.resume()
        await settled(session)
        second = [each for each in await engine.session(session.id).children() if each.status is Status.WAITING]
        await engine.session(second[0].session_id).send("hello")
        assert ((await session.outcome()).state.out, len(await engine.session(session.id).children())) == ("hello", 2)


@pytest.mark.parametrize("here", [True, False])
@on_loop
async def test_the_time_in_which_the_session_is_paused_does_not_count(here: bool) -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(parent(listening(), timeout=60))
        await settled(session)
        clock.advance(30)
        await session.pause()
        clock.advance(1000)
        await engine.session(session.id).resume(here=here)
        if here:
            await settled(session)
        clock.advance(29)
        [child] = await engine.session(session.id).children()
        await engine.session(child.session_id).send("in time")
        assert (await session.outcome()).state.out == "in time"


@pytest.mark.parametrize("here", [True, False], ids=["here", "handed over"])
@on_loop
async def test_the_time_in_which_a_budget_pauses_the_session_does_not_count_either(here: bool) -> None:
    async def costly(ctx: Context) -> None:
        ctx.spend(usd=1)

    async def late() -> None:
        ran["late"] += 1

    @step(writes="out")
    async def top(ctx: Context) -> str:
        async def other() -> None:
            await ctx.sleep(30)
            await ctx.do(costly)
            await ctx.do(late)

        child, _ = await asyncio.gather(ctx.call(listening(), timeout=60), other())
        return child.out

    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("top", state=Data, steps=[top]), budget=1)
        await settled(session)
        clock.advance(30)
        await settled(session, Status.PAUSED)
        assert [each.kind for each in await session.pauses()] == ["budget"]
        clock.advance(1000)
        await session.resume(budget=9, here=here)
        while not ran["late"]:
            await asyncio.sleep(0.001)
        await settled(session)
        clock.advance(29)
        [child] = await engine.session(session.id).children()
        await engine.session(child.session_id).send("in time")
        assert (await session.outcome()).state.out == "in time"


@on_loop
async def test_an_option_that_is_also_a_field_of_the_child_is_refused_unless_a_state_is_passed() -> None:
    class Fetch(BaseModel):
        timeout: float = 5
        out: str = ""

    @step(writes="out")
    async def fetch(timeout: float) -> str:
        return f"{timeout}"

    child = Workflow("fetch", state=Fetch, steps=[fetch])
    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(parent(child, timeout=30))).outcome()
        assert outcome.failure is not None
        assert "has a field 'timeout' too. Pass the child's input as a state" in outcome.failure.message
    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(parent(child, Fetch(timeout=1), timeout=30))).outcome()
        assert outcome.state.out == "1.0"


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
@on_loop
async def test_a_parent_that_is_killed_anywhere_retries_its_child_as_often(tmp_path: Path, after: bool) -> None:
    kills = 0
    for writes in range(1, 60, 4):
        ran.clear()
        path, clock = tmp_path / f"{writes}.db", ManualClock(auto=True)
        child = flaky(2)
        workflow = parent(child, n=4, retry=RETRY)
        store = MortalStore(path, clock=clock)
        engine = await Engine(store, workflows=[workflow, child], clock=clock, signals=False).__aenter__()
        store.doom(writes, after)
        with suppress(StoreClosed):
            await (await engine.start(workflow, session_id="s")).outcome()
        dead = store.dead
        kills += dead
        await crash(engine)
        async with Engine(path, workflows=[workflow, child], clock=clock) as engine:
            session = await engine.start(workflow, session_id="s")
            outcome = await session.outcome()
            assert (outcome.state.out, len(await engine.session("s").children())) == ("n is 5", 1), writes
            assert ran["second"] <= 4
            assert (await session.verify()).ok
        if not dead:
            break
    assert kills >= 4


@on_loop
async def test_a_resume_that_hands_a_session_over_also_continues_its_paused_children() -> None:
    async def costly(ctx: Context) -> None:
        ctx.spend(usd=1)

    @step(writes="out")
    async def below(ctx: Context) -> str:
        await ctx.do(costly, key=1)
        await ctx.do(costly, key=2)
        return "paid"

    @step(writes="out")
    async def top(ctx: Context) -> str:
        return (await ctx.call(Workflow("below", state=Data, steps=[below]))).out

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("top", state=Data, steps=[top]), budget=1)
        await settled(session)
        [child] = await engine.session(session.id).children()
        await settled(engine.session(child.session_id), Status.PAUSED)
        await session.resume(budget=9, here=False)
        assert (await session.outcome()).state.out == "paid"
