"""The calls of a context that a step makes: a call that is never awaited would silently do nothing, or run unseen."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from types import CoroutineType
from typing import Any, TypeVar

from pausepoint.definition.functions import callee
from pausepoint.definition.retry import inside_of
from pausepoint.errors import ContextClosed, StepError, StepExited, error_text
from pausepoint.log.telemetry import log_advice

T = TypeVar("T")

FEW = 64
"""How many calls are remembered before those that have ended are forgotten for the first time."""

NAMED = 3
"""How many calls that were left running are named."""

RUN = ("do", "map")
"""The calls that run a function. The others wait for something."""


class Calls:
    """Remembers the calls of one visit's contexts until they have ended."""

    __slots__ = ("_failed", "_found", "_most", "_most_failed", "_session_id", "_step", "_thread", "_visit")

    def __init__(self, session_id: str, step: str, visit: int) -> None:
        self._session_id = session_id
        self._step = step
        self._visit = visit
        self._thread = threading.get_ident()
        self._found: list[CoroutineType[Any, Any, Any]] = []
        self._most = FEW
        self._failed: dict[asyncio.Task[Any], str] = {}  # tasks of the step, and the operation that failed in each
        self._most_failed = FEW

    def track(self, call: CoroutineType[Any, Any, T]) -> CoroutineType[Any, Any, T]:
        """Remember a call until it has ended."""
        if threading.get_ident() == self._thread:  # a blocking context awaits its calls itself
            if len(self._found) >= self._most:
                self._found = self._open()
                self._most = max(FEW, 2 * len(self._found))  # a step may make thousands before it awaits them
            self._found.append(call)
        return call

    def has_failed(self, operation: str, own: asyncio.Task[Any] | None) -> None:
        """Remember the calling task, in which an operation failed. ``own`` is the task of the step's own code."""
        task = asyncio.current_task()
        if task is None or task is own or threading.get_ident() != self._thread:
            return  # the step gets the error itself
        if len(self._failed) >= self._most_failed:
            self._failed = {each: name for each, name in self._failed.items() if not each.done() or _is_unseen(each)}
            self._most_failed = max(FEW, 2 * len(self._failed))
        self._failed[task] = operation

    def check_awaited(self) -> None:
        """At the end of the step, check that no call was left without an ``await``."""
        forgotten = [call for call in self._open() if not _has_begun(call)]
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

    def leave(self, own: asyncio.Task[Any] | None, quietly: bool) -> None:
        """When the step has ended, warn about calls that nobody awaits. ``quietly``: the step was made to exit."""
        for task, operation in self._failed.items():
            if task.done() and _is_unseen(task):
                self._tell_failure(f"ctx.do({operation})", "failed", task)
        left = dict.fromkeys(self._open())
        if not left:
            return
        forgotten = {call: _shown(call) for call in left if _has_begun(call)}
        for task in asyncio.all_tasks() - {own}:
            calls = [call for call in _awaited_by(task) if call in left]
            if calls:
                task.add_done_callback(partial(self._ended_late, _shown(calls[0])))
            for call in calls if task.cancelling() else ():
                forgotten.pop(call, None)
        if forgotten and not quietly:
            self._warn(_forgotten(self._step, forgotten))

    def _ended_late(self, call: str, task: asyncio.Task[Any]) -> None:
        """React to the end of a task that the step has left running, of which asyncio would print a traceback."""
        error = None if task.cancelled() else task.exception()
        errors = [] if error is None else list(inside_of(error)) or [error]
        if not all(isinstance(each, ContextClosed | StepExited) for each in errors):
            self._tell_failure(call, "failed after the step had ended", task)

    def _tell_failure(self, call: str, what: str, task: asyncio.Task[Any]) -> None:
        error = task.exception()  # asyncio does not print what was retrieved
        if error is not None:
            self._warn(
                f"{call}, which step {self._step!r} did not await, {what}: {type(error).__name__}: {error_text(error)}."
                " Await its task in the step to handle the error."
            )

    def _warn(self, text: str) -> None:
        log_advice(text, self._session_id, self._step, self._visit)

    def _open(self) -> list[CoroutineType[Any, Any, Any]]:
        """Return the calls that have not ended."""
        return [call for call in self._found if call.cr_frame is not None]


def _has_begun(call: CoroutineType[Any, Any, Any]) -> bool:
    return call.cr_suspended or call.cr_running


def _is_unseen(task: asyncio.Task[Any]) -> bool:
    """Return whether a task has failed and nobody has looked at its error."""
    return bool(getattr(task, "_log_traceback", False))


def _awaited_by(task: asyncio.Task[Any]) -> Iterator[CoroutineType[Any, Any, Any]]:
    """Yield the coroutine of a task, and those that it awaits, one inside the other."""
    inner: Any = task.get_coro()
    while inner is not None:
        yield inner
        inner = getattr(inner, "cr_await", None)


def _shown(call: CoroutineType[Any, Any, Any]) -> str:
    """Return a call as an author writes it, such as ``ctx.do(fetch)``."""
    fn = call.cr_frame.f_locals.get("fn") if call.cr_frame is not None and call.__name__ in RUN else None
    return f"ctx.{call.__name__}({callee(fn).name if callable(fn) else ''})"


def _forgotten(step: str, calls: Mapping[CoroutineType[Any, Any, Any], str]) -> str:
    more = f" and {len(calls) - NAMED} more calls" if len(calls) > NAMED else ""
    names = ", ".join(list(calls.values())[:NAMED]) + more
    way = "Await the task before the step returns, or use asyncio.gather(), asyncio.TaskGroup or ctx.map()."
    if not any(call.__name__ in RUN for call in calls):
        return f"Step {step!r} ended without awaiting {names}. The wait is cancelled. {way}"
    return (
        f"Step {step!r} ended while {names} {'was' if len(calls) == 1 else 'were'} still running. The function runs to"
        f" its end, but its result is not kept. {way}"
    )
