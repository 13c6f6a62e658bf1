"""Attempts at one operation: the policy, the durable back-off between them, and the time-out of each.

An attempt that fails and is followed by another is recorded as a wait with the time of the next attempt. So a process
that dies during the back-off does not start to count again, and a pause takes effect during the back-off.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from pausepoint.clock import LATEST, to_datetime
from pausepoint.definition.functions import Callee
from pausepoint.definition.rate import Rate
from pausepoint.definition.retry import Retry, inside_of
from pausepoint.definition.workflow import Workflow
from pausepoint.errors import ContextClosed, OperationTimeout, StepError, Unanswered, error_text
from pausepoint.log.replay import WaitBody
from pausepoint.runtime.frames import Frame
from pausepoint.runtime.inside import Place, entered
from pausepoint.runtime.visit import Operation, Visit, Wait
from pausepoint.threads import in_thread

if TYPE_CHECKING:
    from pausepoint.runtime.context import Context

HOLD = 60_000_000
"""A back-off of up to this many microseconds keeps the step running. For a longer one the session is parked."""

LONGEST_ERROR = 500
"""How many characters of an error's message are recorded with a back-off."""


class Run:
    """An operation that has been admitted and is in flight. ``frame`` is that of the current attempt."""

    __slots__ = ("frame", "operation", "started", "what")

    def __init__(self, operation: Operation, what: Callee, frame: Frame, started: float) -> None:
        self.operation = operation
        self.what = what
        self.frame = frame
        self.started = started


class Policy(NamedTuple):
    """How often an operation is tried, how long one attempt may take, and how fast attempts may follow each other."""

    retry: Retry
    timeout: float | None = None
    pace: Pace | None = None


class Pace:
    """Keeps one call of ``map`` to its rate."""

    def __init__(self, rate: Rate) -> None:
        self.count, self.seconds = rate.count, rate.seconds
        self.starts: deque[float] = deque()

    async def turn(self, visit: Visit, frame: Frame) -> None:
        """Wait until one more attempt may start. A pause takes effect here."""
        clock = visit.host.clock
        while True:
            await halt_for_pause(visit, frame)
            now = clock.monotonic()
            while self.starts and self.starts[0] + self.seconds <= now:
                self.starts.popleft()
            if len(self.starts) < self.count:
                self.starts.append(now)
                return
            left = self.starts[0] + self.seconds - now
            await visit.wait(frame, Wait("timer", clock.now() + int(left * 1e6) + 1, holds=True))


def policy_of(
    visit: Visit, retry: int | Retry | None, timeout: timedelta | float | None, rate: Rate | None = None
) -> Policy | None:
    """Return how to try an operation; None if neither option is given. Raises `ValueError` for a wrong option."""
    if retry is None and timeout is None and rate is None:
        return None
    step = f"Step {visit.step.name!r}"
    if rate is not None and not isinstance(rate, Rate):
        raise ValueError(f"{step}: rate={rate!r} must be a Rate, such as Rate(10, per=timedelta(seconds=1)).")
    policy = Policy(_retry(retry, step), seconds_of(timeout, step), None if rate is None else Pace(rate))
    if rate is None:
        visit.policy = (retry, timeout, policy)
    return policy


def checked_policy(retry: object, timeout: object, where: str) -> Policy | None:
    """Return how to try an operation; None if neither option is given. ``where`` begins the error of a wrong option."""
    if retry is None and timeout is None:
        return None
    return Policy(_retry(retry, where), seconds_of(timeout, where))


def _retry(given: object, where: str) -> Retry:
    if given is None:
        return Retry(attempts=1)
    if isinstance(given, Retry):
        return given
    if type(given) is not int or given < 1:
        raise ValueError(f"{where}: retry={given!r} must be a number of attempts in total, 1 or more, or a Retry.")
    return Retry(attempts=given)


