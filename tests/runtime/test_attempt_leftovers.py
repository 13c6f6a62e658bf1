"""What a failed attempt at an operation leaves running repeats no work and takes nothing from the next attempt."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Rate, Retry, Status, Workflow, step
from pausepoint.errors import ContextClosed
from pausepoint.runtime.calls import Calls
from tests.runtime.kit import Gate
from tests.support.loop import on_loop

AT_ONCE = Retry(attempts=3, first=0)

calls: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def nothing_called() -> None:
    calls.clear()


class State(BaseModel):
    text: str = ""


def work(fn: Any, *args: Any, **options: Any) -> Workflow[State]:
    @step(writes="text")
    async def act(ctx: Context) -> str:
        return str(await ctx.do(fn, *args, **options))

    return Workflow("work", state=State, steps=[act])


async def fails_once() -> None:
    calls["fails_once"] += 1
    if calls["fails_once"] == 1:
        raise ConnectionError("down")


@pytest.mark.no_always_replay("expects the order of one run")
@on_loop
async def test_a_branch_that_outlives_its_attempt_repeats_no_work() -> None:
    gate = Gate()
    left: list[str] = []

    async def part(n: int) -> int:
        calls[f"part {n}"] += 1
        if n == 1:
            await gate.pass_through()
        return n

    async def both(ctx: Context) -> int:
        try:
            return await ctx.do(part, 1) + await ctx.do(part, 2)
        except ContextClosed as error:
            left.append(str(error))
            raise

    async def whole(ctx: Context) -> int:
        if calls["fails_once"]:
            gate.open.set()  # the next attempt has begun
        found, _ = await asyncio.gather(both(ctx), ctx.do(fails_once))
        return found

    async with Engine(":memory:") as engine:
        session = await engine.start(work(whole, retry=AT_ONCE))
        assert (await session.outcome()).state.text == "3"
        assert ["has failed, but its context is still in use" in each for each in left] == [True]
        assert calls == Counter({"fails_once": 2, "part 1": 1, "part 2": 1})
        assert (await session.verify()).ok


@on_loop
async def test_a_wait_of_a_failed_attempt_takes_no_message_from_the_next_attempt() -> None:
    gate = Gate()

    async def talk(ctx: Context) -> str:
        reply, _ = await asyncio.gather(ctx.receive(), ctx.do(fails_once))
        return reply

    @step(writes="text")
    async def act(ctx: Context) -> str:
        # The other operation keeps the step running, so that the wait of the first attempt stays in memory.
        reply, _ = await asyncio.gather(ctx.do(talk, retry=AT_ONCE), ctx.do(gate.pass_through))
        return reply

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[act]))
        await gate.begun.wait()
        while calls["fails_once"] < 2:
            await asyncio.sleep(0)
        await session.send("hello")
        while not [event async for event in session.events() if event.summary in ("receive", "talk")]:
            await asyncio.sleep(0.001)
        gate.open.set()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.text) == (Status.COMPLETED, "hello")


@pytest.mark.long
@pytest.mark.no_always_replay("measures what is done, and a replay does more")
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("options", [{"rate": Rate(10**6)}, {"retry": AT_ONCE}])
@on_loop
async def test_the_cost_of_an_attempt_does_not_grow_with_the_attempts_before(
    options: dict[str, Any], streams: bool
) -> None:
    failed: set[int] = set()

    async def item(n: int, ctx: Context) -> int:
        if streams:
            ctx.stream("token")
        if "retry" in options and n not in failed:
            failed.add(n)
            raise ConnectionError
        return n

    async def calls_for(items: int) -> int:
        failed.clear()
        count = 0

        def counting(frame: object, event: str, what: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        @step(writes="text")
        async def act(ctx: Context) -> str:
            sys.setprofile(counting)
            try:
                return str(sum(await ctx.map(item, range(items), **options)))
            finally:
                sys.setprofile(None)

        async with Engine(":memory:") as engine:
            outcome = await (await engine.start(Workflow("work", state=State, steps=[act]))).outcome()
            assert outcome.state.text == str(sum(range(items)))
        return count

    assert await calls_for(400) < 5 * await calls_for(100)


@pytest.mark.no_always_replay("measures what is done, and a replay does more")
@on_loop
async def test_the_cost_of_a_call_does_not_grow_with_the_calls_that_are_not_awaited_yet() -> None:
    async def nothing(n: int) -> int:
        return n

    looked = 0

    class Looking(Calls):
        def _open(self) -> list[Any]:
            nonlocal looked
            looked += len(self._found)
            return super()._open()

    @step(writes="text")
    async def act(ctx: Context) -> str:
        ctx._visit.calls = Looking("work-1", "act", 1)
        return str(len(await asyncio.gather(*[ctx.do(nothing, n) for n in range(1000)])))

    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(Workflow("work", state=State, steps=[act]))).outcome()
        assert (outcome.state.text, looked < 4000) == ("1000", True)
