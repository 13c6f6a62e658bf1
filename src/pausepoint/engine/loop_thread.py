"""Runs an event loop in its own thread, and handles Ctrl+C and SIGTERM in the thread that waits for it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, TypeVar

from pausepoint.errors import CallRefused, StoreClosed
from pausepoint.name import NAME
from pausepoint.runtime.signals import Handlers, closed_by_signal, end_of_program, is_main_thread, tell

R = TypeVar("R")

LOOK_EVERY = 0.5
"""Seconds between two looks for a signal while the main thread waits.

Python runs signal handlers in the main thread only. A signal that arrives right before the thread begins to wait, or
that the system delivers to another thread, does not interrupt the wait.
"""


class Interrupts(Handlers):
    """Handles Ctrl+C and SIGTERM while a blocking engine is open, unless the program has handlers of its own.

    The first signal interrupts the main thread, which exits the engine's block and waits there for the operations in
    flight. A terminal shows which ones. A second signal aborts them. A third one ends the program without waiting any
    longer.
    """

    def __init__(self, abort: Callable[[str], None], pending: Callable[[], list[str]]) -> None:
        super().__init__()
        self._abort = abort
        self._pending_work = pending
        self._pid = os.getpid()
        self._calls: list[Callable[[None], None]] = []
        self._pending: signal.Signals | None = None
        self._closing = False
        self._count = 0
        self._received: signal.Signals | None = None
        self.reason = ""

    def uninstall(self) -> None:
        """Restore the previous handlers, unless other code has replaced ours since."""
        self._closing = False
        super().uninstall()

    def hold(self, wake: Callable[[None], None]) -> None:
        """Begin a call: until `release`, a signal wakes the call, and the call raises it.

        The handler itself must not raise, because Python drops exceptions that are raised inside a finalizer.
        """
        if is_main_thread():
            self._calls.append(wake)

    def release(self) -> None:
        """End a call, and raise a signal that arrived during it."""
        if is_main_thread():
            self._calls.pop()
        self.raise_pending()

    def raise_pending(self) -> None:
        """Raise a signal that arrived while the main thread was in a call."""
        if self._pending is not None and is_main_thread():
            number, self._pending = self._pending, None
            raise end_of_program(number)

    def closing(self, error: BaseException | None) -> str:
        """Count signals from now on; a signal that caused the closing is the first. Return the reason to record."""
        self._closing = is_main_thread()
        if isinstance(error, KeyboardInterrupt):
            self.reason = "SIGINT received"
        elif isinstance(error, SystemExit) and error.code == 128 + signal.SIGTERM:
            self.reason = "SIGTERM received"
        self._count = int(bool(self.reason))
        if self._count and self._closing and self.former:
            tell(self.reason, self._pending_work)
        return self.reason

    def verdict(self) -> BaseException | None:
        """Return the exception that must end the program, if a signal arrived while the engine was closing."""
        return None if self._received is None else end_of_program(self._received)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal. This runs between any two bytecodes of the main thread."""
        name = signal.Signals(number)
        if os.getpid() != self._pid:
            raise end_of_program(name)
        if self._closing:
            self._count_one_more(name)
        elif self._calls:
            self._pending = self._pending or name
            self._calls[-1](None)
        else:
            raise end_of_program(name)

    def _count_one_more(self, name: signal.Signals) -> None:
        self._count += 1
        self._received = self._received or name
        if self._count == 1:
            tell(f"{name.name} received", self._pending_work)
        if self._count > 2:
            self.uninstall()
            raise end_of_program(self._received)
        if self._count == 2:
            self._abort(f"{name.name} received twice")


