"""Watches the lease of an engine, in stores whose engines have one: nothing runs here after it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pausepoint.model.sessions import SessionRow
from pausepoint.name import NAME
from pausepoint.stores.base import Store

LOOK_EVERY = 0.25
"""Seconds between two looks at the lease. A machine that slept wakes up within such an interval."""


class LeaseGuard:
    """Calls ``end`` on the event loop soon after the engine's lease has ended."""

    def __init__(self, store: Store, end: Callable[[], None]) -> None:
        self._store, self._end = store, end
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch until `stop`, unless the store has no leases."""
        if self._store.lease_left(self._store.number) is not None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"{NAME} lease")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def has_ended(self, row: SessionRow) -> bool:
        """Return whether the lease under which this engine held a session has ended."""
        left = self._store.lease_left(row.holder or 0)
        return left is not None and left <= 0

    async def _run(self) -> None:
        # The engine may get another lease at any time, so the drives of an old one cannot be told by the present one.
        while True:
            self._end()
            left = self._store.lease_left(self._store.number) or 0.0
            await asyncio.sleep(min(max(left, 0.01), LOOK_EVERY))
