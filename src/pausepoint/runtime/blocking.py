# mypy: disable-error-code="empty-body"
"""What ``def`` steps and blocking code call: operations of an async object, for a thread that waits for each of them.

A method that only waits is declared with its signature and without a body: ``@form_of(Context.sleep)``. Its code and
its docstring come from the async method. The signature is for type checkers; a test compares the two.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError as FutureCancelled
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Protocol, TypeVar, Unpack, cast, overload

from pausepoint.definition.functions import callee, plain
from pausepoint.definition.rate import Rate
from pausepoint.definition.retry import Retry
from pausepoint.definition.workflow import Workflow
from pausepoint.errors import ContextClosed, StepError, StepExited
from pausepoint.model.chunks import Chunked
from pausepoint.model.drawers import DrawerStream, DrawerValue, Fold
from pausepoint.model.views import Listing
from pausepoint.name import NAME
from pausepoint.runtime.artifacts import StepArtifact
from pausepoint.runtime.attempts import Policy, Run, begin, fail_attempt
from pausepoint.runtime.chunks import DEFAULT_RETRY, OnError, StepFiles
from pausepoint.runtime.context import BaseContext, Context
from pausepoint.runtime.drawers import Drawer
from pausepoint.runtime.fanout import DEFAULT_CONCURRENCY, Batch
from pausepoint.runtime.files import Files, OnProgress, Source
from pausepoint.runtime.inside import Place, entered
from pausepoint.runtime.pending import First
from pausepoint.runtime.questions import Judge, Options
from pausepoint.runtime.visit import Frame, Visit
from pausepoint.runtime.waits import Duration
from pausepoint.threads import waiting_thread

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pausepoint.model.schemas import ChunkState, File

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S", bound="BaseModel")
C = TypeVar("C", str, int, float, bool)
F = TypeVar("F", bound=Callable[..., Any])
Call = Callable[..., Any]
"""Runs a coroutine function with its arguments on the engine's loop, and waits for its result."""


class Blocking(Protocol):
    """An object whose methods are blocking forms of the methods of ``_wrapped``."""

    @property
    def _wrapped(self) -> Any: ...
    @property
    def _call(self) -> Call: ...


