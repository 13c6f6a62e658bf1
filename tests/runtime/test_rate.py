"""The rate of a map: how many attempts may start in a span of time."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Rate, Retry, Status, Workflow, step
from pausepoint.testing import ManualClock
from tests.support.loop import on_loop


class State(BaseModel):
    done: list[int] = []


SECOND = timedelta(seconds=1)


def mapped(fn: Any, count: int, **options: Any) -> Workflow[State]:
    @step(writes="done")
    async def act(ctx: Context) -> list[int]:
        found: list[int] = await ctx.map(fn, range(count), **options)
        return found

    return Workflow("work", state=State, steps=[act])


def most_within(starts: list[float], seconds: float) -> int:
    """Return how many starts fall into the fullest span of this length."""
    return max(sum(begin <= each < begin + seconds for each in starts) for begin in starts)


@pytest.mark.no_always_replay("a rate starts again with each run of the step")
@pytest.mark.parametrize("concurrency", [1, 3, 50])
@on_loop
async def test_no_more_attempts_start_in_a_span_than_the_rate_allows(concurrency: int) -> None:
    clock, starts = ManualClock(auto=True), list[float]()

    async def fetch(n: int) -> int:
        starts.append(clock.monotonic())
        return n

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(mapped(fetch, 25, rate=Rate(10, per=SECOND), concurrency=concurrency))
        assert (await session.outcome()).state.done == list(range(25))
    assert most_within(starts, 1) == 10
    assert starts[-1] == pytest.approx(2, abs=0.01)  # and it is not slower than it must be


@pytest.mark.no_always_replay("a rate starts again with each run of the step")
@on_loop
async def test_retries_count() -> None:
    clock, starts, tries = ManualClock(auto=True), list[float](), Counter[int]()

    async def fetch(n: int) -> int:
        starts.append(clock.monotonic())
        tries[n] += 1
        if tries[n] == 1:
            raise ConnectionError
        return n

    async with Engine(":memory:", clock=clock) as engine:
        retry = Retry(attempts=2, first=0)
        session = await engine.start(mapped(fetch, 6, rate=Rate(2, per=10), retry=retry, concurrency=6))
        assert (await session.outcome()).state.done == list(range(6))
    assert (len(starts), most_within(starts, 10)) == (12, 2)


@pytest.mark.no_always_replay("a rate starts again with each run of the step")
@on_loop
async def test_a_pause_takes_effect_while_items_wait_for_their_turn() -> None:
    clock, starts = ManualClock(), list[int]()

    async def fetch(n: int) -> int:
        starts.append(n)
        return n

    async with Engine(":memory:", clock=clock, hold=60) as engine:
        session = await engine.start(mapped(fetch, 4, rate=Rate(2, per=3600)))
        await clock.asleep()
        assert (await session.pause(wait=True))[0].status is Status.PAUSED
        assert starts == [0, 1]
        clock.advance(3601)
        await session.resume()
        assert (await session.outcome()).state.done == [0, 1, 2, 3]
        assert sorted(starts) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("count", "per"), [(0, 1), (True, 1), (1.5, 1), (1, 0), (1, timedelta(0)), (1, "s"), (1, True)]
)
def test_a_rate_that_makes_no_sense_is_refused(count: Any, per: Any) -> None:
    with pytest.raises(ValueError, match="of a Rate is"):
        Rate(count, per)


@on_loop
async def test_something_else_than_a_rate_is_refused() -> None:
    async def fetch(n: int) -> int:
        return n

    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(mapped(fetch, 4, rate=10))).outcome()
        assert outcome.failure is not None
        assert "rate=10 must be a Rate" in outcome.failure.message
