"""The verbs for plain blocking code: an engine whose event loop runs in its own thread.

Each verb is one line here: its blocking form. Name, parameters, types and docstring are those of the async verb. When
you add a verb to `Engine` or `Session`, add its line to `BlockingEngine` or `BlockingSession`. A test reports missing
verbs.
"""

from __future__ import annotations

import atexit
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, overload

from typing_extensions import TypeVar

from pausepoint.engine.engine import Engine
from pausepoint.engine.guests import BlockingVisitor, Visitor
from pausepoint.engine.limits import StoreLimits
from pausepoint.engine.loop_thread import Interrupts, LoopThread
from pausepoint.engine.remembered import RequestKeys
from pausepoint.engine.schedules import StoreSchedules
from pausepoint.engine.selection import Selection
from pausepoint.engine.session import Session
from pausepoint.model.notebook import facts
from pausepoint.runtime.blocking import BlockingDrawer as BlockingDrawer
from pausepoint.runtime.blocking import BlockingFiles, form
from pausepoint.runtime.drawers import Drawer

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pausepoint.definition.workflow import Workflow
    from pausepoint.engine.copies import Move
    from pausepoint.model.ids import SessionId
    from pausepoint.stores.base import Store

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="BaseModel")
M = TypeVar("M", bound="BaseModel")
T = TypeVar("T", default=S)  # the result: what a function returned, or the final state
N = TypeVar("N")


# The following functions give a verb its blocking form. The overloads are for type checkers: a session becomes a
# blocking session, and an async iterator becomes an iterator.