def seconds_of(given: Any, where: str) -> float | None:
    """Return a time-out in seconds. Raises `ValueError`, which begins with ``where``, if it is not above zero."""
    if given is None:
        return None
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if type(seconds) not in (int, float) or not isfinite(seconds) or seconds <= 0:
        raise ValueError(f"{where}: timeout={given!r} must be a timedelta or a number of seconds above zero.")
    return float(seconds)


def clashing(step: str, what: Callee) -> StepError:
    """Return the refusal of an option that is also a parameter of the function: which of the two is meant?"""
    name = what.clash
    return StepError(
        f"Step {step!r}: ctx.do takes {name}= for the operation, but {what.name!r} has a parameter {name!r} too. Bind"
        f" the function's own value first: ctx.do(functools.partial({what.name}, {name}=...), ...)."
    )


def refuse_field_clash(step: str, workflow: Workflow[Any]) -> None:
    """Refuse the options of a call if they are also fields of the child's input: which of the two is meant?"""
    for name in ("retry", "timeout"):
        if name in workflow.model.model_fields:
            raise StepError(
                f"Step {step!r}: ctx.call takes {name}= for the call, but the state of workflow {workflow.name!r} has a"
                f" field {name!r} too. Pass the child's input as a state: ctx.call({workflow.name},"
                f" {workflow.model.__name__}({name}=..., ...))."
            )


