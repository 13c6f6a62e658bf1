"""SIGINT and SIGTERM: end the program after the current operation and leave its sessions ready.

The first signal lets every operation that is in flight finish, a second one aborts at
once, a third one (or a second that finds the event loop blocked) ends the program where it
stands. Otherwise it ends as it would have without us: with `KeyboardInterrupt`, or with
exit code 143.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from types import FrameType
from typing import Any

from pausepoint.name import NAME
from pausepoint.runtime.driver import LocalDriver


class SignalWatch:
    """The signal handlers of one engine, for as long as it is open. The former ones come back when it closes."""

    def __init__(self, driver: LocalDriver) -> None:
        self.driver = driver
        self.host = asyncio.current_task()
        self.loop = asyncio.get_running_loop()
        self.received: signal.Signals | None = None
        self.count = 0
        self.seen = 0
        self.former: dict[signal.Signals, Any] = {}
        self.ending: asyncio.Task[None] | None = None
        self.leaving = False
        self.cancelled = False
        self.over = False
        self.gone = False  # uninstalled

    def install(self) -> None:
        """Only the main thread can take signals; elsewhere the program's own handlers stay."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            self.former[number] = signal.signal(number, self._on_signal)

    def uninstall(self) -> None:
        """Put back what was there before, unless somebody else has taken the signal over since."""
        self.gone = True
        for number in self.former:
            former = self._former(number)
            if former is not None and signal.getsignal(number) == self._on_signal:  # None: set by C code
                signal.signal(number, former)

    def _former(self, number: signal.Signals) -> Any:
        """Who had the signal before. Engines may be closed in any order: one that is gone is passed over."""
        former = self.former[number]
        watch = getattr(former, "__self__", None)
        return watch._former(number) if isinstance(watch, SignalWatch) and watch.gone else former

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Runs between any two bytecodes of the main thread: it only counts, and tells the loop."""
        self.received = self.received or signal.Signals(number)
        self.count += 1
        if self.count > self.seen + 1 or self.count > 2:  # the loop does not answer, or the step does not end
            self.uninstall()
            self.over = True
            raise self._end_of_program()
        self.loop.call_soon_threadsafe(self._on_loop, signal.Signals(number))

    def _on_loop(self, number: signal.Signals) -> None:
        self.seen += 1
        if self.over:
            return
        if self.seen > 1:
            self.driver.abort(f"{number.name} received twice")
        else:
            self.ending = self.loop.create_task(self._end(number), name=f"{NAME} ending")

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
        return self._end_of_program()

    def _end_of_program(self) -> BaseException:
        return SystemExit(128 + signal.SIGTERM) if self.received == signal.SIGTERM else KeyboardInterrupt()
