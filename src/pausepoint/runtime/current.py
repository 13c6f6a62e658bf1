"""`current` and `durable`: the context of the running step, for code that is not passed one."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Literal, ParamSpec, TypeVar, overload

from pausepoint.definition.functions import callee
from pausepoint.errors import ContextClosed, DefinitionError, OutsideStep, StepError, StepExited
from pausepoint.runtime.attempts import Run
from pausepoint.runtime.blocking import BlockingContext, tracked
from pausepoint.runtime.context import Context
from pausepoint.runtime.inside import Place, place, within

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Key = Callable[..., str | int]
_RAISE: Any = object()


@overload
def current() -> Context: ...
@overload
def current(*, blocking: Literal[True]) -> BlockingContext: ...
@overload
def current(default: T, /) -> Context | T: ...
@overload
def current(default: T, /, *, blocking: Literal[True]) -> BlockingContext | T: ...
def current(default: Any = _RAISE, /, *, blocking: bool = False) -> Any:
    """Return the context of the step or operation that the calling code belongs to.

    Use it in code that a step calls and that is not passed a context, such as a tool of an agent framework. It also
    works in tasks that the step starts, and in threads that copy the context variables, as ``ctx.do`` and
    `asyncio.to_thread` do. In a thread, the result is a `BlockingContext`; ``blocking=True`` says so to a type checker.

    Outside of a step, return ``default``, or raise `OutsideStep` if there is none.

    >>> current(None) is None
    True
    """
    where = place()
    if where is None:
        if default is not _RAISE:
            return default
        raise OutsideStep(
            "There is no current context, because this code does not run inside a step. Call it from a step, or pass a"
            " default: current(None). A thread knows its step only if it copies the context variables, as"
            " asyncio.to_thread does."
        )
    visit, frame = where.opened()
    if threading.get_ident() != visit.thread:
        return BlockingContext(visit, frame)
    if blocking:
        raise StepError(
            f"Step {visit.step.name!r} asked for a BlockingContext on the event loop's thread, which would block the"
            " loop. Use current() and await its operations."
        )
    return Context(visit, frame)


@overload
def durable(fn: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def durable(*, key: Key | None = None) -> Callable[[F], F]: ...
def durable(fn: Any = None, /, *, key: Key | None = None) -> Any:
    """Make a function a remembered operation when it is called inside a step, as if by ``ctx.do``.

    Outside of a step, the call is an ordinary one. ``key`` is called with the arguments and returns the key that the
    call is recognised by; otherwise it is recognised by its arguments. Put this decorator below those of other
    frameworks, such as ``@tool``.

    Inside a step, a blocking function must run in a thread, because it may have to wait for a resume. Agent frameworks
    run blocking tools in threads.

    >>> @durable(key=lambda order_id: order_id)
    ... def refund(order_id: str) -> str:
    ...     return f"refunded {order_id}"
    >>> refund("A-1")
    'refunded A-1'
    """
    if key is not None and not callable(key):
        raise DefinitionError(
            f"@durable: key must be a function of the arguments, not {key!r}. Write @durable(key=lambda order_id:"
            " order_id)."
        )
    if fn is None:
        return functools.partial(_durable, key=key)
    return _durable(fn, key)


def _durable(fn: Any, key: Key | None) -> Callable[..., Any]:
    if not callable(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        what = "a generator function" if callable(fn) else f"{type(fn).__name__} {fn!r:.60}"
        raise DefinitionError(
            f"@durable takes a function that returns a value, not {what}. An operation is remembered as a whole."
        )
    wrapper = _async_form(fn, key) if inspect.iscoroutinefunction(fn) else _blocking_form(fn, key)
    functools.update_wrapper(wrapper, fn)
    wrapper.__dict__["__pausepoint_plain__"] = fn
    return wrapper


def _async_form(fn: Callable[..., Any], key: Key | None) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        where = place()
        if where is None:
            return await fn(*args, **kwargs)
        here = where.opened()
        given = None if key is None else key(*args, **kwargs)
        if threading.get_ident() == here.visit.thread:
            return await _once(here, fn, args, kwargs, given)
        return await _on_another_loop(here, fn, args, kwargs, given)

    return call


def _blocking_form(fn: Callable[..., Any], key: Key | None) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        where = place()
        if where is None:
            return fn(*args, **kwargs)
        here = where.opened()
        name = callee(fn).name
        if threading.get_ident() == here.visit.thread:
            raise StepError(
                f"Step {here.visit.step.name!r} called the blocking @durable function {name!r} on the event loop's"
                f" thread, where it cannot wait. Write 'await current().do({name}, …)', call it with"
                " asyncio.to_thread, or make it async def."
            )
        given = None if key is None else key(*args, **kwargs)
        return BlockingContext(*here)._run(fn, args, kwargs, given)

    return call


async def _once(
    here: Place, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], key: str | int | None
) -> Any:
    """Run an operation on the engine's loop. Unlike ``ctx.do``, any name of a parameter is possible."""
    visit, frame = here
    what = callee(fn)
    operation = visit.identify(frame.scope, what, args, kwargs, key)
    return await Context(visit, frame)._once(operation, what, fn, args, kwargs)


async def _on_another_loop(
    here: Place, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], key: str | int | None
) -> Any:
    """Run an operation on the event loop of a thread that the step uses, such as that of ``agent.run_sync``."""
    visit, frame = here
    context, what = Context(visit, frame), callee(fn)

    async def start() -> Any:
        return await context._start(visit.identify(frame.scope, what, args, kwargs, key), what)

    run = await _on_loop(here, start())
    if not isinstance(run, Run):
        return run.value
    try:
        value = await within(visit, run.frame, fn(*args, **context._with_context(what, run.frame, kwargs)))
        return await _on_loop(here, context._keep(run, value))
    finally:
        with suppress(RuntimeError):  # the loop is closed, and the visit with it
            visit.loop.call_soon_threadsafe(visit.exit, run.frame)


async def _on_loop(here: Place, work: Coroutine[Any, Any, T]) -> T:
    visit = here.visit
    if visit.exited or here.frame.is_closed:
        work.close()
        raise StepExited(f"step {visit.step.name} was exited; its result is discarded")
    try:
        call = tracked(visit, here.frame, work)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, visit.loop))
    except (asyncio.CancelledError, ContextClosed):
        if not visit.exited:
            raise  # the caller was cancelled, not the step
        raise StepExited(f"step {visit.step.name} was exited; its result is discarded") from None
