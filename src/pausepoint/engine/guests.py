"""Guest sessions: code that stays in the user's own program, as the block of ``engine.visit``.

Verbs treat a guest like any other session, with one exception: no engine drives it. Only a visit does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from pausepoint.clock import to_datetime
from pausepoint.codec.values import encode
from pausepoint.definition.workflow import Workflow
from pausepoint.engine.base import check_owner, tags_of
from pausepoint.engine.children import Children
from pausepoint.engine.creation import encoded_input
from pausepoint.engine.descriptions import describe, is_described
from pausepoint.errors import (
    AlreadyRunning,
    CallRefused,
    HoldLost,
    InputConflict,
    Parked,
    SessionEnded,
    StepExited,
    StoreClosed,
    UnknownSession,
    VerbRefused,
)
from pausepoint.log.replay import EventBody, fold, limits_child, to_payload
from pausepoint.log.telemetry import Watch
from pausepoint.model.budgets import Allowance, Amount, allowance_of
from pausepoint.model.commits import Commit, NewSession
from pausepoint.model.ids import SessionId, check_session_id, check_texts, new_session_id
from pausepoint.model.records import Record, seal
from pausepoint.model.sessions import Pause, SessionRow, Status
from pausepoint.runtime.driver import Run
from pausepoint.runtime.guests import Block, BlockingGuestContext, GuestContext, GuestDrive
from pausepoint.runtime.inside import Place, entered
from pausepoint.runtime.visit import Visit

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pausepoint.engine.control import Control
    from pausepoint.engine.loop_thread import LoopThread

S = TypeVar("S", bound="BaseModel")

CANCELLED = "the visit was cancelled"


class Visitor(Generic[S]):
    """The async context manager that `Engine.visit` returns."""

    def __init__(
        self, control: Control, workflow: Workflow[S], session_id: str | None, given: S | Mapping[str, Any] | None,
        options: dict[str, Any],
    ) -> None:  # fmt: skip
        self.control = control
        self.workflow = workflow
        self.session_id = new_session_id() if session_id is None else check_session_id(session_id)
        self.given = given
        self.options = options
        self.run: Run | None = None
        self.block: Block | None = None
        self.ctx: GuestContext[S] | None = None
        self._inside: entered | None = None

    async def __aenter__(self) -> GuestContext[S]:
        visit, state = await self.enter(asyncio.current_task())
        self._inside = entered(Place(visit, visit.root))
        self._inside.__enter__()
        self.ctx = GuestContext(visit, visit.root, state)
        return self.ctx

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._inside is not None:
            self._inside.__exit__()
        output = None if self.ctx is None else self.ctx.output
        await self.exit(error, output)

    async def enter(self, task: asyncio.Task[Any] | None) -> tuple[Visit, Any]:
        """Claim the session, and return its visit and its state. Raises `Parked` if the session must not run."""
        if self.block is not None:
            raise CallRefused("This visit was entered before. Call engine.visit again for each block.")
        self.block = Block()
        opening = asyncio.ensure_future(self._open(self.block))
        try:
            visit, state = await asyncio.shield(opening)
        except asyncio.CancelledError:
            self.control.service.driver.in_background(self._close_again(opening))
            raise
        if self.block.exited:
            assert self.run is not None
            await self.run.ended.wait()
            raise self.run.broken or await self._why_exited()
        self.block.task = task  # from here on, a step that must exit cancels it
        return visit, state

    async def _close_again(self, opening: asyncio.Future[Any]) -> None:
        """Give up a session that was claimed for a caller who was cancelled meanwhile, as a web request may be."""
        with suppress(Exception):
            await opening
        if self.run is not None and self.run.drive is not None:
            self.run.drive.requests.stop(CANCELLED, now=True)

    async def _open(self, block: Block) -> tuple[Visit, Any]:
        control = self.control
        control.service.check_open()
        control.service.check_drives("visit", self.session_id)
        if not self.workflow.is_guest:
            raise CallRefused(
                f"Workflow {self.workflow.name!r} has steps of its own, so it cannot be visited. Start it with"
                " engine.start, or make it with Workflow.guest(name, state=…)."
            )
        control.service.register(self.workflow)
        if not is_described(control.service, self.workflow):
            await describe(control.service, self.workflow)
        self.run = await self._claim(block)
        entering: set[asyncio.Future[Any]] = {block.entered, asyncio.ensure_future(self.run.ended.wait())}
        await asyncio.wait(entering, return_when=asyncio.FIRST_COMPLETED)
        (entering - {block.entered}).pop().cancel()
        if not block.entered.done():
            raise self.run.broken or await parked(control, self.session_id)
        return block.entered.result()

    async def _claim(self, block: Block) -> Run:
        """Claim the session, or create it, and begin its drive. Until then, no other visit here may claim it."""
        control = self.control
        while True:
            row = await control.service.store.get(self.session_id)
            if row is not None:
                await self._check(row)
            steal = row is not None and control.service.driver.is_stranded(row)
            try:
                with control.service.driver.claiming(self.session_id):
                    if row is None:
                        new = self._new()
                        claimed, records = await self._created(new), new.records
                    else:
                        claimed = await control.service.store.claim(
                            self.session_id, steal, None if steal else row.fence
                        )
                        records = tuple(await control.service.store.records(claimed.key, claimed.key_frame))
                    return self._begin(claimed, records, block)
            except (HoldLost, AlreadyRunning):
                continue  # it has changed since it was read
            except VerbRefused as error:
                raise await parked(control, self.session_id) from error

    async def _created(self, new: NewSession) -> SessionRow:
        row = await self.control.service.store.create(new)
        if row is None:
            raise HoldLost("another visit has created it", session_id=self.session_id)
        Watch(row.session_id, row.workflow).started(row.step, paused=row.holder is None)
        if row.holder is None:  # everything is paused
            raise await parked(self.control, self.session_id)
        return row

    def _new(self) -> NewSession:
        options = self.options
        new = self.control.pickup.new_session(self.workflow, self._input(), self.session_id, by=options["by"])
        return msgspec.structs.replace(
            new, owner=options["owner"], tags=options["tags"], keep_for=options["keep_for"],
            **options["allowance"].given(),
        )  # fmt: skip

    def _input(self) -> BaseModel | dict[str, Any]:
        if self.given is None:
            return {}
        return dict(self.given) if isinstance(self.given, Mapping) else self.given

    def _digest(self) -> bytes | None:
        return encoded_input(self.workflow, self._input(), None, self.control.service.sizes)[1]

    async def _check(self, row: SessionRow) -> None:
        """Check that a stored session can be visited now."""
        if row.workflow != self.workflow.name or not row.guest:
            what = f"belongs to workflow {row.workflow!r}" if row.guest else "is not a guest session"
            raise UnknownSession(
                f"Session {row.session_id!r} {what}, so it cannot be visited as {self.workflow.name!r}. Check the id.",
                session_id=row.session_id,
            )
        self.control.service.workflow_of(row)
        check_owner(row, self.options["owner"])
        if self.given is not None and self._digest() != row.input_digest:
            raise InputConflict(
                f"Session {row.session_id!r} already exists with different input. Visit it with the same input or"
                " without input=, or pass another session_id.",
                session_id=row.session_id,
            )
        if row.status in (Status.COMPLETED, Status.CANCELLED):
            raise SessionEnded(
                f"Session {row.session_id!r} is {row.status.value}. Read its result with"
                f" engine.session({row.session_id!r}).state(), or visit another session_id.",
                session_id=row.session_id, status=row.status.value,
            )  # fmt: skip
        if row.status is Status.RUNNING and not self.control.service.driver.is_stranded(row):
            raise await _visited(self.control, row)
        waits = row.status in (Status.WAITING, Status.SLEEPING) and not (row.frozen or row.awaits_child)
        if waits or row.status in (Status.PAUSED, Status.PAUSING):
            raise await parked(self.control, row.session_id)

    def _begin(self, row: SessionRow, records: Sequence[Record], block: Block) -> Run:
        service, workflow = self.control.service, self.workflow
        drive = GuestDrive(
            block, service.store, workflow, row, service.clock, service.sizes, Children(self.control.pickup, row),
            service.driver.changed,
        )  # fmt: skip
        drive.picked_up = drive.resumed = row.fence > 1
        drive.resumed_by = self.options["by"]
        drive.questions_expire = service.questions_expire
        drive.on_step = service.on_step
        drive.streams = service.streams
        drive.keeper.hold = workflow.hold or 0.0
        drive.load(records)
        return service.driver.begin(drive)

    async def exit(self, error: BaseException | None, output: dict[str, Any] | None) -> None:
        """End the step. Raises `Parked` if the session had to stop; otherwise the block's own error stays."""
        block, run = self.block, self.run
        assert block is not None
        assert run is not None
        cancelled = await self._take_back_cancellation(block) and isinstance(error, asyncio.CancelledError)
        own = error if isinstance(error, Exception) else None
        interrupted = error is not None and own is None and not block.exited
        block.task = None
        if interrupted and run.drive is not None:
            run.drive.requests.stop(CANCELLED, now=True)
        elif not interrupted:
            block.end(output, own)
        await run.ended.wait()
        if run.broken is not None:
            raise run.broken from error
        if cancelled:
            raise asyncio.CancelledError
        if block.exited and not interrupted:
            raise await self._why_exited() from own
        if error is None:
            await self._check_completed(block)

    async def _why_exited(self) -> Parked:
        """Return why the block exited. The engine may have been closed meanwhile: it does not wait for the block."""
        try:
            return await parked(self.control, self.session_id)
        except StoreClosed:
            return self.released()

    def released(self) -> Parked:
        """Return that the engine was closed before the block ended."""
        return Parked(
            f"Session {self.session_id!r} was released, because its engine was closed. Open an engine and visit the"
            " session again to continue after its last operation.",
            session_id=self.session_id, status=Status.READY.value,
            reason=self.control.service.driver.ending or "the engine was closed",
        )  # fmt: skip

    async def _take_back_cancellation(self, block: Block) -> bool:
        """Take back the engine's own cancellation of the block's task. Return whether others are left.

        A task group of Python 3.11 may leave one behind, so this alone does not mean that the caller was cancelled.
        """
        if block.task is None:
            return False
        if not block.cancels:
            return block.task.cancelling() > 0
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)  # the block may have ended before the cancellation arrived
        left = [block.task.uncancel() for _ in range(block.cancels)]
        return left[-1] > 0

    async def _check_completed(self, block: Block) -> None:
        """Raise why the session has not completed although the block has ended well, such as refused output."""
        if block.error is not None:
            raise block.error
        if (await self.control.service.row(self.session_id)).status is not Status.COMPLETED:
            raise await parked(self.control, self.session_id)


