"""Handles SIGINT and SIGTERM: ends the program after the current operation, with its sessions ready to resume.

The first signal lets all operations in flight finish. A second one aborts them immediately. A third one, or a second
one while the event loop is blocked, ends the program without waiting for the loop. In every case the program ends as it
would without an engine: with `KeyboardInterrupt`, or with exit code 143.
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
    """The signal handlers of one engine while it is open. The previous handlers are restored when it closes."""

    def __init__(self, driver: LocalDriver) -> None:
        self.driver = driver
        self.host = asyncio.current_task()
        self.loop = asyncio.get_running_loop()
        self.received: signal.Signals | None = None
        self.count = 0
        self.seen = 0
        self.former: dict[signal.Signals, Any] = {}
        self.ending: asyncio.Task[None] | None = None
        self.closing = False
        self.cancelled = False
        self.over = False
        self.gone = False  # uninstalled

    def install(self) -> None:
        """Install the handlers, in the main thread only: Python delivers signals nowhere else."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            self.former[number] = signal.signal(number, self._on_signal)

    def uninstall(self) -> None:
        """Restore the previous handlers, unless other code has replaced ours since."""
        self.gone = True
        for number in self.former:
            former = self._former(number)
            if former is not None and signal.getsignal(number) == self._on_signal:  # None: set by C code
                signal.signal(number, former)

    def _former(self, number: signal.Signals) -> Any:
        """Return the previous handler. Engines may close in any order, so handlers of closed engines are skipped."""
        former = self.former[number]
        watch = getattr(former, "__self__", None)
        return watch._former(number) if isinstance(watch, SignalWatch) and watch.gone else former

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Count the signal and notify the loop. This runs between any two bytecodes of the main thread."""
        self.received = self.received or signal.Signals(number)
        self.count += 1
        if self.count > self.seen + 1 or self.count > 2:  # the loop is blocked, or the step does not end
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
        # A program that is exiting the engine's block on its own must not be cancelled while the store closes.
        if self.host is not None and not self.closing:
            self.cancelled = True
            self.host.cancel()

    def verdict(self) -> BaseException | None:
        """Return the exception that must end the program after the engine's block has exited."""
        if self.received is None:
            return None
        if self.host is not None and self.cancelled:
            self.host.uncancel()
        return self._end_of_program()

    def _end_of_program(self) -> BaseException:
        return SystemExit(128 + signal.SIGTERM) if self.received == signal.SIGTERM else KeyboardInterrupt()
