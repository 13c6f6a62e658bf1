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

    def __init__(self, control: Pickup, parent: SessionRow) -> None:
        self.control = control
        self.parent = parent

    async def child(self, child_id: str) -> SessionRow | None:
        row = await self.control.store.get(child_id)
        if row is not None and self.control.driver.is_stranded(row):
            return msgspec.structs.replace(row, live=False)  # this engine holds it without driving it
        return row

    async def child_state(self, workflow: Workflow[Any], row: SessionRow) -> Any:
        return await self.control._state(workflow, row)

    async def begin_child(self, workflow: Workflow[Any], child_id: SessionId, given: Any) -> None:
        self.control.register(workflow)
        parent = self.parent
        new = self.control._new_session(workflow, given, check_session_id(child_id))
        new = msgspec.structs.replace(
            new, owner=parent.owner, tags=parent.tags, parent=parent.key, keep_for=parent.keep_for
        )
        await self.control._create_here(workflow, new)

    async def resume_child(self, workflow: Workflow[Any], row: SessionRow) -> None:
        if row.kept_by is not None:
            return  # its keeper continues it
        self.control.register(workflow)
        records = await self.control.store.records(row.key, row.key_frame)
        with suppress(AlreadyRunning, SessionEnded, VerbRefused):
            await self.control._take_over(workflow, row, records, resumed=True)

    async def cancel_child(self, child_id: str, reason: str) -> None:
        await self.control.cancel(child_id, reason=reason)
