"""An engine for unit tests: in memory, with a manual clock and without signal handlers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from typing_extensions import TypeVar

from pausepoint.codec.values import DEFAULT_LIMITS, Limits
from pausepoint.definition.workflow import Workflow
from pausepoint.engine.engine import Engine
from pausepoint.model.views import Outcome
from pausepoint.name import NAME
from pausepoint.stores.base import Store
from pausepoint.testing.clock import ManualClock
from pausepoint.testing.replay import always_replay

S = TypeVar("S", bound=BaseModel)
R = TypeVar("R", default=S)  # the result: what a function returned, or the final state
T = TypeVar("T")


class InlineEngine(Engine):
    """An `Engine` for one test, in memory by default. It uses a manual clock. Create it with `engine`."""

    def __init__(
        self,
        *workflows: Workflow[Any],
        store: str | Path | Store = ":memory:",
        clock: ManualClock | None = None,
        limits: Limits = DEFAULT_LIMITS,
        replay: bool = False,
    ) -> None:
        self.time = clock or ManualClock(auto=True)
        # With an automatic clock, a question would expire before a test could answer it.
        super().__init__(
            store, workflows=workflows, limits=limits, clock=self.time, signals=False, questions_expire=None
        )
        if replay:
            always_replay(self)

    async def run(self, workflow: Workflow[S, R], state: S | None = None, /, **options: Any) -> Outcome[S, R]:
        """Start a session and wait until it stops. Takes the same arguments as `Engine.start`."""
        session = await self.start(workflow, state, **options)
        return await session.outcome()


def engine(
    *workflows: Workflow[Any],
    store: str | Path | Store = ":memory:",
    clock: ManualClock | None = None,
    limits: Limits = DEFAULT_LIMITS,
    replay: bool = False,
) -> InlineEngine:
    """Return an engine for one test: in memory, without signal handlers, with a clock that advances automatically.

    Every sleep (a retry, a timer) returns immediately and advances the clock by its length. Pass your own ``clock``
    to control the time yourself. Questions never expire unless the call or the workflow sets an expiry. With
    ``replay=True``, every step runs again after each operation: see `always_replay`.

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
    ...     async with engine(greeting) as inline:
    ...         assert (await inline.run(greeting, name="Ada")).state.text == "Hello, Ada!"
    >>> asyncio.run(test_greeting())
    """
    return InlineEngine(*workflows, store=store, clock=clock, limits=limits, replay=replay)


def run(workflow: Workflow[S, R], state: S | None = None, /, *, replay: bool = False, **fields: Any) -> Outcome[S, R]:
    """Run a workflow in memory and return its outcome. This call blocks; use it in tests that are not async.

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

    async def main() -> Outcome[S, R]:
        async with engine(workflow, replay=replay) as inline:
            return await inline.run(workflow, state, **fields)

    return blocking(main)


def blocking(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a new event loop and return its result. Uses a new thread if a loop already runs here."""
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
