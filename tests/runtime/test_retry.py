"""Retries, waits and time-outs."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Engine, Retry, Status, Workflow, step
from pausepoint.errors import StepExited
from pausepoint.testing import ManualClock
from tests.support.loop import PATIENCE, on_loop
from tests.support.pipeline import FINISHED, Pipeline, until


class State(BaseModel):
    text: str = ""
    done: list[str] = []


class RateLimited(Exception):
    def __init__(self, retry_after: Any) -> None:
        super().__init__("429")
        self.retry_after = retry_after


def failing(times: int, error: Exception, **options: Any) -> tuple[Workflow[State], list[int]]:
    """Return a workflow whose step fails ``times`` times, and the list of its attempt numbers."""
    attempts: list[int] = []

    @step(writes="text", **options)
    async def call(ctx: Context) -> str:
        attempts.append(ctx.attempt)
        if len(attempts) <= times:
            raise error
        return "answer"

    return Workflow("calls", state=State, steps=[call]), attempts


@pytest.mark.covers("S4.84")
@on_loop
async def test_a_step_is_tried_again_after_waits_that_double_and_then_goes_on() -> None:
    workflow, attempts = failing(3, ConnectionError("down"), retry=Retry(attempts=5, first=1, factor=2, jitter=0))
    clock = ManualClock(auto=True)
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(workflow)
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.text) == (Status.COMPLETED, "answer")
        assert attempts == [1, 2, 3, 4]
        assert clock.slept == [1, 2, 4]
        assert (await session.checkpoints(limit=None))[0].attempts == 4
        retried = [event.summary async for event in session.events() if event.event_type == "step.retried"]
        assert retried[0] == "call: attempt 1 failed, ConnectionError: down; retry in 1.0 s"
        assert len(retried) == 3


@on_loop
async def test_the_attempts_of_one_step_do_not_count_for_the_next() -> None:
    tried: Counter[str] = Counter()

    def once_down(name: str) -> str:
        tried[name] += 1
        if tried[name] == 1:
            raise ConnectionError("down")
        return name

    @step(writes="text", retry=Retry(attempts=2, jitter=0))
    async def one() -> str:
        return once_down("one")

    @step(writes="text", retry=Retry(attempts=2, jitter=0))
    async def two() -> str:
        return once_down("two")

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(Workflow("flaky", state=State, steps=[one, two]))
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.text) == (Status.COMPLETED, "two")
        assert [each.attempts for each in await session.checkpoints(limit=None)] == [2, 2]


@pytest.mark.covers("S4.84")
@on_loop
async def test_retries_are_limited_and_then_the_session_fails_with_the_last_error() -> None:
    workflow, attempts = failing(9, ConnectionError("down"), retry=3)
    clock = ManualClock(auto=True)
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(workflow)
        outcome = await session.outcome()
        assert outcome.status is Status.FAILED
        assert attempts == [1, 2, 3]
        assert len(clock.slept) == 2
        assert outcome.failure is not None
        assert outcome.failure.attempts == 3


@on_loop
async def test_waits_are_spread_by_jitter_and_stay_within_it() -> None:
    clock = ManualClock(auto=True)
    retry = Retry(attempts=30, first=10, factor=1, jitter=0.5)
    workflow, _ = failing(29, ConnectionError(), retry=retry)
    async with Engine(":memory:", clock=clock) as engine:
        await (await engine.start(workflow)).outcome()
    assert len(clock.slept) == 29
    assert all(5 <= wait <= 15 for wait in clock.slept)
    assert len(set(clock.slept)) > 20


@pytest.mark.parametrize(
    "asked",
    [120, "120", timedelta(minutes=2), datetime.fromtimestamp(1_700_000_120, UTC)],
    ids=["number", "header", "timedelta", "moment"],
)
@on_loop
async def test_an_error_that_says_how_long_to_wait_is_believed(asked: Any) -> None:
    clock = ManualClock(start=1_700_000_000_000_000, auto=True)
    workflow, _ = failing(1, RateLimited(asked), retry=Retry(attempts=2, first=1, jitter=0))
    async with Engine(":memory:", clock=clock) as engine:
        assert (await (await engine.start(workflow)).outcome()).status is Status.COMPLETED
    assert clock.slept == [120]


@on_loop
async def test_a_map_is_tried_again_only_if_that_could_mend_each_of_its_failed_items() -> None:
    tries: Counter[str] = Counter()

    async def fetch(name: str) -> str:
        tries[name] += 1
        if name == "wrong":
            raise ValueError("no such name")
        if tries[name] == 1:
            raise ConnectionError(f"{name} is down")
        return name

    def mapped(*names: str) -> Workflow[Any]:
        @step(writes="text", retry=Retry(attempts=3, on=(ConnectionError,)))
        async def work(ctx: Context) -> str:
            return " ".join(await ctx.map(fetch, names))

        return Workflow(names[-1], state=State, steps=[work])

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        outcome = await (await engine.start(mapped("a", "b"))).outcome()
        assert (outcome.status, outcome.state.text) == (Status.COMPLETED, "a b")
        outcome = await (await engine.start(mapped("c", "wrong"))).outcome()
        assert outcome.status is Status.FAILED
    assert tries == {"a": 2, "b": 2, "c": 1, "wrong": 1}


@on_loop
async def test_the_longest_wait_that_a_failed_item_of_a_map_asks_for_counts() -> None:
    clock = ManualClock(auto=True)
    failed: list[int] = []

    async def chunk(number: int) -> str:
        if number not in failed:
            failed.append(number)
            raise RateLimited(number * 10)
        return str(number)

    @step(writes="done", retry=Retry(attempts=2, first=1, jitter=0))
    async def work(ctx: Context) -> list[str]:
        return await ctx.map(chunk, [1, 2, 3])

    async with Engine(":memory:", clock=clock) as engine:
        outcome = await (await engine.start(Workflow("calls", state=State, steps=[work]))).outcome()
    assert outcome.state.done == ["1", "2", "3"]
    assert clock.slept == [30]


@on_loop
async def test_only_the_listed_errors_are_tried_again() -> None:
    retry = Retry(attempts=5, on=(ConnectionError, TimeoutError), first=0)
    workflow, attempts = failing(1, KeyError("a bug"), retry=retry)
    other, tries = failing(1, ConnectionResetError(), retry=retry)
    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        assert (await (await engine.start(workflow)).outcome()).status is Status.FAILED
    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        assert (await (await engine.start(other)).outcome()).status is Status.COMPLETED
    assert (len(attempts), len(tries)) == (1, 2)


@on_loop
async def test_a_step_without_retry_is_tried_once() -> None:
    workflow, attempts = failing(1, ConnectionError())
    async with Engine(":memory:") as engine:
        assert (await (await engine.start(workflow)).outcome()).status is Status.FAILED
    assert attempts == [1]


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_a_retry_gets_fresh_values_and_what_its_first_attempt_remembered() -> None:
    ran: list[str] = []
    seen: list[list[str]] = []

    async def costly() -> str:
        ran.append("costly")
        return "kept"

    @step(writes="done", retry=2)
    async def work(done: list[str], ctx: Context) -> list[str]:
        seen.append(list(done))
        done.append(await ctx.do(costly))
        if ctx.attempt == 1:
            raise ConnectionError
        return done

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        outcome = await (await engine.start(Workflow("calls", state=State, steps=[work]), done=["a"])).outcome()
    assert seen == [["a"], ["a"]]
    assert ran == ["costly"]
    assert outcome.state.done == ["a", "kept"]


@pytest.mark.parametrize("act", ["pause", "cancel"])
@on_loop
async def test_a_pause_or_a_cancel_does_not_wait_for_the_next_attempt(act: str) -> None:
    clock = ManualClock()
    pipeline = Pipeline(retry=3)
    pipeline.errors["draft"] = [ConnectionError("down")]
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(pipeline.workflow)
        await clock.asleep()
        if act == "cancel":
            await session.cancel()
            assert (await session.outcome()).status is Status.CANCELLED
            return
        await session.pause()
        outcome = await session.outcome()  # no one advanced the clock
        assert (outcome.status, outcome.state) == (Status.PAUSED, until("draft"))
        await session.resume()
        assert (await session.outcome()).state == FINISHED


# time-outs


@on_loop
async def test_a_step_that_takes_longer_than_its_time_out_is_left_and_fails() -> None:
    cancelled: list[str] = []

    @step(writes="text", timeout=0.01)
    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("slow")
            raise
        return "never"

    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(Workflow("calls", state=State, steps=[slow]))).outcome()
        assert outcome.status is Status.FAILED
        assert outcome.failure is not None
        assert outcome.failure.type == "StepTimeout"
        assert outcome.failure.message.startswith("Step 'slow' exceeded its timeout of 0.01 s.")
        assert cancelled == ["slow"]


@on_loop
async def test_the_time_out_is_for_each_attempt_and_a_time_out_is_retried() -> None:
    attempts: list[int] = []

    @step(writes="text", timeout=timedelta(milliseconds=10), retry=2)
    async def slow_once(ctx: Context) -> str:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return "second"

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        outcome = await (await engine.start(Workflow("calls", state=State, steps=[slow_once]))).outcome()
        assert (outcome.status, outcome.state.text, attempts) == (Status.COMPLETED, "second", [1, 2])


@on_loop
async def test_a_plain_function_that_times_out_is_ended_at_its_next_call_and_its_result_is_discarded() -> None:
    go, over = threading.Event(), threading.Event()
    ends: list[type[BaseException]] = []

    @step(writes="text", timeout=0.01)
    def slow(ctx: BlockingContext) -> str:
        go.wait(PATIENCE)
        try:
            ctx.do(len, "abc")
        except BaseException as error:
            ends.append(type(error))
            raise
        finally:
            over.set()
        return "late"

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("calls", state=State, steps=[slow]))
        outcome = await session.outcome()
        assert (outcome.status, outcome.state) == (Status.FAILED, State())
        go.set()
        await asyncio.to_thread(over.wait, 5)
        assert ends == [StepExited]
        assert "operation.completed" not in [event.event_type async for event in session.events()]


@on_loop
async def test_a_step_within_its_time_out_is_not_disturbed_by_it() -> None:
    @step(writes="text", timeout=30)
    async def quick() -> str:
        await asyncio.sleep(0)
        return "done"

    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(Workflow("calls", state=State, steps=[quick]))).outcome()
        assert outcome.state.text == "done"
