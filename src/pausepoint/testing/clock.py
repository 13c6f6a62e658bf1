"""A clock that a test holds in its hand."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import NamedTuple

from pausepoint.clock import to_datetime, to_micros


class _Sleeper(NamedTuple):
    """Somebody who sleeps until ``due``, in seconds of the monotonic clock."""

    due: float
    waking: asyncio.Future[None]
    loop: asyncio.AbstractEventLoop


class ManualClock:
    """Time stands still until `advance` (or `jump`) moves it. A `pausepoint.clock.Clock`.

    With ``auto`` a sleep moves the time itself and returns at once, so nothing ever waits. All sleeps are
    noted in ``slept``. `advance` and `jump` may be called from any thread.

    >>> clock = ManualClock()
    >>> before = clock.now()
    >>> clock.advance(90)
    >>> clock.now() - before, clock.monotonic()
    (90000000, 90.0)
    >>> clock.jump(timedelta(days=-1))  # somebody sets the wall clock; durations do not notice
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
        """Microseconds since 1970, as the wall clock shows."""
        return self.micros

    @property
    def time(self) -> datetime:
        """The wall clock's time, as an aware UTC time."""
        return to_datetime(self.micros)

    def monotonic(self) -> float:
        """Seconds that have passed since the clock was made."""
        return self.elapsed

    async def sleep(self, seconds: float) -> None:
        """Return once time has been moved that far."""
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
        """How many sleep at this moment."""
        return sum(not sleeper.waking.done() for sleeper in self._sleepers)

    async def asleep(self) -> None:
        """Wait until somebody sleeps: then moving the time makes a difference."""
        while not self.sleeping:
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.add(watcher)
            try:
                await watcher
            finally:
                self._watchers.discard(watcher)

    def advance(self, seconds: float | timedelta) -> None:
        """Let time pass; wake who has slept long enough."""
        passed = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if passed < 0:
            raise ValueError(f"time does not pass backwards ({passed:g} s); use jump to set the wall clock back")
        self.elapsed += passed
        self.micros += round(passed * 1_000_000)
        for sleeper in list(self._sleepers):
            if sleeper.due <= self.elapsed + 1e-9:
                _wake(sleeper)

    def jump(self, seconds: float | timedelta) -> None:
        """Set the wall clock forward or back; durations do not notice."""
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
