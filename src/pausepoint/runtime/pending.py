"""A wait of a step, from its identity to its end, and `first`, which races several of them.

A `Pending` looks whether its wait is over. If so, it takes the result and commits it. If not, it says what would end
the wait. `finish` repeats this for one wait, `first` for several, of which only the winner is committed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, CoroutineType
from typing import Any, Generic, NamedTuple, TypeVar, Unpack

from pausepoint.codec.values import Typed
from pausepoint.errors import StepError
from pausepoint.log.replay import OperationBody
from pausepoint.model.commits import Facts
from pausepoint.model.sessions import QuestionChange, QuestionStatus
from pausepoint.runtime.visit import Frame, Operation, Visit, Wait

T = TypeVar("T")


class Done(NamedTuple):
    """The result of a wait that is over."""

    value: Any


class First(NamedTuple, Generic[T]):
    """The wait that ended first: its name in the call of `Context.first`, or its position, and its result."""

    name: str | int
    value: T


class Pending(Generic[T]):
    """One wait of a visit. ``rivals`` are the waits that it races against."""

    rank = 0
    """If several waits of a race are over, the lowest rank wins."""

    def __init__(self, visit: Visit, frame: Frame, operation: Operation) -> None:
        self.visit = visit
        self.host = visit.host
        self.frame = frame
        self.operation = operation
        self.rivals: tuple[Pending[Any], ...] = ()

    async def recall(self, found: OperationBody) -> T:
        """Return the result that an earlier run of the visit has remembered."""
        raise NotImplementedError

    async def look(self) -> Done | Wait | None:
        """Return the result if the wait is over, otherwise what to wait for. None: look again.

        No ``await`` may come between taking a message and returning it, so that a cancelled wait has taken nothing.
        """
        raise NotImplementedError


Make = Callable[[str], Pending[T]]
"""Makes a wait with an identity in a scope."""


async def finish(visit: Visit, frame: Frame, make: Callable[[], Make[T]]) -> T:
    """Wait until a wait is over, and return its result."""
    if visit.takes_apart:
        raise _TakenApart(make)
    pending = make()(frame.scope)
    found = visit.remembered(pending.operation)
    await visit.admit(pending.operation, frame, found)
    if found is not None:
        return await pending.recall(found)
    while True:
        before = visit.waits.arrivals
        seen = await pending.look()
        if isinstance(seen, Done):
            value: T = seen.value
            return value
        if seen is not None and not visit.waits.has_missed(before, (seen,)):
            await visit.wait(frame, seen)


async def conclude(
    visit: Visit, operation: Operation, result: Typed, value: Any, frame: Frame,
    rivals: Sequence[Pending[Any]] = (), outcome: str = "", **facts: Unpack[Facts],
) -> Any:  # fmt: skip
    """Remember the result of a finished wait, together with ``facts``. A wait counts as taking no time."""
    while (twin := visit.running.get(operation.id)) is not None:
        await twin.wait()  # another branch makes the same call with the same key
    if (found := visit.remembered(operation)) is not None:
        return await visit.recall(found, result)
    if rivals:
        _add(facts, await withdrawn(visit, rivals))
    inside = Frame(operation.id, frame)
    visit.enter(inside)
    try:
        data = await visit.keep(operation, result, value, None, inside, outcome, **facts)
        return result.decode(data, operation.name)
    finally:
        visit.exit(inside)


# races


async def first(visit: Visit, frame: Frame, makes: Mapping[str | int, Callable[[], Make[T]]]) -> First[T]:
    """Wait until one of several waits is over. The others are withdrawn, and take nothing."""
    if not makes:
        raise StepError(f"Step {visit.step.name!r}: ctx.first needs at least one wait, such as ctx.receive().")
    scope = visit.nth(frame, f"{frame.scope}/first")
    pending = {name: make()(scope) for name, make in makes.items()}
    for name, each in pending.items():
        if (found := visit.remembered(each.operation)) is not None:
            await visit.admit(each.operation, frame, found)
            return First(name, await each.recall(found))
    for each in pending.values():
        await visit.admit(each.operation, frame, None)
        each.rivals = tuple(other for other in pending.values() if other is not each)
    return await _race(visit, frame, sorted(pending.items(), key=lambda item: item[1].rank))


async def _race(visit: Visit, frame: Frame, pending: list[tuple[str | int, Pending[T]]]) -> First[T]:
    while True:
        before = visit.waits.arrivals
        waits: list[Wait | None] = []
        for name, each in pending:
            seen = await each.look()
            if isinstance(seen, Done):
                return First(name, seen.value)
            waits.append(seen)
        seen_all = [wait for wait in waits if wait is not None]
        # Something may have arrived for a wait that was checked before another one had to be awaited.
        if len(seen_all) == len(waits) and not visit.waits.has_missed(before, seen_all):
            await visit.wait(frame, *_limited(seen_all))


def _limited(waits: list[Wait]) -> list[Wait]:
    """Return the waits of a race. A timer next to a message or a question is the time limit of that wait."""
    others = [wait.kind for wait in waits if wait.kind in ("message", "answer")]
    return [wait._replace(kind=others[0]) if others and wait.kind == "timer" else wait for wait in waits]


WAITS: set[CodeType] = set()
"""The methods of a context that finish one wait. A call of them can race."""

RACES: set[CodeType] = set()
"""The methods of a context that race waits."""


class _TakenApart(BaseException):
    """Carries a wait out of a call that would finish it."""

    def __init__(self, make: Callable[[], Make[Any]]) -> None:
        super().__init__()
        self.make = make


def taken_apart(visit: Visit, call: object) -> Callable[[], Make[Any]]:
    """Return what makes the wait of a call such as ``ctx.receive()``. The call is over then, and has done nothing."""
    if not inspect.iscoroutine(call) or call.cr_code not in WAITS or _has_begun(call):
        raise StepError(
            f"Step {visit.step.name!r}: ctx.first takes calls of ctx.receive, sleep, until, ask, confirm and call that"
            f" were not awaited, not {call!r:.100}. Write: await ctx.first(reply=ctx.receive(), late=ctx.sleep(60))."
        )
    if inspect.getcoroutinelocals(call)["self"]._visit is not visit:
        raise StepError(f"Step {visit.step.name!r}: ctx.first got a wait of another step. Use this step's own context.")
    visit.takes_apart = True
    try:
        call.send(None)
    except _TakenApart as found:
        return found.make
    finally:
        visit.takes_apart = False
    raise AssertionError(f"{call!r} finished no wait")


def _has_begun(call: CoroutineType[Any, Any, Any]) -> bool:
    return inspect.getcoroutinestate(call) != inspect.CORO_CREATED


def is_call(coroutine: object) -> bool:
    """Return whether this is a call of a wait, such as ``ctx.receive()``, or of ``ctx.first()``."""
    return inspect.iscoroutine(coroutine) and (coroutine.cr_code in WAITS or coroutine.cr_code in RACES)


async def withdrawn(visit: Visit, rivals: Sequence[Pending[Any]]) -> Facts:
    """Return the facts that close the questions of waits that have lost a race.

    An answer that a person gave to such a question is not used. An event says so.
    """
    waits, changes, unread = visit.host.line.waits, [], []
    lost = [each.operation.id for each in rivals]
    for id, asked in [(id, waits[id].ask) for id in lost if id in waits]:
        row = None if asked is None else await visit.uninterrupted(visit.host.question(asked.id))
        if asked is None or row is None or row.facts.status not in (QuestionStatus.WAITING, QuestionStatus.RESUMED):
            continue
        changes.append(QuestionChange(asked.id, QuestionStatus.CANCELLED))
        if row.answer is not None:
            unread.append(row.answer.n)
        if row.winner is not None:
            summary = f"the answer to {asked.text!r} was not used, because another wait of ctx.first ended before"
            visit.note_unused(id, summary, row.winner.n)
    return {"questions": tuple(changes), "consume": tuple(unread)}


def _add(facts: Facts, more: Facts) -> None:
    """Add further questions and signals to the facts of a commit."""
    if questions := more.get("questions"):
        facts["questions"] = (*facts.get("questions", ()), *questions)
    if consume := more.get("consume"):
        facts["consume"] = (*facts.get("consume", ()), *consume)
