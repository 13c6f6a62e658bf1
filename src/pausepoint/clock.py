"""Time comes from here and from nowhere else, so that a test can hold the clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

LATEST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
"""The last moment that there is, in microseconds: the end of the year 9999."""


LONGEST_NAP = 30.0
"""Seconds after which who sleeps until a moment looks at the clock again: it may have been set."""


class Clock(Protocol):
    """What the engine asks of a clock."""

    def now(self) -> int:
        """Microseconds since 1970, UTC. May jump: nothing is ordered by it."""

    def monotonic(self) -> float:
        """Seconds that only rise, for durations."""

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def to_datetime(micros: int) -> datetime:
    """An aware UTC time.

    >>> to_datetime(0).isoformat()
    '1970-01-01T00:00:00+00:00'
    """
    return EPOCH + timedelta(microseconds=micros)


def to_micros(moment: datetime) -> int:
    """The inverse of `to_datetime`; refuses a time without a zone.

    >>> to_micros(to_datetime(1_700_000_000_123_456))
    1700000000123456
    """
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; use datetime.now(UTC) or attach one")
    return (moment - EPOCH) // timedelta(microseconds=1)
