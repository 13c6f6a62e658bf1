"""An engine for unit tests: in memory, on a manual clock, without signal handlers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from pausepoint.codec.values import DEFAULT_LIMITS, Limits
from pausepoint.definition.workflow import Workflow
from pausepoint.engine.engine import Engine
from pausepoint.model.views import Outcome
from pausepoint.name import NAME
from pausepoint.stores.base import Store
from pausepoint.testing.clock import ManualClock
from pausepoint.testing.replay import always_replay

S = TypeVar("S", bound=BaseModel)
T = TypeVar("T")


class InlineEngine(Engine):
    """An `Engine` that leaves nothing behind and waits for nothing. Made by `engine`."""

    def __init__(
        self,
        *workflows: Workflow[Any],
        store: str | Path | Store = ":memory:",
        clock: ManualClock | None = None,
        limits: Limits = DEFAULT_LIMITS,
        replay: bool = False,
    ) -> None:
        self.time = clock or ManualClock(auto=True)
        # Time that passes by itself would be over before anybody could answer.
        super().__init__(
            store, workflows=workflows, limits=limits, clock=self.time, signals=False, questions_expire=None
        )
        if replay:
            always_replay(self)

    async def run(self, workflow: Workflow[S], state: S | None = None, /, **options: Any) -> Outcome[S]:
        """Start a session and wait until it stops. Takes what `Engine.start` takes."""
        session = await self.start(workflow, state, **options)
        return await session.outcome()


def engine(
    *workflows: Workflow[Any],
    store: str | Path | Store = ":memory:",
    clock: ManualClock | None = None,
    limits: Limits = DEFAULT_LIMITS,
    replay: bool = False,
) -> InlineEngine:
    """An engine for one test: in memory, no signal handlers, and time that passes by itself.

    Whoever sleeps (a retry, a timer) is woken at once, with the clock moved on as far; pass a ``clock`` of your
    own to hold it still. Questions wait for ever, unless the call or the workflow says otherwise. ``replay``
    runs every step again after each operation: see `always_replay`.

    >>> from pydantic import BaseModel
    >>> from pausepoint import Workflow, step
    >>> class Greeting(BaseModel):
    ...     name: str
    ...     text: str = ""
    >>> @step(writes="text")
    ... async def greet(name: str) -> str:
    ...     return f"Hello, {name}!"
    >>> greeting = Workflow("greeting", state=Greeting, steps=[greet])
    >>> async def test_greeting() -> None:
    ...     async with engine(greeting) as hold:
    ...         assert (await hold.run(greeting, name="Ada")).state.text == "Hello, Ada!"
    >>> asyncio.run(test_greeting())
    """
    return InlineEngine(*workflows, store=store, clock=clock, limits=limits, replay=replay)


def run(workflow: Workflow[S], state: S | None = None, /, *, replay: bool = False, **fields: Any) -> Outcome[S]:
    """Run a workflow in memory and return how it came out. Blocks; for tests without a loop of their own.

    >>> from pydantic import BaseModel
    >>> from pausepoint import Workflow, step
    >>> class Sum(BaseModel):
    ...     of: list[int]
    ...     total: int = 0
    >>> @step(writes="total")
    ... def add(of: list[int]) -> int:
    ...     return sum(of)
    >>> run(Workflow("sum", state=Sum, steps=[add]), of=[1, 2, 3]).state.total
    6
    """

    async def main() -> Outcome[S]:
        async with engine(workflow, replay=replay) as hold:
            return await hold.run(workflow, state, **fields)

    return blocking(main)


def blocking(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end, on a loop of its own; in a thread of its own if a loop runs here already."""
    if not _on_a_loop():
        return asyncio.run(main())
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(asyncio.run(main()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, name=f"{NAME}-testing", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
