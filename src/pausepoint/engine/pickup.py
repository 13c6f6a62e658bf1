"""Drives sessions in this engine: new ones, those that are due, and those that a verb takes over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from pausepoint.definition.workflow import Workflow
from pausepoint.engine.children import Children
from pausepoint.engine.creation import new_session
from pausepoint.engine.descriptions import describe, is_described
from pausepoint.engine.pauses import Pauses
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
from pausepoint.log.telemetry import Watch, log_line
from pausepoint.model.ids import SessionId
from pausepoint.model.records import Record
from pausepoint.model.sessions import NewSession, SessionRow, Status
from pausepoint.runtime.drive import Drive
from pausepoint.runtime.driver import Run

if TYPE_CHECKING:
    from pydantic import BaseModel


class Pickup(Pauses):
    """Claims sessions and begins to drive them. A claimed session is driven even if the caller is cancelled."""

    drive_class = Drive  # the testing package replaces this class
    hold = 0.0  # how many seconds a paused step is kept in memory
    questions_expire: timedelta | EllipsisType | None = ...
    """How long a question waits unless the call or the workflow says otherwise. None means forever."""

    def _new_session(
        self, workflow: Workflow[Any], given: BaseModel | dict[str, Any], session_id: SessionId,
        at_step: str | None = None, by: str | None = None, folder: str | Path | None = None,
    ) -> NewSession:  # fmt: skip
        return new_session(workflow, given, session_id, self.limits, self.clock.now(), at_step, by, folder)

    async def _create_here(self, workflow: Workflow[Any], new: NewSession) -> bool:
        """Store a new session and drive it. Return False if its id is taken."""
        if not is_described(self, workflow):
            await describe(self, workflow)
        with self.driver.claiming(new.session_id):
            with self._driven_if_cancelled(new.session_id) if new.claim else nullcontext():
                row = await self.store.create(new)
            if row is None:
                return False
            is_held = row.holder is not None  # not while a pause of everything is in effect
            Watch(row.session_id, row.workflow).started(row.step, paused=not is_held)
            if is_held:
                self._begin(workflow, row, new.records)
            if new.parent is None:  # a child is picked up with its parent
                self.waker.ask(row.session_id)
            return True

    async def _take_ready(self, limit: int, by: str | None) -> list[SessionId]:
        self.driver.taking += 1
        try:
            rows = await self.store.take(self.clock.now(), list(self.workflows), limit, self.waker.refused)
            return [SessionId(row.session_id) for row in rows if await self._drive_taken(row, by)]
        finally:
            self.driver.taking -= 1

    async def _drive_taken(self, row: SessionRow, by: str | None) -> bool:
        """Drive a session that was taken. Return False, and give it back, if it cannot run here."""
        with self.driver.claiming(row.session_id):
            try:
                workflow = self._workflow_of(row)
                if not is_described(self, workflow):
                    await describe(self, workflow)
                records = await self.store.records(row.key, row.key_frame)
                self._begin(workflow, row, records, picked_up=True, resumed=True, by=by)
            except PausepointError as error:
                self.waker.refuse(row, error)
                await self.store.release(row.key, row.fence)
                return False
        self.waker.ask(row.session_id)
        return True

    async def _take_over(
        self, workflow: Workflow[Any], row: SessionRow, records: Sequence[Record], steal: bool = False,
        fence: int | None = None, paused: bool = False, **how: Any,
    ) -> Run:  # fmt: skip
        if not is_described(self, workflow):
            await describe(self, workflow)
        seq, steal = row.seq, steal or self.driver.is_stranded(row)
        await self.driver.let_go(row.session_id)
        with self.driver.claiming(row.session_id), self._driven_if_cancelled(row.session_id, **how):
            row = await self.store.claim(row.session_id, steal, fence, paused)
            if not row.seq == seq == records[-1].seq:
                records = await self.store.records(row.key, row.key_frame)
            return self._begin(workflow, row, records, picked_up=True, **how)

    @contextmanager
    def _driven_if_cancelled(self, session_id: str, **how: Any) -> Iterator[None]:
        """If the caller is cancelled while it claims the session, as a web request may be, drive the session anyway."""
        try:
            yield
        except asyncio.CancelledError:
            self.driver.in_background(self._drive_stranded(session_id, **how))
            raise

    async def _drive_stranded(self, session_id: str, **how: Any) -> None:
        try:
            with self.driver.claiming(session_id):
                await self._drive_if_ours(session_id, **how)
        except (UnknownSession, SessionEnded, VerbRefused):
            pass  # there is nothing to drive, or it is paused
        except PausepointError as error:
            log_line(logging.WARNING, f"was left claimed by a cancelled call and cannot be driven: {error}", session_id)

    async def _drive_if_ours(self, session_id: str, **how: Any) -> None:
        try:
            row = await self.store.claim(session_id)  # runs after the cancelled claim, whatever its result
        except AlreadyRunning:
            if session_id in self.driver.runs or (await self._row(session_id)).holder != self.store.number:
                return
            row = await self.store.claim(session_id, steal=True, paused=True)
        records = await self.store.records(row.key, row.key_frame)
        self._begin(self._workflow_of(row), row, records, picked_up=True, **how)

    async def _wake(self, row: SessionRow) -> Run | None:
        if row.session_id in self.driver.claims:
            return None  # the sender of a message and the waker notice it at the same time; one of them is enough
        with self.driver.claiming(row.session_id):
            workflow = self._workflow_of(row)
            records = await self.store.records(row.key, row.key_frame)
            # Only with this fence: another engine may have driven the session since it was due.
            return await self._take_over(workflow, row, records, fence=row.fence)

    def _begin(
        self, workflow: Workflow[Any], row: SessionRow, records: Sequence[Record], *,
        picked_up: bool = False, resumed: bool = False, by: str | None = None, wake: bool = False,
        accept_code: bool = False,
    ) -> Run:  # fmt: skip
        drive = self.drive_class(
            self.store, workflow, row, self.clock, self.limits, Children(self, row), self.driver.changed
        )
        drive.picked_up, drive.resumed, drive.resumed_by, drive.wake = picked_up, resumed, by, wake
        drive.accept_code, drive.until = accept_code, self.driver.untils.get(row.session_id)
        drive.questions_expire = self.questions_expire
        drive.on_step = self.on_step
        drive.streams = self.streams
        drive.hold = self.hold if workflow.hold is None else workflow.hold
        drive.load(records)
        return self.driver.begin(drive)

    async def _drive_if_due(self, row: SessionRow) -> None:
        """Drive a session that became due in this engine, if its workflow is registered here."""
        if self.drives == "none" or self.waker.asked is not None:
            return  # the waker picks up asked sessions
        if row.guest or row.workflow not in self.workflows:
            return
        if row.due and row.status is Status.READY and row.kept_by is None:
            # A received message is kept even if this fails. The waker logs why a session cannot resume here.
            with suppress(AlreadyRunning, HoldLost, SessionEnded, VerbRefused, DefinitionError, DamagedRecord):
                await self._wake(row)
            await self.driver.wait_for_claim(row.session_id)  # the waker may have been faster
