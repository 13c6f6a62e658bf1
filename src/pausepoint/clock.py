"""The only source of time, so that a test can control the clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

LATEST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
"""The latest time that can be stored, in microseconds: the end of the year 9999."""

LONGEST_NAP = 30.0
"""The longest single sleep, in seconds. Then the sleeper reads the clock again, because it may have been changed."""


class Clock(Protocol):
    """The clock that the engine uses."""

    def now(self) -> int:
        """Return microseconds since 1970 (UTC). May jump, so nothing is ordered by it."""

    def monotonic(self) -> float:
        """Return seconds that never decrease, for measuring durations."""

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""


class SystemClock:
    """The system clock."""

    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def to_datetime(micros: int) -> datetime:
    """Return a timezone-aware UTC datetime.

    >>> to_datetime(0).isoformat()
    '1970-01-01T00:00:00+00:00'
    """
    return EPOCH + timedelta(microseconds=micros)


def to_micros(moment: datetime) -> int:
    """Return microseconds since 1970, the inverse of `to_datetime`. Raises `ValueError` without a time zone.

    >>> to_micros(to_datetime(1_700_000_000_123_456))
    1700000000123456
    """
    if not isinstance(moment, datetime):
        raise TypeError(f"{moment!r:.80} is not a datetime. Pass one with a time zone, such as datetime.now(UTC).")
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone. Use datetime.now(UTC), or set tzinfo.")
    return (moment - EPOCH) // timedelta(microseconds=1)
