"""Wait for a condition, with a limit that a busy machine does not reach."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tests.support.loop import PATIENCE

T = TypeVar("T")

PAUSE = 0.01
"""Seconds between two looks."""


def until(condition: Callable[[], T], what: object = "it never came true") -> T:
    """Wait for something that another thread or process does, and return what the condition returned.

    ``what`` is printed if the wait fails; it may be a function.
    """
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, what() if callable(what) else what
        time.sleep(PAUSE)
    return found


async def async_until(
    condition: Callable[[], object], what: object = "it never came true", pause: float = PAUSE
) -> Any:
    """Wait for something while the loop runs. The condition may be a coroutine function."""
    end = time.monotonic() + PATIENCE
    while True:
        found = condition()
        if found := await found if isinstance(found, Awaitable) else found:
            return found
        assert time.monotonic() < end, what
        await asyncio.sleep(pause)
