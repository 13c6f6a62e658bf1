"""Waiting for the status of a session."""

from __future__ import annotations

import asyncio
from typing import Any

from pausepoint import Session, Status


async def settled(session: Session[Any], status: Status = Status.WAITING) -> None:
    """Wait until the session has reached a status and no run of this process drives it."""
    runs = session._engine._service.driver.runs
    while True:
        if (run := runs.get(session.id)) is not None:
            await run.finished()
        if await session.status() is status and session.id not in session._engine._service.driver.running:
            return
        await asyncio.sleep(0.001)
