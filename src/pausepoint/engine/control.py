"""The verbs that start, pause, resume and cancel sessions. Every front end uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, overload

import msgspec
from typing_extensions import TypeVar

from pausepoint.definition.steps import as_names
from pausepoint.definition.workflow import Workflow
from pausepoint.engine import flags
from pausepoint.engine.artifacts import Artifacts
from pausepoint.engine.base import check_owner, check_texts, tags_of
from pausepoint.engine.creation import budget_of, encoded_input, given_input
from pausepoint.engine.descriptions import Descriptions
from pausepoint.engine.events import append_event
from pausepoint.engine.guests import Visitor, cannot_start, guest_visit, not_driven, resume_guest
from pausepoint.engine.pauses import PAGE, operator_pause
from pausepoint.engine.pickup import Pickup
from pausepoint.engine.questions import Questions
from pausepoint.engine.remembered import Requests
from pausepoint.engine.retention import Retention
from pausepoint.engine.session import Session
from pausepoint.engine.standby import stand_by
from pausepoint.engine.time_travel import merged_changes
from pausepoint.engine.transfer import Transfer
from pausepoint.errors import (
    AlreadyRunning,
    CallRefused,
    DamagedRecord,
    HoldLost,
    InputConflict,
    SessionEnded,
    UnknownSession,
    VerbRefused,
)
from pausepoint.log.telemetry import Watch
from pausepoint.model.budgets import Allowance, Amount, allowance_of
from pausepoint.model.ids import SessionId, check_session_id, new_session_id
from pausepoint.model.records import Record
from pausepoint.model.sessions import Filter, NewSession, SessionRow, Status
from pausepoint.model.views import Listing, SessionInfo
from pausepoint.runtime.files import Files

if TYPE_CHECKING:
    from pydantic import BaseModel

S = TypeVar("S", bound="BaseModel")
R = TypeVar("R", default=S)  # the result: what a function returned, or the final state

KEEPER_PATIENCE = 2.0
"""How many seconds a resume waits for the engine that keeps the step, before it drives the session itself."""


class _How(NamedTuple):
    """How a resume drives a session in this engine. See `Control.resume`."""

    by: str | None
    allowance: Allowance
    steal: bool
    wake: bool
    accept_code: bool
    until: str | None

    @property
    def in_place(self) -> bool:
        """Whether a step that is kept in memory may continue. Otherwise it has to start again."""
        return not (self.steal or self.wake or self.accept_code or self.until)


class Control(Pickup, Artifacts, Retention, Transfer, Questions, Descriptions, Requests):
    """All verbs over one open store."""

    @overload
    async def session(self, session_id: str) -> Session[Any]: ...
    @overload
    async def session(self, session_id: str, workflow: Workflow[S, R]) -> Session[S, R]: ...
    async def session(self, session_id: str, workflow: Workflow[Any] | None = None) -> Session[Any]:
        """Return a handle on a stored session.

        Pass ``workflow`` to get a typed state. Raises `UnknownSession` if there is no session with this id, or if it
        belongs to another workflow.
        """
        self._check_open()
        row = await self._row(session_id)
        if workflow is not None:
            self.register(workflow)
            if row.workflow != workflow.name:
                raise UnknownSession(
                    f"Session {session_id!r} belongs to workflow {row.workflow!r}, not {workflow.name!r}. Check the id,"
                    " or leave out the workflow.",
                    session_id=session_id,
                )
        return Session(self, SessionId(row.session_id))

    def files(self, session_id: str) -> Files:
        """Return the files of a session, to add, read and list them."""
        self._check_open()
        return Files(self.store, self.clock, check_session_id(session_id), self._check_open)

    # starting

    async def start(
        self, workflow: Workflow[S, R], state: S | None = None, /, *,
        session_id: str | None = None, owner: str | None = None, tags: str | Sequence[str] = (),
        budget: Amount | None = None, at_step: str | None = None,
        paused: bool = False, reason: str = "", by: str | None = None, keep_for: timedelta | None = None,
        folder: str | Path | None = None, **fields: Any,
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
        """
        self._check_open()
        self.register(workflow)
        if workflow.is_guest:
            raise cannot_start(workflow)
        check_texts(owner=owner, reason=reason, by=by)
        given = given_input(state, fields)
        known = None if session_id is None else check_session_id(session_id)
        pause = operator_pause(self.clock.now(), reason, by) if paused else None
        while True:
            new = self._new_session(workflow, given, known or new_session_id(), at_step, by, folder)
            new = msgspec.structs.replace(
                new, owner=owner, tags=tags_of(tags), pause=pause, claim=pause is None,
                keep_for=self._kept_for(keep_for), **allowance_of(budget).given(),
            )  # fmt: skip
            await self._check_free(new.session_id, folder)
            created = await self._create(workflow, new)
            if created is not None:
                return created
            if known is not None:
                await self._check_folder(known, folder)
                return cast("Session[S, R]", await self._resume_existing(new, by))

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
        return guest_visit(self, workflow, session_id, input, owner, tags, budget, by, keep_for)

    async def _create(self, workflow: Workflow[S, R], new: NewSession) -> Session[S, R] | None:
        if new.guest:
            new = msgspec.structs.replace(new, claim=False)  # only a visit may drive it
        if new.claim:
            self._check_drives("start", new.session_id)
        if not await self._create_here(workflow, new):
            return None
        return Session(self, SessionId(new.session_id), self.driver.runs.get(new.session_id))

    async def _store_paused(self, new: NewSession) -> Session[Any] | None:
        """Store a paused session of a workflow whose code is not here. Return None if its id is taken."""
        if await self.store.create(new) is None:
            return None
        Watch(new.session_id, new.workflow).started(new.step, paused=True)
        return Session(self, SessionId(new.session_id))

    async def _resume_existing(self, new: NewSession, by: str | None) -> Session[Any]:
        row = await self._row(new.session_id)
        if (row.workflow, row.input_digest) != (new.workflow, new.input_digest):
            raise InputConflict(
                f"Session {row.session_id!r} already exists with different input (workflow {row.workflow!r}). Pass"
                f" another session_id, or resume it with engine.resume({row.session_id!r}).",
                session_id=row.session_id,
            )
        check_owner(row, new.owner)
        if new.pause is not None:  # start(paused=True) pauses an existing session instead of resuming it
            await self.pause(row.session_id, reason=new.pause.reason, by=new.pause.by)
            return Session(self, SessionId(row.session_id))
        if row.under_everything:  # only a resume may continue it, not a start
            return Session(self, SessionId(row.session_id))
        return await self.resume(row.session_id, by=by, owner=new.owner, budget=budget_of(new))

    async def fork(
        self, source: str, /, at_step: int | str | None = None, changes: Mapping[str, Any] | None = None, *,
        session_id: str | None = None, reuse: bool = False, owner: str | None = None,
        tags: str | Sequence[str] | None = None, budget: Amount | None = None,
        paused: bool = False, reason: str = "", by: str | None = None, folder: str | Path | None = None, **named: Any,
    ) -> Session[Any]:  # fmt: skip
        """Create a new session from another one's present state, or from its state before visit ``at_step``.

        The new session runs in the background, unless ``paused``. The source may have any status and is not changed.
        With ``paused`` and without changes, the workflow need not be registered with this engine.

        - ``at_step``: a visit, as for `rewind`. By default the fork continues where the source is now.
        - ``changes`` and keywords: changes of the state, as for `edit`.
        - ``reuse``: keep the finished operations of the visit, so that only the rest runs again.
        - ``owner``, ``tags``, ``budget``: by default those of the source.
        - ``folder``: the folder for its artifacts, if its steps publish any.
        """
        self._check_open()
        check_texts(owner=owner, reason=reason, by=by)
        known = None if session_id is None else check_session_id(session_id)
        pause = operator_pause(self.clock.now(), reason, by) if paused else None
        given = merged_changes(changes, named)
        while True:
            row = await self._row(source)
            # A fork that is stored as it is needs no code; the engine that resumes it checks the state.
            workflow = self._workflow_of(row) if row.workflow in self.workflows or given or not paused else None
            new = await self._forked(workflow, row, known or new_session_id(), at_step, given, reuse, by, folder)
            new = msgspec.structs.replace(
                new, owner=new.owner if owner is None else owner, tags=new.tags if tags is None else tags_of(tags),
                pause=pause, claim=pause is None, **allowance_of(budget).given(),
            )  # fmt: skip
            await self._check_free(new.session_id, folder)
            try:
                async with self._sharing_files(row, new) as new:
                    created = await (self._store_paused(new) if workflow is None else self._create(workflow, new))
            except DamagedRecord:
                await self._row(source)  # raises UnknownSession if the source was removed meanwhile
                raise
            if created is not None:
                return created
            if known is not None:
                return await self._resume_existing(new, by)

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
        self._check_open()
        self.register(workflow)
        check_texts(by=by)
        return Session(self, await self._rebuilt(folder, workflow, session_id, incomplete == "accept", by, given))

    async def same_input(
        self, workflow: Workflow[S, R], state: S | None = None, /, *, at_step: str | None = None, **fields: Any
    ) -> list[SessionInfo]:
        """Return the sessions that were started with the same input, newest first, whatever their status."""
        self._check_open()
        _, digest = encoded_input(workflow, given_input(state, fields), at_step, self.limits)
        rows = await self.store.find(Filter(workflow=workflow.name, input_digest=digest, level="root"))
        return await self._infos(rows)

    async def emit(
        self, session_id: str, event_type: str, summary: str = "", data: Mapping[str, Any] | None = None, *,
        agent_name: str = "",
    ) -> None:  # fmt: skip
        """Append an event to a session's history from outside its steps. Inside a step, use `Context.emit`.

        Raises `AlreadyRunning` if another process drives the session, and `EventRefused` if ``event_type`` is one of
        the engine's own events.
        """
        self._check_open()
        await append_event(self, session_id, event_type, summary, data or {}, agent_name)

    # resuming

    async def resume(
        self, session_id: str, *, by: str | None = None, owner: str | None = None, steal: bool = False,
        budget: Amount | None = None, wake: bool = False, code: Literal["accept"] | None = None,
        until: str | None = None, edits: Literal["accept", "discard"] | None = None, rerun: str | Sequence[str] = (),
        here: bool = True,
    ) -> Session[Any]:  # fmt: skip
        """Resume one session, and return a handle on it. `Engine.resume` describes the options."""
        self._check_open()
        check_texts(by=by, owner=owner)
        if code not in (None, "accept"):
            raise ValueError(f"code must be 'accept' or None, not {code!r}.")
        row = await self._row(session_id)
        check_owner(row, owner)
        if row.guest:
            given = {"steal": steal, "code": code, "until": until, "edits": edits, "rerun": rerun}
            options = [name for name, value in given.items() if value]
            return await self._resume_guest(row, by, allowance_of(budget), wake, options)
        if here:
            self._check_drives("resume", session_id)
        elif steal or wake or code or until or edits or rerun:
            raise ValueError("here=False only closes pauses. You can combine it only with by, owner and budget.")
        if here and until is not None and row.workflow in self.workflows:
            self.workflows[row.workflow].step(until)  # raises for an unknown one, also if the session has completed
        if here:
            row = await self._settle_artifacts(row, edits, as_names(rerun), by)
        session: Session[Any] = Session(self, SessionId(row.session_id))
        if row.status is Status.COMPLETED:
            return session
        if row.status is Status.CANCELLED:
            raise _ended_for_good(row)
        driven = row.live and not steal and not self.driver.is_stranded(row)
        allowance = allowance_of(budget)
        if driven and row.status is Status.RUNNING:
            await self.driver.wait_for_claim(row.session_id)  # the waker of this engine may be about to drive it
            if not self._woke_here(session) and await self._is_still_held(row):
                raise self._driven(row)
        elif here:
            await self._resume_here(session, row, driven, _How(by, allowance, steal, wake, code is not None, until))
        else:
            await self._withdraw_pauses(row, by, allowance, due=True)
        return session

    async def _resume_here(self, session: Session[Any], row: SessionRow, driven: bool, how: _How) -> None:
        """Withdraw the pauses once, and make sure that an engine drives the session: its holder, its keeper, or this.

        A pause that arrives afterwards stays in effect.
        """
        kept = row.kept_by is not None and how.in_place  # its keeper has the code, and need not be this engine
        prepared = None if kept else await self._prepared(row, driven, how)
        row = await self._withdraw_pauses(row, how.by, how.allowance)
        if driven or kept:
            if row.live:  # it was about to pause and continues where it is, or another engine drives it now
                return
            if how.in_place and await self._continues_in_place(session, row):
                return
            row = await self._row(row.session_id)
            if row.pause_requested:
                return  # someone has paused it again
        workflow, records = prepared or await self._prepared(row, driven, how)
        waits = row.status in (Status.WAITING, Status.SLEEPING)
        # If it waits for a child, the child may have to be resumed, and only the parent's step knows that.
        if not waits or how.wake or how.accept_code or row.frozen or row.awaits_child:
            await self._drive_resumed(session, workflow, row, records, how)

    async def _prepared(
        self, row: SessionRow, driven: bool, how: _How
    ) -> tuple[Workflow[Any], Sequence[Record]]:  # fmt: skip
        """Return what is needed to drive a session here, before anything is withdrawn: it may be missing or damaged."""
        workflow = self._workflow_of(row)
        self._pause_after(workflow, row, how.until, driven)
        self.waker.ask(row.session_id)
        return workflow, await self.store.records(row.key, row.key_frame)

    async def _withdraw_pauses(
        self, row: SessionRow, by: str | None, allowance: Allowance, due: bool = False
    ) -> SessionRow:  # fmt: skip
        """Withdraw the operator's pauses of a session. ``due``: any engine may then pick it up."""
        row = await self.store.unpause(row.session_id, by, self.clock.now(), allowance, due)
        self.driver.on_change(bool(allowance.given()))  # its children may be pausing in this process
        return row

    async def _drive_resumed(
        self, session: Session[Any], workflow: Workflow[Any], row: SessionRow, records: Sequence[Record], how: _How
    ) -> None:
        fence = row.fence if row.kept_by is not None and how.in_place else None
        try:
            session._run = await self._take_over(
                workflow, row, records, how.steal, fence, paused=True,
                resumed=True, by=how.by, wake=how.wake, accept_code=how.accept_code,
            )  # fmt: skip
        except HoldLost:
            if fence is None:
                raise  # otherwise its keeper was late, and drives it now
        except AlreadyRunning:
            if not self._woke_here(session):
                raise
        except SessionEnded as late:  # it ended after it was read
            if late.status != Status.COMPLETED.value:
                raise _ended_for_good(await self._row(row.session_id)) from late

    async def _resume_guest(
        self, row: SessionRow, by: str | None, allowance: Allowance, wake: bool, options: Sequence[str]
    ) -> Session[Any]:  # fmt: skip
        """Withdraw the pauses of a guest; see `resume`."""
        if row.status is Status.CANCELLED:
            raise _ended_for_good(row)
        if options:
            raise not_driven(row.session_id, row.status.value, " or ".join(options))
        if row.status is not Status.COMPLETED:
            await resume_guest(self, row, by, allowance, wake)
        return Session(self, SessionId(row.session_id))

    async def _continues_in_place(self, session: Session[Any], row: SessionRow) -> bool:
        """Wait until the engine that keeps the step of a resumed session continues it.

        Return False if no engine keeps it, or its keeper does not react. The session must then be driven here.
        """
        fence, end = row.fence, asyncio.get_running_loop().time() + KEEPER_PATIENCE
        with self.driver.listening(row.session_id) as news:
            while row.kept_by is not None and row.fence == fence:
                left = end - asyncio.get_running_loop().time()
                if left <= 0 or row.pause_requested:
                    return row.pause_requested
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, 0.05)):  # Python 3.11's wait_for() can lose a cancellation
                        await news.wait()
                news.clear()
                row = await self._row(row.session_id)
        session._run = self.driver.runs.get(row.session_id, session._run)
        return row.fence != fence

    async def take_up(self, session_id: str, *, fence: int | None = None, by: str | None = None) -> Session[Any]:
        """Drive a session that is ready in this process, and return a handle on it. Unlike `resume`, withdraw nothing.

        Use this in a program that looks for sessions to drive, such as a worker: a pause that arrives between its look
        and this call stays in effect.

        - ``fence``: the ``fence`` of the session when it was seen. If another process has driven the session since,
          `HoldLost` is raised.
        - ``by``: who picks it up, recorded in the history.

        Raises `VerbRefused` if the session is paused or has failed, `AlreadyRunning` if a process drives it, and
        `SessionEnded` if it is completed or cancelled.
        """
        self._check_open()
        check_texts(by=by)
        self._check_drives("take up", session_id)
        row = await self._row(session_id)
        if row.guest:
            raise not_driven(row.session_id, row.status.value)
        if row.status in (Status.PAUSED, Status.PAUSING, Status.FAILED):
            raise _only_resumed(row)
        session: Session[Any] = Session(self, SessionId(row.session_id))
        workflow = self._workflow_of(row)
        records = await self.store.records(row.key, row.key_frame)
        seen = row.fence if fence is None else fence
        try:
            session._run = await self._take_over(workflow, row, records, fence=seen, resumed=True, by=by)
        except AlreadyRunning:
            if not self._woke_here(session):
                raise
        self.waker.ask(row.session_id)
        return session

    async def take_ready(self, limit: int = 100, *, by: str | None = None) -> list[SessionId]:
        """Pick up to ``limit`` ready sessions of the registered workflows, drive them here, and return their ids.

        A session is ready if it was interrupted, if its timer is due, or if what it waits for has arrived. Sessions of
        processes that died are ready too. As with `take_up`, nothing is withdrawn: paused and failed sessions stay as
        they are. Finding the sessions costs the same, however many are stored. ``by`` is recorded in the history.
        """
        self._check_open()
        check_texts(by=by)
        self._check_drives("pick up", "ready sessions")
        work = asyncio.ensure_future(self._take_ready(limit, by))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self.driver.finish(work)  # the sessions are taken already, so they must be driven
            raise

    async def lift_pause(self, *, by: str | None = None) -> Listing[SessionInfo]:
        """Lift the pause of everything and return the first `PAGE` sessions that it alone had paused, newest first.

        Sessions that it stopped resume here, or in another running process that has their workflow; the others are as
        they were before the pause. Sessions that were also paused individually stay paused.
        """
        self._check_open()
        check_texts(by=by)
        some = await self.store.find(Filter(statuses=(Status.PAUSING, Status.PAUSED), limit=PAGE))
        await self.store.lift(by, self.clock.now())
        self.driver.on_change()
        await flags.show(self.store)
        released = [row for row in some if row.under_everything and not row.own_pause]
        for row in await self._present(released):
            await self._drive_if_due(row)
        return Listing(await self._infos(await self._present(released)), some.damaged)

    async def _is_still_held(self, row: SessionRow) -> bool:
        """Return whether a session is driven as it was when it was read, and has not completed meanwhile."""
        now = await self._row(row.session_id)
        return now.status is not Status.COMPLETED or now.fence != row.fence

    def _woke_here(self, session: Session[Any]) -> bool:
        """Return whether this engine's waker has just picked up the session, which has the same effect as a resume."""
        drive = self.driver.drive(session.id)
        if drive is None or not drive.picked_up or drive.resumed:
            return False
        session._run = self.driver.runs[session.id]
        return True

    def _pause_after(self, workflow: Workflow[Any], row: SessionRow, until: str | None, driven: bool) -> None:
        """Set the step after which a session must pause, or remove an earlier one."""
        self.driver.untils.pop(row.session_id, None)
        if until is None:
            return
        if driven:
            raise VerbRefused(
                f"Session {row.session_id!r} is still driven by {self.store.describe_holder(row.holder)}, and until="
                " works only if the session is resumed in this process. Wait until it is paused, then resume it.",
                session_id=row.session_id, status=row.status.value,
            )  # fmt: skip
        self.driver.untils[row.session_id] = workflow.step(until).name

    def _check_drives(self, verb: str, session_id: str) -> None:
        if self.drives == "none":
            raise CallRefused(
                f"This engine drives no sessions, so it cannot {verb} {session_id!r}. Open it with"
                ' Engine(drives="asked"), or let another engine drive the session: call start(paused=True) or'
                " resume(here=False) here."
            )

    async def drive_only(self, session_id: str) -> None:
        """Pick up only this session and its children from now on.

        Sessions that already run here are not stopped. Use this with ``Engine(drives="asked")``, where the engine picks
        up only sessions that a verb asked for.
        """
        self._check_open()
        self._check_drives("drive", session_id)
        row = await self._row(session_id)
        self.waker.asked = {row.session_id}
        self._announce()
        self.waker.poke()

    async def stand_by(self, session_id: str) -> SessionInfo:
        """Wait until someone resumes or answers a session that has stopped, in any process, and return its facts.

        Meanwhile this engine does not pick the session up, so you can check what has changed before you call `resume`.
        Other processes see in `engines` that this one stands by, and leave the session to it. Also returns when another
        engine drives the session, when it has ended, or when this engine is ending. Open the engine with
        ``drives="asked"``.
        """
        self._check_open()
        self._check_drives("stand by for", session_id)
        return await stand_by(self, session_id)

    async def idle(self, *session_ids: str) -> None:
        """Wait until this engine drives none of these sessions. Without ids, wait until it drives no session."""
        self._check_open()
        await self.driver.idle(session_ids)

    async def _start_if_missing(
        self, session_id: str, workflow: Workflow[Any], fields: dict[str, Any], by: str | None
    ) -> None:  # fmt: skip
        """Start the session that a message is for, unless it exists or another caller starts it first."""
        if await self.store.get(check_session_id(session_id)) is None:
            self.register(workflow)
            if workflow.is_guest:
                raise cannot_start(workflow)
            new = self._new_session(workflow, fields, check_session_id(session_id), by=by)
            await self._create(workflow, msgspec.structs.replace(new, keep_for=self._kept_for(None)))


def _ended_for_good(row: SessionRow) -> VerbRefused:
    return VerbRefused(
        f"Session {row.session_id!r} was cancelled and cannot be resumed. Rewind it to a step, fork it, or start a new"
        " session.",
        session_id=row.session_id, status=row.status.value,
    )  # fmt: skip


def _only_resumed(row: SessionRow) -> VerbRefused:
    """Return why a session is not picked up: it is paused or has failed, and only a resume may continue it."""
    failed = row.status is Status.FAILED
    what = "has failed, and picking it up would retry the step" if failed else "is paused, and stays so"
    return VerbRefused(
        f"Session {row.session_id!r} {what}. Continue it with engine.resume({row.session_id!r}).",
        session_id=row.session_id, status=row.status.value,
    )  # fmt: skip