class LoopThread:
    """An event loop in its own thread, with calls into it that block until their result is available."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._over = False
        self._pid = os.getpid()
        # Reentrant: a signal handler may run in the main thread while that thread holds the lock.
        self._lock = threading.RLock()
        # A daemon: an engine that was not closed is closed at program exit, and must not prevent that exit.
        self._thread = threading.Thread(target=self._serve, name=f"{NAME} loop", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the system has no more threads
            self._runner.close()
            raise
        except BaseException:  # an interrupt: the thread may have started, and then closes the loop itself
            self._over = True
            self.post(self._loop.stop)
            raise

    def _serve(self) -> None:
        with self._runner:
            while not self._over:
                # A step that calls sys.exit() stops the loop. Its callers get the error; other sessions continue.
                with suppress(SystemExit, KeyboardInterrupt):
                    self._loop.run_forever()

    @property
    def is_over(self) -> bool:
        """Whether the loop accepts no more calls."""
        return self._over

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is the loop's thread."""
        return not self._over and threading.get_ident() == self._thread.ident  # the system reuses thread ids

    @property
    def is_ours(self) -> bool:
        """Whether this is the process that created the thread. Threads do not survive a fork."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise if a call into the loop could never return."""
        if not self.is_ours:
            raise StoreClosed(
                "This engine was opened by another process. Open a new Engine in this process after fork()."
            )
        if self.is_here:
            raise CallRefused(
                "A blocking method was called on the engine's own event loop, where it would wait for itself forever."
                " Call it from a plain `def` step, or with `await asyncio.to_thread(…)`."
            )
        if self._over and self._interrupts.reason:
            raise StoreClosed(closed_by_signal(self._interrupts.reason))
        if self._over:
            raise StoreClosed("The engine is closed. Open another one: `with Engine(…) as engine:`.")

    def call(self, verb: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, **kwargs: Any) -> R:
        """Run a coroutine function on the loop and wait for it. An interrupted wait cancels it."""
        ended: SimpleQueue[object] = SimpleQueue()  # unlike an Event, safe to use in a signal handler
        self._interrupts.hold(ended.put)
        try:
            return self._wait(ended, lambda: verb(*args, **kwargs))
        finally:
            self._interrupts.release()

    def _wait(self, ended: SimpleQueue[object], begin: Callable[[], Coroutine[Any, Any, R]]) -> R:
        self.check()
        with self._lock:  # no call may be scheduled after the loop's end, where it would wait forever
            self.check()
            future = asyncio.run_coroutine_threadsafe(begin(), self._loop)
        try:
            future.add_done_callback(ended.put)
            _wait_for(ended)
            self._interrupts.raise_pending()
            return future.result()
        except CancelledError:
            raise StoreClosed("The engine was closed while this call waited for it. Open another one.") from None
        finally:
            future.cancel()

    def look(self, fact: Callable[[], R]) -> R:
        """Evaluate ``fact`` on the loop, where nothing changes meanwhile, and return its result."""

        async def there() -> R:
            return fact()

        return self.call(there)

    def iterate(self, stream: AsyncIterator[R]) -> Iterator[R]:
        """Yield the items of an async iterator, blocking for each one.

        If the caller stops early, the stream is dropped with this generator, and the loop's own hook closes it.
        """
        while (found := self.call(_next, stream)) is not None:
            yield found[0]

    def post(self, act: Callable[..., object], *args: object) -> None:
        """Schedule a function on the loop without waiting for it."""
        with suppress(RuntimeError):  # the loop is closed, so there is nothing left to do
            self._loop.call_soon_threadsafe(act, *args)

    def stop(self) -> None:
        """End the loop. Calls that still wait raise `StoreClosed`."""
        with self._lock:
            self._over = True
            self.post(self._loop.stop)
        self._thread.join()


def _wait_for(ended: SimpleQueue[object]) -> None:
    """Wait for an item. The main thread wakes now and then, so that Python can run its signal handlers."""
    timeout = LOOK_EVERY if is_main_thread() else None
    while True:
        with suppress(Empty):
            ended.get(timeout=timeout)
            return


async def _next(stream: AsyncIterator[R]) -> tuple[R] | None:
    try:
        return (await anext(stream),)
    except StopAsyncIteration:
        return None
