"""Stands by for a session that has stopped: this process continues it after someone resumes it elsewhere."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from pausepoint.errors import CallRefused
from pausepoint.model.ids import shortened
from pausepoint.model.sessions import Status
from pausepoint.model.views import SessionInfo

if TYPE_CHECKING:
    from pausepoint.engine.base import Service
    from pausepoint.engine.queries import Queries

_STOPPED = (Status.PAUSED, Status.WAITING, Status.SLEEPING, Status.FAILED)


async def stand_by(service: Service, queries: Queries, session_id: str) -> SessionInfo:
    """See `Session.stand_by`."""
    if service.waker.asked is None:
        raise CallRefused(
            f"This engine picks up {shortened(session_id)} itself, so it cannot stand by for it. Open it with"
            ' Engine(drives="asked").'
        )
    service.waker.asked.discard(session_id)  # first of all: from here on, only the caller continues the session
    row = await service.row(session_id)
    entry = f"{row.workflow}/{row.session_id}"
    service.standing_by.add(entry)
    service.announce()
    try:
        await service.store.unkeep(row.key, row.fence)  # no step is kept; this write publishes the announcement
        return await _resumed(queries, row.session_id)
    finally:
        service.standing_by.discard(entry)
        service.announce()


async def _resumed(queries: Queries, session_id: str) -> SessionInfo:
    async with aclosing(queries.watch(session_id)) as news:
        async for info in news:
            if info.holder is not None or info.status not in _STOPPED:
                break
    return info
