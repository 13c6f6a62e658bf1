"""The context of a step: durable operations whose results are remembered as soon as they end."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, Unpack, cast, overload

from pausepoint.clock import to_datetime
from pausepoint.definition.functions import Callee, callee, clash_of, plain
from pausepoint.definition.rate import Rate
from pausepoint.definition.retry import Retry
from pausepoint.definition.types import misreturned
from pausepoint.definition.workflow import Workflow
from pausepoint.errors import OversizedValue, ValueRefused
from pausepoint.model.drawers import check_drawer
from pausepoint.model.ids import SessionId
from pausepoint.runtime import questions as asking
from pausepoint.runtime import waits
from pausepoint.runtime.artifacts import StepArtifact
from pausepoint.runtime.attempts import (
    Policy,
    Run,
    attempts,
    clashing,
    invoke,
    policy_of,
    refuse_field_clash,
)
from pausepoint.runtime.chunks import StepFiles
from pausepoint.runtime.drawers import Drawer
from pausepoint.runtime.fanout import DEFAULT_CONCURRENCY, Batch, FanOut
from pausepoint.runtime.inside import within
from pausepoint.runtime.pending import RACES, WAITS, First, Make, finish, first, taken_apart
from pausepoint.runtime.questions import Judge, Options
from pausepoint.runtime.spending import spend
from pausepoint.runtime.visit import Frame, Operation, Visit, is_count
from pausepoint.runtime.waits import Duration

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S", bound="BaseModel")
C = TypeVar("C", str, int, float, bool)
F = TypeVar("F", bound=Callable[..., Any])


class _Remembered(NamedTuple):
    """The result of an operation that an earlier run of the visit finished."""

    value: Any


def _tracked_call(method: F) -> F:
    """Make the step fail if a call of the method is never awaited, because the operation would silently not run."""

    @functools.wraps(method)
    def call(self: Context, /, *args: Any, **kwargs: Any) -> Any:
        return self._visit.calls.track(method(self, *args, **kwargs))

    return cast(F, call)


def _wait_call(method: F) -> F:
    """Do the same, for a method that `Context.first` can race."""
    WAITS.add(method.__code__)
    return _tracked_call(method)


def _race_call(method: F) -> F:
    """Do the same, for a method that gets calls of other methods. It gets the waits of these calls instead."""
    RACES.add(method.__code__)

    @functools.wraps(method)
    def call(self: Context, /, *args: Any, **kwargs: Any) -> Any:
        waits = [taken_apart(self._visit, each) for each in args]
        named = {name: taken_apart(self._visit, each) for name, each in kwargs.items()}
        return self._visit.calls.track(method(self, *waits, **named))

    return cast(F, call)


class BaseContext:
    """What a context says of its step. It is the same in ``async def`` and ``def`` steps, and needs no waiting."""

    __slots__ = ("_frame", "_visit")

    def __init__(self, visit: Visit, frame: Frame) -> None:
        self._visit = visit
        self._frame = frame

    @property
    def session_id(self) -> SessionId:
        """The id of the session that this step belongs to."""
        return SessionId(self._visit.host.session_id)

    @property
    def started_at(self) -> datetime:
        """The time the session was created, in UTC. It is the same in every step and after every resume."""
        return to_datetime(self._visit.host.row.created_at)

    @property
    def step(self) -> str:
        """The name of the step."""
        return self._visit.step.name

    @property
    def visit(self) -> int:
        """The visit number of this step, starting at 1."""
        return self._visit.number

    @property
    def attempt(self) -> int:
        """The attempt number within this visit, starting at 1."""
        return self._visit.attempt

    @property
    def idempotency_key(self) -> str:
        """A stable key to pass to external services: the same after a crash, different for each visit and map item."""
        return self._visit.idempotency_key(self._frame.scope)


class Context(BaseContext):
    """The durable operations of an ``async def`` step.

    A step gets its context by annotating a parameter: ``async def research(topic: str, ctx: Context)``. Each operation
    is remembered when it ends. When the step runs again, after a crash, a pause or a retry, the operation returns the
    remembered result. Using a context after its step has ended raises `ContextClosed`.
    """

    __pausepoint_context__ = "async"
    __slots__ = ()

    def nth(self, name: str) -> int:
        """Return how often this step, or this operation, has called this with ``name``: 1 for the first call.

        It counts from 1 again when the step runs again. Use it to make keys for work that starts in the same order
        each time, such as the runs of an agent.
        """
        self._visit.check_open()
        return int(self._visit.nth(self._frame, f"{self._frame.scope}/nth:{name}").rpartition("#")[2])

    def branch_by(self, name: Callable[[], str]) -> None:
        """Recognise calls without a key by the branch that makes them, too. For adapters. Provisional.

        Equal calls of this step, or of this operation, are otherwise recognised by their order. Use this if code that
        has ended does not run again, such as the nodes of a graph. ``name`` returns the name of the branch that the
        calling code belongs to. It must be the same when that code runs again.
        """
        self._visit.check_open()
        self._frame.branch = name

    @property
    def files(self) -> StepFiles:
        """The session's files: add, read and process them."""
        return StepFiles(self)

    def artifact(self, path: str) -> StepArtifact:
        """Return one artifact of the session: its path, its content, and the entries that can be reused.

        ``path`` is a file's path in the session's folder, or the pattern that the step declares.
        """
        return StepArtifact(self, path)

    def drawer(self, name: str) -> Drawer:
        """Return a drawer of this session, for adapters that keep what another framework stores. Provisional.

        See `Engine.drawer`. A write is durable when it returns. It does not wait for a pause, and a rewind does not
        undo it.
        """
        host = self._visit.host
        return Drawer(check_drawer(name, host.session_id), host.ledger.store, self._visit.check_open, None)

    @overload
    async def do(
        self, fn: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, key: str | int | None = None,
        retry: int | Retry | None = None, timeout: Duration | None = None, **kwargs: Any,
    ) -> R: ...  # fmt: skip
    @overload
    async def do(
        self, fn: Callable[..., R], /, *args: Any, key: str | int | None = None, retry: int | Retry | None = None,
        timeout: Duration | None = None, **kwargs: Any,
    ) -> R: ...  # fmt: skip
    @_tracked_call
    async def do(
        self, fn: Callable[..., Any], /, *args: Any, key: str | int | None = None, retry: int | Retry | None = None,
        timeout: Duration | None = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Run ``fn(*args, **kwargs)`` once and remember its result.

        After a crash, a pause or a retry the same call returns the remembered result without running ``fn``. The call
        is recognised by the function's name and arguments. Pass ``key=`` to recognise it by a key instead.

        A blocking function runs in a thread. If ``fn`` has a parameter annotated `Context`, it gets its own context.

        ``retry`` is the number of attempts in total, or a `Retry`. The wait before the next attempt survives restarts,
        and a pause takes effect during it. ``timeout`` limits one attempt, in seconds or as a timedelta. The time
        in which the operation waits or is paused does not count. `OperationTimeout` is raised when it expires.
        """
        what = callee(fn)
        operation = self._visit.identify(self._frame, what, args, kwargs, key)
        policy = None
        if retry is not None or timeout is not None:
            last = self._visit.policy  # an agent passes the same options in every turn
            same = last is not None and last[0] is retry and last[1] is timeout and what.clash == ""
            policy = last[2] if same and last is not None else self._policy(what, fn, retry, timeout)
        return await self._once(operation, what, fn, args, kwargs, policy)

    def _policy(
        self, what: Callee, fn: Callable[..., Any], retry: int | Retry | None, timeout: Duration | None
    ) -> Policy | None:
        if clash_of(what, fn):
            raise clashing(self._visit.step.name, what)
        return policy_of(self._visit, retry, timeout)

    async def _once(
        self, operation: Operation, what: Callee, fn: Callable[..., Any], args: tuple[Any, ...],
        kwargs: dict[str, Any], policy: Policy | None = None,
    ) -> Any:  # fmt: skip
        run = await self._start(operation, what)
        if not isinstance(run, Run):
            return run.value
        try:
            with self._visit.host.ledger.watch.operation(operation.name) as run.frame.span:
                fn = plain(fn)
                if policy is None:
                    kwargs = self._with_context(what, run.frame, kwargs)
                    value = await within(self._visit, run.frame, invoke(what, fn, args, kwargs))
                else:
                    value = await attempts(self, run, policy, fn, args, kwargs)
                return await self._keep(run, value)
        except Exception:
            self._visit.calls.has_failed(operation.name, self._visit.host.code_task)
            raise
        finally:
            self._visit.exit(run.frame)

    async def _start(self, operation: Operation, what: Callee) -> Run | _Remembered:
        visit = self._visit
        while (twin := visit.running.get(operation.id)) is not None:
            await twin.wait()  # another branch runs the same operation, which must run only once
        found = visit.remembered(operation)
        self._frame.follows = found is not None
        await visit.admit(operation, self._frame, found)
        if found is not None:
            return _Remembered(await visit.recall(found, what.result))
        frame = Frame(operation.id, self._frame)
        visit.enter(frame)
        return Run(operation, what, frame, visit.host.clock.monotonic())

    async def _keep(self, run: Run, value: Any) -> Any:
        name, result = run.operation.name, run.what.result
        try:
            data = await self._visit.keep(run.operation, result, value, run.started, run.frame)
        except OversizedValue:
            raise
        except ValueRefused as error:
            why = misreturned(name, result.annotation, value) or str(error)
            raise ValueRefused(f"Step {self._visit.step.name!r}, operation {name!r}: {why}", **error.fields) from error
        # Decoded again, so that the first run sees exactly what a replay will see.
        return result.decode(data, name)

    def _with_context(self, what: Callee, frame: Frame, kwargs: dict[str, Any]) -> dict[str, Any]:
        if what.context is None:
            return kwargs
        if what.is_async:
            return {**kwargs, what.context: Context(self._visit, frame)}
        from pausepoint.runtime.blocking import BlockingContext  # it needs this module

        return {**kwargs, what.context: BlockingContext(self._visit, frame)}

    @overload
    async def map(
        self, fn: Callable[[T], Coroutine[Any, Any, R]], items: Iterable[T], *,
        key: Callable[[T], str | int] | None = None, concurrency: int = DEFAULT_CONCURRENCY,
        on_error: Literal["raise"] = "raise", retry: int | Retry | None = None, timeout: Duration | None = None,
        rate: Rate | None = None,
    ) -> list[R]: ...  # fmt: skip
    @overload
    async def map(
        self, fn: Callable[[T], Coroutine[Any, Any, R]], items: Iterable[T], *,
        key: Callable[[T], str | int] | None = None, concurrency: int = DEFAULT_CONCURRENCY,
        on_error: Literal["collect"], retry: int | Retry | None = None, timeout: Duration | None = None,
        rate: Rate | None = None,
    ) -> Batch[R]: ...  # fmt: skip
    @overload
    async def map(
        self, fn: Callable[..., Coroutine[Any, Any, R]], items: Iterable[T], *,
        key: Callable[[T], str | int] | None = None, concurrency: int = DEFAULT_CONCURRENCY,
        on_error: Literal["raise"] = "raise", retry: int | Retry | None = None, timeout: Duration | None = None,
        rate: Rate | None = None,
    ) -> list[R]: ...  # fmt: skip
    @overload
    async def map(
        self, fn: Callable[..., Coroutine[Any, Any, R]], items: Iterable[T], *,
        key: Callable[[T], str | int] | None = None, concurrency: int = DEFAULT_CONCURRENCY,
        on_error: Literal["collect"], retry: int | Retry | None = None, timeout: Duration | None = None,
        rate: Rate | None = None,
    ) -> Batch[R]: ...  # fmt: skip
    @overload
    async def map(
        self, fn: Callable[..., R], items: Iterable[T], *, key: Callable[[T], str | int] | None = None,
        concurrency: int = DEFAULT_CONCURRENCY, on_error: Literal["raise"] = "raise",
        retry: int | Retry | None = None, timeout: Duration | None = None, rate: Rate | None = None,
    ) -> list[R]: ...  # fmt: skip
    @overload
    async def map(
        self, fn: Callable[..., R], items: Iterable[T], *, key: Callable[[T], str | int] | None = None,
        concurrency: int = DEFAULT_CONCURRENCY, on_error: Literal["collect"],
        retry: int | Retry | None = None, timeout: Duration | None = None, rate: Rate | None = None,
    ) -> Batch[R]: ...  # fmt: skip
    @_tracked_call
    async def map(
        self, fn: Callable[..., Any], items: Iterable[Any], *, key: Callable[[Any], str | int] | None = None,
        concurrency: int = DEFAULT_CONCURRENCY, on_error: Literal["raise", "collect"] = "raise",
        retry: int | Retry | None = None, timeout: Duration | None = None, rate: Rate | None = None,
    ) -> Any:  # fmt: skip
        """Run ``fn`` for every item, ``concurrency`` at a time, and return the results in the order of the items.

        Each finished item is remembered immediately. Items are recognised by value, or by ``key(item)``. A pause takes
        effect before the next item. The next attempt of the step, or a resume, retries failed items.

        ``retry`` and ``timeout`` apply to each item, as in `do`. An item that waits for its next attempt still counts
        as one of ``concurrency``. ``rate`` limits how many attempts start in a span of time.

        ``on_error="raise"`` raises `MapFailed` once all other items have finished. ``"collect"`` returns a `Batch` of
        results and errors instead.
        """
        return await self._map(fn, items, key, concurrency, on_error, retry, timeout, rate)

    async def _map(
        self, fn: Callable[..., Any], items: Iterable[Any], key: Callable[[Any], str | int] | None,
        concurrency: int, on_error: str, retry: int | Retry | None, timeout: Duration | None, rate: Rate | None,
    ) -> Any:  # fmt: skip
        if on_error not in ("raise", "collect"):
            raise ValueError(f"on_error must be 'raise' or 'collect', not {on_error!r}.")
        fan = FanOut(self, fn, list(items), key, policy_of(self._visit, retry, timeout, rate))
        await fan.run(concurrency)
        if on_error == "collect":
            return Batch(fan.done, fan.failed)
        if fan.failed:
            raise fan.error()
        return [fan.done[index] for index in range(len(fan.items))]

    @_wait_call
    async def sleep(self, duration: Duration) -> None:
        """Wait for a duration: seconds or a ``timedelta``.

        The timer survives restarts, and a waiting session uses no resources.
        """
        await self._finish(lambda: waits.sleeping(self._visit, self._frame, duration))

    @_wait_call
    async def until(self, moment: datetime) -> None:
        """Wait until a point in time: a ``datetime`` with a time zone. The timer survives restarts."""
        await self._finish(lambda: waits.waiting_until(self._visit, self._frame, moment))

    @overload
    async def receive(self, *, timeout: None = None) -> str: ...
    @overload
    async def receive(self, kind: type[T], *, timeout: None = None) -> T: ...
    @overload
    async def receive(self, *, timeout: Duration | None) -> str | None: ...
    @overload
    async def receive(self, kind: type[T], *, timeout: Duration | None) -> T | None: ...
    @_wait_call
    async def receive(self, kind: Any = str, *, timeout: Duration | None = None) -> Any:
        """Wait for the session's next message and return it as a value of type ``kind``.

        Messages are sent with ``session.send``. They are kept until received, in the order they were sent. A message
        that does not fit the type is recorded as an event (``message.refused``), and the wait continues.

        With ``timeout``, seconds or a ``timedelta``, return None if no message arrives in time. The time counts from
        the first time the step reaches the call. If the wait is cancelled, or if the step fails or exits before its
        next operation, wait or checkpoint, the message is still in the mailbox for the next ``receive``.
        """
        return await self._finish(lambda: waits.receiving(self._visit, self._frame, kind, timeout))

    @_race_call
    async def first(self, *waits: Coroutine[Any, Any, T], **named: Coroutine[Any, Any, T]) -> First[T]:
        """Wait until one of several waits is over, and return its name and its result.

        Pass calls of `receive`, `sleep`, `until`, `ask`, `confirm` and `call` that are not awaited:
        ``name, value = await ctx.first(reply=ctx.receive(), late=ctx.sleep(60))``. A wait that is passed by position
        has its position as name, starting at 0.

        Only the wait that ended first is remembered, in this and in every later run of the step. The others take
        nothing: messages stay in the mailbox, questions are closed, and child sessions continue to run. If several
        waits are over, an answer or the end of a child comes before a message, and a message before a timer. If the
        wait that ended first raises an error, such as `QuestionExpired`, this raises it.
        """
        makes: dict[str | int, Any] = dict(enumerate(waits))  # `_race_call` has replaced the calls
        makes.update(named)
        return await first(self._visit, self._frame, makes)

    @overload
    async def ask(
        self, question: str, *, default: str | EllipsisType = ..., **options: Unpack[Options]
    ) -> str: ...  # fmt: skip
    @overload
    async def ask(
        self, question: str, kind: type[T], *, default: T | EllipsisType = ..., **options: Unpack[Options]
    ) -> T: ...
    @overload
    async def ask(
        self, question: str, *, choices: Sequence[C], default: C | EllipsisType = ..., **options: Unpack[Options]
    ) -> C: ...
    @overload
    async def ask(
        self, question: str, *, schema: Mapping[str, Any], default: Any = ..., **options: Unpack[Options]
    ) -> Any: ...
    @_wait_call
    async def ask(
        self, question: str, kind: Any = str, *, choices: Sequence[Any] | None = None,
        schema: Mapping[str, Any] | None = None, default: Any = ..., **options: Unpack[Options],
    ) -> Any:  # fmt: skip
        """Ask a person and wait for the answer: a string, a value of type ``kind``, or one of ``choices``.

        ``schema`` describes the answer by a JSON schema instead, and returns plain JSON. It needs the extra
        ``pausepoint[schema]``. ``payload`` is structured context for the person: plain JSON or a Pydantic model.

        If an answer does not fit, the question is asked again with the reason, up to ``rounds`` times. Then
        `RoundsExhausted` is raised.

        ``expires`` is how long the question waits; None waits forever. The default is that of the workflow or the
        engine, or else forever. When the question expires, ``on_expiry`` decides: ``"pause"`` raises
        `QuestionExpired`, which pauses the session unless the step catches it; ``"default"`` returns ``default``;
        ``"escalate"`` asks once more. ``remind`` is how long before the expiry a reminder event is recorded.

        ``key`` names the question, so that an answer can arrive before it is asked. ``history`` is the state field
        that contains the conversation.
        """
        spec = asking.question(question, kind, choices, schema, default, **options)
        return await self._finish(lambda: asking.asking(self._visit, self._frame, spec))

    @_wait_call
    async def confirm(
        self, what: str, *, act: Callable[..., Any] | str = "", understand: Judge | None = None,
        **options: Unpack[Options],
    ) -> Literal[True]:  # fmt: skip
        """Ask a person for a yes before an action with side effects. A no raises `Declined`.

        The answer is remembered: if the step runs again, the same answer applies. ``act`` is the function to be run,
        or its name. After a no, its operation cannot run again in this visit, even if the step catches the error.
        ``understand`` turns free text into True, False, or None if it is neither. The other options are those of `ask`.
        """
        name = act if isinstance(act, str) else callee(act).name
        spec = asking.confirmation(what, name, understand, **options)
        await self._finish(lambda: asking.asking(self._visit, self._frame, spec))
        return True

    @_wait_call
    async def call(
        self, workflow: Workflow[S, R], state: S | None = None, /, *, key: str | int | None = None,
        retry: int | Retry | None = None, timeout: Duration | None = None, **fields: Any,
    ) -> R:  # fmt: skip
        """Run a workflow as a child session, wait until it ends, and return its result or its final state.

        A workflow that is a function returns its result; one with a list of steps its state.

        Pass the input as for ``engine.start``: as fields or as a state. Pausing or cancelling this session does the
        same to its children, and what children spend counts for this session too. A failed child raises `ChildFailed`;
        when the step runs again, the child resumes where it failed.

        ``retry`` resumes a failed child after a back-off, as often as it says. ``timeout`` limits how long the child
        may take, without the time in which this session is paused; then the child is cancelled, `OperationTimeout` is
        raised, and a further attempt starts another child.
        """
        if state is not None and fields:
            raise TypeError("Pass the child's input either as a state or as keyword fields, not both.")
        policy = policy_of(self._visit, retry, timeout)
        if policy is not None and state is None:
            refuse_field_clash(self._visit.step.name, workflow)
        given = fields if state is None else state
        return await self._finish(lambda: waits.calling(self._visit, self._frame, workflow, given, key, policy))

    @_tracked_call
    async def safe_point(self) -> None:
        """Let a pause take effect here, inside a long step."""
        self._visit.check_open()
        await asyncio.sleep(0)
        if self._visit.host.must_stop:
            await self._visit.halt(self._frame)

    def progress(self, done: int, total: int) -> None:
        """Report the step's progress: ``done`` of ``total``."""
        self._visit.check_open()
        if not (is_count(done) and is_count(total)):
            raise ValueError(
                f"ctx.progress takes two whole numbers, the items done and the total, not {done!r} and {total!r}."
            )
        self._visit.host.show_progress(int(done), int(total))

    def stream(self, chunk: str | bytes, kind: str = "text") -> None:
        """Send live output, such as the tokens of a model, to the followers of ``session.stream()``.

        The chunk is never stored: return the result itself, from an operation or the step. Sending takes microseconds
        and never fails the step; on a full disk the chunk is dropped. ``kind`` tells followers what it is.
        """
        self._visit.check_open()
        self._visit.host.send_live(self._visit, self._frame, chunk, kind)

    def emit(self, event_type: str, summary: str = "", **data: Any) -> None:
        """Add one of the workflow's own events to the session's history.

        The event is committed once, with the next operation or the step's checkpoint.
        """
        self._visit.emit(self._frame, event_type, summary, data)

    def spend(
        self, *, usd: float | Decimal = 0, tokens: int | None = None, model: str | None = None, input_tokens: int = 0,
        output_tokens: int = 0,
    ) -> None:  # fmt: skip
        """Record a cost in dollars, tokens or both. It counts against the session's budget.

        ``model`` names the language model that was used, ``input_tokens`` and ``output_tokens`` say how much of it.
        They are recorded with the event, and on the OpenTelemetry span of the operation that calls this. ``tokens`` is
        by default their sum.

        The cost is committed with the next operation or the step's checkpoint, and counts once, however often the
        step is interrupted and runs again. Each further attempt of a step or an operation that failed adds its own
        cost, except right after a remembered operation, whose cost an earlier attempt has recorded.
        """
        spend(self._visit, self._frame, usd, tokens, model, input_tokens, output_tokens)

    async def _finish(self, make: Callable[[], Make[T]]) -> T:
        return await finish(self._visit, self._frame, make)

    @_tracked_call
    async def commit(self) -> None:
        """Store now what the step has received, emitted and spent, instead of with the next operation or checkpoint.

        A commit is progress: a session is not paused because its processes keep dying if it commits between the
        crashes. Call it after work whose result is kept elsewhere, such as in another database. Do not call it before:
        a step that commits and then kills its process would never be paused.
        """
        await self._visit.commit()

    async def _gather(self, coroutines: list[Coroutine[Any, Any, None]]) -> None:
        if len(coroutines) == 1:
            await coroutines[0]
            return
        async with asyncio.TaskGroup() as group:
            for coroutine in coroutines:
                group.create_task(coroutine)
