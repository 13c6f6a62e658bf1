"""The verbs about drawers: durable streams of bytes and versioned values beside the sessions. Provisional."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pausepoint.engine.base import Service
from pausepoint.model.drawers import DrawerInfo, check_drawer
from pausepoint.model.ids import check_session_id
from pausepoint.runtime.drawers import Drawer as Drawer

FOREVER = 2**62
"""The microseconds of ``keep_for=timedelta.max``."""


class Drawers:
    """The verbs about drawers."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def drawer(self, name: str, *, session: str | None = None, keep_for: timedelta | None = None) -> Drawer:
        """Return a drawer: durable streams of bytes and versioned values beside the sessions. Provisional."""
        self.service.check_open()
        id = check_drawer(name, session)
        if session is not None and keep_for is not None:
            raise ValueError("A drawer of a session is kept as long as the session. Leave keep_for out.")
        return Drawer(id, self.service.store, self.service.check_open, _kept(keep_for))

    async def drawers(self, session: str | None = None) -> list[DrawerInfo]:
        """Return facts about the store's own drawers, or those of a session, ordered by name."""
        self.service.check_open()
        return await self.service.store.drawers(None if session is None else check_session_id(session))


def _kept(keep_for: Any) -> int | None:
    if keep_for is None:
        return None
    if not isinstance(keep_for, timedelta) or keep_for < timedelta(0):
        raise ValueError(f"keep_for must be a timedelta that is not negative, or None, not {keep_for!r:.60}.")
    return min(keep_for // timedelta(microseconds=1), FOREVER)
