"""Starts and resumes the children of a session for its steps."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from pausepoint.definition.workflow import Workflow
from pausepoint.errors import AlreadyRunning, SessionEnded, VerbRefused
from pausepoint.model.ids import SessionId, check_session_id
from pausepoint.model.sessions import SessionRow

if TYPE_CHECKING:
    from pausepoint.engine.pickup import Pickup


class Children:
    """The children of one session, for its visits."""

    def __init__(self, pickup: Pickup, parent: SessionRow) -> None:
        self.pickup = pickup
        self.service = pickup.service
        self.parent = parent

    async def child(self, child_id: str) -> SessionRow | None:
        row = await self.service.store.get(child_id)
        if row is not None and self.service.driver.is_stranded(row):
            row = await self.service.store.get(child_id)  # its drive may have ended while the row was read
        if row is not None and self.service.driver.is_stranded(row):
            return msgspec.structs.replace(row, live=False)  # this engine holds it without driving it
        return row

    async def child_state(self, workflow: Workflow[Any], row: SessionRow) -> Any:
        return await self.pickup.queries.state_of(workflow, row)

    async def begin_child(self, workflow: Workflow[Any], child_id: SessionId, given: Any) -> None:
        self.service.register(workflow)
        parent = self.parent
        new = self.pickup.new_session(workflow, given, check_session_id(child_id))
        new = msgspec.structs.replace(
            new, owner=parent.owner, tags=parent.tags, parent=parent.key, keep_for=parent.keep_for, lane=parent.lane,
            queue=workflow.queue or parent.queue,
            priority=parent.priority if workflow.priority is None else workflow.priority,
        )  # fmt: skip
        if not self.service.has_room():
            new = msgspec.structs.replace(new, claim=False, due=True)  # the waker picks it up when a session here ends
        await self.pickup.create_here(workflow, new)

    async def resume_child(self, workflow: Workflow[Any], row: SessionRow) -> None:
        if row.kept_by is not None:
            return  # its keeper continues it
        self.service.register(workflow)
        records = await self.service.store.records(row.key, row.key_frame)
        with suppress(AlreadyRunning, SessionEnded, VerbRefused):
            await self.pickup.take_over(workflow, row, records, resumed=True)

    async def cancel_child(self, child_id: str, reason: str) -> None:
        await self.pickup.pauses.cancel(child_id, reason=reason)
