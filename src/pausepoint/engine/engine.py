"""The public `Engine`: opens a store by its URL and provides the verbs while it is open."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, get_args, overload

import msgspec
from typing_extensions import TypeVar

from pausepoint.clock import Clock, SystemClock
from pausepoint.codec.values import DEFAULT_LIMITS, Limits
from pausepoint.definition.steps import as_names
from pausepoint.definition.workflow import Workflow, hold_seconds
from pausepoint.engine import flags
from pausepoint.engine.base import Drives, Service
from pausepoint.engine.filters import Statuses, When
from pausepoint.engine.guests import Visitor
from pausepoint.engine.parts import Parts
from pausepoint.engine.selection import Selection
from pausepoint.engine.session import Session
from pausepoint.engine.store_verbs import StoreVerbs
from pausepoint.engine.stores import DEFAULT_URL, store_from
from pausepoint.errors import AlreadyRunning, CallRefused, InputConflict, StoreClosed, VerbRefused
from pausepoint.model.budgets import Amount
from pausepoint.model.ids import SessionId
from pausepoint.model.questions import is_time_to_answer
from pausepoint.model.queues import check_queue
from pausepoint.model.sessions import Level, PauseMode, Sort, Status
from pausepoint.model.views import Listing, Misfit, Outcome, SessionInfo, StandingPause
from pausepoint.runtime.hold import OnStep
from pausepoint.runtime.signals import SignalWatch
from pausepoint.runtime.waker import MOST_RUNNING
from pausepoint.stores.base import Store

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pausepoint.engine.blocking import BlockingEngine
    from pausepoint.engine.copies import Move

S = TypeVar("S", bound="BaseModel")
R = TypeVar("R", default=S)  # the result: what a function returned, or the final state

HOLD = timedelta(minutes=10)
"""How long an engine keeps a paused step in memory, unless it is told otherwise."""


class Engine(StoreVerbs):
    """Runs workflows and keeps their sessions in a store.

    Open it with ``async with Engine(…) as engine:``. When the block exits, running sessions stop after their current
    operation and stay ready to resume. In blocking code, ``with Engine(…) as engine:`` opens a `BlockingEngine`: the
    same verbs without ``await``.

    - ``url``: the store: ``sqlite:///relative/path.db``, ``sqlite:////absolute/path.db``, ``:memory:``, a path,
      ``postgresql://host/database`` (the extra ``postgres``; see docs/fleet.md), or a
      `Store`.
    - ``workflows``: the workflows whose sessions this engine can drive. `start` registers its workflow too.
    - ``limits``: the largest values that a state or an operation may store.
    - ``clock``: the source of time. Tests pass their own.
    - ``signals``: on Ctrl+C and SIGTERM, stop sessions as at the end of the block. This applies in the main thread,
      and only where the program has no handler of its own; a server's handlers stay in place and are called. With
      False, the engine ignores signals.
    - ``keep_for``: how long after its last update `gc` may remove a session. None means never.
    - ``create``: with False, opening raises `StoreMissing` if there is no store, and creates nothing.
    - ``questions_expire``: how long a question waits, unless the workflow or the call says otherwise. None means
      forever. By default only the questions of `collect` expire, after 30 minutes.
    - ``drives``: the sessions this engine drives: ``"all"`` due sessions of its workflows, only those that its verbs
      are ``"asked"`` to start or resume (see `drive_only`), or ``"none"``, for programs that only read and send
      requests.
    - ``hold``: how long the step of a paused session stays in memory, as a timedelta or in seconds. A session that is
      resumed in time continues in place. After that time the step exits, and a resume starts it again at its top, where
      finished operations return immediately. 0 makes it exit when it pauses.
    - ``drain``: how long operations may take to finish when the engine closes or gets a signal. After that they are
      aborted, and their sessions are ready to resume; no crash is counted. None means as long as they take.
    - ``queues``: drive only due sessions of these queues. Sessions that `start` puts into another queue are left to
      other engines. By default all queues.
    - ``concurrency``: the most sessions that this engine picks up at a time: due and ready ones, and children. Sessions
      that `start` and `resume` name are driven in any case. The default is 500, without children.
    - ``strict``: if a call has a remembered result, but for other arguments, pause the session before the call instead
      of running it again. A workflow or a step may say otherwise. ``resume(code="accept")`` runs it.
    - ``on_step``: an async function, called with the session's id, the step and the visit number before a step runs.

    >>> import asyncio
    >>> from pydantic import BaseModel
    >>> from pausepoint import Engine, Workflow, step
    >>> class Greeting(BaseModel):
    ...     name: str
    ...     text: str = ""
    >>> @step(writes="text")
    ... async def greet(name: str) -> str:
    ...     return f"Hello, {name}!"
    >>> greeting = Workflow("greeting", state=Greeting, steps=[greet])
    >>> async def main() -> str:
    ...     async with Engine(":memory:") as engine:
    ...         session = await engine.start(greeting, name="Ada")
    ...         return (await session.outcome()).state.text
    >>> asyncio.run(main())
    'Hello, Ada!'
    """

    def __init__(
        self,
        url: str | Path | Store = DEFAULT_URL,
        *,
        workflows: Iterable[Workflow[Any]] = (),
        limits: Limits = DEFAULT_LIMITS,
        clock: Clock | None = None,
        signals: bool = True,
        keep_for: timedelta | None = None,
        create: bool = True,
        questions_expire: timedelta | EllipsisType | None = ...,
        drives: Drives = "all",
        hold: timedelta | float = HOLD,
        on_step: OnStep | None = None,
        drain: timedelta | None = None,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        strict: bool = False,
    ) -> None:
        if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
            raise ValueError(f"concurrency must be a whole number of 1 or more, or None, not {concurrency!r}.")
        if drain is not None and drain < timedelta(0):
            raise ValueError(f"drain must be a timedelta that is not negative, or None, not {drain!r}.")
        if drives not in get_args(Drives):
            raise ValueError(f"drives must be 'all', 'asked' or 'none', not {drives!r}.")
        if not is_time_to_answer(questions_expire):
            raise ValueError(f"questions_expire must be a timedelta above zero, or None, not {questions_expire!r}.")
        seconds, clock = hold_seconds(hold), clock or SystemClock()
        service = Service(store_from(url, clock, create), workflows, clock, limits)
        service.hold = seconds
        service.drives = drives
        service.on_step = on_step
        service.driver.drain = drain
        service.waker.asked = set() if drives == "asked" else None
        service.waker.queues = None if queues is None else tuple(check_queue(each) for each in as_names(queues))
        service.waker.most = concurrency or MOST_RUNNING
        service.concurrency = concurrency
        service.questions_expire = questions_expire
        service.strict = strict
        service.keep_for = keep_for
        service.kept_for(keep_for)  # raises if it is not valid
        self._service = service
        self._parts = Parts(service, partial(Session, self))
        self.store: Store = service.store
        self.clock: Clock = service.clock
        self.workflows: dict[str, Workflow[Any]] = service.workflows
        self.drives: Drives = drives
        self._signals = signals
        self._watch: SignalWatch | None = None
        self._blocking: BlockingEngine | None = None
        self._opened_with = ""
        self.loop: asyncio.AbstractEventLoop | None = None  # the event loop that the engine was opened in

    def __enter__(self) -> BlockingEngine:
        from pausepoint.engine.blocking import BlockingEngine  # async programs do not need it

        self._opened_by("with")
        if self._blocking is not None:
            raise StoreClosed("This Engine was opened before and cannot be opened again. Create another one.")
        blocking = self._blocking = BlockingEngine(self, self.close, signals=self._signals)
        self._service.is_here = lambda: blocking._thread.is_here
        self._blocking._begin(self._open)
        return self._blocking

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._blocking is not None:
            self._blocking._end(error)

    def _opened_by(self, way: str) -> None:
        if self._opened_with not in ("", way):
            raise CallRefused(f"This Engine was opened with `{self._opened_with}`. Create another one for `{way}`.")
        self._opened_with = way

    async def _open(self) -> None:
        service = self._service
        service.announce()
        await service.store.open(service.driver.on_change)
        service.is_open = True
        self.loop = asyncio.get_running_loop()
        service.pid = os.getpid()
        await flags.mend(service.store)
        service.driver.lease.start()
        if service.drives != "none":
            service.waker.start()
            service.reaper.start()

    async def __aenter__(self) -> Self:
        self._opened_by("async with")
        await self._open()
        if self._signals:
            self._watch = SignalWatch(self._service.driver, self._stop_driving, self.close)
            self._watch.install()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        if self._watch is not None and (verdict := self._watch.verdict()) is not None:
            raise verdict from None

    async def close(self) -> None:
        """Stop all running sessions after their current operation, then close the store. Safe to call twice."""
        service = self._service
        if not service.is_open:
            return
        if self._watch is not None:
            self._watch.closing = True
        try:
            await self._stop_driving("the engine was closed")
        finally:
            service.is_open = False
            service.driver.lease.stop()
            service.driver.leave_loop()
            service.reaper.stop()
            if self._watch is not None:
                self._watch.uninstall()
            await service.store.close()

    async def _stop_driving(self, reason: str) -> None:
        """Pick up no more sessions, and stop the running ones after their current operation."""
        await self._service.waker.stop()
        await self._service.driver.stop(reason)

    def register(self, workflow: Workflow[Any]) -> None:
        """Register a workflow, as ``Engine(workflows=…)`` does.

        Raises `DefinitionError` if another workflow has the same name. If a cell of a notebook has defined a workflow
        again, the new one replaces the former one.
        """
        self._service.register(workflow)

    @property
    def trouble(self) -> str | None:
        """Why the store cannot be written to, since when, and what to do; None while the store is healthy.

        It is about the store alone. If the disk under an artifact folder refuses a file, only the session of that
        folder stops, with a pause of kind ``disk``.
        """
        return self._service.trouble

    @property
    def ending(self) -> str:
        """Why this engine is shutting down: a signal, or `close`. Empty before that."""
        return self._service.ending

    @property
    def running(self) -> tuple[SessionId, ...]:
        """The sessions that this engine drives now, and those that it is about to drive."""
        return self._service.running

    @overload
    def session(self, session_id: str, *, owner: str | None = None) -> Session[Any]: ...
    @overload
    def session(self, session_id: str, workflow: Workflow[S, R], *, owner: str | None = None) -> Session[S, R]: ...
    def session(
        self, session_id: str, workflow: Workflow[Any] | None = None, *, owner: str | None = None
    ) -> Session[Any]:
        """Return a handle on a session, with the verbs for it. Reads nothing: `Session.info` raises `UnknownSession`.

        Pass ``workflow`` to get a typed state; `Session.state` and `Session.outcome` then raise `UnknownSession` if the
        session belongs to another workflow. Pass ``owner`` to keep users apart: every verb of the handle then checks
        the owner in its own transaction, and raises `WrongOwner` if the session belongs to someone else. A session
        without an owner is open to everyone.
        """
        return self._parts.control.session(session_id, workflow, owner=owner)

    async def start(
        self, workflow: Workflow[S, R], state: S | None = None, /, *,
        session_id: str | None = None, owner: str | None = None, tags: str | Sequence[str] = (),
        budget: Amount | None = None, at_step: str | None = None,
        paused: bool = False, reason: str = "", by: str | None = None, keep_for: timedelta | None = None,
        folder: str | Path | None = None, queue: str | None = None, priority: int | None = None,
        lane: str | None = None, **fields: Any,
    ) -> Session[S, R]:  # fmt: skip
        """Create a session, run it in the background, and return a handle on it.

        Pass the input as a ``state`` or as keyword ``fields``. If a session with this ``session_id`` exists and has the
        same input, it is resumed; if the input differs, `InputConflict` is raised.

        - ``session_id``: by default a new random id.
        - ``owner``, ``tags``: stored with the session, to find and filter sessions.
        - ``budget``: the most the session and its children may spend: a number of dollars, or a `Budget`. The session
          pauses when it is spent.
        - ``at_step``: start at a later step. The earlier steps are recorded as skipped.
        - ``paused``, with ``reason`` and ``by``: store the session paused instead of running it.
        - ``keep_for``: how long after its last update `gc` may remove the session. The default is the engine's;
          ``timedelta.max`` means forever.
        - ``folder``: the folder for its artifacts. Required if its steps publish any.
        - ``queue``, ``priority``: by default those of the workflow. The lowest number goes first. Workers can drive the
          sessions of some queues only.
        - ``lane``: among sessions of the same priority, lanes take turns; by default the ``owner``.

        If a `limit` leaves no slot, the session is stored ready, and an engine picks it up when a slot is free.
        """
        return await self._parts.control.start(
            workflow, state, session_id=session_id, owner=owner, tags=tags, budget=budget, at_step=at_step,
            paused=paused, reason=reason, by=by, keep_for=keep_for, folder=folder, queue=queue, priority=priority,
            lane=lane, **fields,
        )  # fmt: skip

    def visit(
        self, workflow: Workflow[S], *, session_id: str | None = None, input: S | Mapping[str, Any] | None = None,
        owner: str | None = None, tags: str | Sequence[str] = (), budget: Amount | None = None,
        by: str | None = None, keep_for: timedelta | None = None,
    ) -> Visitor[S]:  # fmt: skip
        """Run the code of a guest session: the block of ``async with engine.visit(…) as ctx:``.

        On a blocking engine, it is the block of ``with engine.visit(…) as ctx:``.

        ``workflow`` comes from `Workflow.guest`. The first visit creates the session with ``input``, a state or a
        mapping of fields; later ones continue it, and finished operations return immediately. No engine and no worker
        ever runs the block: a pause, an answer or a timer takes effect with the next operation or the next visit.

        Set ``ctx.output`` to a dict of the fields to write. When the block ends, the session is completed. If the block
        raises an exception, the session has failed, and the next visit tries again. If the session must stop, for a
        pause, a question or a spent budget, the operation raises a signal that ``except Exception`` does not catch, and
        the block raises `Parked`.

        - ``session_id``: by default a new random id. ``owner``, ``tags``, ``budget``, ``keep_for``: as for `start`.
        - ``by``: who visits, recorded in the history.

        Raises `Parked` if the session is paused or waits, `SessionEnded` if it has ended, and `AlreadyRunning` if
        another visit is open.
        """
        return self._parts.control.visit(
            workflow, session_id=session_id, input=input, owner=owner, tags=tags, budget=budget, by=by,
            keep_for=keep_for,
        )  # fmt: skip

    async def rebuild(
        self, folder: str | Path, workflow: Workflow[S, R], /, *, session_id: str | None = None,
        incomplete: Literal["accept"] | None = None, by: str | None = None, **given: Any,
    ) -> Session[S, R]:  # fmt: skip
        """Return the session of an artifact folder. If this store does not have it, create it from the folder.

        No step runs. The session's position comes from the folder's completion records or, without them, from its
        files. In the second case ``given`` is the input that no file contains. If the files do not determine the
        position, `FolderRefused` is raised; pass ``incomplete="accept"`` to continue with the first step that is not
        known to be done. The folder is not changed.
        """
        return await self._parts.control.rebuild(
            folder, workflow, session_id=session_id, incomplete=incomplete, by=by, **given,
        )  # fmt: skip

    async def take_ready(self, limit: int = 100, *, by: str | None = None) -> list[SessionId]:
        """Pick up to ``limit`` ready sessions of the registered workflows, drive them here, and return their ids.

        A session is ready if it was interrupted, if its timer is due, or if what it waits for has arrived. Sessions of
        processes that died are ready too. Sessions of schedules that are due start as well. As with `take_up`, nothing
        is withdrawn: paused and failed sessions stay as they are. Finding the sessions costs the same, however many are
        stored. ``by`` is recorded in the history.
        """
        return await self._parts.control.take_ready(limit, by=by)

    async def lift_pause(self, *, by: str | None = None) -> Listing[SessionInfo]:
        """Lift the pause of everything and return the first `PAGE` sessions that it alone had paused, newest first.

        Sessions that it stopped resume here, or in another running process that has their workflow; the others are as
        they were before the pause. Sessions that were also paused individually stay paused.
        """
        return await self._parts.control.lift_pause(by=by)

    async def idle(self, *session_ids: str) -> None:
        """Wait until this engine drives none of these sessions. Without ids, wait until it drives no session."""
        return await self._parts.control.idle(*session_ids)

    def select(
        self, *, ids: Sequence[str] | None = None, status: Statuses = None, failed: bool | None = None,
        workflow: str | None = None, tag: str | None = None, owner: str | None = None, queue: str | None = None,
        since: When | None = None, until: When | None = None,
    ) -> Selection:  # fmt: skip
        """Return the sessions that match, to pause, resume or cancel them all. Reads nothing.

        Give at least one filter; all must match. Without ``status`` and ``ids``, ended sessions do not match.

        - ``ids``: the sessions, by id. Those that have ended are skipped; those that do not exist are in ``failed`` of
          the report.
        - ``status``, ``failed``, ``workflow``, ``tag``, ``owner``, ``queue``, ``since``, ``until``: as for `sessions`.

        >>> import asyncio
        >>> from pausepoint import Engine, workflow
        >>> @workflow
        ... def greet(name: str) -> str:
        ...     return f"Hello, {name}!"
        >>> async def main() -> int:
        ...     async with Engine(":memory:") as engine:
        ...         for name in ("Ada", "Grace"):
        ...             await engine.start(greet, name=name, paused=True, tags="night")
        ...         return (await engine.select(status="paused", tag="night").resume()).total
        >>> asyncio.run(main())
        2
        """
        return Selection(self, {
            "ids": ids, "status": status, "failed": failed, "workflow": workflow, "tag": tag, "owner": owner,
            "queue": queue, "since": since, "until": until,
        })  # fmt: skip

    async def pause_all(
        self, reason: str = "", *, by: str | None = None, mode: PauseMode = "finish", freeze: bool = False,
        wait: bool = False, timeout: float | timedelta | None = None,
    ) -> Listing[SessionInfo]:  # fmt: skip
        """Pause everything until `lift_pause`, and return the first `PAGE` sessions, those that are driven first.

        Sessions that any process starts meanwhile are stored paused. Failed sessions stay failed. If another process
        keeps a SQLite store locked, the pause takes effect at once, a warning names that process, and the call returns
        when the pause is stored. Damaged sessions are paused too, and are listed in ``damaged`` of the result.

        ``reason``, ``by``, ``mode``, ``freeze``, ``wait`` and ``timeout`` are as for `Session.pause`.
        """
        return await self._parts.pauses.pause_all(
            reason, by=by, mode=mode, freeze=freeze, wait=wait, timeout=timeout
        )  # fmt: skip

    async def move(
        self, to: str | Path | Store, *, reason: str = "Moved to another store.", timeout: float = 60.0,
        dry_run: bool = False, on_progress: Callable[[Move], None] | None = None,
    ) -> Move:  # fmt: skip
        """Move all sessions to another store, and return what was moved.

        First everything in this store is paused, with this ``reason``. A session that does not stop within ``timeout``
        seconds is not moved. Every other session is copied with its children and files; the copies are verified. A
        copy continues in the other store as the original was: with its timers, questions, messages and pauses.
        Schedules and limits that the other store lacks move too. This store keeps the originals, paused.

        The call can be interrupted and repeated: what was moved is left alone, even if it has continued or was removed.
        A session that received messages here after the copy is refused. What is moved back continues where it was.
        ``refused`` of the result names what could not be moved, with the reason. ``dry_run`` changes nothing.

        A copy has the artifact folder of its original. On another machine it needs a folder with the same path.
        """
        from pausepoint.engine import copies  # most programs never move sessions

        self._service.check_open()
        return await copies.run(self, to, reason, timeout, dry_run, on_progress or (lambda result: None))

    async def sessions(
        self, *, workflow: str | None = None, owner: str | None = None, tag: str | None = None,
        status: Statuses = None, failed: bool | None = None, since: When | None = None, until: When | None = None,
        prefix: str | None = None, text: str | None = None, parent: str | None = None, tree: str | None = None,
        level: Level = "any", sort: Sort = "created", reverse: bool = False, limit: int | None = None,
        after: str | None = None, own_pause: bool = False, queue: str | None = None,
    ) -> Listing[SessionInfo]:  # fmt: skip
        """Return the sessions that match, newest first. Unreadable ones are listed in ``damaged`` of the result.

        - ``workflow``, ``owner``, ``tag``, ``queue``, ``status``: filters. ``status`` may be one status or several.
        - ``failed``: only sessions that have failed, or only others. A failed session that is paused has the status
          ``paused``, so ``status="failed"`` does not find it.
        - ``since``, ``until``: only sessions that were last updated in this time. Pass a datetime with a time zone, or
          a timedelta for a time ago.
        - ``prefix``: the beginning of the id.
        - ``text``: a part of the id, the owner, a tag, the type or message of the failure, or the reason of an open
          pause. ``%`` and ``_`` are ordinary characters. The letters A to Z match in both cases. All sessions that the
          other filters leave are read for it.
        - ``parent``: the id of a session, to list only its children. ``tree``: the id of a session, to list it with
          all its descendants.
        - ``level``: ``"root"`` leaves out all children; ``"top"`` leaves out children whose parent matches too.
        - ``sort``: ``"created"``, ``"updated"``, ``"workflow"``, ``"spent"`` or ``"id"``. ``reverse`` turns the order
          around.
        - ``limit``: the most sessions to read and return. If there are more, ``next`` of the result is a cursor.
        - ``after``: a cursor, to return the next page. Pass the same sort and filters. Sessions that are created or
          removed meanwhile move no other session to another page. Sorted by ``"updated"`` or ``"spent"``, a session
          that changes moves in the list and may appear on two pages or on none. Raises `ValueError` for a text that is
          not a cursor of such a list.
        - ``own_pause``: only unended sessions that have a pause of their own. While everything is paused,
          ``status="paused"`` finds all that it stops.
        """
        return await self._parts.queries.sessions(
            workflow=workflow, owner=owner, tag=tag, status=status, failed=failed, since=since, until=until,
            prefix=prefix, text=text, parent=parent, tree=tree, level=level, sort=sort, reverse=reverse, limit=limit,
            after=after, own_pause=own_pause, queue=queue,
        )  # fmt: skip

    async def tally(
        self, *, workflow: str | None = None, owner: str | None = None, tag: str | None = None,
        status: Statuses = None, failed: bool | None = None, since: When | None = None, until: When | None = None,
        text: str | None = None, level: Level = "any", queue: str | None = None,
    ) -> dict[tuple[str, Status], int]:  # fmt: skip
        """Return the number of sessions that match, by workflow and status, without reading them.

        The filters are those of `sessions`.
        """
        return await self._parts.queries.tally(
            workflow=workflow, owner=owner, tag=tag, status=status, failed=failed, since=since, until=until, text=text,
            level=level, queue=queue,
        )  # fmt: skip

    async def find(self, beginning: str, *, exact: bool = False) -> SessionInfo:
        """Return the session whose id is, or begins with, what a person typed. Use this in commands that only read.

        A child's id begins with its parent's id; if both match, the parent is returned. Both parts of a child's id may
        be shortened: ``k3f9.8348``. The id of a removed session finds no other session. Raises `UnknownSession`, or
        `AmbiguousSession` with the candidates.

        Pass ``exact=True`` in commands that change the session. Only the whole id is accepted then. ``near`` of the
        `UnknownSession` is the session that a reading command would have found, to ask the person about it.
        """
        return await self._parts.queries.find(beginning, exact=exact)

    async def same_input(
        self, workflow: Workflow[S, R], state: S | None = None, /, *, at_step: str | None = None, **fields: Any
    ) -> list[SessionInfo]:
        """Return the sessions that were started with the same input, newest first, whatever their status."""
        return await self._parts.control.same_input(workflow, state, at_step=at_step, **fields)

    async def standing_pause(self) -> StandingPause | None:
        """Return the pause of everything: who asked for it, why, and since when. None if it is not in effect.

        It also tells how the pause took effect: how many sessions ran and were asked to stop, how many have stopped,
        what the others still finish, and the longest time that one took.
        """
        return await self._parts.queries.standing_pause()

    async def misfits(self, *, limit: int | None = None, after: str | None = None) -> Listing[Misfit]:
        """Return the parked sessions that cannot be resumed with the present code, and why.

        Changes nothing: migrations are tried in memory. Reads each session's records from its last key frame on.
        ``limit`` is the most sessions to examine, newest first. If there are more, ``next`` of the result is a cursor;
        pass it as ``after`` to examine the next ones.
        """
        return await self._parts.queries.misfits(limit=limit, after=after)


def run(
    workflow: Workflow[S, R], state: S | None = None, /, *, store: str | Path | Store = DEFAULT_URL,
    session_id: str | None = None, owner: str | None = None, tags: str | Sequence[str] = (),
    budget: Amount | None = None, at_step: str | None = None,
    paused: bool = False, reason: str = "", by: str | None = None, keep_for: timedelta | None = None,
    folder: str | Path | None = None, queue: str | None = None, priority: int | None = None, lane: str | None = None,
    **fields: Any,
) -> Outcome[S, R]:  # fmt: skip
    """Run a workflow in a new session, wait until it stops, and return its outcome. For scripts and notebooks.

    The options are those of `Engine.start`; ``store`` is the first argument of `Engine`. A session that fails or pauses
    does not raise: check the outcome's ``status``. Pass ``session_id`` to resume the session when you call this again.

    >>> from pydantic import BaseModel
    >>> from pausepoint import Workflow, run, step
    >>> class Greeting(BaseModel):
    ...     name: str
    ...     text: str = ""
    >>> @step(writes="text")
    ... def greet(name: str) -> str:
    ...     return f"Hello, {name}!"
    >>> run(Workflow("greeting", state=Greeting, steps=[greet]), store=":memory:", name="Ada").state.text
    'Hello, Ada!'
    """
    shown = str(store) if isinstance(store, str | Path) and store != DEFAULT_URL and "://" not in str(store) else ""
    with Engine(store, workflows=[workflow]) as engine:
        try:
            session = engine.start(
                workflow, state, session_id=session_id, owner=owner, tags=tags, budget=budget, at_step=at_step,
                paused=paused, reason=reason, by=by, keep_for=keep_for, folder=folder, queue=queue,
                priority=priority, lane=lane, **fields,
            )  # fmt: skip
        except (AlreadyRunning, InputConflict, VerbRefused) as error:
            error.args = (_for_run(error, shown),)
            raise
        return msgspec.structs.replace(session.outcome(), _run_with=shown)


def _for_run(error: AlreadyRunning | InputConflict | VerbRefused, store: str) -> str:
    """Return the message of an error of `run`, whose caller has no engine. ``store`` is as for `Ways`."""
    about = f"Session {error.session_id!r}"
    if isinstance(error, VerbRefused):
        from pausepoint.model.ways import Ways  # only an error needs it

        here = Ways(str(error.session_id), None).after_cancel
        return str(error).replace(here, Ways(str(error.session_id), store).after_cancel)
    if isinstance(error, AlreadyRunning):
        return (
            f"{about} is driven by {error.holder}. Wait until it has stopped, or end that process, then call"
            f" run(…, session_id={error.session_id!r}) again."
        )
    return (
        f"{about} already exists with different input. Pass another session_id to run(), or call it with the workflow"
        " and the input that the session was started with."
    )
