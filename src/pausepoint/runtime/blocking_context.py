"""The context of a ``def`` step: the operations of `Context`, for a thread that waits for each of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError as FutureCancelled
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from decimal import Decimal
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, cast, overload

from pausepoint.definition.functions import callee, plain
from pausepoint.definition.rate import Rate
from pausepoint.definition.retry import Retry
from pausepoint.definition.workflow import Workflow
from pausepoint.errors import ContextClosed, StepError, StepExited
from pausepoint.model.ids import SessionId
from pausepoint.name import NAME
from pausepoint.runtime.artifacts import BlockingStepArtifact
from pausepoint.runtime.attempts import (
    Policy,
    Run,
    begin,
    fail_attempt,
)
from pausepoint.runtime.chunks import BlockingStepFiles
from pausepoint.runtime.context import Context
from pausepoint.runtime.fanout import DEFAULT_CONCURRENCY, Batch
from pausepoint.runtime.inside import Place, entered
from pausepoint.runtime.pending import First
from pausepoint.runtime.questions import Judge, Options
from pausepoint.runtime.visit import Frame, Visit
from pausepoint.runtime.waits import Duration

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S", bound="BaseModel")
C = TypeVar("C", str, int, float, bool)
F = TypeVar("F", bound=Callable[..., Any])


_calls: ContextVar[bool] = ContextVar(f"{NAME}_calls", default=False)
"""Whether the calling code makes a call for `BlockingContext.first`, which must not wait."""


class _Called(BaseException):
    """Carries a call of a context out of the function that makes it."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        super().__init__()
        self.work = work