class BlockingVisitor(Generic[S]):
    """The context manager that the ``visit`` of a blocking engine returns."""

    def __init__(self, visit: Visitor[S], thread: LoopThread) -> None:
        self._visit = visit
        self._thread = thread
        self._ctx: BlockingGuestContext[S] | None = None
        self._inside: entered | None = None

    def __enter__(self) -> BlockingGuestContext[S]:
        visit, state = self._thread.call(self._visit.enter, None)
        self._inside = entered(Place(visit, visit.root))
        self._inside.__enter__()
        self._ctx = BlockingGuestContext(visit, visit.root, state)
        return self._ctx

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._inside is not None:
            self._inside.__exit__()
        try:
            self._thread.call(self._visit.exit, error, None if self._ctx is None else self._ctx.output)
        except StoreClosed as closed:
            if error is None or isinstance(error, Exception | StepExited):  # an interrupt stays one
                raise self._visit.released() from closed


def guest_visit(
    control: Control, workflow: Workflow[S], session_id: str | None, given: S | Mapping[str, Any] | None,
    owner: str | None, tags: str | Sequence[str], budget: Amount | None, by: str | None,
    keep_for: timedelta | None,
) -> Visitor[S]:  # fmt: skip
    """Return the visit of a guest session, with checked options."""
    check_texts(owner=owner, by=by)
    options = {
        "owner": owner,
        "tags": tags_of(tags),
        "allowance": allowance_of(budget),
        "by": by,
        "keep_for": control.service.kept_for(keep_for),
    }
    return Visitor(control, workflow, session_id, given, options)


