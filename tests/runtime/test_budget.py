"""Spending is counted exactly once, and an exhausted budget pauses the session before it spends more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.errors import StoreClosed
from pausepoint.testing import ManualClock
from tests.support.loop import on_loop
from tests.support.mortal import MortalStore, crash


class State(BaseModel):
    done: list[str] = []


ran: list[str] = []


def spending(name: str, *amounts: float | Decimal) -> Any:
    @step(name=name)
    async def spend(ctx: Context) -> None:
        ran.append(name)
        for amount in amounts:
            ctx.spend(usd=amount, tokens=10)

    return spend


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@on_loop
async def test_what_was_spent_is_added_up_to_the_micro_dollar() -> None:
    steps = [spending("one", 0.1, 0.2), spending("two", Decimal("0.000001"))]
    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("costs", state=State, steps=steps))
        assert (await session.outcome()).spent_usd == 0.300001
        info = await session.info()
        assert (info.spent_usd, info.spent_tokens, info.budget_usd) == (0.300001, 30, None)


@on_loop
async def test_a_used_up_budget_pauses_before_the_next_step_and_a_higher_one_goes_on() -> None:
    steps = [spending("one", 0.6), spending("two", 0.6), spending("three", 0.6)]
    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("costs", state=State, steps=steps), budget=1)
        outcome = await session.outcome()
        assert (outcome.status, ran) == (Status.PAUSED, ["one", "two"])
        (pause,) = outcome.pauses
        assert pause.kind == "budget"
        assert pause.reason == "$1.2000 of the $1.0000 budget is spent; resume with a higher budget"
        await session.resume()
        outcome = await session.outcome()
        assert (outcome.status, ran, len(outcome.pauses)) == (Status.PAUSED, ["one", "two"], 1)
        await session.resume(budget=5)
        outcome = await session.outcome()
        assert (outcome.status, outcome.pauses, outcome.spent_usd) == (Status.COMPLETED, (), 1.8)
        assert (await session.info()).budget_usd == 5
        assert ran == ["one", "two", "three"]


@on_loop
async def test_a_used_up_budget_lets_no_further_operation_start_and_keeps_those_that_were_done() -> None:
    async def costly(name: str, ctx: Context) -> str:
        ran.append(name)
        ctx.spend(usd=0.5)
        return name

    @step(writes="done")
    async def work(ctx: Context) -> list[str]:
        return [await ctx.do(costly, name) for name in "abcd"]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("costs", state=State, steps=[work]), budget=1)
        outcome = await session.outcome()
        assert (outcome.status, outcome.pauses[0].kind, ran) == (Status.PAUSED, "budget", ["a", "b"])
        assert outcome.spent_usd == 1
        await session.resume(budget=10)
        outcome = await session.outcome()
        assert (outcome.state.done, ran) == (list("abcd"), list("abcd"))
        assert outcome.spent_usd == 2


@on_loop
async def test_a_used_up_budget_stops_a_map_and_loses_no_item() -> None:
    async def costly(name: str, ctx: Context) -> str:
        ran.append(name)
        ctx.spend(usd=0.5)
        await asyncio.sleep(0)
        return name

    @step(writes="done")
    async def work(ctx: Context) -> list[str]:
        return await ctx.map(costly, list("abcdef"), concurrency=2)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("costs", state=State, steps=[work]), budget=1)
        outcome = await session.outcome()
        assert outcome.status is Status.PAUSED
        assert len(ran) < 6
        await session.resume(budget=10)
        assert (await session.outcome()).state.done == list("abcdef")
        assert sorted(ran) == list("abcdef")
        assert (await session.outcome()).spent_usd == 3


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_every_attempt_spends_and_what_one_has_recorded_counts_once_over_pauses() -> None:
    tries: list[int] = []

    @step(retry=3, pause="operation")
    async def work(ctx: Context) -> None:
        tries.append(ctx.attempt)
        ctx.spend(usd=0.25)
        ctx.spend(usd=0.25)  # the same amount again, as a separate spending
        if ctx.attempt < 3:
            raise ConnectionError
        await ctx.do(note)
        if len(tries) == 3:
            await session.pause()
        await ctx.safe_point()

    async def note() -> None:
        return None

    async with Engine(":memory:", clock=ManualClock(auto=True), hold=0) as engine:
        session = await engine.start(Workflow("costs", state=State, steps=[work]), session_id="s")
        assert (await session.outcome()).status is Status.PAUSED
        await session.resume()
        outcome = await session.outcome()
        assert (tries, outcome.spent_usd) == ([1, 2, 3, 3], 1.5)
        assert [event.summary async for event in session.events() if event.event_type == "spent"] == [
            "$0.2500, 0 tokens"
        ] * 6


@on_loop
async def test_an_operation_that_fails_in_every_attempt_spends_in_every_attempt() -> None:
    async def model(ctx: Context) -> str:
        ctx.spend(usd=0.01, tokens=3)
        raise ConnectionError("busy")

    @step(retry=3)
    async def work(ctx: Context) -> None:
        await ctx.do(model)

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(Workflow("costs", state=State, steps=[work]))
        for failures in (1, 2):  # a resume starts again with the first attempt; the spending of both adds up
            outcome = await session.outcome()
            assert (outcome.status, outcome.spent_usd) == (Status.FAILED, 0.03 * failures)
            assert (await session.info()).spent_tokens == 9 * failures
            assert (await session.verify()).ok
            await session.resume()


@pytest.mark.parametrize("inside", [True, False])
@on_loop
async def test_a_finished_operation_is_not_paid_again_by_a_retry(inside: bool) -> None:
    async def model(n: int, ctx: Context) -> float:
        if n == ctx.attempt + 1:
            raise ConnectionError("busy")
        ran.append(f"{n}")
        if inside:
            ctx.spend(usd=0.5)
        return 0.5

    @step(retry=3)
    async def work(ctx: Context) -> None:
        for n in (1, 2, 3):
            cost = await ctx.do(model, n)
            if not inside:
                ctx.spend(usd=cost)  # of the remembered result, or of this attempt

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(Workflow("costs", state=State, steps=[work]))
        assert ((await session.outcome()).spent_usd, ran) == (1.5, ["1", "2", "3"])


@on_loop
async def test_a_budget_that_failed_attempts_have_used_up_allows_no_further_attempt() -> None:
    @step(retry=5)
    async def work(ctx: Context) -> None:
        ran.append("try")
        ctx.spend(usd=0.01)
        raise ConnectionError("busy")

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(Workflow("costs", state=State, steps=[work]), budget=0.02)
        outcome = await session.outcome()
        assert (outcome.status, len(ran), outcome.spent_usd) == (Status.PAUSED, 2, 0.02)
        assert outcome.pauses[0].kind == "budget"


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
@on_loop
async def test_attempts_that_are_killed_anywhere_count_what_they_committed_once(tmp_path: Path, after: bool) -> None:
    async def model(n: int, ctx: Context) -> int:
        ctx.spend(usd=0.25)
        if n == 2 and ctx.attempt < 3:
            raise ConnectionError("busy")
        return n

    @step(retry=3)
    async def work(ctx: Context) -> None:
        for n in (1, 2):
            await ctx.do(model, n)

    costs, kills = Workflow("costs", state=State, steps=[work]), 0
    for writes in range(1, 30):
        path, clock = tmp_path / f"{writes}.db", ManualClock(auto=True)
        store = MortalStore(path, clock=clock)
        engine = await Engine(store, workflows=[costs], clock=clock, signals=False).__aenter__()
        store.doom(writes, after)
        with suppress(StoreClosed):
            await (await engine.start(costs, session_id="s")).outcome()
        kills += store.dead
        dead = store.dead
        await crash(engine)
        async with Engine(path, workflows=[costs], clock=clock) as engine:
            session = await engine.start(costs, session_id="s")  # the kill may have come before it was created
            assert ((await session.outcome()).spent_usd, (await session.verify()).ok) == (1.0, True), writes
        if not dead:
            break
    assert kills >= 4


@on_loop
async def test_money_spent_by_a_step_that_failed_is_spent() -> None:
    @step
    async def work(ctx: Context) -> None:
        ctx.spend(usd=0.25)
        raise RuntimeError

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("costs", state=State, steps=[work]))
        outcome = await session.outcome()
        assert (outcome.status, outcome.spent_usd) == (Status.FAILED, 0.25)


@pytest.mark.parametrize("wrong", [{"usd": -1}, {"usd": float("nan")}, {"usd": float("inf")}, {"tokens": -1}])
@on_loop
async def test_an_amount_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    @step
    async def work(ctx: Context) -> None:
        ctx.spend(**wrong)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("costs", state=State, steps=[work]))
        outcome = await session.outcome()
        assert outcome.failure is not None
        assert (outcome.failure.type, outcome.spent_usd) == ("ValueError", 0)
        with pytest.raises(ValueError, match="Money must be"):
            await engine.start(Workflow("more", state=State, steps=[work]), budget=-1)


@on_loop
async def test_what_a_resume_skips_is_told_with_what_it_had_cost() -> None:
    steps = [spending("one", 0.5), spending("two", 0.5)]
    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("costs", state=State, steps=steps), budget=0.5)
        await session.outcome()
        await session.resume(budget=2)
        outcome = await session.outcome()
        assert (outcome.skipped_visits, outcome.saved_usd, outcome.spent_usd) == (1, 0.5, 1)
