"""The calls of a context that a step makes: a call that is never awaited would silently do nothing."""

from __future__ import annotations

import asyncio
import threading
from types import CoroutineType
from typing import Any, TypeVar

from pausepoint.errors import StepError

T = TypeVar("T")

FEW = 64
"""How many calls are remembered before those that were awaited are forgotten for the first time."""


class Calls:
    """Remembers the calls of one visit's contexts until they are awaited."""

    __slots__ = ("_found", "_most", "_step", "_thread")

    def __init__(self, step: str) -> None:
        self._step = step
        self._thread = threading.get_ident()
        self._found: list[CoroutineType[Any, Any, Any]] = []
        self._most = FEW

    def track(self, call: CoroutineType[Any, Any, T]) -> CoroutineType[Any, Any, T]:
        """Remember a call until it is awaited."""
        if threading.get_ident() == self._thread:  # a blocking context awaits its calls itself
            if len(self._found) >= self._most:
                self._found = self._unawaited()
                self._most = max(FEW, 2 * len(self._found))  # a step may make thousands before it awaits them
            self._found.append(call)
        return call

    def check_awaited(self) -> None:
        """At the end of the step, check that no call was left without an ``await``."""
        forgotten = self._unawaited()
        if not forgotten:
            return
        owned = {task.get_coro() for task in asyncio.all_tasks()}
        for call in forgotten:
            if call not in owned:
                call.close()  # otherwise Python warns about it, too
        name = f"ctx.{forgotten[0].__name__}()"
        raise StepError(
            f"Step {self._step!r} called {name} and did not await it, so it did nothing. Write"
            f" 'await {name}'{'' if len(forgotten) == 1 else f', and the same for {len(forgotten) - 1} more calls'}."
        )

    def _unawaited(self) -> list[CoroutineType[Any, Any, Any]]:
        return [
            each for each in self._found if each.cr_frame is not None and not (each.cr_suspended or each.cr_running)
        ]