async def resume_guest(
    control: Control, row: SessionRow, by: str | None, allowance: Allowance, wake: bool = False
) -> None:
    """Withdraw the pauses of a guest, whatever their kind. Its program continues it with its next visit.

    ``wake``: end its timers too.
    """
    row = await control.withdraw_pauses(row, by, allowance)
    while not row.live and (wake or row.kept_by is None):
        wakes = wake and await _has_timers(control, row)
        pauses = [pause for pause in await control.service.store.pauses(row.key) if pause.kind != "operator"]
        if not (pauses or wakes):
            return
        with suppress(HoldLost, AlreadyRunning):
            await control.service.store.revise(_resumed(row, pauses, control.service.clock.now(), by, wakes))
            control.service.driver.changed(row.session_id)
            return
        row = await control.service.row(row.session_id)
    if wake and row.live:
        raise await _visited(control, row)


async def _has_timers(control: Control, row: SessionRow) -> bool:
    """Return whether a session waits for a time. The expiry of a question is not one."""
    if row.wakes_at is None:
        return False
    waits = fold(await control.service.store.records(row.key, row.key_frame)).waits.values()
    limited = [wait for wait in waits if wait.due is not None and not limits_child(wait)]
    return not limited or any(wait.ask is None for wait in limited)


def _resumed(row: SessionRow, pauses: Sequence[Pause], now: int, by: str | None, wakes: bool) -> Commit:
    """Return a commit that closes pauses and counts crashes from 0 again. The next visit tests their conditions."""
    data = {"step": row.step, "by": by, "pauses": [pause.kind for pause in pauses]}
    timers = "its timers end now; " if wakes else ""
    summary = f"resumed{f' by {by}' if by else ''}; {timers}its own program continues it"
    raw = msgspec.Raw(encode(data, "event session.resumed"))
    body = EventBody("session.resumed", summary, row.step or "", raw, wake=wakes)
    record = seal(row.digest, row.seq + 1, row.seq, "event", row.step or "", row.visit, now, to_payload(body))
    return Commit(
        row.key, row.fence, row.seq, (record,), max(now, row.updated_at), row.key_frame, row.step, row.visit,
        row.held_by_guard, ended=row.ended, failure=row.failure, release=True, progress=row.progress,
        close_pauses=tuple(pause.id for pause in pauses), closed_by=by,
        waiting=row.waiting, wakes_at=now if wakes else row.wakes_at, parent=row.parent,
    )  # fmt: skip


