"""An event loop in a thread of its own, and what Ctrl+C and SIGTERM mean to the thread that waits for it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from queue import SimpleQueue
from types import FrameType
from typing import Any, TypeVar

from pausepoint.errors import CallRefused, StoreClosed
from pausepoint.name import NAME

R = TypeVar("R")


class Interrupts:
    """Ctrl+C and SIGTERM while a blocking engine is open.

    The main thread is interrupted where it stands, so it leaves the engine's block; that waits for the operations in
    flight. A second signal aborts them, a third one ends the program without waiting any longer.
    """

    def __init__(self, abort: Callable[[str], None]) -> None:
        self._abort = abort
        self._former: dict[signal.Signals, Any] = {}
        self._pid = os.getpid()
        self._calls: list[Callable[[None], None]] = []
        self._pending: signal.Signals | None = None
        self._closing = False
        self._count = 0
        self._received: signal.Signals | None = None

    def install(self) -> None:
        """Only the main thread can take signals. One that the program was told to ignore stays ignored."""
        if _is_main():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._former[number] = signal.signal(number, self._on_signal)

    def uninstall(self) -> None:
        """Put back what was there before, unless somebody else has taken the signal over since."""
        self._closing = False
        if _is_main():
            for number, former in self._former.items():
                if former is not None and signal.getsignal(number) == self._on_signal:
                    signal.signal(number, former)

    def hold(self, wake: Callable[[None], None]) -> None:
        """A call begins: until `release` a signal wakes it, and is raised by it.

        Raised by the handler itself it can be lost: Python drops what is raised inside of a finalizer.
        """
        if _is_main():
            self._calls.append(wake)

    def release(self) -> None:
        """The call is over."""
        if _is_main():
            self._calls.pop()
        self.raise_pending()

    def raise_pending(self) -> None:
        """Raise what came while the main thread was in a call."""
        if self._pending is not None and _is_main():
            number, self._pending = self._pending, None
            raise _end_of_program(number)

    def closing(self, error: BaseException | None) -> str:
        """From now on signals are counted; one that led here is the first. The reason to give for the end, if any."""
        self._closing = _is_main()
        reason = ""
        if isinstance(error, KeyboardInterrupt):
            reason = "SIGINT received"
        elif isinstance(error, SystemExit) and error.code == 128 + signal.SIGTERM:
            reason = "SIGTERM received"
        self._count = int(bool(reason))
        return reason

    def verdict(self) -> BaseException | None:
        """How the program has to end, if a signal came while the engine was closing."""
        return None if self._received is None else _end_of_program(self._received)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Runs between any two bytecodes of the main thread."""
        name = signal.Signals(number)
        if os.getpid() != self._pid:
            raise _end_of_program(name)
        if self._closing:
            self._count_one_more(name)
        elif self._calls:
            self._pending = self._pending or name
            self._calls[-1](None)
        else:
            raise _end_of_program(name)

    def _count_one_more(self, name: signal.Signals) -> None:
        self._count += 1
        self._received = self._received or name
        if self._count > 2:
            self.uninstall()
            raise _end_of_program(self._received)
        if self._count == 2:
            self._abort(f"{name.name} received twice")


def _is_main() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _end_of_program(number: signal.Signals) -> BaseException:
    return SystemExit(128 + signal.SIGTERM) if number == signal.SIGTERM else KeyboardInterrupt()


class LoopThread:
    """An event loop in a thread of its own, and calls into it that wait for their result."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._over = False
        self._pid = os.getpid()
        # Reentrant: a signal handler of the main thread may come while that thread has it.
        self._lock = threading.RLock()
        # A daemon: an engine that nobody closed is closed as the program exits, and must not keep it from exiting.
        self._thread = threading.Thread(target=self._serve, name=f"{NAME} loop", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the system has no more threads
            self._runner.close()
            raise
        except BaseException:  # an interrupt: the thread may have begun, and closes the loop itself
            self._over = True
            self.post(self._loop.stop)
            raise

    def _serve(self) -> None:
        with self._runner:
            while not self._over:
                # A step that calls sys.exit() stops the loop. Whoever waits for it is told; the others go on.
                with suppress(SystemExit, KeyboardInterrupt):
                    self._loop.run_forever()

    @property
    def is_over(self) -> bool:
        """Whether it takes no more calls."""
        return self._over

    @property
    def is_here(self) -> bool:
        """Whether this is the loop's own thread."""
        return not self._over and threading.get_ident() == self._thread.ident  # the system uses numbers again

    @property
    def is_ours(self) -> bool:
        """Whether this is still the process that made it: threads do not survive a fork."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Refuse a call that could never return."""
        if not self.is_ours:
            raise StoreClosed("this engine was opened by another process; open an Engine of its own after fork()")
        if self.is_here:
            raise CallRefused(
                "a blocking verb was called on the engine's own event loop, where it would wait for itself for ever;"
                " call it from a plain `def` step, or with `await asyncio.to_thread(…)`"
            )
        if self._over:
            raise StoreClosed("the engine is closed; open another one: `with Engine(…) as engine:`")

    def call(self, verb: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, **kwargs: Any) -> R:
        """Run a coroutine function on the loop and wait for it. An interrupted wait cancels it."""
        ended: SimpleQueue[object] = SimpleQueue()  # may be put into by a signal handler, unlike an event
        self._interrupts.hold(ended.put)
        try:
            return self._wait(ended, lambda: verb(*args, **kwargs))
        finally:
            self._interrupts.release()

    def _wait(self, ended: SimpleQueue[object], begin: Callable[[], Coroutine[Any, Any, R]]) -> R:
        self.check()
        with self._lock:  # so that nothing is handed over behind the loop's end, where it would wait for ever
            self.check()
            future = asyncio.run_coroutine_threadsafe(begin(), self._loop)
        try:
            future.add_done_callback(ended.put)
            ended.get()
            self._interrupts.raise_pending()
            return future.result()
        except CancelledError:
            raise StoreClosed("the engine was closed while this call waited for it") from None
        finally:
            future.cancel()

    def look(self, fact: Callable[[], R]) -> R:
        """Have something looked up on the loop, where nothing changes meanwhile."""

        async def there() -> R:
            return fact()

        return self.call(there)

    def iterate(self, stream: AsyncIterator[R]) -> Iterator[R]:
        """What an async iterator gives, one blocking step after another.

        Left early, the stream is dropped with this generator, and the loop's own hook closes it over there.
        """
        while (found := self.call(_next, stream)) is not None:
            yield found[0]

    def post(self, act: Callable[..., object], *args: object) -> None:
        """Have something done on the loop, without waiting."""
        with suppress(RuntimeError):  # closed meanwhile: nothing is left to be done
            self._loop.call_soon_threadsafe(act, *args)

    def stop(self) -> None:
        """End the loop. Calls that still wait are told that the engine was closed."""
        with self._lock:
            self._over = True
            self.post(self._loop.stop)
        self._thread.join()


async def _next(stream: AsyncIterator[R]) -> tuple[R] | None:
    try:
        return (await anext(stream),)
    except StopAsyncIteration:
        return None
