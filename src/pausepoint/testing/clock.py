"""A clock that moves only when a test moves it."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import NamedTuple

from pausepoint.clock import to_datetime, to_micros


class _Sleeper(NamedTuple):
    """A pending sleep that ends at ``due``, in seconds of the monotonic clock."""

    due: float
    waking: asyncio.Future[None]
    loop: asyncio.AbstractEventLoop


class ManualClock:
    """A `pausepoint.clock.Clock` whose time moves only when you call `advance` or `jump`.

    With ``auto=True``, a sleep advances the clock and returns immediately, so nothing ever waits. ``slept`` lists
    the length of every sleep. You can call `advance` and `jump` from any thread.

    >>> clock = ManualClock()
    >>> before = clock.now()
    >>> clock.advance(90)
    >>> clock.now() - before, clock.monotonic()
    (90000000, 90.0)
    >>> clock.jump(timedelta(days=-1))  # the wall clock is set back; durations are unaffected
    >>> clock.monotonic()
    90.0
    """

    def __init__(self, start: int | datetime = 1_700_000_000_000_000, auto: bool = False) -> None:
        self.micros = to_micros(start) if isinstance(start, datetime) else start
        self.elapsed = 0.0
        self.auto = auto
        self.slept: list[float] = []
        self._sleepers: list[_Sleeper] = []
        self._watchers: set[asyncio.Future[None]] = set()

    def now(self) -> int:
        """Return the wall-clock time in microseconds since 1970."""
        return self.micros

    @property
    def time(self) -> datetime:
        """The wall-clock time, as a timezone-aware UTC datetime."""
        return to_datetime(self.micros)

    def monotonic(self) -> float:
        """Return the seconds that have passed since the clock was created."""
        return self.elapsed

    async def sleep(self, seconds: float) -> None:
        """Return once the clock has advanced by ``seconds``."""
        self.slept.append(seconds)
        if self.auto:
            self.advance(seconds)
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        sleeper = _Sleeper(self.elapsed + seconds, loop.create_future(), loop)
        self._sleepers.append(sleeper)
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_result(None)
        try:
            await sleeper.waking
        finally:
            self._sleepers.remove(sleeper)

    @property
    def sleeping(self) -> int:
        """The number of sleeps that are pending."""
        return sum(not sleeper.waking.done() for sleeper in self._sleepers)

    async def asleep(self) -> None:
        """Wait until a sleep is pending, so that advancing the clock has an effect."""
        while not self.sleeping:
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.add(watcher)
            try:
                await watcher
            finally:
                self._watchers.discard(watcher)

    def advance(self, seconds: float | timedelta) -> None:
        """Let time pass, and end the sleeps that are due."""
        passed = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if passed < 0:
            raise ValueError(
                f"advance() cannot move time backwards ({passed:g} s). Use jump() to set the wall clock back."
            )
        self.elapsed += passed
        self.micros += round(passed * 1_000_000)
        for sleeper in list(self._sleepers):
            if sleeper.due <= self.elapsed + 1e-9:
                _wake(sleeper)

    def jump(self, seconds: float | timedelta) -> None:
        """Set the wall clock forward or back, without affecting durations or pending sleeps."""
        moved = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        self.micros += round(moved * 1_000_000)


def _wake(sleeper: _Sleeper) -> None:
    try:
        here = asyncio.get_running_loop() is sleeper.loop
    except RuntimeError:
        here = False
    if here:
        _finish(sleeper.waking)
    else:
        sleeper.loop.call_soon_threadsafe(_finish, sleeper.waking)


def _finish(waking: asyncio.Future[None]) -> None:
    if not waking.done():
        waking.set_result(None)
