"""``@durable`` makes a function a remembered operation inside a step, and leaves it alone outside."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Context, DefinitionError, Engine, Status, Workflow, current, durable, step, workflow
from pausepoint.errors import StepError
from tests.support.loop import PATIENCE, on_loop
from tests.support.twice import State, Twice, run
from tests.support.waits import async_until

ran: list[Any] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    ran.clear()


@durable
async def refund(order: str) -> str:
    """Refund an order."""
    ran.append(order)
    return order.upper()


@durable
def charge(order: str) -> str:
    ran.append(order)
    return order.upper()


@durable(key=lambda order, **_: order)
async def keyed(order: str, *, key: str = "", timeout: float = 0) -> object:
    ran.append((order, key, timeout))
    return [order, key]


@workflow
async def agent(name: str, ctx: Context) -> None:
    for number in range(100_000):
        await asyncio.to_thread(charge, f"{name}-{number}")


@on_loop
async def test_blocking_calls_that_a_pause_holds_keep_no_thread_of_the_pool(tmp_path: Path) -> None:
    pool = ThreadPoolExecutor(1, thread_name_prefix="asyncio")  # as asyncio makes it, on a machine that has one thread
    asyncio.get_running_loop().set_default_executor(pool)
    wait([pool.submit(int) for _ in range(1_000)])  # what waits for a thread makes the pool count too many idle ones
    async with Engine(tmp_path / "pool.db", workflows=[agent]) as engine:
        for name in ("ann", "ben", "cat"):
            await engine.start(agent, session_id=name, name=name)
        await async_until(lambda: len({order[:3] for order in ran}) == 3)
        assert (await engine.pause_all(wait=True, timeout=30)).working == ()
        before = list(ran)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 30) == "free"
        assert ran == before
        await engine.lift_pause()
        await async_until(lambda: len({order[:3] for order in ran[len(before) :]}) == 3)
    assert pool._max_workers == 1


@on_loop
async def test_outside_of_a_step_it_is_a_plain_call() -> None:
    assert await refund("a") == "A"
    assert charge("b") == "B"
    assert ran == ["a", "b"]


def test_it_looks_like_the_function() -> None:
    assert inspect.iscoroutinefunction(refund)
    assert not inspect.iscoroutinefunction(charge)
    assert refund.__name__ == "refund"
    assert refund.__doc__ == "Refund an order."
    assert list(inspect.signature(refund).parameters) == ["order"]


@on_loop
async def test_inside_a_step_it_runs_once() -> None:
    async def body(ctx: Context) -> str:
        return await refund("a") + await asyncio.to_thread(charge, "b") + str(await keyed("c", key="k", timeout=2))

    twice = Twice()
    assert (await twice.run(body)).state.text == "AB['c', 'k']"
    assert ran == ["a", "b", ("c", "k", 2)]
    names = [event.summary for event in twice.events if event.event_type == "operation.completed"]
    assert names == ["refund", "charge", "keyed"]


@on_loop
async def test_a_key_recognises_the_call_and_other_input_under_it_pauses() -> None:
    @step(writes="text", retry=2)
    async def work(ctx: Context) -> str:
        found = await keyed("a", key=str(ctx.attempt))
        if ctx.attempt == 1:
            raise ConnectionError
        return str(found)

    outcome = await run(work)
    assert outcome.status is Status.PAUSED
    assert "remembered with different input" in outcome.pauses[0].reason


@on_loop
async def test_nested_in_operations_and_items_it_belongs_to_them() -> None:
    async def outer(order: str) -> str:
        return await refund(order)

    async def body(ctx: Context) -> str:
        return "".join([await ctx.do(outer, "a"), *await ctx.map(outer, ["a", "b"])])

    assert (await Twice().run(body)).state.text == "AAB"
    assert ran == ["a", "a", "b"]


@on_loop
async def test_passed_to_do_or_map_it_is_one_operation_and_not_two() -> None:
    async def body(ctx: Context) -> str:
        return "".join([await ctx.do(refund, "a"), await ctx.do(charge, "b"), *await ctx.map(refund, ["c"])])

    twice = Twice()
    assert (await twice.run(body)).state.text == "ABC"
    names = [event.summary for event in twice.events if event.event_type == "operation.completed"]
    assert names == ["refund", "charge", "refund"]


@on_loop
async def test_in_a_blocking_step_both_kinds_work() -> None:
    @step(writes="text", retry=2)
    def work() -> str:
        found = charge("a") + asyncio.run(refund("b"))  # as an agent's run_sync does
        if len(ran) < 3:
            ran.append("failed")
            raise ConnectionError
        return found

    assert (await run(work)).state.text == "AB"
    assert ran == ["a", "b", "failed"]


@on_loop
async def test_on_another_loop_its_nested_operations_are_remembered_too() -> None:
    @durable
    async def both(order: str) -> str:
        return await refund(order) + await asyncio.to_thread(charge, order)

    @step(writes="text", retry=2)
    def work() -> str:
        found = asyncio.run(both("a"))
        if len(ran) < 3:
            ran.append("failed")
            raise ConnectionError
        return found

    assert (await run(work)).state.text == "AA"
    assert ran == ["a", "a", "failed"]


@on_loop
async def test_a_call_on_another_loop_that_is_cancelled_when_it_was_admitted_does_not_count_as_running() -> None:
    async def agent() -> None:
        call = asyncio.create_task(refund("a"))
        await asyncio.sleep(0)
        visit = current(blocking=True)._visit
        limit = time.monotonic() + PATIENCE
        while not visit.running:
            assert time.monotonic() < limit
            time.sleep(0.001)  # blocks this loop, so that it does not hear of the admission
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    @step(writes="text")
    async def work(ctx: Context) -> str:
        await asyncio.to_thread(asyncio.run, agent())
        while ctx._visit.running:
            await asyncio.sleep(0.001)
        return str(ctx._visit.in_flight)

    assert ((await run(work)).state.text, ran) == ("[]", [])


@on_loop
async def test_a_blocking_one_on_the_loops_thread_is_refused() -> None:
    async def body(ctx: Context) -> None:
        with pytest.raises(StepError, match=r"'charge' on the event loop's thread.*asyncio\.to_thread"):
            charge("a")

    assert (await Twice().run(body)).status is Status.COMPLETED
    assert ran == []


@on_loop
async def test_a_pause_stops_an_agent_whose_tools_are_durable(tmp_path: Path) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    @durable
    async def tool(n: int) -> int:
        ran.append(n)
        began.set()
        await go.wait()
        return n

    async def agent() -> int:  # knows nothing of Pausepoint
        return sum([await tool(n) for n in range(4)])

    @step(writes="text")
    async def work() -> str:
        return str(await agent())

    async with Engine(tmp_path / "h.db", hold=0) as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work]))
        await began.wait()
        await session.pause()
        go.set()
        assert (await session.outcome()).status is Status.PAUSED
        assert ran == [0]
        assert (await (await session.resume()).outcome()).state.text == "6"
    assert ran == [0, 1, 2, 3]


def test_what_cannot_be_remembered_as_a_whole_is_refused() -> None:
    def lines() -> Iterator[str]:
        yield "a"

    async def chunks() -> AsyncIterator[str]:
        yield "a"

    for wrong in (lines, chunks):
        with pytest.raises(DefinitionError, match="generator function"):
            durable(wrong)
    with pytest.raises(DefinitionError, match="key must be a function of the arguments, not 'x'"):
        durable(key="x")  # type: ignore[call-overload]
