"""Guest sessions use every operation: retries, races, messages, budgets and live output."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from pausepoint import Budget, Engine, OperationTimeout, Parked, QuestionExpired, Retry, Status, current
from pausepoint.model import StreamText
from pausepoint.testing import ManualClock
from tests.engine.guest import AGENT
from tests.support.loop import on_loop

RETRY = Retry(attempts=3, first=0.001)


@on_loop
async def test_operations_of_a_guest_are_retried_and_time_out() -> None:
    calls: list[int] = []

    async def flaky() -> int:
        calls.append(1)
        current().stream(f"try {len(calls)}")
        if len(calls) < 3:
            raise ConnectionError("down")
        return 7

    async with Engine(":memory:") as engine:
        async with engine.visit(AGENT, session_id="t") as ctx:
            assert await ctx.do(flaky, retry=RETRY) == 7
            with pytest.raises(OperationTimeout):
                await ctx.do(asyncio.sleep, 60, timeout=0.01)
        text = StreamText()
        async for item in engine.session("t").stream():
            text.apply(item)
        assert (str(text), len(calls)) == ("try 3", 3)
        assert (await engine.session("t").info()).status is Status.COMPLETED


async def listen(engine: Engine, fails: bool = False) -> str:
    async with engine.visit(AGENT, session_id="t") as ctx:
        name, value = await ctx.first(reply=ctx.receive(), late=ctx.sleep(3600))
        if fails:
            raise ConnectionError(f"after {value}")
        ctx.output = {"answer": f"{name}: {value}"}
    return f"{name}: {value}"


@on_loop
async def test_a_race_of_a_guest_parks_and_the_next_visit_gets_the_winner() -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(Parked) as parked:
            await listen(engine)
        assert parked.value.status == "waiting"
        assert parked.value.reason.startswith("for a message, until 2")
        assert str(parked.value).endswith(". Visit it again when the wait is over.")
        await engine.session("t").send("hello", key="one")
        await engine.session("t").send("hello", key="one")
        assert await listen(engine) == "reply: hello"
        assert (await engine.session("t").verify()).ok


@on_loop
async def test_a_block_that_fails_before_its_next_operation_leaves_its_message_in_the_mailbox() -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(Parked):
            await listen(engine)
        await engine.session("t").send("hello")
        with pytest.raises(ConnectionError, match="after hello"):
            await listen(engine, fails=True)
        assert await listen(engine) == "reply: hello"


@on_loop
async def test_a_guest_has_budgets_of_every_kind() -> None:
    async with Engine(":memory:") as engine:

        async def two(budget: Budget | None = None) -> int:
            async with engine.visit(AGENT, session_id="t", budget=budget) as ctx:
                await ctx.do(asyncio.sleep, 0)
                await ctx.do(asyncio.sleep, 0.0)
            return 2

        with pytest.raises(Parked, match="operations"):
            await two(Budget(operations=1))
        await engine.session("t").resume(budget=Budget(operations=9), here=False)
        assert await two() == 2
        assert (await engine.session("t").info()).budget_operations == 9


@on_loop
async def test_an_expired_question_pauses_a_guest_and_after_a_resume_it_is_asked_again() -> None:
    async def handler() -> None:
        async with engine.visit(AGENT, session_id="t") as ctx:
            ctx.output = {"answer": await ctx.ask("Fine?", expires=timedelta(minutes=1))}

    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        with pytest.raises(Parked, match="waiting"):
            await handler()
        clock.advance(timedelta(minutes=2))
        with pytest.raises(QuestionExpired):
            await handler()
        assert (await engine.session("t").info()).status is Status.PAUSED
        await engine.session("t").resume()
        with pytest.raises(Parked, match=r"waiting: Fine\?"):
            await handler()
