"""Fan-out: finished items are kept, failed items are retried, and results keep their order."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from pausepoint import Context, Engine, MapFailed, Workflow, step
from pausepoint.runtime import Batch
from tests.support.loop import on_loop
from tests.support.twice import State, Twice, run


@pytest.mark.parametrize("concurrency", [1, 3, 50])
@on_loop
async def test_a_map_runs_every_item_at_most_so_many_at_a_time_and_returns_them_in_order(concurrency: int) -> None:
    now = most = 0

    async def chunk(number: int) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.0005 * (20 - number))
        now -= 1
        return str(number)

    @step(writes="done")
    async def work(ctx: Context) -> list[str]:
        return await ctx.map(chunk, range(20), concurrency=concurrency)

    assert (await run(work)).state.done == [str(number) for number in range(20)]
    assert most == min(concurrency, 20)


@on_loop
async def test_a_map_of_nothing_is_nothing_and_leaves_no_record() -> None:
    twice = Twice()

    async def chunk(number: int) -> str:
        return ""

    async def body(ctx: Context) -> list[str]:
        return await ctx.map(chunk, [])

    assert (await twice.run(body)).state.text == "[]"
    assert "map.started" not in [event.event_type for event in twice.events]


@pytest.mark.no_always_replay("its items fail once only, so that a replay meets another world")
@pytest.mark.covers("S3.80")
@on_loop
async def test_failed_items_raise_after_the_rest_has_finished_and_only_they_are_tried_again() -> None:
    tries: Counter[str] = Counter()

    async def chunk(name: str) -> str:
        tries[name] += 1
        if name in "bd" and tries[name] == 1:
            raise ConnectionError(f"{name} is down")
        return name.upper()

    seen: list[MapFailed] = []

    @step(writes="done", retry=2)
    async def work(ctx: Context) -> list[str]:
        try:
            return await ctx.map(chunk, list("abcde"), concurrency=2)
        except MapFailed as error:
            seen.append(error)
            raise

    outcome = await run(work)
    assert outcome.state.done == list("ABCDE")
    assert tries == {"a": 1, "b": 2, "c": 1, "d": 2, "e": 1}
    assert "2 of 5 items of 'chunk' failed. The other results are kept" in str(seen[0])
    assert "First error: ConnectionError: b is down" in str(seen[0])
    assert sorted(seen[0].failed.values()) == ["ConnectionError: b is down", "ConnectionError: d is down"]


@on_loop
async def test_the_errors_of_a_map_are_in_the_order_of_its_items_whichever_fails_first() -> None:
    failed = asyncio.Event()

    async def chunk(name: str) -> str:
        if name == "a":
            await failed.wait()
        else:
            asyncio.get_running_loop().call_later(0.02, failed.set)  # when the failure of this item is noted
        raise ConnectionError(f"{name} is down")

    @step(writes="done")
    async def work(ctx: Context) -> list[str]:
        return await ctx.map(chunk, list("ab"))

    outcome = await run(work)
    assert outcome.failure is not None
    assert outcome.failure.message.endswith("First error: ConnectionError: a is down")


@on_loop
async def test_a_map_that_collects_returns_what_was_done_and_what_failed_by_position() -> None:
    async def chunk(name: str) -> str:
        if name == "b":
            raise ConnectionError("b is down")
        return name.upper()

    batches: list[Batch[str]] = []

    @step(writes="done")
    async def work(ctx: Context) -> list[str]:
        batch = await ctx.map(chunk, list("abc"), on_error="collect")
        batches.append(batch)
        return list(batch.done.values())

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work]))
        assert sorted((await session.outcome()).state.done) == ["A", "C"]
        failed = [event.summary async for event in session.events() if event.event_type == "item.failed"]
    assert batches[0].done == {0: "A", 2: "C"}
    assert {index: str(error) for index, error in batches[0].failed.items()} == {1: "b is down"}
    assert failed == ["chunk, item b: ConnectionError: b is down"]


@pytest.mark.no_always_replay("looks at the order in which items ran over two attempts")
@on_loop
async def test_items_are_recognised_by_value_so_that_a_longer_list_runs_only_what_is_new() -> None:
    twice = Twice()
    lists = iter([list("ab"), list("xab")])

    async def chunk(name: str) -> str:
        twice.ran.append(name)
        return name

    async def body(ctx: Context) -> list[str]:
        return await ctx.map(chunk, next(lists), concurrency=1)

    outcome = await twice.run(body)
    assert twice.ran == ["a", "b", "x"]
    assert outcome.state.text == "['x', 'a', 'b']"


@on_loop
async def test_equal_items_of_a_map_are_items_of_their_own() -> None:
    twice = Twice()

    async def roll(sides: int) -> int:
        twice.ran.append(sides)
        return len(twice.ran)

    async def body(ctx: Context) -> list[int]:
        return await ctx.map(roll, [6, 6, 6], concurrency=1)

    assert (await twice.run(body)).state.text == "[1, 2, 3]"
    assert twice.ran == [6, 6, 6]


@pytest.mark.no_always_replay("counts how often plain code of an item ran")
@on_loop
async def test_an_items_own_context_remembers_what_the_item_does_apart_from_other_items() -> None:
    twice = Twice()
    broken = [True]

    async def fetch(page: int) -> str:
        twice.ran.append(("fetch", page))
        return f"page {page}"

    async def read(book: str, ctx: Context) -> str:
        twice.ran.append(("read", book))
        pages = [await ctx.do(fetch, page) for page in (1, 2)]
        if book == "b" and broken:
            broken.pop()
            raise ConnectionError
        return f"{book}: {', '.join(pages)}"

    async def body(ctx: Context) -> list[str]:
        return await ctx.map(read, ["a", "b"], concurrency=1)

    outcome = await twice.run(body)
    assert outcome.state.text == "['a: page 1, page 2', 'b: page 1, page 2']"
    # The failed item runs again from its top. Its earlier operations are remembered.
    assert twice.ran == [
        ("read", "a"), ("fetch", 1), ("fetch", 2), ("read", "b"), ("fetch", 1), ("fetch", 2), ("read", "b"),
    ]  # fmt: skip
