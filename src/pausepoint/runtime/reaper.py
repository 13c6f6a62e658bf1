"""Frees the sessions of engines that died, and those that this engine holds without driving them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count

from pausepoint.errors import DamagedRecord, StoreError
from pausepoint.log.telemetry import detach_task
from pausepoint.model.sessions import SessionRow
from pausepoint.name import NAME
from pausepoint.stores.base import Store

logger = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds between two looks for engines that died."""

OWN_EVERY = 5
"""How many of these looks there are for each look at the engine's own sessions."""


class Reaper:
    """Looks for sessions to free, until `stop`. ``freed`` is called with their keys.

    ``is_stranded`` returns whether this engine holds a session without driving it. A server can give it back one that
    it has released: an asynchronous replica lacks the last writes.
    """

    def __init__(
        self, store: Store, freed: Callable[[frozenset[int]], None], is_stranded: Callable[[SessionRow], bool]
    ) -> None:  # fmt: skip
        self._store, self._freed, self._is_stranded = store, freed, is_stranded
        self._stranded: dict[int, int] = {}  # keys and fences at the last look
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"{NAME} reaper")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        detach_task()
        for look in count(1):
            try:
                if freed := await self._store.reap():
                    self._freed(freed)
                if look % OWN_EVERY == 0 and self._store.lease_left(self._store.number) is not None:
                    await self._release_own()
            except StoreError:
                pass  # the next look finds them again
            except Exception:  # without this task, nothing is freed
                logger.exception("The engine could not free the sessions of engines that died. It tries again.")
            await asyncio.sleep(EVERY)

    async def _release_own(self) -> None:
        """Release what was stranded at the last look, too. In between, a verb may hold a session for a moment."""
        number, before, self._stranded = self._store.number, self._stranded, {}
        holders = (await self._store.about()).holders
        own = [session_id for each in holders if each.number == number for session_id in each.sessions]
        for session_id in own:
            try:
                row = await self._store.get(session_id)
            except DamagedRecord:
                continue
            if row is None or row.guest or not self._is_stranded(row):
                continue
            self._stranded[row.key] = row.fence
            if before.get(row.key) == row.fence:
                await self._store.release(row.key, row.fence)
                self._freed(frozenset({row.key}))