@overload
def on_engine(
    verb: Callable[Concatenate[Engine, P], Coroutine[Any, Any, Session[M, N]]],
) -> Callable[Concatenate[BlockingEngine, P], BlockingSession[M, N]]: ...
@overload
def on_engine(
    verb: Callable[Concatenate[Engine, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingEngine, P], R]: ...
@overload
def on_engine(
    verb: Callable[Concatenate[Engine, P], AsyncIterator[R]],
) -> Callable[Concatenate[BlockingEngine, P], Iterator[R]]: ...
def on_engine(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Return the blocking form of an engine's verb."""
    return _blocking(verb, "BlockingEngine")


@overload
def on_session(
    verb: Callable[Concatenate[Session[M, N], P], Coroutine[Any, Any, Session[M, N]]],
) -> Callable[Concatenate[BlockingSession[M, N], P], BlockingSession[M, N]]: ...
@overload
def on_session(
    verb: Callable[Concatenate[Session[M, N], P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingSession[M, N], P], R]: ...
@overload
def on_session(
    verb: Callable[Concatenate[Session[M, N], P], AsyncIterator[R]],
) -> Callable[Concatenate[BlockingSession[M, N], P], Iterator[R]]: ...
def on_session(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Return the blocking form of a session's verb."""
    return _blocking(verb, "BlockingSession")


def on_visit(
    verb: Callable[Concatenate[Engine, Workflow[M], P], Visitor[M]],
) -> Callable[Concatenate[BlockingEngine, Workflow[M], P], BlockingVisitor[M]]:
    """Return the blocking form of `Engine.visit`, for ``with engine.visit(…) as ctx:``."""

    @wraps(verb)
    def visit(self: BlockingEngine, workflow: Workflow[M], *args: P.args, **kwargs: P.kwargs) -> BlockingVisitor[M]:
        made = self._thread.look(lambda: verb(self._wrapped, workflow, *args, **kwargs))
        return BlockingVisitor(made, self._thread)

    return _described(visit, "BlockingEngine")


def on_drawer_of(
    verb: Callable[Concatenate[Engine, P], Drawer],
) -> Callable[Concatenate[BlockingEngine, P], BlockingDrawer]:
    """Return the blocking form of `Engine.drawer`."""

    @wraps(verb)
    def drawer(self: BlockingEngine, *args: P.args, **kwargs: P.kwargs) -> BlockingDrawer:
        return BlockingDrawer(self._thread.look(lambda: verb(self._wrapped, *args, **kwargs)), self._thread.call)

    return _described(drawer, "BlockingEngine")


def on_handle(
    verb: Callable[Concatenate[Engine, P], Session[M, N]],
) -> Callable[Concatenate[BlockingEngine, P], BlockingSession[M, N]]:
    """Return the blocking form of `Engine.session`."""

    @wraps(verb)
    def session(self: BlockingEngine, *args: P.args, **kwargs: P.kwargs) -> BlockingSession[M, N]:
        return BlockingSession(self._thread.look(lambda: verb(self._wrapped, *args, **kwargs)), self._thread)

    return _described(session, "BlockingEngine")


def on_select(
    verb: Callable[Concatenate[Engine, P], Selection],
) -> Callable[Concatenate[BlockingEngine, P], BlockingSelection]:
    """Return the blocking form of `Engine.select`."""

    @wraps(verb)
    def select(self: BlockingEngine, *args: P.args, **kwargs: P.kwargs) -> BlockingSelection:
        return BlockingSelection(self._thread.look(lambda: verb(self._wrapped, *args, **kwargs)), self._thread)

    return _described(select, "BlockingEngine")


@overload
def on_part(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]: ...
@overload
def on_part(
    verb: Callable[Concatenate[Any, P], AbstractContextManager[R]],
) -> Callable[Concatenate[Any, P], AbstractContextManager[R]]: ...
def on_part(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Return the blocking form of a verb of another class, whose blocking class is named after it."""
    return _described(form(verb), f"Blocking{verb.__qualname__.partition('.')[0]}")


def _blocking(verb: Callable[..., Any], owner: str) -> Callable[..., Any]:
    return _described(form(verb) if inspect.iscoroutinefunction(verb) else _iterated(verb), owner)


def _iterated(verb: Callable[..., Any]) -> Callable[..., Any]:
    name = verb.__name__

    @wraps(verb)
    def call(self: BlockingEngine | BlockingSession[Any], /, *args: Any, **kwargs: Any) -> Any:
        self._thread.check()
        return self._thread.iterate(getattr(self._wrapped, name)(*args, **kwargs))

    return call


_BLOCKING_TYPES = {
    "AsyncIterator[": "Iterator[",
    "AsyncGenerator[SessionInfo, None]": "Iterator[SessionInfo]",
    "Session[": "BlockingSession[",
    "Selection": "BlockingSelection",
    "Visitor[": "BlockingVisitor[",
}
"""The return types of async verbs, and those of their blocking forms."""


def _described(call: Callable[..., Any], owner: str) -> Callable[..., Any]:
    """Make ``help()`` show the verb's docstring and signature with the blocking return type."""
    signature = inspect.signature(call)
    returns = str(signature.return_annotation)
    for theirs, ours in _BLOCKING_TYPES.items():
        returns = returns.replace(theirs, ours)
    returns = "BlockingDrawer" if returns == "Drawer" else returns
    del call.__dict__["__wrapped__"]
    call.__dict__["__signature__"] = signature.replace(return_annotation=returns)
    call.__annotations__ = call.__annotations__ | {"return": returns}
    call.__module__, call.__qualname__ = __name__, f"{owner}.{call.__name__}"
    return call


class BlockingEngine:
    """The blocking engine that ``with Engine(…) as engine:`` opens.

    It has the verbs of `Engine`. Each verb blocks until its result is available and may be called from any thread. The
    sessions run on an event loop in a separate thread.
    """

    def __init__(self, engine: Engine, close: Callable[[], Awaitable[None]], *, signals: bool) -> None:
        self._wrapped = engine
        self._close = close
        driver = engine._service.driver
        self._interrupts = Interrupts(lambda reason: self._thread.post(driver.abort, reason), lambda: driver.in_flight)
        self._thread = LoopThread(self._interrupts)
        self._ending = threading.Lock()
        self._signals = signals

    def __repr__(self) -> str:
        return f"BlockingEngine({'closed' if self._thread.is_over else 'open'})"

    def _call(self, verb: Callable[..., Coroutine[Any, Any, Any]], /, *args: Any, **kwargs: Any) -> Any:
        found = self._thread.call(verb, *args, **kwargs)
        return BlockingSession(found, self._thread) if isinstance(found, Session) else found

    start = on_engine(Engine.start)
    if TYPE_CHECKING:  # a decorator does not keep overloads apart

        @overload
        def session(self, session_id: str, *, owner: str | None = None) -> BlockingSession[Any]: ...
        @overload
        def session(
            self, session_id: str, workflow: Workflow[M], *, owner: str | None = None
        ) -> BlockingSession[M, N]: ...
        def session(self, *args: Any, **given: Any) -> Any: ...
        def move(
            self, to: str | Path | Store, *, reason: str = ..., timeout: float = ..., dry_run: bool = ...,
            on_progress: Callable[[Move], None] | None = ...,
        ) -> Move: ...  # fmt: skip
    else:
        session = on_handle(Engine.session)
        move = on_engine(Engine.move)
    visit = on_visit(Engine.visit)
    drawer = on_drawer_of(Engine.drawer)
    schedule = on_engine(Engine.schedule)
    limit = on_engine(Engine.limit)
    take_ready = on_engine(Engine.take_ready)
    pause_all = on_engine(Engine.pause_all)
    lift_pause = on_engine(Engine.lift_pause)
    select = on_select(Engine.select)
    same_input = on_engine(Engine.same_input)
    sessions = on_engine(Engine.sessions)
    tally = on_engine(Engine.tally)
    spending = on_engine(Engine.spending)
    waking = on_engine(Engine.waking)
    stranded = on_engine(Engine.stranded)
    progress = on_engine(Engine.progress)
    description = on_engine(Engine.description)
    descriptions = on_engine(Engine.descriptions)
    standing_pause = on_engine(Engine.standing_pause)
    rebuild = on_engine(Engine.rebuild)
    misfits = on_engine(Engine.misfits)
    questions = on_engine(Engine.questions)
    tally_questions = on_engine(Engine.tally_questions)
    question = on_engine(Engine.question)
    answer = on_engine(Engine.answer)
    find = on_engine(Engine.find)
    changes = on_engine(Engine.changes)
    idle = on_engine(Engine.idle)
    tombstones = on_engine(Engine.tombstones)
    gc = on_engine(Engine.gc)
    verify = on_engine(Engine.verify)
    health = on_engine(Engine.health)
    engines = on_engine(Engine.engines)
    import_session = on_engine(Engine.import_session)
    drawers = on_engine(Engine.drawers)

    @property
    def schedules(self) -> BlockingStoreSchedules:
        """The schedules of the store, to list, pause, resume, trigger and remove them. `schedule` stores one."""
        return BlockingStoreSchedules(self._wrapped.schedules, self._thread)

    @property
    def limits(self) -> BlockingStoreLimits:
        """The limits and the queues of the store, to list them and to remove limits. `limit` sets one."""
        return BlockingStoreLimits(self._wrapped.limits, self._thread)

    @property
    def keys(self) -> BlockingRequestKeys:
        """The keys of requests that must have one effect, such as a repeated POST."""
        return BlockingRequestKeys(self._wrapped.keys, self._thread)

    @property
    def trouble(self) -> str | None:
        """Why the store cannot be written to, since when, and what to do; None while the store is healthy.

        It is about the store alone. If the disk under an artifact folder refuses a file, only the session of that
        folder stops, with a pause of kind ``disk``.
        """
        return self._thread.look(lambda: self._wrapped.trouble)

    @property
    def running(self) -> tuple[SessionId, ...]:
        """The sessions that this engine drives now, and those that it is about to drive."""
        return self._thread.look(lambda: self._wrapped.running)

    @property
    def ending(self) -> str:
        """Why this engine is shutting down: a signal, or `close`. Empty before that."""
        return self._wrapped.ending

    def register(self, workflow: Workflow[Any]) -> None:
        """Register a workflow, as ``Engine(workflows=…)`` does.

        Raises `DefinitionError` if another workflow has the same name. If a cell of a notebook has defined a workflow
        again, the new one replaces the former one.
        """
        self._thread.look(lambda: self._wrapped.register(workflow))

    def close(self) -> None:
        """Stop all running sessions after their current operation, then close the store. Safe to call twice."""
        self._end(None)

    def _begin(self, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Open the store on the loop's thread, then install the signal handlers."""
        try:
            self._thread.call(start)
            atexit.register(self.close)
            if self._signals:
                self._interrupts.install()
        except BaseException as error:
            self._end(error)
            raise

    def _end(self, error: BaseException | None) -> None:
        """Close everything at the end of the ``with`` block. ``error`` is the exception that ended it, if any."""
        if not self._thread.is_ours:
            return  # a forked process exits its parent's block and has nothing of its own to close
        if self._thread.is_here:
            self._thread.check()
        with self._ending:
            if self._thread.is_over:
                return
            self._close_all(self._interrupts.closing(error))
        if (verdict := self._interrupts.verdict()) is not None:
            raise verdict from None

    def _close_all(self, reason: str) -> None:
        atexit.unregister(self.close)
        try:
            self._thread.call(self._stop, reason)
        except Exception:
            self._thread.stop()
            raise
        else:  # not after a third signal: code that blocks the loop must not block the program's exit
            self._thread.stop()
        finally:
            self._interrupts.uninstall()

    async def _stop(self, reason: str) -> None:
        if reason:
            await self._wrapped._service.driver.stop(reason)
        await self._close()


class BlockingSession(Generic[S, T]):
    """A handle on one session, for blocking code.

    It has the verbs of `Session`. Each verb blocks until its result is available.
    """

    def __init__(self, session: Session[S, T], thread: LoopThread) -> None:
        self._wrapped = session
        self._thread = thread
        self.id = session.id

    def __repr__(self) -> str:
        return f"BlockingSession({self.id!r})"

    def _repr_html_(self) -> str:
        return facts({"id": self.id}, "Session")

    def _call(self, verb: Callable[..., Coroutine[Any, Any, Any]], /, *args: Any, **kwargs: Any) -> Any:
        found = self._thread.call(verb, *args, **kwargs)
        if found is self._wrapped:
            return self
        return BlockingSession(found, self._thread) if isinstance(found, Session) else found

    @property
    def files(self) -> BlockingFiles:
        """The session's files."""
        return BlockingFiles(self._thread.look(lambda: self._wrapped.files), self._thread.call)

    info = on_session(Session.info)
    status = on_session(Session.status)
    state = on_session(Session.state)
    stored = on_session(Session.stored)
    outline = on_session(Session.outline)
    description = on_session(Session.description)
    outcome = on_session(Session.outcome)
    result = on_session(Session.result)
    pause = on_session(Session.pause)
    resume = on_session(Session.resume)
    cancel = on_session(Session.cancel)
    pauses = on_session(Session.pauses)
    artifacts = on_session(Session.artifacts)
    artifact = on_session(Session.artifact)
    adopt = on_session(Session.adopt)
    restore = on_session(Session.restore)
    checkpoints = on_session(Session.checkpoints)
    spans = on_session(Session.spans)
    children = on_session(Session.children)
    send = on_session(Session.send)
    questions = on_session(Session.questions)
    answer = on_session(Session.answer)
    plan = on_session(Session.plan)
    diff = on_session(Session.diff)
    edit = on_session(Session.edit)
    fork = on_session(Session.fork)
    origin = on_session(Session.origin)
    ask_again = on_session(Session.ask_again)
    rewind = on_session(Session.rewind)
    forget = on_session(Session.forget)
    plan_rewind = on_session(Session.plan_rewind)
    plan_edit = on_session(Session.plan_edit)
    plan_fork = on_session(Session.plan_fork)
    events = on_session(Session.events)
    stream = on_session(Session.stream)
    emit = on_session(Session.emit)
    watch = on_session(Session.watch)
    remove = on_session(Session.remove)
    redact = on_session(Session.redact)
    verify = on_session(Session.verify)
    take_up = on_session(Session.take_up)
    stand_by = on_session(Session.stand_by)
    drive_only = on_session(Session.drive_only)
    definition = on_session(Session.definition)
    obstacles = on_session(Session.obstacles)
    retries = on_session(Session.retries)
    last_event = on_session(Session.last_event)
    export = on_session(Session.export)


class BlockingPart:
    """An object with the verbs of the one that it wraps. Each blocks until its result is available."""

    def __init__(self, wrapped: Any, thread: LoopThread) -> None:
        self._wrapped = wrapped
        self._call = thread.call


class BlockingSelection(BlockingPart):
    """Many sessions, for blocking code. It has the verbs of `Selection`, and each blocks until its report is there."""

    def __repr__(self) -> str:
        return f"Blocking{self._wrapped!r}"

    resume = on_part(Selection.resume)
    pause = on_part(Selection.pause)
    cancel = on_part(Selection.cancel)


class BlockingStoreSchedules(BlockingPart):
    """The schedules of the store, for blocking code. See `StoreSchedules`."""

    list = on_part(StoreSchedules.list)
    pause = on_part(StoreSchedules.pause)
    resume = on_part(StoreSchedules.resume)
    trigger = on_part(StoreSchedules.trigger)
    remove = on_part(StoreSchedules.remove)


class BlockingStoreLimits(BlockingPart):
    """The limits of the store, for blocking code. See `StoreLimits`."""

    queues = on_part(StoreLimits.queues)
    list = on_part(StoreLimits.list)
    remove = on_part(StoreLimits.remove)


class BlockingRequestKeys(BlockingPart):
    """The keys of requests, for blocking code. See `RequestKeys`."""

    remember = on_part(RequestKeys.remember)
    recall = on_part(RequestKeys.recall)
    forget = on_part(RequestKeys.forget)
    once = on_part(RequestKeys.once)
