"""The public Engine: a store from its URL, and the verbs over it for as long as it is open."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast.clock import Clock, SystemClock
from holdfast.codec import DEFAULT_LIMITS, Limits
from holdfast.control import Control
from holdfast.drivers.signals import SignalWatch
from holdfast.errors import StoreClosed, StoreError
from holdfast.store import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.workflow import Workflow

DEFAULT_URL = "sqlite:///.holdfast/holdfast.db"


class Engine(Control):
    """Runs workflows and keeps their sessions in a store.

    ``url`` is ``sqlite:///relative/path.db``, ``sqlite:////absolute/path.db``, ``:memory:``, a path, or a `Store`.
    Used as ``async with Engine(…) as engine:``; leaving the block ends what still runs after its current operation
    and leaves those sessions ready. ``signals`` does the same for Ctrl+C and SIGTERM.

    >>> import asyncio
    >>> from pydantic import BaseModel
    >>> from holdfast import Engine, Workflow, step
    >>> class Greeting(BaseModel):
    ...     name: str
    ...     text: str = ""
    >>> @step(writes="text")
    ... async def greet(name: str) -> str:
    ...     return f"Hello, {name}!"
    >>> greeting = Workflow("greeting", state=Greeting, steps=[greet])
    >>> async def main() -> str:
    ...     async with Engine(":memory:") as engine:
    ...         session = await engine.start(greeting, name="Ada")
    ...         return (await session.outcome()).state.text
    >>> asyncio.run(main())
    'Hello, Ada!'
    """

    def __init__(
        self,
        url: str | Path | Store = DEFAULT_URL,
        *,
        workflows: Iterable[Workflow[Any]] = (),
        limits: Limits = DEFAULT_LIMITS,
        clock: Clock | None = None,
        signals: bool = True,
    ) -> None:
        clock = clock or SystemClock()
        super().__init__(store_from(url, clock), workflows, clock, limits)
        self._signals = signals
        self._watch: SignalWatch | None = None
        self._pid = 0

    async def __aenter__(self) -> Self:
        await self.store.open(self.driver.on_change)
        self.is_open = True
        self._pid = os.getpid()
        if self._signals:
            self._watch = SignalWatch(self.driver)
            self._watch.install()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        if self._watch is not None and (verdict := self._watch.verdict()) is not None:
            raise verdict from None

    async def close(self) -> None:
        """End what runs after its current operation, then close the store. Twice is no error."""
        if not self.is_open:
            return
        if self._watch is not None:
            self._watch.leaving = True
        try:
            await self.driver.stop("the engine was closed")
        finally:
            self.is_open = False
            if self._watch is not None:
                self._watch.uninstall()
            await self.store.close()

    def _check_open(self) -> None:
        super()._check_open()
        if os.getpid() != self._pid:
            raise StoreClosed("this engine was opened by another process; open an Engine of its own after fork()")


def store_from(url: str | Path | Store, clock: Clock) -> Store:
    """The one place that knows which URL means which store."""
    if isinstance(url, Path):
        return SqliteStore(url, clock=clock)
    if not isinstance(url, str):
        return url
    if url in (":memory:", "sqlite:///:memory:", "sqlite://:memory:", "sqlite://"):
        return SqliteStore(":memory:", clock=clock)
    if url.startswith("sqlite:///"):
        return SqliteStore(url.removeprefix("sqlite:///"), clock=clock)
    if "://" not in url:
        return SqliteStore(url, clock=clock)
    raise StoreError(f"{url!r} names no store that Holdfast knows; use sqlite:///path/to/file.db, a path, or :memory:")
