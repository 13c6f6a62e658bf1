"""Run blocking code next to an event loop: one daemon thread per call, so that a stuck call cannot delay exit.

Also: wait for work that must not be left halfway.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

from pausepoint.name import NAME

T = TypeVar("T")


async def in_thread(fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Run ``fn`` in its own thread and return its result. If the waiting task is cancelled, the result is dropped."""
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

    Thread(target=work, name=f"{NAME}-{getattr(fn, '__name__', 'call')}", daemon=True).start()
    return await done


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
    if done.done():
        return
    if isinstance(error, StopIteration):  # a future does not accept it
        error = RuntimeError(f"The function raised StopIteration: {error}")
    done.set_exception(error)
