"""A clock that a test holds in its hand."""

from __future__ import annotations

import asyncio


class ManualClock:
    """Time stands still until `advance` (or `jump`) moves it.

    With ``auto`` a sleep moves the time itself and returns at once. All sleeps are noted in ``slept``.
    """

    def __init__(self, start: int = 1_700_000_000_000_000, auto: bool = False) -> None:
        self.micros = start
        self.elapsed = 0.0
        self.auto = auto
        self.slept: list[float] = []
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self._asleep: asyncio.Event | None = None

    def now(self) -> int:
        return self.micros

    def monotonic(self) -> float:
        return self.elapsed

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.auto:
            self.advance(seconds)
            await asyncio.sleep(0)
            return
        waking: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.elapsed + seconds, waking))
        if self._asleep is not None:
            self._asleep.set()
        await waking

    async def asleep(self) -> None:
        """Wait until somebody sleeps."""
        while not any(not waking.done() for _, waking in self._sleepers):
            self._asleep = asyncio.Event()
            await self._asleep.wait()

    def advance(self, seconds: float) -> None:
        """Let time pass; wake who has slept long enough."""
        self.elapsed += seconds
        self.micros += int(seconds * 1_000_000)
        for due, waking in self._sleepers:
            if due <= self.elapsed + 1e-9 and not waking.done():
                waking.set_result(None)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back; durations do not notice."""
        self.micros += int(seconds * 1_000_000)
