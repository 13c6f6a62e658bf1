"""SIGINT and SIGTERM: end the program after the current operation and leave its sessions ready.

The first signal lets every operation that is in flight finish, a second one aborts at
once. Then the program that entered the engine ends as it would have without us: with
`KeyboardInterrupt`, or with exit code 143.
"""

from __future__ import annotations

import asyncio
import signal
import threading

from holdfast.drivers.local import LocalDriver


class SignalWatch:
    """Signal handlers of one event loop, for as long as its engine is open."""

    def __init__(self, driver: LocalDriver) -> None:
        self.driver = driver
        self.host = asyncio.current_task()
        self.received: signal.Signals | None = None
        self.former: dict[signal.Signals, object] = {}
        self.ending: asyncio.Task[None] | None = None
        self.leaving = False
        self.cancelled = False

    def install(self) -> None:
        """Only the main thread's loop can take signals; elsewhere the program's own handlers stay."""
        if threading.current_thread() is not threading.main_thread():
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            self.former[number] = signal.getsignal(number)
            loop.add_signal_handler(number, self._on_signal, number)

    def uninstall(self) -> None:
        """Put back what was there before."""
        loop = asyncio.get_running_loop()
        for number, former in self.former.items():
            loop.remove_signal_handler(number)
            if former is not None:  # None: set by C code, cannot be put back
                signal.signal(number, former)  # type: ignore[arg-type]  # exactly what getsignal returned
        self.former.clear()

    def _on_signal(self, number: signal.Signals) -> None:
        again = self.received is not None
        self.received = self.received or number
        loop = asyncio.get_running_loop()
        if again:
            self.driver.abort(f"{number.name} received twice")
        else:
            self.ending = loop.create_task(self._end(number), name="holdfast ending")

    async def _end(self, number: signal.Signals) -> None:
        await self.driver.stop(f"{number.name} received")
        # A program that is leaving the engine's block by itself must not be cut off while the store closes.
        if self.host is not None and not self.leaving:
            self.cancelled = True
            self.host.cancel()

    def verdict(self) -> BaseException | None:
        """How the program has to end, once the engine's block is left."""
        if self.received is None:
            return None
        if self.host is not None and self.cancelled:
            self.host.uncancel()
        return KeyboardInterrupt() if self.received == signal.SIGINT else SystemExit(128 + self.received)
