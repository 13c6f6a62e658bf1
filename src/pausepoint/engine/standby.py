"""Stands by for a session that has stopped: this process continues it after someone resumes it elsewhere."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from pausepoint.errors import CallRefused
from pausepoint.model.sessions import Status
from pausepoint.model.views import SessionInfo

if TYPE_CHECKING:
    from pausepoint.engine.control import Control

_STOPPED = (Status.PAUSED, Status.WAITING, Status.SLEEPING, Status.FAILED)


async def stand_by(engine: Control, session_id: str) -> SessionInfo:
    """See `Control.stand_by`."""
    if engine.waker.asked is None:
        raise CallRefused(
            f"This engine picks up {session_id!r} itself, so it cannot stand by for it. Open it with"
            ' Engine(drives="asked").'
        )
    engine.waker.asked.discard(session_id)  # first of all: from here on, only the caller continues the session
    row = await engine._row(session_id)
    entry = f"{row.workflow}/{row.session_id}"
    engine.standing_by.add(entry)
    engine._announce()
    try:
        await engine.store.unkeep(row.key, row.fence)  # no step is kept; this write publishes the announcement
        return await _resumed(engine, row.session_id)
    finally:
        engine.standing_by.discard(entry)
        engine._announce()


async def _resumed(engine: Control, session_id: str) -> SessionInfo:
    async with aclosing(engine.watch(session_id)) as news:
        async for info in news:
            if info.holder is not None or info.status not in _STOPPED:
                break
    return info
