"""Times are whole microseconds, and turn into aware times and back without loss."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pausepoint.clock import Clock, SystemClock, to_datetime, to_micros

OFFSETS = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
def test_every_microsecond_survives_the_way_through_a_datetime(micros: int) -> None:
    moment = to_datetime(micros)
    assert moment.tzinfo is UTC
    assert to_micros(moment) == micros


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=OFFSETS))
def test_a_moment_is_the_same_in_every_zone(moment: datetime) -> None:
    assert to_datetime(to_micros(moment)) == moment
    assert to_micros(moment) == to_micros(moment.astimezone(UTC))


def test_a_time_without_a_zone_is_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"has no time zone\. Use datetime\.now\(UTC\)"):
        to_micros(datetime(2024, 1, 1))


def test_the_system_clock_tells_the_time_of_the_machine() -> None:
    clock: Clock = SystemClock()
    before = time.time_ns() // 1000
    now = clock.now()
    after = time.time_ns() // 1000
    assert before <= now <= after


def test_the_monotonic_clock_only_rises() -> None:
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(100)]
    assert readings == sorted(readings)


def test_a_sleep_gives_others_their_turn_and_ends() -> None:
    seen: list[str] = []

    async def other() -> None:
        seen.append("other")

    async def main() -> None:
        task = asyncio.create_task(other())
        await SystemClock().sleep(0)
        seen.append("slept")
        await task

    asyncio.run(main())
    assert seen == ["other", "slept"]


def test_a_sleep_lasts_as_long_as_asked() -> None:
    clock = SystemClock()
    started = clock.monotonic()
    asyncio.run(clock.sleep(0.01))
    assert clock.monotonic() - started >= 0.01
