"""Follows the live output of a session, whichever process drives it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

from pausepoint.engine.base import Service, Until, check_until
from pausepoint.errors import DamagedRecord, StoreUnavailable
from pausepoint.model.streams import StreamItem

if TYPE_CHECKING:
    from pausepoint.engine.queries import Queries

POLL = 0.05
"""Seconds between two looks for chunks that another process sent."""

LOOK_EVERY = 1.0
"""Seconds between two checks of the session's status, if nothing reports a change: a killed process does not."""


async def follow_stream(
    queries: Queries, session_id: str, after: int | None, follow: bool, until: Until
) -> AsyncIterator[StreamItem]:
    """Yield the items of a session's stream until the session stops."""
    check_until(until)
    row = await queries.service.row(session_id)
    looked = 0.0
    streams, driver = queries.service.streams, queries.service.driver
    with streams.following(row, after) as (reader, news), driver.listening(session_id) as changed:
        while True:
            over = not follow
            if follow and (changed.is_set() or time.monotonic() - looked >= LOOK_EVERY):
                changed.clear()
                over = await _is_over(queries, session_id, until)
                looked = time.monotonic()
            news.clear()
            for item in reader.read():
                yield item
            while reader.more:  # everything that was there at the last look at the status, so that nothing is missed
                await asyncio.sleep(0)  # a flood from another process must not block this loop
                for item in reader.read():
                    yield item
            if over:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL):
                    await news.wait()
            queries.service.check_open()


async def _is_over(queries: Queries, session_id: str, until: Until) -> bool:
    row = await queries.service.row(session_id)
    if queries.service.driver.released or row.ended is not None:
        return True
    return until == "parked" and not (row.live or await queries.continues_on_its_own(row))


def forget_stream(service: Service, key: int, session_id: str, then: str = "then call engine.gc(apply=True).") -> None:
    """Delete the live stream of a session. Raises `StoreUnavailable` if the disk refuses it, and says what to do."""
    try:
        service.streams.forget(key)
    except OSError as exc:
        whose = f"session {session_id!r}" if session_id else "a session that no longer exists"
        raise StoreUnavailable(
            f"The live stream of {whose} cannot be deleted ({exc.strerror}). Check the permissions of the folder next"
            f" to the store whose name ends in -streams, {then}"
        ) from exc


async def clear_streams(service: Service, apply: bool) -> int:
    """Count the live streams of sessions that have ended or no longer exist; with ``apply``, delete them."""
    count = 0
    for key in await asyncio.to_thread(service.streams.present):
        await asyncio.sleep(0)  # there may be thousands, and sessions keep running
        found = await service.store.survey(key - 1, 1)
        row = found[0][2] if found and found[0][0] == key else None
        if isinstance(row, DamagedRecord) or (row is not None and row.ended is None):
            continue
        count += 1
        if apply:
            forget_stream(service, key, "" if row is None else row.session_id)
    return count
