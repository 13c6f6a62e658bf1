"""Drives sessions in this engine: new ones, those that are due, and those that a verb takes over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from msgspec.structs import replace

from pausepoint.definition.workflow import Workflow
from pausepoint.engine.base import Service, owned
from pausepoint.engine.children import Children
from pausepoint.engine.creation import new_session
from pausepoint.engine.descriptions import describe, is_described
from pausepoint.engine.pauses import Pauses
from pausepoint.engine.queries import Queries
from pausepoint.errors import (
    AlreadyRunning,
    DamagedRecord,
    DefinitionError,
    HoldLost,
    PausepointError,
    SessionEnded,
    UnknownSession,
    VerbRefused,
)
from pausepoint.log.replay import Line
from pausepoint.log.telemetry import Watch, log_line
from pausepoint.model.commits import NewSession
from pausepoint.model.ids import SessionId
from pausepoint.model.records import Record
from pausepoint.model.sessions import SessionRow, Status
from pausepoint.runtime.driver import Run

if TYPE_CHECKING:
    from pydantic import BaseModel


class Resumed(TypedDict, total=False):
    """How a session is picked up: whether a resume asks for it, whose, and its options. See `Session.resume`."""

    resumed: bool
    by: str | None
    wake: bool
    accept_code: bool


class Pickup:
    """Claims sessions and begins to drive them. A claimed session is driven even if the caller is cancelled."""

    def __init__(self, service: Service, queries: Queries, pauses: Pauses) -> None:
        self.service = service
        self.queries = queries
        self.pauses = pauses

    def new_session(
        self, workflow: Workflow[Any], given: BaseModel | dict[str, Any], session_id: SessionId,
        at_step: str | None = None, by: str | None = None, folder: str | Path | None = None,
    ) -> NewSession:  # fmt: skip
        service = self.service
        return new_session(workflow, given, session_id, service.sizes, service.clock.now(), at_step, by, folder)

    async def create(self, workflow: Workflow[Any], new: NewSession) -> bool:
        """Store a new session, and drive it here if it may run. Return False if its id is taken."""
        if new.guest:
            new = replace(new, claim=False)  # only a visit may drive it
        if new.claim:
            self.service.check_drives("start", new.session_id)
        return await self.create_here(workflow, new)

    async def create_here(
        self, workflow: Workflow[Any], new: NewSession,
        create: Callable[[NewSession], Awaitable[SessionRow | None]] | None = None,
    ) -> bool:  # fmt: skip
        """Store a new session and drive it. Return False if its id is taken. ``create`` stores it, if given."""
        if not is_described(self.service, workflow):
            await describe(self.service, workflow)
        await self.service.declare_limits()
        if new.lane is None and new.owner is not None:
            new = replace(new, lane=new.owner)
        if new.claim and not self.service.serves(new.queue):
            new = replace(new, claim=False, due=True)  # for the engines that drive sessions of this queue
        with self.service.driver.claiming(new.session_id):
            with self._driven_if_cancelled(new.session_id) if new.claim else nullcontext():
                row = await (create or self.service.store.create)(new)
            if row is None:
                return False
            is_held = row.holder is not None  # not while a pause of everything is in effect, or without a slot
            Watch(row.session_id, row.workflow).started(row.step, paused=row.pause_requested)
            if is_held:
                self._begin(workflow, row, new.records)
            if new.parent is None:  # a child is picked up with its parent
                self.service.waker.ask(row.session_id)
            return True

    async def drive_taken(self, row: SessionRow, by: str | None, before: Container[str]) -> bool:
        """Drive a session that was taken. Return False, and give it back, if it cannot run here.

        One that was driven here ``before`` is given back, too. A store that lost its last writes may free a session
        while its drive still ends, and give the same fence again.
        """
        if row.session_id in before:
            await self.service.store.release(row.key, row.fence)
            return False
        with self.service.driver.claiming(row.session_id):
            try:
                workflow = self.service.workflow_of(row)
                if not is_described(self.service, workflow):
                    await describe(self.service, workflow)
                records = await self.service.store.records(row.key, row.key_frame)
                self._begin(workflow, row, records, picked_up=True, resumed=True, taken=True, by=by)
            except PausepointError as error:
                self.service.waker.refuse(row, error)
                await self.service.store.release(row.key, row.fence)
                return False
        self.service.waker.ask(row.session_id)
        return True

    async def take_over(
        self, workflow: Workflow[Any], row: SessionRow, past: Sequence[Record] | Line, steal: bool = False,
        fence: int | None = None, paused: bool = False, **how: Unpack[Resumed],
    ) -> Run:  # fmt: skip
        """Claim a session that exists, and drive it here. ``fence`` is the one that the claim must find, if given.

        ``past`` is its log from the key frame on, or the line that it folds to, as of ``row``.
        """
        if not is_described(self.service, workflow):
            await describe(self.service, workflow)
        seq = row.seq if isinstance(past, Line) or past[-1].seq == row.seq else None
        digest, steal = row.digest, steal or self.service.driver.is_stranded(row)
        await self.service.driver.let_go(row.session_id)
        with self.service.driver.claiming(row.session_id), self._driven_if_cancelled(row.session_id, **how):
            row = await self.service.store.claim(owned(row.session_id, row.owner), steal, fence, paused)
            if row.seq != seq or row.digest != digest:
                past = await self.service.store.records(row.key, row.key_frame)
            return self._begin(workflow, row, past, picked_up=True, **how)

    @contextmanager
    def _driven_if_cancelled(self, session_id: str, **how: Unpack[Resumed]) -> Iterator[None]:
        """If the caller is cancelled while it claims the session, as a web request may be, drive the session anyway."""
        try:
            yield
        except asyncio.CancelledError:
            self.service.driver.in_background(self._drive_stranded(session_id, **how))
            raise

    async def _drive_stranded(self, session_id: str, **how: Unpack[Resumed]) -> None:
        try:
            with self.service.driver.claiming(session_id):
                await self._drive_if_ours(session_id, **how)
        except (UnknownSession, SessionEnded, VerbRefused):
            pass  # there is nothing to drive, or it is paused
        except PausepointError as error:
            log_line(logging.WARNING, f"was left claimed by a cancelled call and cannot be driven: {error}", session_id)

    async def _drive_if_ours(self, session_id: str, **how: Unpack[Resumed]) -> None:
        service, store = self.service, self.service.store
        try:
            row = await store.claim(session_id)  # runs after the cancelled claim, whatever its result
        except AlreadyRunning:
            if session_id in service.driver.runs or (await service.row(session_id)).holder != store.number:
                return
            row = await store.claim(session_id, steal=True, paused=True)
        records = await store.records(row.key, row.key_frame)
        self._begin(service.workflow_of(row), row, records, picked_up=True, **how)

    async def wake(self, row: SessionRow) -> Run | None:
        if row.session_id in self.service.driver.claims:
            return None  # the sender of a message and the waker notice it at the same time; one of them is enough
        self.service.driver.waking.add(row.session_id)
        try:
            with self.service.driver.claiming(row.session_id):
                workflow = self.service.workflow_of(row)
                past: Sequence[Record] | Line | None = self.service.driver.lines.find(row)
                if past is None:
                    past = await self.service.store.records(row.key, row.key_frame)
                # Only with this fence: another engine may have driven the session since it was due.
                return await self.take_over(workflow, row, past, fence=row.fence)
        finally:
            self.service.driver.waking.discard(row.session_id)

    def _begin(
        self, workflow: Workflow[Any], row: SessionRow, past: Sequence[Record] | Line, *,
        picked_up: bool = False, resumed: bool = False, taken: bool = False, by: str | None = None, wake: bool = False,
        accept_code: bool = False,
    ) -> Run:  # fmt: skip
        service = self.service
        drive = service.drive_class(
            service.store, workflow, row, service.clock, service.sizes, Children(self, row), service.driver.changed
        )
        drive.picked_up, drive.resumed, drive.taken = picked_up, resumed, taken
        drive.resumed_by, drive.wake = by, wake
        drive.accept_code, drive.pause_after = accept_code, service.driver.pauses_after.get(row.session_id)
        drive.questions_expire, drive.strict = service.questions_expire, service.strict
        drive.on_step = service.on_step
        drive.streams = service.streams
        drive.keeper.hold = service.hold if workflow.hold is None else workflow.hold
        drive.load(past)
        return service.driver.begin(drive)

    async def drive_if_due(self, row: SessionRow) -> None:
        """Drive a session that became due in this engine, if its workflow is registered here."""
        service = self.service
        if service.drives == "none" or service.waker.asked is not None:
            return  # the waker picks up asked sessions
        if (
            row.guest
            or row.workflow not in service.workflows
            or not service.serves(row.queue)
            or not service.has_room()
        ):
            return
        if row.due and row.status is Status.READY and row.kept_by is None:
            # A received message is kept even if this fails. The waker logs why a session cannot resume here.
            with suppress(AlreadyRunning, HoldLost, SessionEnded, VerbRefused, DefinitionError, DamagedRecord):
                await self.wake(row)
            await self.service.driver.wait_for_claim(row.session_id)  # the waker may have been faster
