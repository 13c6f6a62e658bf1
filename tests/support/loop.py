"""Async tests without a plugin: a decorator that runs each test on its own event loop."""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec

P = ParamSpec("P")

USUAL = 0.01
"""Seconds that the work in `slowness` takes on a usual machine."""


def slowness() -> float:
    """Return how much slower this machine is than the one that the limits were chosen on: from 1 to 6."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        sum(number * number for number in range(100_000))
        times.append(time.perf_counter() - began)
    return min(6.0, max(1.0, min(times) / USUAL))


PATIENCE = int(os.environ.get("TEST_PATIENCE") or 240 * slowness())
"""Seconds after which a waiting test fails. It costs nothing in a run that passes, so it is generous."""

_excused = 0.0


@contextmanager
def excused() -> Iterator[None]:
    """Take the time in this block off the limit of the test.

    For calls that block the loop while another process works. They need a limit of their own: on a busy machine, a
    test with five processes waits five times as long as a test with one.
    """
    global _excused
    started = time.monotonic()
    try:
        yield
    finally:
        _excused += time.monotonic() - started


def on_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an ``async def`` test on a new event loop, and fail it if it hangs."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(_limited(test(*args, **kwargs)))

    return run


async def _limited(test: Coroutine[Any, Any, None]) -> None:
    running, began, before = asyncio.ensure_future(test), time.monotonic(), _excused
    while (left := PATIENCE - (time.monotonic() - began) + (_excused - before)) > 0:
        done, _ = await asyncio.wait({running}, timeout=left)
        if done:
            return await running
    running.cancel()
    hung = TimeoutError(
        f"the test did not end within {PATIENCE} s, not counting the time in which other processes worked"
    )
    try:
        await running
    except asyncio.CancelledError as where:
        raise hung from where
    raise hung
