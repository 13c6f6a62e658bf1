"""Which step or operation the calling code belongs to, also in the threads and tasks that it starts.

The place is a context variable. Tasks inherit it; so do threads that copy the context, as `asyncio.to_thread` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import Context, ContextVar, Token
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from pausepoint.definition.workflow import BoundStep
from pausepoint.errors import ContextClosed, StepExited
from pausepoint.log.events import operation_name
from pausepoint.name import NAME
from pausepoint.runtime.visit import Frame, Visit

T = TypeVar("T")


class Place(NamedTuple):
    """A running operation, or a step whose visit is open."""

    visit: Visit
    frame: Frame

    def opened(self) -> Place:
        """Return the visit and the frame that an operation started here belongs to."""
        return self


class Inside(Protocol):
    """A place whose visit may have to be opened first."""

    def opened(self) -> Place: ...


class StepPlace(msgspec.Struct):
    """The body of a step. Its visit is opened when the step first needs it: many steps use no context.

    A struct, because one is made for every attempt, and ``__init__`` would cost more than the rest.
    """

    open_visit: Callable[[BoundStep, int], Visit]
    step: BoundStep
    attempt: int
    task: asyncio.Task[Any]
    place: Place | None = None
    over: bool = False

    @property
    def is_here(self) -> bool:
        """Whether the calling code runs on the step's event loop."""
        return _runs_here(self.task.get_loop())

    def opened(self) -> Place:
        """Open the visit if it is not open yet. It is opened on the event loop, also if a thread asks for it."""
        if self.place is not None:
            return self.place
        loop = self.task.get_loop()
        if _runs_here(loop):
            return self._opened_here()
        found: Future[Place] = Future()
        loop.call_soon_threadsafe(self._open_for, found)
        try:
            return found.result()
        except ContextClosed:
            raise StepExited("the step was exited; its result is discarded") from None

    def _open_for(self, found: Future[Place]) -> None:
        try:
            found.set_result(self._opened_here())
        except BaseException as error:
            found.set_exception(error)

    def _opened_here(self) -> Place:
        if self.place is None:
            if self.over:
                raise ContextClosed(
                    "The step that this code belongs to has ended. Await every task that uses its context before"
                    " returning from the step."
                )
            visit = self.open_visit(self.step, self.attempt)
            self.place = Place(visit, visit.root)
        return self.place


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


_inside: ContextVar[Inside | None] = ContextVar(f"{NAME}_inside", default=None)


def operation_in(context: Context) -> str:
    """Return the name of the operation that code with these context variables belongs to; empty if to none."""
    where = context.get(_inside)
    return operation_name(where.frame.scope) if isinstance(where, Place) and where.frame.parent is not None else ""


# Two names for methods of the variable, because a function around them would cost more than they do.
place = _inside.get
"""Return the place of the calling code; None outside of all steps."""

enter = _inside.set
"""Mark the calling task as part of a step; with None, as outside of all steps, although a step may have started it."""


class entered:
    """Mark the code in a ``with`` block as part of a step or operation."""

    __slots__ = ("_token", "_where")

    def __init__(self, where: Inside) -> None:
        self._where = where

    def __enter__(self) -> None:
        self._token = _inside.set(self._where)

    def __exit__(self, *error: object) -> None:
        _exit(self._token)


async def within(visit: Visit, frame: Frame, work: Awaitable[T]) -> T:
    """Await the code of an operation, marked as part of it."""
    token = _inside.set(Place(visit, frame))
    try:
        return await work
    finally:
        _exit(token)


def _exit(token: Token[Inside | None]) -> None:
    try:
        _inside.reset(token)
    except ValueError:  # the block ends in another task, or its coroutine is closed there
        return
