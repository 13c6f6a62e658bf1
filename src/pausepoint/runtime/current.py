"""`current` and `durable`: the context of the running step, for code that is not passed one."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from math import inf
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, overload

from pausepoint.definition.functions import callee
from pausepoint.definition.retry import Retry
from pausepoint.errors import ContextClosed, DefinitionError, OutsideStep, StepError, StepExited
from pausepoint.runtime.attempts import Policy, Run, abandon, begin, checked_policy, fail_attempt, timed_out
from pausepoint.runtime.blocking import BlockingContext, tracked
from pausepoint.runtime.context import Context
from pausepoint.runtime.frames import Cancels, Frame
from pausepoint.runtime.inside import Place, place, within
from pausepoint.runtime.visit import Visit
from pausepoint.runtime.waits import Duration

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
def durable(
    *, key: Key | None = None, retry: int | Retry | None = None, timeout: Duration | None = None
) -> Callable[[F], F]: ...
def durable(
    fn: Any = None, /, *, key: Key | None = None, retry: int | Retry | None = None, timeout: Duration | None = None
) -> Any:
    """Make a function a remembered operation when it is called inside a step, as if by ``ctx.do``.

    Outside of a step, the call is an ordinary one. ``key`` is called with the arguments and returns the key that the
    call is recognised by; otherwise it is recognised by its arguments. ``retry`` and ``timeout`` are those of
    ``ctx.do``; if the function is passed to ``ctx.do`` or ``ctx.map``, only the options of that call count. Put this
    decorator below those of other frameworks, such as ``@tool``.

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
    try:
        options = Options(key, checked_policy(retry, timeout, "@durable"))
    except ValueError as error:
        raise DefinitionError(str(error)) from None
    if fn is None:
        return functools.partial(_durable, options=options)
    return _durable(fn, options)


class Options(NamedTuple):
    """The options of ``@durable``. ``policy`` is that of each call; None if it is tried once, without a time-out."""

    key: Key | None
    policy: Policy | None = None

    def key_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | int | None:
        """Return the key of a call; None if its arguments identify it."""
        return None if self.key is None else self.key(*args, **kwargs)


def _durable(fn: Any, options: Options) -> Callable[..., Any]:
    if not callable(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        what = "a generator function" if callable(fn) else f"{type(fn).__name__} {fn!r:.60}"
        raise DefinitionError(
            f"@durable takes a function that returns a value, not {what}. An operation is remembered as a whole."
        )
    wrapper = _async_form(fn, options) if inspect.iscoroutinefunction(fn) else _blocking_form(fn, options)
    functools.update_wrapper(wrapper, fn)
    wrapper.__dict__["__pausepoint_plain__"] = fn
    return wrapper


def _async_form(fn: Callable[..., Any], options: Options) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        where = place()
        if where is None:
            return await fn(*args, **kwargs)
        here = where.opened()
        key = options.key_of(args, kwargs)
        if threading.get_ident() == here.visit.thread:
            return await _once(here, fn, args, kwargs, key, options.policy)
        return await _on_another_loop(here, fn, args, kwargs, key, options.policy)

    return call


def _blocking_form(fn: Callable[..., Any], options: Options) -> Callable[..., Any]:
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
        return BlockingContext(*here)._run(fn, args, kwargs, options.key_of(args, kwargs), options.policy)

    return call


async def _once(
    here: Place, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], key: str | int | None,
    policy: Policy | None,
) -> Any:  # fmt: skip
    """Run an operation on the engine's loop. Unlike ``ctx.do``, any name of a parameter is possible."""
    visit, frame = here
    what = callee(fn)
    operation = visit.identify(frame, what, args, kwargs, key)
    return await Context(visit, frame)._once(operation, what, fn, args, kwargs, policy)


async def _on_another_loop(
    here: Place, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], key: str | int | None,
    policy: Policy | None,
) -> Any:  # fmt: skip
    """Run an operation on the event loop of a thread that the step uses, such as that of ``agent.run_sync``."""
    visit, frame = here
    context, what = Context(visit, frame), callee(fn)
    admitted: list[Run] = []

    async def start() -> Any:
        run = await context._start(visit.identify(frame, what, args, kwargs, key), what)
        if isinstance(run, Run):
            admitted.append(run)  # for a caller that is cancelled before it gets the run
        return run

    def leave() -> None:
        for run in admitted:
            visit.exit(run.frame)

    try:
        run = await _on_loop(here, start())
        if not isinstance(run, Run):
            return run.value

        def call() -> Coroutine[Any, Any, Any]:
            return within(visit, run.frame, fn(*args, **context._with_context(what, run.frame, kwargs)))

        with visit.host.ledger.watch.operation(run.operation.name) as run.frame.span:
            value = await (call() if policy is None else _attempts(here, run, policy, call))
            return await _on_loop(here, context._keep(run, value))
    finally:
        with suppress(RuntimeError):  # the loop is closed, and the visit with it
            visit.loop.call_soon_threadsafe(leave)


async def _attempts(here: Place, run: Run, policy: Policy, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Do what `attempts` does, on the event loop of another thread."""
    visit = here.visit
    while True:
        await _on_loop(here, begin(visit, run, policy))
        try:
            return await (call() if policy.timeout is None else _limited(here, run, policy.timeout, call()))
        except Exception as error:
            await _on_loop(here, fail_attempt(visit, run, policy, error))


async def _limited(here: Place, run: Run, timeout: float, call: Coroutine[Any, Any, T]) -> T:
    """Await an attempt on this thread's loop, while the engine's loop watches its time."""
    visit, frame = here.visit, run.frame
    task = asyncio.ensure_future(call)
    try:
        await _on_loop(here, _watch(visit, frame, timeout, task))
        await asyncio.wait({task})
    finally:
        task.cancel()  # no effect if it has ended
    if await _on_loop(here, _has_expired(visit, run, frame)) and task.cancelled():
        raise timed_out(run.operation, timeout)
    return task.result()


async def _watch(visit: Visit, frame: Frame, timeout: float, task: asyncio.Task[Any]) -> None:
    def cancel() -> None:
        with suppress(RuntimeError):  # its loop is closed
            task.get_loop().call_soon_threadsafe(task.cancel)

    frame.task, frame.due = Cancels(cancel), visit.timeouts.time() + timeout
    visit.timeouts.watch(frame.due)


async def _has_expired(visit: Visit, run: Run, frame: Frame) -> bool:
    """End the limit of an attempt. If its time was over, close what still runs inside."""
    expired, frame.due, frame.left = frame.expired, inf, None
    if expired:
        run.frame = abandon(visit, frame)
    return expired


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