class BlockingContext:
    """The durable operations of a ``def`` step: those of `Context`, blocking.

    The step runs in a thread. When the engine stops the step (abort, time-out, shutdown), the step's next call of the
    context raises a signal that ends it.
    """

    __pausepoint_context__ = "blocking"
    __slots__ = ("_context",)

    def __init__(self, visit: Visit, frame: Frame) -> None:
        self._context = Context(visit, frame)

    @property
    def session_id(self) -> SessionId:
        """See `Context.session_id`."""
        return self._context.session_id

    @property
    def started_at(self) -> datetime:
        """See `Context.started_at`."""
        return self._context.started_at

    @property
    def step(self) -> str:
        """The name of the step."""
        return self._context.step

    @property
    def visit(self) -> int:
        """See `Context.visit`."""
        return self._context.visit

    @property
    def attempt(self) -> int:
        """See `Context.attempt`."""
        return self._context.attempt

    @property
    def idempotency_key(self) -> str:
        """See `Context.idempotency_key`."""
        return self._context.idempotency_key

    @property
    def files(self) -> BlockingStepFiles:
        """See `Context.files`."""
        return BlockingStepFiles(self._context.files, self._wait)

    def artifact(self, path: str) -> BlockingStepArtifact:
        """See `Context.artifact`."""
        return BlockingStepArtifact(self._context.artifact(path), self._wait)

    def do(
        self, fn: Callable[..., R], /, *args: Any, key: str | int | None = None, retry: int | Retry | None = None,
        timeout: Duration | None = None, **kwargs: Any,
    ) -> R:  # fmt: skip
        """See `Context.do`. ``fn`` runs in the step's own thread; with ``timeout``, each attempt has its own thread."""
        given = retry is not None or timeout is not None
        policy = self._context._policy(callee(fn), fn, retry, timeout) if given else None
        return cast(R, self._run(fn, args, kwargs, key, policy))

    def _run(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], key: str | int | None,
        policy: Policy | None = None,
    ) -> Any:  # fmt: skip
        context, visit = self._context, self._context._visit
        what = callee(fn)
        if what.is_async:
            raise StepError(
                f"Step {visit.step.name!r} is a def step and cannot run the async function {what.name!r}."
                " Make the step async def."
            )
        operation = self._wait(_later(visit.identify, context._frame, what, args, kwargs, key))
        if policy is not None and policy.timeout is not None:
            # A thread cannot be stopped, so this one waits for another.
            return self._wait(context._once(operation, what, fn, args, kwargs, policy))
        run = self._wait(context._start(operation, what))
        if not isinstance(run, Run):
            return run.value
        try:
            with visit.host.ledger.watch.operation(operation.name) as run.frame.span:
                value = self._attempts(run, policy, plain(fn), args, kwargs)
                return self._wait(context._keep(run, value))
        finally:
            with suppress(RuntimeError):  # the loop is closed, and the visit with it
                visit.loop.call_soon_threadsafe(visit.exit, run.frame)

    def _attempts(
        self, run: Run, policy: Policy | None, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        visit = self._context._visit
        while policy is not None:
            self._wait(begin(visit, run, policy))
            try:
                return self._attempt(run, fn, args, kwargs)
            except Exception as error:
                self._wait(fail_attempt(visit, run, policy, error))
        return self._attempt(run, fn, args, kwargs)

    def _attempt(self, run: Run, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with entered(Place(self._context._visit, run.frame)):
            return fn(*args, **self._context._with_context(run.what, run.frame, kwargs))

    @overload
    def map(
        self, fn: Callable[..., R], items: Iterable[T], *, key: Callable[[T], str | int] | None = None,
        concurrency: int = DEFAULT_CONCURRENCY, on_error: Literal["raise"] = "raise",
        retry: int | Retry | None = None, timeout: Duration | None = None, rate: Rate | None = None,
    ) -> list[R]: ...  # fmt: skip
    @overload
    def map(
        self, fn: Callable[..., R], items: Iterable[T], *, key: Callable[[T], str | int] | None = None,
        concurrency: int = DEFAULT_CONCURRENCY, on_error: Literal["collect"],
        retry: int | Retry | None = None, timeout: Duration | None = None, rate: Rate | None = None,
    ) -> Batch[R]: ...  # fmt: skip
    def map(
        self, fn: Callable[..., Any], items: Iterable[Any], *, key: Callable[[Any], str | int] | None = None,
        concurrency: int = DEFAULT_CONCURRENCY, on_error: Literal["raise", "collect"] = "raise",
        retry: int | Retry | None = None, timeout: Duration | None = None, rate: Rate | None = None,
    ) -> Any:  # fmt: skip
        """See `Context.map`. Each item runs in its own thread."""
        return self._wait(self._context._map(fn, items, key, concurrency, on_error, retry, timeout, rate))

    def sleep(self, duration: Duration) -> None:
        """See `Context.sleep`."""
        self._wait(self._context.sleep(duration))

    def until(self, moment: datetime) -> None:
        """See `Context.until`."""
        self._wait(self._context.until(moment))

    @overload
    def receive(self, *, timeout: None = None) -> str: ...
    @overload
    def receive(self, kind: type[T], *, timeout: None = None) -> T: ...
    @overload
    def receive(self, *, timeout: Duration | None) -> str | None: ...
    @overload
    def receive(self, kind: type[T], *, timeout: Duration | None) -> T | None: ...
    def receive(self, kind: Any = str, *, timeout: Duration | None = None) -> Any:
        """See `Context.receive`."""
        return self._wait(self._context.receive(kind, timeout=timeout))

    def first(self, *waits: Callable[[], T], **named: Callable[[], T]) -> First[T]:
        """See `Context.first`. Pass functions that make the calls.

        ``name, value = ctx.first(reply=lambda: ctx.receive(), late=lambda: ctx.sleep(60))``
        """
        calls: list[Coroutine[Any, Any, T]] = []
        try:
            for make in (*waits, *named.values()):
                calls.append(self._call_of(make))
            return cast(First[T], self._wait(self._first(calls, list(named))))
        finally:
            for call in calls:
                call.close()  # no effect if it has run

    async def _first(self, calls: Sequence[Coroutine[Any, Any, T]], names: Sequence[str]) -> First[T]:
        unnamed = len(calls) - len(names)
        return await self._context.first(*calls[:unnamed], **dict(zip(names, calls[unnamed:], strict=True)))

    def _call_of(self, make: Callable[[], T]) -> Coroutine[Any, Any, T]:
        """Return the call that a function makes, without waiting for it."""
        token = _calls.set(True)
        try:
            found: object = make()
        except _Called as called:
            return called.work
        finally:
            _calls.reset(token)
        raise StepError(
            f"Step {self.step!r}: ctx.first takes functions that call ctx.receive, sleep, until, ask, confirm or call,"
            f" but one of them returned {found!r:.100} without such a call. Write: ctx.first(reply=lambda:"
            " ctx.receive(), late=lambda: ctx.sleep(60))."
        )

    @overload
    def ask(self, question: str, *, default: str | EllipsisType = ..., **options: Unpack[Options]) -> str: ...
    @overload
    def ask(
        self, question: str, kind: type[T], *, default: T | EllipsisType = ..., **options: Unpack[Options]
    ) -> T: ...  # fmt: skip
    @overload
    def ask(
        self, question: str, *, choices: Sequence[C], default: C | EllipsisType = ..., **options: Unpack[Options]
    ) -> C: ...
    @overload
    def ask(
        self, question: str, *, schema: Mapping[str, Any], default: Any = ..., **options: Unpack[Options]
    ) -> Any: ...
    def ask(
        self, question: str, kind: Any = str, *, choices: Sequence[Any] | None = None,
        schema: Mapping[str, Any] | None = None, default: Any = ..., **options: Unpack[Options],
    ) -> Any:  # fmt: skip
        """See `Context.ask`."""
        ask: Any = self._context.ask
        return self._wait(ask(question, kind, choices=choices, schema=schema, default=default, **options))

    def confirm(
        self, what: str, *, act: Callable[..., Any] | str = "", understand: Judge | None = None,
        **options: Unpack[Options],
    ) -> Literal[True]:  # fmt: skip
        """See `Context.confirm`."""
        self._wait(self._context.confirm(what, act=act, understand=understand, **options))
        return True

    def call(
        self, workflow: Workflow[S, R], state: S | None = None, /, *, key: str | int | None = None,
        retry: int | Retry | None = None, timeout: Duration | None = None, **fields: Any,
    ) -> R:  # fmt: skip
        """See `Context.call`."""
        called = self._context.call(workflow, state, key=key, retry=retry, timeout=timeout, **fields)
        return cast(R, self._wait(called))

    def safe_point(self) -> None:
        """See `Context.safe_point`."""
        self._wait(self._context.safe_point())

    def progress(self, done: int, total: int) -> None:
        """See `Context.progress`."""
        self._wait(_later(self._context.progress, done, total))

    def stream(self, chunk: str | bytes, kind: str = "text") -> None:
        """See `Context.stream`. It does not wait for the engine's loop."""
        try:
            if self._context._frame.is_closed:
                raise ContextClosed("its attempt has failed")
            self._context.stream(chunk, kind)
        except ContextClosed:
            raise StepExited(f"step {self.step} was exited; its result is discarded") from None

    def emit(self, event_type: str, summary: str = "", **data: Any) -> None:
        """See `Context.emit`."""
        self._wait(_later(self._context.emit, event_type, summary, **data))

    def spend(
        self, *, usd: float | Decimal = 0, tokens: int | None = None, model: str | None = None, input_tokens: int = 0,
        output_tokens: int = 0,
    ) -> None:  # fmt: skip
        """See `Context.spend`."""
        usage = {"model": model, "input_tokens": input_tokens, "output_tokens": output_tokens}
        self._wait(_later(self._context.spend, usd=usd, tokens=tokens, **usage))

    def commit(self) -> None:
        """See `Context.commit`."""
        self._wait(self._context.commit())

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the engine's loop and wait for it in this thread."""
        visit = self._context._visit
        if _calls.get():
            raise _Called(work)
        if threading.get_ident() == visit.thread:
            work.close()
            raise StepError(
                f"Step {visit.step.name!r} used its BlockingContext on the event loop's thread, which would block"
                " the loop. Make the step async def, or use the context in a thread."
            )
        if visit.exited or self._context._frame.is_closed:
            work.close()
            raise StepExited(f"step {visit.step.name} was exited; its result is discarded")
        try:
            call = tracked(visit, self._context._frame, work)
            return asyncio.run_coroutine_threadsafe(call, visit.loop).result()
        except (FutureCancelled, asyncio.CancelledError, ContextClosed):
            raise StepExited(f"step {visit.step.name} was exited; its result is discarded") from None


async def _later(fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    return fn(*args, **kwargs)


async def tracked(visit: Visit, frame: Frame, work: Coroutine[Any, Any, T]) -> T:
    """Run a blocking step's call in a task that is cancelled with the visit, or with the attempt that makes it."""
    task = asyncio.current_task()
    assert task is not None
    visit.tasks.add(task)
    visit.callers[task] = frame
    try:
        return await work
    finally:
        visit.tasks.discard(task)
        del visit.callers[task]
