"""Run blocking code next to an event loop, in daemon threads, so that a stuck call cannot delay exit.

Also: wait for work that must not be left halfway.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Condition, Lock, Thread
from typing import Any, TypeVar

from pausepoint.name import NAME

T = TypeVar("T")


IDLE = 0.1
"""Seconds without a call after which the thread of a `Lane` ends."""


async def in_thread(fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Run ``fn`` in its own thread and return its result. If the waiting task is cancelled, the result is dropped."""
    done, work = _work(fn, args, kwargs)
    Thread(target=work, name=f"{NAME}-{getattr(fn, '__name__', 'call')}", daemon=True).start()
    return await done


waiting_thread: ContextVar[Thread | None] = ContextVar(f"{NAME}_waiting_thread", default=None)
"""The thread that waits for the task in which this is set, and for the tasks that this task starts."""

_replaced = Counter[Thread]()
_lock = Lock()


@contextmanager
def replaced() -> Iterator[None]:
    """While the waiting thread of this task is held, let its pool have another thread in its place.

    Only asyncio's own pool, of `asyncio.to_thread`, grows. It keeps the idle thread afterwards. The size of any other
    pool may be meant as a limit.
    """
    thread = waiting_thread.get()
    pool = None if thread is None else _pool_of(thread)
    if thread is None or pool is None:
        yield
        return
    with _lock:
        _replaced[thread] += 1
        pool._max_workers += _replaced[thread] == 1
    with suppress(RuntimeError):  # the pool is shut down, or the system has no more threads
        while pool._idle_semaphore.acquire(blocking=False):
            pass  # it also counts threads that took other work since, and then no thread would start
        pool.submit(int)  # starts a thread
    try:
        yield
    finally:
        with _lock:
            _replaced[thread] -= 1
            if not _replaced[thread]:
                del _replaced[thread]
                pool._max_workers -= 1


def _pool_of(thread: Thread) -> Any:
    """Return the pool of asyncio that a running thread belongs to; None if there is none."""
    if not thread.name.startswith("asyncio_"):
        return None
    pool, *_ = getattr(thread, "_args", ()) or (lambda: None,)  # the thread has a weak reference
    found = pool() if callable(pool) else None
    return found if hasattr(found, "_max_workers") and hasattr(found, "_idle_semaphore") else None


class Lane:
    """Runs calls one after another in one thread, which starts with the first call and ends soon after the last.

    A call that is stuck keeps the calls behind it waiting. So share a lane only among calls that wait for each other.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._news = Condition()
        self._waiting = deque[Callable[[], None]]()
        self._has_thread = False

    async def run(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Run ``fn`` and return its result. If the waiting task is cancelled, the result is dropped."""
        done, work = _work(fn, args, kwargs)
        with self._news:
            if not self._has_thread:  # it waits for the lock; if it cannot be started, no work is left behind
                Thread(target=self._serve, name=f"{NAME}-{self._name}", daemon=True).start()
                self._has_thread = True
            self._waiting.append(work)
            self._news.notify()
        return await done

    def _serve(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting, IDLE)
                if not self._waiting:
                    self._has_thread = False
                    return
                work = self._waiting.popleft()
            work()


def _work(
    fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[asyncio.Future[T], Callable[[], None]]:
    """Return a future, and what a thread must call so that the future gets the result of ``fn``."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            result = context.run(fn, *args, **kwargs)
        except BaseException as error:
            post(_fail, error)
        else:
            post(_succeed, result)

    def post(deliver: Callable[[asyncio.Future[T], Any], None], outcome: Any) -> None:
        with suppress(RuntimeError):  # the loop was closed in the meantime, so no task is waiting
            loop.call_soon_threadsafe(deliver, done, outcome)

    return done, work


async def to_its_end(work: Awaitable[T]) -> T:
    """Await work that continues if the waiting task is cancelled. The cancellation is raised when the work has ended.

    Use it if a clean-up follows that depends on whether the work took effect.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # the cancellation is raised instead
        raise


def _succeed(done: asyncio.Future[T], result: T) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: asyncio.Future[T], error: BaseException) -> None:
    if not done.done():
        done.set_exception(acceptable(error))


def acceptable(error: BaseException) -> BaseException:
    """Return an error as a future accepts it: instead of `StopIteration`, a `RuntimeError` that it caused."""
    if not isinstance(error, StopIteration):
        return error
    found = RuntimeError(f"The function raised StopIteration: {error}")
    found.__cause__ = error
    return found
