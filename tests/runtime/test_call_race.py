"""Calls of child sessions race against other waits, with their retries, time-outs and results."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from pausepoint import Context, Engine, Retry, Session, Status, Workflow, step, workflow
from pausepoint.testing import ManualClock
from tests.runtime.kit import Data, listening
from tests.support.chat import Mail, history
from tests.support.loop import on_loop
from tests.support.status import settled

ran: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def flaky(times: int) -> Workflow[Data]:
    """Make a child that fails at first."""

    @step(writes="out")
    async def work() -> str:
        ran["work"] += 1
        if ran["work"] <= times:
            raise ConnectionError("down")
        return "done"

    return Workflow("flaky", state=Data, steps=[work])


def racing(child: Workflow[Any], *given: Any, **options: Any) -> Workflow[Mail]:
    """Make a workflow that waits for a child or a message, whichever comes first."""

    @step(writes="got")
    async def race(ctx: Context) -> list[Any]:
        name, value = await ctx.first(child=ctx.call(child, *given, **options), reply=ctx.receive())
        return [name, value.out if isinstance(value, Data) else value]

    return Workflow("racing", state=Mail, steps=[race])


async def got(session: Session[Mail]) -> list[Any]:
    while await session.status() not in (Status.COMPLETED, Status.FAILED):
        await asyncio.sleep(0.001)
    outcome = await session.outcome()
    assert outcome.status is Status.COMPLETED, outcome
    assert (await session.verify()).ok
    return outcome.state.got


async def retried(session: Session[Mail]) -> None:
    """Wait until an attempt at the call has failed."""
    while "operation.retried" not in await history(session):
        await asyncio.sleep(0.001)


@workflow
async def double(n: int) -> int:
    return 2 * n


@on_loop
async def test_a_function_that_wins_gives_its_result_also_when_it_is_remembered() -> None:
    @step(writes="got")
    async def race(ctx: Context) -> list[Any]:
        ran["race"] += 1
        name, value = await ctx.first(child=ctx.call(double, n=4), reply=ctx.receive())
        return [name, value, await ctx.receive()]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("racing", state=Mail, steps=[race]))
        while (await session.info()).waiting != ("message",):
            await asyncio.sleep(0.001)
        await session.send("then")
        assert await got(session) == ["child", 8, "then"]
        assert ran["race"] > 1


@pytest.mark.parametrize("first", [10, 3600])  # the step waits in place, or the session is parked
@on_loop
async def test_a_message_wins_during_the_back_off_of_a_child(first: float) -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(racing(flaky(1), retry=Retry(attempts=2, first=first, jitter=0)))
        await retried(session)
        await session.send("enough")
        assert (await got(session), ran["work"]) == (["reply", "enough"], 1)


@pytest.mark.parametrize("first", [10, 3600])
@on_loop
async def test_a_child_wins_that_is_retried_during_a_race(first: float) -> None:
    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(racing(flaky(2), retry=Retry(attempts=3, first=first, jitter=0)))
        assert (await got(session), ran["work"]) == (["child", "done"], 3)
        assert (await history(session)).count("operation.retried") == 2


@on_loop
async def test_a_pause_takes_effect_in_the_back_off_of_a_race() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(racing(flaky(1), retry=Retry(attempts=2, first=10, jitter=0)))
        await retried(session)
        await session.pause()
        await settled(session, Status.PAUSED)
        clock.advance(11)
        assert ran["work"] == 1
        await session.resume()
        assert (await got(session), ran["work"]) == (["child", "done"], 2)


@on_loop
async def test_a_child_of_a_race_that_takes_too_long_is_cancelled_and_replaced() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(racing(listening(), timeout=60, retry=Retry(attempts=2, first=0)))
        await settled(session)
        [first] = await engine.session(session.id).children()
        clock.advance(61)
        while len(await engine.session(session.id).children()) < 2:
            await asyncio.sleep(0.001)
        assert (await engine.session(first.session_id).info()).status is Status.CANCELLED
        second = next(
            each for each in await engine.session(session.id).children() if each.session_id != first.session_id
        )
        await engine.session(second.session_id).send("hello")
        assert await got(session) == ["child", "hello"]


@on_loop
async def test_a_race_raises_the_time_out_of_its_child() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(racing(listening(), timeout=60))
        await settled(session)
        clock.advance(61)
        outcome = await session.outcome()
        assert outcome.failure is not None
        assert outcome.failure.type == "OperationTimeout"
