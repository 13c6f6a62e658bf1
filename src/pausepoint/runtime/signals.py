"""Handles SIGINT and SIGTERM: ends the program after the current operation, with its sessions ready to resume.

Signals belong to the program. An engine handles a signal only where the program does not:

- **The default handler** (Python's own, or the one of ``asyncio.run``): the first signal lets all operations in flight
  finish, and a terminal shows which ones. A second one aborts them immediately. A third one, or a second one while the
  event loop is blocked, ends the program without waiting for the loop. In every case the program ends as it would
  without an engine: with `KeyboardInterrupt`, or with exit code 143.
- **One function of the program for both signals**, as servers such as uvicorn have: that function is called and decides
  how the program ends. The engine also stops its sessions after their current operation, so that requests which wait
  for a session are answered and the server can end. A second signal aborts the operations.
- **Any other handler, and an ignored signal**: the engine does nothing.

Ctrl+Z (SIGTSTP) suspends the program between two transactions, unless the program has a handler of its own:
`pausepoint.stores.suspension`.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from pausepoint.name import NAME
from pausepoint.runtime.driver import LocalDriver
from pausepoint.stores.suspension import SUSPENSION

SIGNALS = (signal.SIGINT, signal.SIGTERM)

ECHO = 0.02
"""Seconds within which a repeated signal counts as one. ``timeout`` signals the process and then its group."""


FEW = 3
"""How many of the operations that delay the end of the program are named."""


def is_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def end_of_program(number: signal.Signals) -> BaseException:
    """Return the exception that ends the program as the signal would."""
    if number != signal.SIGTERM:
        return KeyboardInterrupt()
    _leave_ipython()
    return SystemExit(128 + signal.SIGTERM)


def _leave_ipython() -> None:
    """Make IPython or a Jupyter kernel exit after the cell. It prints a `SystemExit` of a cell and continues."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        shell.ask_exit()


def closed_by_signal(reason: str) -> str:
    """Return the message of a call after a signal has closed the engine. ``reason`` is why the engine ended.

    >>> closed_by_signal("SIGTERM received")[:58]
    'SIGTERM closed this engine. Its sessions are stored and ca'
    """
    return (
        f"{reason.split()[0]} closed this engine. Its sessions are stored and can be resumed. Let the program exit, or"
        " open the engine with Engine(signals=False) if the program must continue after the signal."
    )


def tell(reason: str, pending: Callable[[], list[str]]) -> None:
    """Tell a person at the terminal what the program waits for. A log or another program gets nothing on stderr."""
    with suppress(Exception):  # the program may have replaced or closed stderr, or may be writing to it
        if (names := pending()) and sys.stderr.isatty():
            more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
            again = "Press Ctrl+C again to abort it." if reason.startswith("SIGINT") else "A second one aborts it."
            what = f"Waiting for {', '.join(names[:FEW])}{more}; finished work is kept. {again}"
            print(f"\n{NAME}: {reason}. {what}", file=sys.stderr, flush=True)


class Handlers:
    """The signal handlers of one engine while it is open. The previous handlers are restored when it closes."""

    def __init__(self) -> None:
        self.former: dict[signal.Signals, Any] = {}
        self.chained: set[signal.Signals] = set()  # the program handles them too
        self.gone = False  # uninstalled

    def install(self) -> None:
        """Install the handlers, in the main thread only: Python delivers signals nowhere else."""
        if is_main_thread():
            found = {number: signal.getsignal(number) for number in SIGNALS}
            for number in self._wanted(found):
                self.former[number] = signal.signal(number, self._on_signal)
            SUSPENSION.install(self)

    def _wanted(self, found: dict[signal.Signals, Any]) -> list[signal.Signals]:
        """Return the signals to handle, given the present handlers."""
        return [number for number, handler in found.items() if is_default(number, handler)]

    def uninstall(self) -> None:
        """Restore the previous handlers, unless other code has replaced ours since."""
        self.gone = True
        for number in self.former if is_main_thread() else ():
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, self.before(number))
        if is_main_thread():
            SUSPENSION.uninstall(self)

    def before(self, number: signal.Signals) -> Any:
        """Return the previous handler. Engines may close in any order, so handlers of closed engines are skipped."""
        former = self.former[number]
        outer = getattr(former, "__self__", None)
        return outer.before(number) if isinstance(outer, Handlers) and outer.gone else former

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        raise NotImplementedError