def form(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the blocking form of a method: it runs the wrapped object's method on the loop and waits for it."""
    name = method.__name__

    if inspect.iscoroutinefunction(inspect.unwrap(method)):

        @functools.wraps(method)
        def call(self: Blocking, /, *args: Any, **kwargs: Any) -> Any:
            return self._call(getattr(self._wrapped, name), *args, **kwargs)
    else:

        @functools.wraps(method)
        def call(self: Blocking, /, *args: Any, **kwargs: Any) -> Any:
            return self._call(_later, getattr(self._wrapped, name), *args, **kwargs)

    return call


def form_of(method: Callable[..., Any]) -> Callable[[F], F]:
    """Give a method that is declared without a body the code and the docstring of its async form."""

    def derived(declared: F) -> F:
        call = functools.update_wrapper(form(method), declared)
        call.__doc__ = method.__doc__
        return cast(F, call)

    return derived


async def _later(fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    return fn(*args, **kwargs)


class BlockingFiles:
    """The files of one session, for blocking code. See `Files`."""

    __slots__ = ("__weakref__", "_call", "_wrapped")

    def __init__(self, files: Files | StepFiles, call: Call) -> None:
        self._wrapped = files
        self._call = call

    @form_of(Files.add)
    def add(
        self, source: Source, /, filename: str | None = None, content_type: str | None = None, *,
        by: str | None = None, on_progress: OnProgress | None = None, **metadata: Any,
    ) -> File: ...  # fmt: skip
    @form_of(Files.get)
    def get(self, file_id: str) -> File: ...
    @form_of(Files.list)
    def list(self) -> list[File]: ...
    @form_of(Files.open)
    def open(self, file_id: str, mode: str = "rb") -> BinaryIO: ...
    @form_of(Files.progress)
    def progress(self, file_id: str) -> ChunkState: ...

    @property
    def outputs(self) -> Path:
        """The session's folder for output files. It is created on first use and deleted with the session."""
        return self._wrapped.outputs


class BlockingStepFiles(BlockingFiles):
    """``ctx.files`` of a ``def`` step: the blocking `StepFiles`."""

    __slots__ = ()

    @form_of(StepFiles.add)
    def add(
        self, source: Source, /, filename: str | None = None, content_type: str | None = None, **metadata: Any
    ) -> File: ...
    @form_of(StepFiles.chunks)
    def chunks(
        self, file: File | str, work: Callable[..., R], total: int, *, concurrency: int = DEFAULT_CONCURRENCY,
        retry: Retry | int = DEFAULT_RETRY, on_error: OnError = "collect", **params: Any,
    ) -> Chunked[R]: ...  # fmt: skip


class BlockingStepArtifact:
    """The blocking `StepArtifact` of a ``def`` step."""

    __slots__ = ("__weakref__", "_call", "_wrapped")

    def __init__(self, artifact: StepArtifact, call: Call) -> None:
        self._wrapped = artifact
        self._call = call

    @property
    def path(self) -> Path:
        """The file's path in the session's folder, whether or not the file exists yet."""
        return self._wrapped.path

    @form_of(StepArtifact.read)
    def read(self) -> bytes: ...
    @form_of(StepArtifact.spared)
    def spared(self) -> dict[str, Any]: ...


class BlockingDrawer:
    """A drawer, for blocking code. See `Drawer`."""

    __slots__ = ("__weakref__", "_call", "_wrapped")

    def __init__(self, drawer: Drawer, call: Call) -> None:
        self._wrapped = drawer
        self._call = call

    def __repr__(self) -> str:
        return f"Blocking{self._wrapped!r}"

    @property
    def name(self) -> str:
        """The name of the drawer."""
        return self._wrapped.name

    @property
    def session_id(self) -> str | None:
        """The id of the session that the drawer belongs to; None if it is the store's own."""
        return self._wrapped.session_id

    @form_of(Drawer.append)
    def append(self, stream: str, entries: Sequence[bytes], *, note: Fold | None = None) -> int: ...
    @form_of(Drawer.read)
    def read(self, stream: str, after: int = 0, last: int | None = None) -> list[bytes] | None: ...
    @form_of(Drawer.streams)
    def streams(self, prefix: str = "") -> Listing[DrawerStream]: ...
    @form_of(Drawer.pop)
    def pop(self, stream: str) -> bytes | None: ...
    @form_of(Drawer.drop)
    def drop(self, *streams: str) -> int: ...
    @form_of(Drawer.put)
    def put(self, key: str, data: bytes, *, if_version: int | None = None) -> int: ...
    @form_of(Drawer.get)
    def get(self, key: str) -> DrawerValue | None: ...
    @form_of(Drawer.put_all)
    def put_all(
        self, values: Mapping[str, bytes], *, new: Mapping[str, bytes] | None = None, remove: Iterable[str] = (),
        if_version: Mapping[str, int] | None = None,
    ) -> dict[str, int]: ...  # fmt: skip
    @form_of(Drawer.get_all)
    def get_all(self, keys: Iterable[str]) -> dict[str, DrawerValue]: ...
    @form_of(Drawer.values)
    def values(
        self, prefix: str = "", *, after: str = "", before: str | None = None, first: int | None = None,
        last: int | None = None,
    ) -> dict[str, DrawerValue]: ...  # fmt: skip
    @form_of(Drawer.keys)
    def keys(self, prefix: str = "") -> list[str]: ...
    @form_of(Drawer.clear)
    def clear(self, prefix: str = "") -> int: ...


_calls: ContextVar[bool] = ContextVar(f"{NAME}_calls", default=False)
"""Whether the calling code makes a call for `BlockingContext.first`, which must not wait."""


class _Called(BaseException):
    """Carries a call of a context out of the function that makes it."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        super().__init__()
        self.work = work


class BlockingContext(BaseContext):
    """The durable operations of a ``def`` step: those of `Context`, blocking.

    The step runs in a thread. When the engine stops the step (abort, time-out, shutdown), the step's next call of the
    context raises a signal that ends it.
    """

    __pausepoint_context__ = "blocking"
    __slots__ = ("_wrapped",)

    def __init__(self, visit: Visit, frame: Frame) -> None:
        super().__init__(visit, frame)
        self._wrapped = Context(visit, frame)

    @form_of(Context.nth)
    def nth(self, name: str) -> int: ...
    @form_of(Context.branch_by)
    def branch_by(self, name: Callable[[], str]) -> None: ...

    @property
    def files(self) -> BlockingStepFiles:
        """The session's files: add, read and process them."""
        return BlockingStepFiles(self._wrapped.files, self._call)

    def artifact(self, path: str) -> BlockingStepArtifact:
        """See `Context.artifact`."""
        return BlockingStepArtifact(self._wrapped.artifact(path), self._call)

    def drawer(self, name: str) -> BlockingDrawer:
        """See `Context.drawer`."""
        return BlockingDrawer(self._wrapped.drawer(name), self._call)

    def do(
        self, fn: Callable[..., R], /, *args: Any, key: str | int | None = None, retry: int | Retry | None = None,
        timeout: Duration | None = None, **kwargs: Any,
    ) -> R:  # fmt: skip
        """See `Context.do`. ``fn`` runs in the step's own thread; with ``timeout``, each attempt has its own thread."""
        given = retry is not None or timeout is not None
        policy = self._wrapped._policy(callee(fn), fn, retry, timeout) if given else None
        return cast(R, self._run(fn, args, kwargs, key, policy))

    def _run(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], key: str | int | None,
        policy: Policy | None = None,
    ) -> Any:  # fmt: skip
        context, visit = self._wrapped, self._visit
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
        visit = self._visit
        while policy is not None:
            self._wait(begin(visit, run, policy))
            try:
                return self._attempt(run, fn, args, kwargs)
            except Exception as error:
                self._wait(fail_attempt(visit, run, policy, error))
        return self._attempt(run, fn, args, kwargs)

    def _attempt(self, run: Run, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with entered(Place(self._visit, run.frame)):
            return fn(*args, **self._wrapped._with_context(run.what, run.frame, kwargs))

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
        return self._wait(self._wrapped._map(fn, items, key, concurrency, on_error, retry, timeout, rate))

    @form_of(Context.sleep)
    def sleep(self, duration: Duration) -> None: ...
    @form_of(Context.until)
    def until(self, moment: datetime) -> None: ...
    @overload
    def receive(self, *, timeout: None = None) -> str: ...
    @overload
    def receive(self, kind: type[T], *, timeout: None = None) -> T: ...
    @overload
    def receive(self, *, timeout: Duration | None) -> str | None: ...
    @overload
    def receive(self, kind: type[T], *, timeout: Duration | None) -> T | None: ...
    @form_of(Context.receive)
    def receive(self, kind: Any = str, *, timeout: Duration | None = None) -> Any: ...

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
        return await self._wrapped.first(*calls[:unnamed], **dict(zip(names, calls[unnamed:], strict=True)))

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
    @form_of(Context.ask)
    def ask(
        self, question: str, kind: Any = str, *, choices: Sequence[Any] | None = None,
        schema: Mapping[str, Any] | None = None, default: Any = ..., **options: Unpack[Options],
    ) -> Any: ...  # fmt: skip
    @form_of(Context.confirm)
    def confirm(
        self, what: str, *, act: Callable[..., Any] | str = "", understand: Judge | None = None,
        **options: Unpack[Options],
    ) -> Literal[True]: ...  # fmt: skip
    @form_of(Context.call)
    def call(
        self, workflow: Workflow[S, R], state: S | None = None, /, *, key: str | int | None = None,
        retry: int | Retry | None = None, timeout: Duration | None = None, **fields: Any,
    ) -> R: ...  # fmt: skip
    @form_of(Context.safe_point)
    def safe_point(self) -> None: ...
    @form_of(Context.commit)
    def commit(self) -> None: ...
    @form_of(Context.progress)
    def progress(self, done: int, total: int) -> None: ...
    @form_of(Context.emit)
    def emit(self, event_type: str, summary: str = "", **data: Any) -> None: ...
    @form_of(Context.spend)
    def spend(
        self, *, usd: float | Decimal = 0, tokens: int | None = None, model: str | None = None, input_tokens: int = 0,
        output_tokens: int = 0,
    ) -> None: ...  # fmt: skip

    def stream(self, chunk: str | bytes, kind: str = "text") -> None:
        """See `Context.stream`. It does not wait for the engine's loop."""
        try:
            if self._frame.is_closed:
                raise ContextClosed("its attempt has failed")
            self._wrapped.stream(chunk, kind)
        except ContextClosed:
            raise StepExited(f"step {self.step} was exited; its result is discarded") from None

    def _call(self, work: Callable[..., Coroutine[Any, Any, T]], /, *args: Any, **kwargs: Any) -> T:
        return cast(T, self._wait(work(*args, **kwargs)))

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the engine's loop and wait for it in this thread."""
        visit = self._visit
        if _calls.get():
            raise _Called(work)
        if threading.get_ident() == visit.thread:
            work.close()
            raise StepError(
                f"Step {visit.step.name!r} used its BlockingContext on the event loop's thread, which would block"
                " the loop. Make the step async def, or use the context in a thread."
            )
        if visit.exited or self._frame.is_closed:
            work.close()
            raise StepExited(f"step {visit.step.name} was exited; its result is discarded")
        try:
            call = tracked(visit, self._frame, work)
            return asyncio.run_coroutine_threadsafe(call, visit.loop).result()
        except (FutureCancelled, asyncio.CancelledError, ContextClosed):
            raise StepExited(f"step {visit.step.name} was exited; its result is discarded") from None


def tracked(visit: Visit, frame: Frame, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """Run a call of this thread in a task that is cancelled with the visit, or with the attempt that makes it."""
    return _tracked(visit, frame, work, threading.current_thread())


async def _tracked(visit: Visit, frame: Frame, work: Coroutine[Any, Any, T], thread: threading.Thread) -> T:
    waiting_thread.set(thread)
    task = asyncio.current_task()
    assert task is not None
    visit.tasks.add(task)
    visit.callers[task] = frame
    try:
        return await work
    finally:
        visit.tasks.discard(task)
        del visit.callers[task]
