"""Waits until paused sessions have stopped, and names the processes that still work on them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

import msgspec
from msgspec.structs import asdict, replace

from pausepoint.clock import to_datetime
from pausepoint.engine.base import Service
from pausepoint.errors import DamagedRecord, UnknownSession
from pausepoint.log.replay import EventBody, body_of
from pausepoint.model.ids import SessionId
from pausepoint.model.records import Record
from pausepoint.model.sessions import Filter, SessionRow, Status
from pausepoint.model.views import Finishing, StandingPause, Working

FIRST_LOOK, LONGEST_WAIT = 0.005, 0.1
"""Seconds until the second look at the sessions, and the most seconds between two looks."""

WINDOW = 64
"""How many records are searched for the holder's confirmation. It is one of the last ones."""


async def standstill(
    service: Service, query: Filter, since: int, timeout: float | timedelta | None
) -> tuple[Working, ...]:  # fmt: skip
    """Wait until no engine works on the matching sessions; return what is still worked on after ``timeout``.

    ``since`` is the time of the pause. A session that stopped begins nothing until it is resumed, because an engine
    can drive it only after a claim, and a paused session cannot be claimed.
    """
    loop = asyncio.get_running_loop()
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    end = None if seconds is None else loop.time() + seconds
    pause = FIRST_LOOK
    while True:
        rows = await service.store.find(replace(query, statuses=(Status.PAUSING,), unended=True))
        if not rows and not rows.damaged:
            return ()
        if end is not None and loop.time() >= end:
            return (*[await _working(service, row, since) for row in rows], *map(_unreadable, rows.damaged))
        await asyncio.sleep(pause if end is None else min(pause, max(end - loop.time(), 0)))
        pause = min(2 * pause, LONGEST_WAIT)


async def standing_pause(service: Service) -> StandingPause | None:
    """Return the pause of everything with what is still finishing; None if it is not in effect."""
    pause = await service.store.standing_pause()
    if pause is None:
        return None
    stopping = await service.store.stopping()
    rows = await service.store.find(Filter(statuses=(Status.PAUSING,), unended=True))
    late: list[Working] = []
    for row in rows:
        if row.under_everything:
            late.append(await _working(service, row, pause.created_at))
            await asyncio.sleep(0)  # other tasks get a turn
    late += map(_unreadable, rows.damaged)
    since = to_datetime(pause.created_at)
    finishing = [
        Finishing(each.session_id, each.step, operation, since)
        for each in late
        for operation in each.operations or ("",)
    ]
    longest = None if stopping.longest is None else timedelta(microseconds=stopping.longest)
    stopped = max(stopping.asked - len(late), 0)
    return StandingPause(
        **asdict(pause), asked=stopping.asked, stopped=stopped, finishing=tuple(finishing), longest=longest
    )


async def _working(service: Service, row: SessionRow, since: int) -> Working:
    holder = await service.holder(row)
    step = f"{row.step}#{row.visit}" if row.step else ""
    records: list[Record] = []
    with suppress(DamagedRecord, UnknownSession):  # then nothing is known to be confirmed
        records = await service.store.records(row.key, max(row.seq - WINDOW, row.key_frame), row.seq)
    for record in reversed(records):
        body = None if record.redacted or record.at < since else body_of(record)
        if isinstance(body, EventBody) and body.type == "session.pausing":
            operations = tuple(msgspec.json.decode(body.data)["operations"])
            return Working(SessionId(row.session_id), holder, step, operations, confirmed=True)
    return Working(SessionId(row.session_id), holder, step, (), confirmed=False)


def _unreadable(damage: DamagedRecord) -> Working:
    """Return a session that a process still drives, although its facts are damaged."""
    return Working(SessionId(damage.fields["session_id"]), "a process that cannot be read", "", (), confirmed=False)