def is_default(number: signal.Signals, handler: Any) -> bool:
    """Return whether the program has no handler of its own: this one is Python's, asyncio's, or of another engine."""
    if isinstance(handler, functools.partial):  # asyncio.run handles SIGINT by cancelling the main task
        return isinstance(getattr(handler.func, "__self__", None), asyncio.Runner)
    outer = getattr(handler, "__self__", None)
    if isinstance(outer, Handlers):
        return number not in outer.chained
    return handler in (signal.SIG_DFL, signal.default_int_handler)


class SignalWatch(Handlers):
    """The signal handlers of one engine on its own event loop. ``stop`` stops its sessions, ``close`` closes it."""

    def __init__(
        self, driver: LocalDriver, stop: Callable[[str], Awaitable[None]], close: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__()
        self.driver = driver
        self.stop = stop
        self.close = close
        self.host = asyncio.current_task()
        self.loop = asyncio.get_running_loop()
        self.received: signal.Signals | None = None
        self.last = 0.0
        self.count = 0
        self.seen = 0
        self.ending: asyncio.Task[None] | None = None
        self.closing = False
        self.cancelled = False
        self.over = False

    def _wanted(self, found: dict[signal.Signals, Any]) -> list[signal.Signals]:
        if self._is_of_the_program(found[signal.SIGTERM]) and found[signal.SIGTERM] == found[signal.SIGINT]:
            self.chained = set(found)
            return list(found)
        return super()._wanted(found)

    def _is_of_the_program(self, handler: Any) -> bool:
        """Return whether this is a function of the program, or of an engine that has chained one.

        The event loop has one handler for the functions of all signals, so it says nothing about them.
        """
        outer = getattr(handler, "__self__", None)
        if isinstance(outer, Handlers):
            return bool(outer.chained)
        own = outer is not self.loop and not str(getattr(handler, "__module__", "")).startswith("asyncio.")
        return own and callable(handler) and not is_default(signal.SIGTERM, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Count the signal and notify the loop. This runs between any two bytecodes of the main thread."""
        name = signal.Signals(number)
        if not self._is_echo():
            self.count += 1
            self._notify(name)
        if name in self.chained:
            self.before(name)(number, frame)

    def _is_echo(self) -> bool:
        last, self.last = self.last, time.monotonic()
        return self.last - last < ECHO

    def _notify(self, name: signal.Signals) -> None:
        if name in self.chained:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self._on_loop, name)
            return
        self.received = self.received or name
        if self.count == 1:
            tell(f"{name.name} received", lambda: self.driver.in_flight)
        if self.count > self.seen + 1 or self.count > 2:  # the loop is blocked, or the step does not end
            self.uninstall()
            self.over = True
            raise end_of_program(self.received)
        try:
            self.loop.call_soon_threadsafe(self._on_loop, name)
        except RuntimeError:  # the loop is closed, and the engine was not
            raise end_of_program(name) from None

    def _on_loop(self, name: signal.Signals) -> None:
        self.seen += 1
        if self.over:
            return
        if self.seen > 1:
            self.driver.abort(f"{name.name} received twice")
        else:
            end = self._release if name in self.chained else self._end
            self.ending = self.loop.create_task(end(name), name=f"{NAME} ending")

    async def _release(self, name: signal.Signals) -> None:
        """Stop the sessions and answer everybody who waits for one. The program ends, and the engine with it."""
        await self.stop(f"{name.name} received")
        self.driver.release()

    async def _end(self, name: signal.Signals) -> None:
        await self.stop(f"{name.name} received")
        # A program that is exiting the engine's block on its own must not be cancelled while the store closes.
        if self.closing:
            return
        if self.host is None or self.host.done():  # no block is left to exit, as in a notebook
            await self.close()
            self.loop.call_soon(self._raise, name)
            return
        self.cancelled = True
        self.host.cancel()

    def _raise(self, name: signal.Signals) -> None:
        raise end_of_program(name)

    def verdict(self) -> BaseException | None:
        """Return the exception that must end the program after the engine's block has exited."""
        if self.received is None:
            return None
        if self.host is not None and self.cancelled:
            self.host.uncancel()
        return end_of_program(self.received)
