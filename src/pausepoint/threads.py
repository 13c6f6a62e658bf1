"""Run blocking code next to an event loop: one daemon thread per call, so that a stuck call cannot delay exit."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
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


def _succeed(done: asyncio.Future[T], result: T) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: asyncio.Future[T], error: BaseException) -> None:
    if done.done():
        return
    if isinstance(error, StopIteration):  # a future does not accept it
        error = RuntimeError(f"The function raised StopIteration: {error}")
    done.set_exception(error)