def not_driven(session_id: str, status: str, options: str = "") -> VerbRefused:
    """Return why an engine does not drive a guest."""
    only = f" resume takes only by, budget and wake for it, not {options}." if options else ""
    return VerbRefused(
        f"Session {session_id!r} is a guest: its code runs in another program, and no engine can drive it.{only} That"
        " program continues it with its next engine.visit.",
        session_id=session_id, status=status,
    )  # fmt: skip


def cannot_start(workflow: Workflow[Any]) -> CallRefused:
    """Return why a guest workflow is not started."""
    return CallRefused(
        f"Workflow {workflow.name!r} is a guest: its code is the block of a visit, so the engine cannot run it. Write"
        f" 'async with engine.visit({workflow.name}, session_id=…, input=…) as ctx:'."
    )


async def _visited(control: Control, row: SessionRow) -> AlreadyRunning:
    holder = await control.service.holder(row)
    return AlreadyRunning(
        f"Session {row.session_id!r} is being visited in {holder}. Try again when that visit has ended, or pause the"
        " session to end it at its next operation.",
        session_id=row.session_id, holder=holder,
    )  # fmt: skip


async def parked(control: Control, session_id: str) -> Parked:
    """Return why a session must not run now, and what to do."""
    row = await control.service.row(session_id)
    reason, way_out = await _explained(control, row)
    why = f": {reason}".rstrip(".") if reason else ""
    return Parked(
        f"Session {session_id!r} is {row.status.value}{why}{'' if why.endswith(('?', '!')) else '.'} {way_out}",
        session_id=session_id, status=row.status.value, reason=reason,
    )  # fmt: skip


async def _explained(control: Control, row: SessionRow) -> tuple[str, str]:
    again = "then visit it again"
    id = SessionId(row.session_id)
    match row.status:
        case Status.PAUSED | Status.PAUSING:
            pauses = await control.service.store.pauses(row.key)
            why = "; ".join(f"{pause.reason}{f' (by {pause.by})' if pause.by else ''}" for pause in pauses)
            budget = "budget=…" if any(pause.kind == "budget" for pause in pauses) else ""
            return why, f"Resume it with engine.session({id!r}).resume({budget}), {again}."
        case Status.WAITING:
            questions = await control.questions.questions(tree=id)
            if questions:
                first = questions[0]
                return first.next_question, f"Answer the question with engine.answer({first.id!r}, …), {again}."
            kinds = [f"an {kind}" if kind == "answer" else f"a {kind}" for kind in (row.waiting or "").split(",")]
            return f"for {' or '.join(kinds)}{_until(row, ', ')}", "Visit it again when the wait is over."
        case Status.SLEEPING if row.wakes_at:
            wake = f"engine.session({id!r}).resume(wake=True)"
            return _until(row), f"Visit it again after that time, or end its timers: {wake}."
        case Status.CANCELLED:
            return "", "It cannot continue. Visit another session_id."
        case Status.COMPLETED:
            return "", f"Read its result with engine.session({id!r}).state()."
        case _:
            return control.service.driver.ending, "Visit it again to continue after its last operation."


def _until(row: SessionRow, before: str = "") -> str:
    """Return when the session wakes, as a phrase; empty if it has no time limit."""
    return f"{before}until {to_datetime(row.wakes_at).isoformat(timespec='seconds')}" if row.wakes_at else ""
