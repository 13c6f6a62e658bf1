"""A dictionary store for engines in several threads."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pausepoint.stores.base import OnChange
from tests.support.dictstore.data import Data
from tests.support.dictstore.store import DictStore


@dataclass
class SharedData(Data):
    """Data that several threads use, one at a time."""

    lock: Any = field(default_factory=threading.RLock)  # the type of a lock has no public name


class LockedDictStore(DictStore):
    """A `DictStore` whose verbs hold one lock. ``reached`` is called at the lock points, which only twins have."""

    data: SharedData

    def __init__(self, data: SharedData, clock: Any) -> None:
        super().__init__(data, clock)
        self.reached: Callable[[], None] = lambda: None

    async def open(self, on_change: OnChange) -> None:
        loop = asyncio.get_running_loop()

        def notify(keys: frozenset[int] | None) -> None:
            loop.call_soon_threadsafe(on_change, keys)

        with self.data.lock:
            await super().open(notify)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or name in ("open", "close") or not inspect.iscoroutinefunction(found):
            return found
        return functools.partial(self._call, found)

    async def _call(self, verb: Callable[..., Any], *args: Any, **options: Any) -> Any:
        with self.data.lock:  # no verb is suspended while it holds the lock
            return await verb(*args, **options)
