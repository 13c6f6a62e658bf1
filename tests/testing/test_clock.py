"""The manual clock: time passes when a test says so, and whoever sleeps notices."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from pausepoint.clock import Clock
from pausepoint.testing import ManualClock
from tests.support.loop import on_loop


@on_loop
async def test_a_sleep_ends_when_time_was_moved_far_enough_and_not_before() -> None:
    clock = ManualClock()
    sleep = asyncio.create_task(clock.sleep(10))
    await clock.asleep()
    clock.advance(9.5)
    await asyncio.sleep(0)
    assert not sleep.done()
    clock.advance(timedelta(milliseconds=500))
    await sleep
    assert (clock.slept, clock.sleeping, clock.monotonic()) == ([10], 0, 10)


@on_loop
async def test_a_jump_of_the_wall_clock_wakes_nobody() -> None:
    clock = ManualClock()
    before = clock.now()
    sleep = asyncio.create_task(clock.sleep(10))
    await clock.asleep()
    clock.jump(timedelta(days=-3))
    clock.jump(3600)
    await asyncio.sleep(0)
    assert not sleep.done()
    assert (clock.now() - before, clock.monotonic()) == ((3600 - 3 * 86_400) * 1_000_000, 0)
    clock.advance(10)
    await sleep


@on_loop
async def test_sleepers_wake_in_the_order_of_their_times_not_of_their_beginnings() -> None:
    clock = ManualClock()
    woken: list[int] = []

    async def sleeper(seconds: int) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    async with asyncio.TaskGroup() as group:
        for seconds in (30, 10, 20):
            group.create_task(sleeper(seconds))
        await asyncio.sleep(0)
        assert clock.sleeping == 3
        for _ in range(3):
            clock.advance(10)
            await asyncio.sleep(0)
    assert woken == [10, 20, 30]


@on_loop
async def test_an_automatic_clock_never_makes_anybody_wait() -> None:
    clock = ManualClock(auto=True)
    before = clock.now()
    await clock.sleep(86_400)
    assert clock.now() - before == 86_400_000_000


@on_loop
async def test_waiting_for_a_sleeper_lasts_until_there_is_one() -> None:
    clock = ManualClock()
    watching = asyncio.create_task(clock.asleep())
    await asyncio.sleep(0)
    assert not watching.done()
    sleep = asyncio.create_task(clock.sleep(1))
    await watching
    sleep.cancel()
    await asyncio.gather(sleep, return_exceptions=True)
    assert clock.sleeping == 0


@on_loop
async def test_time_may_be_moved_from_another_thread() -> None:
    clock = ManualClock()
    sleep = asyncio.create_task(clock.sleep(5))
    await clock.asleep()
    mover = threading.Thread(target=clock.advance, args=(5,))
    mover.start()
    await sleep
    mover.join()


def test_time_does_not_pass_backwards() -> None:
    with pytest.raises(ValueError, match=r"Use jump\(\) to set the wall clock back"):
        ManualClock().advance(-1)


def test_it_starts_where_it_is_told_and_is_a_clock() -> None:
    start = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    clock: Clock = ManualClock(start)
    assert isinstance(clock, ManualClock)
    clock.advance(timedelta(hours=1))
    assert clock.time == start + timedelta(hours=1)
