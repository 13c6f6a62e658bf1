"""The verbs that start, pause, resume and cancel sessions. Every front end uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import msgspec
from typing_extensions import TypeVar

from pausepoint.definition.steps import as_names
from pausepoint.definition.workflow import Workflow
from pausepoint.engine import flags
from pausepoint.engine.artifacts import Artifacts
from pausepoint.engine.base import Service, check_owner, owned, tags_of
from pausepoint.engine.creation import budget_of, encoded_input, given_input
from pausepoint.engine.events import append_event
from pausepoint.engine.guests import Visitor, cannot_start, guest_visit, not_driven, resume_guest
from pausepoint.engine.pauses import PAGE, Pauses, operator_pause
from pausepoint.engine.pickup import Pickup
from pausepoint.engine.queries import Queries
from pausepoint.engine.questions import Questions
from pausepoint.engine.schedules import Scheduler
from pausepoint.engine.session import Session
from pausepoint.engine.time_travel import Target, TimeTravel, merged_changes
from pausepoint.errors import (
    AlreadyRunning,
    DamagedRecord,
    HoldLost,
    InputConflict,
    LimitReached,
    SessionEnded,
    VerbRefused,
)
from pausepoint.log.telemetry import Watch
from pausepoint.model.budgets import Allowance, Amount, allowance_of
from pausepoint.model.commits import NewSession
from pausepoint.model.ids import SessionId, check_session_id, check_texts, new_session_id
from pausepoint.model.queues import turn_of
from pausepoint.model.records import Record
from pausepoint.model.sessions import Filter, SessionRow, Status
from pausepoint.model.views import Listing, SessionInfo
from pausepoint.runtime.driver import Run
from pausepoint.runtime.files import Files

if TYPE_CHECKING:
    from pydantic import BaseModel

S = TypeVar("S", bound="BaseModel")
R = TypeVar("R", default=S)  # the result: what a function returned, or the final state

KEEPER_PATIENCE = 2.0
"""How many seconds a resume waits for the engine that keeps the step, before it drives the session itself."""

_NOT_RESUMED = (Status.RUNNING, Status.COMPLETED, Status.CANCELLED)
"""What a resume says about these sessions is true while everything is paused, too."""


class _How(NamedTuple):
    """How a resume drives a session in this engine. See `Control.resume`."""

    by: str | None
    allowance: Allowance
    steal: bool
    wake: bool
    accept_code: bool
    pause_after: str | None
    exempt: bool  # whether the session may run while everything is paused

    @property
    def in_place(self) -> bool:
        """Whether a step that is kept in memory may continue. Otherwise it has to start again."""
        return not (self.steal or self.wake or self.accept_code or self.pause_after)


class Control:
    """The verbs that start, fork and resume sessions, and those that pick them up.

    ``make`` returns a handle on a session, with the verbs of the engine.
    """

    def __init__(
        self, service: Service, queries: Queries, pauses: Pauses, pickup: Pickup, scheduler: Scheduler,
        time_travel: TimeTravel, artifacts: Artifacts, questions: Questions,
        make: Callable[..., Session[Any]],
    ) -> None:  # fmt: skip
        self.service = service
        self.queries = queries
        self.pauses = pauses
        self.pickup = pickup
        self.scheduler = scheduler
        self.time_travel = time_travel
        self.artifacts = artifacts
        self.questions = questions
        self.make = make

    def handle(
        self, session_id: str, run: Run | None = None, owner: str | None = None, workflow: str | None = None
    ) -> Session[Any]:
        """Return a handle on a session. ``run`` is its drive in this engine, if it has one."""
        session = self.make(SessionId(session_id), owner, workflow)
        session._run = run
        return session

    def session(
        self, session_id: str, workflow: Workflow[Any] | None = None, *, owner: str | None = None
    ) -> Session[Any]:
        """Return a handle on a session, without looking for it."""
        self.service.check_open()
        check_texts(owner=owner)
        if workflow is None:
            return self.handle(session_id, owner=owner)
        self.service.register(workflow)
        return self.handle(session_id, owner=owner, workflow=workflow.name)

    def files(self, session_id: str) -> Files:
        """Return the files of a session, to add, read and list them."""
        self.service.check_open()
        return Files(self.service.store, self.service.clock, check_session_id(session_id), self.service.check_open)

    # starting

    async def start(
        self, workflow: Workflow[S, R], state: S | None = None, /, *,
        session_id: str | None = None, owner: str | None = None, tags: str | Sequence[str] = (),
        budget: Amount | None = None, at_step: str | None = None,
        paused: bool = False, reason: str = "", by: str | None = None, keep_for: timedelta | None = None,
        folder: str | Path | None = None, queue: str | None = None, priority: int | None = None,
        lane: str | None = None, **fields: Any,
    ) -> Session[S, R]:  # fmt: skip
        """Create a session, run it in the background, and return a handle on it."""
        self.service.check_open()
        self.service.register(workflow)
        if workflow.is_guest:
            raise cannot_start(workflow)
        check_texts(owner=owner, reason=reason, by=by, lane=lane)
        turn = turn_of(queue, priority)
        given = given_input(state, fields)
        known = None if session_id is None else check_session_id(session_id)
        pause = operator_pause(self.service.clock.now(), reason, by) if paused else None
        while True:
            new = self.pickup.new_session(workflow, given, known or new_session_id(), at_step, by, folder)
            new = msgspec.structs.replace(
                new, owner=owner, tags=tags_of(tags), pause=pause, claim=pause is None,
                keep_for=self.service.kept_for(keep_for), lane=lane, **turn, **allowance_of(budget).given(),
            )  # fmt: skip
            await self.artifacts.check_free(new.session_id, folder)
            created = await self._create(workflow, new)
            if created is not None:
                return created
            if known is not None:
                await self.artifacts.check_folder(known, folder)
                return cast("Session[S, R]", await self._resume_existing(new, by))

    def visit(
        self, workflow: Workflow[S], *, session_id: str | None = None, input: S | Mapping[str, Any] | None = None,
        owner: str | None = None, tags: str | Sequence[str] = (), budget: Amount | None = None,
        by: str | None = None, keep_for: timedelta | None = None,
    ) -> Visitor[S]:  # fmt: skip
        """Run the code of a guest session: the block of ``async with engine.visit(…) as ctx:``."""
        return guest_visit(self, workflow, session_id, input, owner, tags, budget, by, keep_for)

    async def _create(self, workflow: Workflow[S, R], new: NewSession) -> Session[S, R] | None:
        if not await self.pickup.create(workflow, new):
            return None
        return self.handle(new.session_id, self.service.driver.runs.get(new.session_id))

    async def _store_paused(self, new: NewSession) -> Session[Any] | None:
        """Store a paused session of a workflow whose code is not here. Return None if its id is taken."""
        if await self.service.store.create(msgspec.structs.replace(new, lane=new.lane or new.owner)) is None:
            return None
        Watch(new.session_id, new.workflow).started(new.step, paused=True)
        return self.handle(new.session_id)

    async def _resume_existing(self, new: NewSession, by: str | None) -> Session[Any]:
        row = await self.service.row(new.session_id)
        if (row.workflow, row.input_digest) != (new.workflow, new.input_digest):
            raise InputConflict(
                f"Session {row.session_id!r} already exists with different input (workflow {row.workflow!r}). Pass"
                f" another session_id, or resume it with engine.session({row.session_id!r}).resume().",
                session_id=row.session_id,
            )
        check_owner(row, new.owner)
        if new.pause is not None:  # start(paused=True) pauses an existing session instead of resuming it
            await self.pauses.pause(row.session_id, reason=new.pause.reason, by=new.pause.by)
            return self.handle(row.session_id)
        return await self.resume(owned(row.session_id, new.owner), by=by, budget=budget_of(new), exempt=False)

    async def fork(
        self, source: str, /, at_step: int | str | None = None, changes: Mapping[str, Any] | None = None, *,
        at_operation: int | str | None = None, session_id: str | None = None, reuse: bool = False,
        owner: str | None = None,
        tags: str | Sequence[str] | None = None, budget: Amount | None = None,
        paused: bool = False, reason: str = "", by: str | None = None, folder: str | Path | None = None, **named: Any,
    ) -> Session[Any]:  # fmt: skip
        """Create a new session from another one's present state, or from its state before a visit or an operation."""
        self.service.check_open()
        check_texts(owner=owner, reason=reason, by=by)
        known = None if session_id is None else check_session_id(session_id)
        pause = operator_pause(self.service.clock.now(), reason, by) if paused else None
        given, place = merged_changes(changes, named), Target.of_fork(at_step, at_operation, reuse)
        while True:
            row = await self.service.row(source)
            # A fork that is stored as it is needs no code; the engine that resumes it checks the state.
            needs_code = row.workflow in self.service.workflows or given or not paused
            workflow = self.service.workflow_of(row) if needs_code else None
            new = await self.time_travel.forked(workflow, row, known or new_session_id(), place, given, by, folder)
            new = msgspec.structs.replace(
                new, owner=new.owner if owner is None else owner, tags=new.tags if tags is None else tags_of(tags),
                pause=pause, claim=pause is None, **allowance_of(budget).given(),
            )  # fmt: skip
            await self.artifacts.check_free(new.session_id, folder)
            try:
                async with self.time_travel.sharing_files(row, new) as new:
                    created = await (self._store_paused(new) if workflow is None else self._create(workflow, new))
            except DamagedRecord:
                await self.service.row(source)  # raises UnknownSession if the source was removed meanwhile
                raise
            if created is not None:
                return created
            if known is not None:
                return await self._resume_existing(new, by)

    async def rebuild(
        self, folder: str | Path, workflow: Workflow[S, R], /, *, session_id: str | None = None,
        incomplete: Literal["accept"] | None = None, by: str | None = None, **given: Any,
    ) -> Session[S, R]:  # fmt: skip
        """Return the session of an artifact folder. If this store does not have it, create it from the folder."""
        self.service.check_open()
        self.service.register(workflow)
        check_texts(by=by)
        accept = incomplete == "accept"
        return self.handle(await self.artifacts.rebuilt(folder, workflow, session_id, accept, by, given))

    async def same_input(
        self, workflow: Workflow[S, R], state: S | None = None, /, *, at_step: str | None = None, **fields: Any
    ) -> list[SessionInfo]:
        """Return the sessions that were started with the same input, newest first, whatever their status."""
        self.service.check_open()
        _, digest = encoded_input(workflow, given_input(state, fields), at_step, self.service.sizes)
        rows = await self.service.store.find(Filter(workflow=workflow.name, input_digest=digest, level="root"))
        return await self.service.infos(rows)

    async def emit(
        self, session_id: str, event_type: str, summary: str = "", data: Mapping[str, Any] | None = None, *,
        agent_name: str = "",
    ) -> None:  # fmt: skip
        """Append an event to a session's history from outside its steps. Inside a step, use `Context.emit`."""
        self.service.check_open()
        await append_event(self.service, session_id, event_type, summary, data or {}, agent_name)

    # resuming

    async def resume(
        self, session_id: str, *, by: str | None = None, steal: bool = False, budget: Amount | None = None,
        wake: bool = False, code: Literal["accept"] | None = None, pause_after: str | None = None,
        edits: Literal["accept", "discard"] | None = None, rerun: str | Sequence[str] = (), here: bool = True,
        exempt: bool = True,
    ) -> Session[Any]:  # fmt: skip
        """Resume one session, and return a handle on it. `Session.resume` describes the options.

        Without ``exempt``, as for a `start`, it does nothing while everything is paused.
        """
        self.service.check_open()
        check_texts(by=by)
        if pause_after is not None and not isinstance(pause_after, str):
            raise ValueError(
                f"pause_after names a step of session {session_id!r}, so it must be a string: {pause_after!r:.80}."
            )
        if code not in (None, "accept"):
            raise ValueError(f"code must be 'accept' or None, not {code!r:.80}.")
        if session_id in self.service.driver.waking:
            # What the waker is about to drive need not be claimed again.
            await self.service.driver.wait_for_claim(session_id)
        row = await self.service.row(session_id)
        if not exempt and row.status not in _NOT_RESUMED and await self.service.store.standing_pause() is not None:
            return self.handle(row.session_id)
        if row.guest:
            given = {"steal": steal, "code": code, "pause_after": pause_after, "edits": edits, "rerun": rerun}
            options = [name for name, value in given.items() if value]
            return await self._resume_guest(row, by, allowance_of(budget), wake, options)
        if here:
            self.service.check_drives("resume", session_id)
        elif steal or wake or code or pause_after or edits or rerun:
            raise ValueError("here=False only closes pauses. You can combine it only with by and budget.")
        if here and pause_after is not None and row.workflow in self.service.workflows:
            # It raises for an unknown step, also if the session has completed.
            self.service.workflows[row.workflow].step(pause_after)
        if here:
            row = await self.artifacts.settle_artifacts(row, edits, as_names(rerun), by)
        session: Session[Any] = self.handle(row.session_id)
        if row.status is Status.COMPLETED:
            return session
        if row.status is Status.CANCELLED:
            raise _ended_for_good(row)
        driven = row.live and not steal and not self.service.driver.is_stranded(row)
        allowance = allowance_of(budget)
        if driven and row.status is Status.RUNNING:
            await self.service.driver.wait_for_claim(row.session_id)  # it may have begun to since
            if not self._woke_here(session) and await self._is_still_held(row):
                raise await self.service.driven(row)
        elif here:
            how = _How(by, allowance, steal, wake, code is not None, pause_after, exempt)
            await self._resume_here(session, row, driven, how)
        else:
            await self.withdraw_pauses(row, by, allowance, due=True)
        return session

    async def _resume_here(self, session: Session[Any], row: SessionRow, driven: bool, how: _How) -> None:
        """Withdraw the pauses once, and make sure that an engine drives the session: its holder, its keeper, or this.

        A pause that arrives afterwards stays in effect.
        """
        kept = row.kept_by is not None and how.in_place  # its keeper has the code, and need not be this engine
        prepared = None if kept else await self._prepared(row, driven, how)
        row = await self.withdraw_pauses(row, how.by, how.allowance, exempt=how.exempt)
        if driven or kept:
            if row.live:  # it was about to pause and continues where it is, or another engine drives it now
                return
            if how.in_place and await self._continues_in_place(session, row):
                return
            row = await self.service.row(row.session_id)
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
        workflow = self.service.workflow_of(row)
        await self._pause_after(workflow, row, how.pause_after, driven)
        self.service.waker.ask(row.session_id)
        return workflow, await self.service.store.records(row.key, row.key_frame)

    async def withdraw_pauses(
        self, row: SessionRow, by: str | None, allowance: Allowance, due: bool = False, exempt: bool = True
    ) -> SessionRow:  # fmt: skip
        """Withdraw the operator's pauses of a session. ``due``: close others, too; any engine may pick it up.

        Without ``exempt``, the session stays as it is while everything is paused.
        """
        same = owned(row.session_id, row.owner)  # and not another session that has got its id meanwhile
        row = await self.service.store.unpause(same, by, self.service.clock.now(), allowance, due, exempt)
        self.service.driver.on_change(budgets=bool(allowance.given()))  # its children may be pausing in this process
        return row

    async def _drive_resumed(
        self, session: Session[Any], workflow: Workflow[Any], row: SessionRow, records: Sequence[Record], how: _How
    ) -> None:
        fence = row.fence if row.kept_by is not None and how.in_place else None
        try:
            session._run = await self.pickup.take_over(
                workflow, row, records, how.steal, fence, paused=how.exempt,
                resumed=True, by=how.by, wake=how.wake, accept_code=how.accept_code,
            )  # fmt: skip
        except LimitReached:
            if how.wake or how.accept_code or how.pause_after:
                raise  # the engine that picks it up would not know
            return  # it is due, and an engine picks it up when a slot is free
        except HoldLost:
            if fence is None:
                raise  # otherwise its keeper was late, and drives it now
        except AlreadyRunning:
            if not await self._taken_here(session):
                raise
            if how.wake or how.accept_code:
                raise  # what has taken it does not know
        except VerbRefused:
            if how.exempt:
                raise  # otherwise it was paused after it was read, and stays so
        except SessionEnded as late:  # it ended after it was read
            if late.status != Status.COMPLETED.value:
                raise _ended_for_good(await self.service.row(row.session_id)) from late

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
        return self.handle(row.session_id)

    async def _continues_in_place(self, session: Session[Any], row: SessionRow) -> bool:
        """Wait until the engine that keeps the step of a resumed session continues it.

        Return False if no engine keeps it, or its keeper does not react. The session must then be driven here.
        """
        fence, end = row.fence, asyncio.get_running_loop().time() + KEEPER_PATIENCE
        with self.service.driver.listening(row.session_id) as news:
            while row.kept_by is not None and row.fence == fence:
                left = end - asyncio.get_running_loop().time()
                if left <= 0 or row.pause_requested:
                    return row.pause_requested
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, 0.05)):  # Python 3.11's wait_for() can lose a cancellation
                        await news.wait()
                news.clear()
                row = await self.service.row(row.session_id)
        session._run = self.service.driver.runs.get(row.session_id, session._run)
        return row.fence != fence

    async def take_up(self, session_id: str, *, fence: int | None = None, by: str | None = None) -> Session[Any]:
        """Drive a session that is ready, and return a handle on it. Unlike `resume`, withdraw nothing."""
        self.service.check_open()
        check_texts(by=by)
        self.service.check_drives("take up", session_id)
        row = await self.service.row(session_id)
        if row.guest:
            raise not_driven(row.session_id, row.status.value)
        if row.status in (Status.PAUSED, Status.PAUSING, Status.FAILED):
            raise _only_resumed(row)
        session: Session[Any] = self.handle(row.session_id)
        workflow = self.service.workflow_of(row)
        records = await self.service.store.records(row.key, row.key_frame)
        seen = row.fence if fence is None else fence
        try:
            session._run = await self.pickup.take_over(workflow, row, records, fence=seen, resumed=True, by=by)
        except AlreadyRunning:
            if not await self._taken_here(session):
                raise
        self.service.waker.ask(row.session_id)
        return session

    async def take_ready(self, limit: int = 100, *, by: str | None = None) -> list[SessionId]:
        """Pick up to ``limit`` ready sessions of the registered workflows, drive them here, and return their ids."""
        self.service.check_open()
        check_texts(by=by)
        self.service.check_drives("pick up", "ready sessions")
        work = asyncio.ensure_future(self._take_ready(limit, by))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self.service.driver.finish(work)  # the sessions are taken already, so they must be driven
            raise

    async def _take_ready(self, limit: int, by: str | None) -> list[SessionId]:
        service, waker = self.service, self.service.waker
        await service.declare_limits()
        async with waker.lock:
            service.driver.taking += 1
            try:
                if waker.asked is None:
                    await self.scheduler.fire_due(service.clock.now())
                if service.concurrency is not None:
                    limit = min(limit, waker.room)
                if limit <= 0:
                    return []
                before, names = set(service.driver.running), list(service.workflows)
                rows = await service.store.take(service.clock.now(), names, limit, waker.refused, waker.queues)
                return [SessionId(row.session_id) for row in rows if await self.pickup.drive_taken(row, by, before)]
            finally:
                service.driver.taking -= 1

    async def lift_pause(self, *, by: str | None = None) -> Listing[SessionInfo]:
        """Lift the pause of everything and return the first `PAGE` sessions that it alone had paused, newest first."""
        self.service.check_open()
        check_texts(by=by)
        some = await self.service.store.find(Filter(statuses=(Status.PAUSING, Status.PAUSED), limit=PAGE))
        await self.service.store.lift(by, self.service.clock.now())
        self.service.driver.on_change()
        await flags.show(self.service.store)
        released = [row for row in some if row.under_everything and not row.own_pause]
        for row in await self.pauses.present(released):
            await self.pickup.drive_if_due(row)
        return Listing(await self.service.infos(await self.pauses.present(released)), some.damaged)

    async def _is_still_held(self, row: SessionRow) -> bool:
        """Return whether a session is driven as it was when it was read, and has not completed meanwhile."""
        now = await self.service.row(row.session_id)
        return now.status is not Status.COMPLETED or now.fence != row.fence

    async def _taken_here(self, session: Session[Any]) -> bool:
        """Return whether this engine has woken or taken the ready session, which has the same effect as a resume."""
        async with self.service.waker.lock:  # what is taken now is driven when it is free
            pass
        return self._woke_here(session, or_taken=True)

    def _woke_here(self, session: Session[Any], or_taken: bool = False) -> bool:
        """Return whether this engine's waker has just picked up the session, which has the same effect as a resume."""
        drive = self.service.driver.drive(session.id)
        if drive is None or not drive.picked_up or (drive.resumed and not (or_taken and drive.taken)):
            return False
        session._run = self.service.driver.runs[session.id]
        return True

    async def _pause_after(self, workflow: Workflow[Any], row: SessionRow, step: str | None, driven: bool) -> None:
        """Set the step after which a session must pause, or remove an earlier one."""
        self.service.driver.pauses_after.pop(row.session_id, None)
        if step is None:
            return
        if driven:
            raise VerbRefused(
                f"Session {row.session_id!r} is still driven by {await self.service.holder(row)}, and pause_after="
                " works only if the session is resumed in this process. Wait until it is paused, then resume it.",
                session_id=row.session_id, status=row.status.value,
            )  # fmt: skip
        self.service.driver.pauses_after[row.session_id] = workflow.step(step).name

    async def drive_only(self, session_id: str) -> None:
        """Pick up only this session and its children from now on."""
        self.service.check_open()
        self.service.check_drives("drive", session_id)
        row = await self.service.row(session_id)
        self.service.waker.asked = {row.session_id}
        self.service.announce()
        self.service.waker.poke()

    async def stand_by(self, session_id: str) -> SessionInfo:
        """Wait until someone resumes or answers a session that has stopped, in any process, and return its facts."""
        from pausepoint.engine.standby import stand_by  # few programs do that

        self.service.check_open()
        self.service.check_drives("stand by for", session_id)
        return await stand_by(self.service, self.queries, session_id)

    async def idle(self, *session_ids: str) -> None:
        """Wait until this engine drives none of these sessions. Without ids, wait until it drives no session."""
        self.service.check_open()
        await self.service.driver.idle(session_ids)


def _ended_for_good(row: SessionRow) -> VerbRefused:
    """Return why a cancelled session is not resumed."""
    from pausepoint.model.ways import Ways  # only an error needs it

    return VerbRefused(
        f"Session {row.session_id!r} was cancelled and cannot be resumed."
        f" {Ways(row.session_id, None).after_cancel}.",
        session_id=row.session_id, status=row.status.value,
    )  # fmt: skip


def _only_resumed(row: SessionRow) -> VerbRefused:
    """Return why a session is not picked up: it is paused or has failed, and only a resume may continue it."""
    failed = row.status is Status.FAILED
    what = "has failed, and picking it up would retry the step" if failed else "is paused, and stays so"
    return VerbRefused(
        f"Session {row.session_id!r} {what}. Continue it with engine.session({row.session_id!r}).resume().",
        session_id=row.session_id, status=row.status.value,
    )  # fmt: skip
