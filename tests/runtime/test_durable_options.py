"""``@durable(retry=, timeout=)``: a tool of another framework retries on its own, wherever it is called."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pausepoint import Context, DefinitionError, OperationTimeout, Retry, durable, step
from tests.support.loop import PATIENCE, on_loop
from tests.support.twice import Twice, run

ran: list[Any] = []


free = threading.Event()
"""Ends the threads that are stuck."""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    ran.clear()
    free.clear()
    yield
    free.set()


def note(what: Any, broken: int) -> None:
    """Fail until ``what`` was noted more than ``broken`` times."""
    ran.append(what)
    if ran.count(what) <= broken:
        raise ConnectionError("busy")


@durable(retry=3)
async def search(text: str, retry: str = "") -> str:  # a parameter may have the name of an option
    note(text, 2)
    return text + retry


@durable(retry=Retry(attempts=3), key=lambda text, retry="": text)
def charge(text: str, retry: str = "") -> str:
    note(text, 2)
    return text + retry


@durable(timeout=0.3, retry=5)
async def slow(text: str) -> str:
    ran.append(text)
    if ran.count(text) == 1:
        await asyncio.sleep(3600)
    return text


@durable(timeout=0.3, retry=5)
def sluggish(text: str) -> str:
    ran.append(text)
    if ran.count(text) == 1:
        free.wait(PATIENCE)
    return text


@on_loop
async def test_each_attempt_counts_and_the_result_is_remembered() -> None:
    async def body(ctx: Context) -> str:
        return await search("a", retry="!") + await asyncio.to_thread(charge, "b", retry="?") + await slow("c")

    twice = Twice()
    assert (await twice.run(body)).state.text == "a!b?c"
    assert ran[:7] == ["a", "a", "a", "b", "b", "b", "c"]
    assert {*ran[7:]} == {"c"}  # on a busy machine, more than one attempt may take too long
    retried = [event.summary.partition(":")[0] for event in twice.events if event.event_type == "operation.retried"]
    assert retried[:5] == ["search", "search", "charge", "charge", "slow"]


@pytest.mark.long
@on_loop
async def test_in_a_blocking_step_and_on_another_loop_too() -> None:
    @step(writes="text", retry=2)
    def work() -> str:
        found = charge("a") + asyncio.run(search("b")) + asyncio.run(slow("c")) + sluggish("d")
        if "failed" not in ran:
            ran.append("failed")
            raise ConnectionError
        return found

    assert (await run(work)).state.text == "abcd"
    assert ran[:6] == ["a", "a", "a", "b", "b", "b"]
    assert (ran.count("c") > 1, ran.count("d") > 1, ran[-1]) == (True, True, "failed")


@on_loop
async def test_when_the_attempts_are_used_up_the_last_error_is_raised() -> None:
    @durable(timeout=0.02)
    async def never() -> None:
        await asyncio.sleep(3600)

    @durable(retry=2)
    async def refused() -> None:
        note("refused", 9)

    @step(writes="text")
    def work() -> str:
        with pytest.raises(OperationTimeout, match=r"'never' exceeded its timeout of 0\.02 s"):
            asyncio.run(never())
        with pytest.raises(ConnectionError, match="busy"):
            asyncio.run(refused())
        return "caught"

    outcome = await run(work)
    assert (outcome.failure, outcome.state.text) == (None, "caught")
    assert ran == ["refused", "refused"]


@on_loop
async def test_outside_of_a_step_the_options_have_no_effect() -> None:
    with pytest.raises(ConnectionError):
        await search("a")
    assert ran == ["a"]


@on_loop
async def test_do_and_map_use_their_own_options() -> None:
    @step(writes="text")
    async def work(ctx: Context) -> str:
        with pytest.raises(ConnectionError):
            await ctx.do(search, "a")
        batch = await ctx.map(search, ["b"], on_error="collect")
        return f"{len(batch.failed)} failed"

    assert (await run(work)).state.text == "1 failed"
    assert ran == ["a", "b"]


def test_wrong_options_are_refused_when_the_function_is_defined() -> None:
    for wrong in ({"retry": 0}, {"retry": "often"}, {"timeout": 0}, {"timeout": "1s"}):
        name = next(iter(wrong))
        with pytest.raises(DefinitionError, match=rf"@durable: {name}="):
            durable(**wrong)