async def invoke(what: Callee, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function of an operation. A blocking one runs in a thread of its own."""
    if what.is_async:
        return await fn(*args, **kwargs)
    value = await in_thread(fn, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


async def attempts(
    ctx: Context, run: Run, policy: Policy, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call the function until an attempt succeeds. Raises the last error if the policy allows no further attempt."""
    visit, what, timeout = ctx._visit, run.what, policy.timeout
    timeouts, waits = visit.timeouts, visit.host.line.waits
    while True:
        if policy.pace is not None or (waits and run.operation.id in waits):
            await begin(visit, run, policy)
        frame = run.frame
        if timeout is not None:
            frame.due, frame.task = timeouts.time() + timeout, asyncio.current_task(visit.loop)
            if frame.due < timeouts.rings_at:
                timeouts.watch(frame.due)
        try:
            given = kwargs if what.context is None else ctx._with_context(what, frame, kwargs)
            # Without another coroutine in between, which would cost a microsecond.
            with entered(Place(visit, frame)):
                value = await (fn(*args, **given) if what.is_async else invoke(what, fn, args, given))
        except (Exception, asyncio.CancelledError) as raised:
            error = raised
            if timeouts.has_expired(frame, raised):
                # The thread of a blocking function cannot be stopped. It must not act for the next attempt.
                run.frame = abandon(visit, frame)
                error = timed_out(run.operation, timeout)
            elif isinstance(raised, asyncio.CancelledError):
                raise
            await fail_attempt(visit, run, policy, error)
            continue
        frame.due = inf
        if frame.expired:  # it ended, although it was cancelled
            timeouts.has_expired(frame, None)
        return value


async def begin(visit: Visit, run: Run, policy: Policy) -> None:
    """Wait until the next attempt may start: for the back-off after a failed one, and for the rate."""
    wait = visit.host.line.waits.get(run.operation.id)
    failed = 0 if wait is None else wait.attempt
    if failed:
        await back_off(visit, run.frame, run.operation.id, asking=1)
    if policy.pace is not None:
        await policy.pace.turn(visit, run.frame)
    await visit.leased()
    run.frame.attempt = failed + 1


async def back_off(visit: Visit, frame: Frame, id: str, asking: int = 0) -> None:
    """Wait for the next attempt at an operation. A pause takes effect here, and so does a spent budget.

    ``asking`` is 1 if the operation counts as in flight.
    """
    while (left := await rest(visit, frame, id, asking)) is not None:
        await visit.wait(frame, left)


async def rest(visit: Visit, frame: Frame, id: str, asking: int = 0) -> Wait | None:
    """Return the rest of the back-off before the next attempt at an operation; None if the attempt may begin."""
    host = visit.host
    while True:
        await halt_for_pause(visit, frame)
        wait = host.line.waits.get(id)
        if wait is not None and wait.error and wait.due is not None:
            left = wait.due - host.clock.now()
            if left > 0 or host.stopping:  # an engine that shuts down begins no attempt
                return Wait("timer", wait.due, holds=left <= HOLD)
        if host.budgeted is False:
            return None
        stops = host.must_stop
        if reason := await visit.uninterrupted(host.over_budget(asking)):
            await visit.refuse(frame, "budget", reason)
        if host.must_stop == stops:
            return None  # otherwise a request has arrived meanwhile


async def halt_for_pause(visit: Visit, frame: Frame) -> None:
    """Wait here while the session is paused. When the engine shuts down, the caller's own wait is parked instead."""
    while visit.host.must_stop and not visit.host.stopping:
        await visit.halt(frame)


async def fail(
    visit: Visit, operation: Operation, policy: Policy, error: BaseException, child: str = "",
    frame: Frame | None = None, item: str = "",
) -> None:  # fmt: skip
    """Record a failed attempt, with the time of the next one. Raises the error if no further attempt is allowed.

    ``frame`` is that of the attempt, if the operation can contain others. ``item`` names an item of a map.
    """
    host = visit.host
    before = host.line.waits.get(operation.id)
    failed = 1 if before is None else before.attempt + 1
    now = host.clock.now()
    delay = None if _is_final(visit, error) else policy.retry.delay(failed, error, random.random, to_datetime(now))
    if delay is None:
        raise error
    text = f"{type(error).__name__}: {error_text(error)}"[:LONGEST_ERROR]
    due = min(now + int(delay * 1e6), LATEST)
    body = WaitBody(
        operation.id, operation.name, due, child, visit.agent, at=now, input=operation.input, attempt=failed,
        error=text, resets=_tried_inside(visit, frame) if frame is not None and frame.used else (),
        item=item,
    )  # fmt: skip
    await visit.open_wait(body)


def _tried_inside(visit: Visit, frame: Frame) -> tuple[str, ...]:
    """Return the operations inside an attempt that have failed attempts of their own. They are forgotten."""
    waits, inside = visit.host.line.waits, f"{frame.scope}/"
    return tuple(id for id, wait in waits.items() if (wait.attempt or wait.child) and id.startswith(inside))


async def fail_attempt(visit: Visit, run: Run, policy: Policy, error: BaseException) -> None:
    """Record a failed attempt at an operation in flight. Its live output is void, including what it still sends."""
    await fail(visit, run.operation, policy, error, frame=run.frame, item=_item(run.operation))
    run.frame = visit.replace(run.frame)
    visit.host.void_live(run.frame.scope)


def _item(operation: Operation) -> str:
    """Return the name of an item of a map: its key, or the beginning of its value. Empty for other operations.

    >>> _item(Operation('/map:fetch/fetch["row 1"]', "fetch", "", True))
    'row 1'
    """
    return operation.label if f"/map:{operation.name}/" in operation.id else ""


def _is_final(visit: Visit, error: BaseException) -> bool:
    """Return whether another attempt is pointless: the step is exiting, or a remembered question has no answer."""
    if visit.exited or isinstance(error, ContextClosed):
        return True
    return any(isinstance(each, Unanswered) for each in (error, *inside_of(error)))


def abandon(visit: Visit, frame: Frame) -> Frame:
    """Close an attempt that timed out, with all that still runs inside. Return the frame of the next attempt."""
    inside = f"{frame.scope}/"
    for scope in [scope for scope in visit.running if scope.startswith(inside)]:
        visit.drop(visit.running[scope])
    for task, caller in list(visit.callers.items()):
        if caller is frame or caller.scope.startswith(inside):
            task.cancel()
    return visit.replace(frame)


def timed_out(operation: Operation, timeout: float | None) -> OperationTimeout:
    """Return the error of an attempt that took too long."""
    return OperationTimeout(
        f"Operation {operation.name!r} exceeded its timeout of {timeout:g} s. Raise timeout=, or pass retry= to try it"
        " again."
    )
