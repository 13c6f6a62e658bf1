"""Appends an event to a session's log from outside its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pausepoint.codec.values import encode
from pausepoint.engine.base import Service
from pausepoint.errors import AlreadyRunning, EventRefused, HoldLost
from pausepoint.log.replay import EventBody, to_payload
from pausepoint.model.commits import Commit
from pausepoint.model.events import ENGINE_EVENTS
from pausepoint.model.ids import check_texts
from pausepoint.model.records import seal
from pausepoint.model.sessions import SessionRow


async def append_event(
    service: Service, session_id: str, event_type: str, summary: str, data: Mapping[str, Any], agent_name: str
) -> None:
    """Commit the event through the session's drive, or directly if no process drives the session."""
    if event_type in ENGINE_EVENTS:
        raise EventRefused(f"Event type {event_type!r} is reserved for the engine. Give the event another name.")
    _check_given(event_type=event_type, summary=summary, agent_name=agent_name)
    while True:
        await service.driver.wait_for_claim(session_id)
        run = service.driver.runs.get(session_id)
        drive = None if run is None else run.drive
        if drive is not None and not drive.ledger.parking:
            await drive.ledger.note(event_type, summary, data, agent=agent_name)
            return
        if run is not None and not run.is_kept:
            await run.finished()
            continue
        await service.driver.let_go(session_id)
        row = await service.row(session_id)
        if row.live:  # in another process, or the store failed to release the hold
            raise service.driver.troubles.get(session_id) or await service.driven(row)
        try:
            await service.store.revise(event_commit(row, service.clock.now(), event_type, summary, data, agent_name))
        except (HoldLost, AlreadyRunning):
            continue  # the session has changed since it was read
        service.driver.changed(session_id)
        return


def _check_given(**given: object) -> None:
    """Refuse None as well: a record with a null could not be read again."""
    for name, value in given.items():
        if value is None:
            raise TypeError(f"{name} must be a string, not None. Pass an empty string, or leave it out.")
    if not given["event_type"]:
        raise EventRefused("The event has no type. Pass one such as 'order.paid'.")
    check_texts(**given)


def event_commit(
    row: SessionRow, now: int, event_type: str, summary: str, data: Mapping[str, Any], agent_name: str
) -> Commit:
    """Return a commit of the event that leaves the rest of the session unchanged."""
    raw = msgspec.Raw(encode(dict(data), f"event {event_type}"))
    body = EventBody(event_type, summary, agent_name, raw)
    step = row.step or ""
    record = seal(row.digest, row.seq + 1, row.seq, "event", step, row.visit, now, to_payload(body))
    return Commit(
        row.key, row.fence, row.seq, (record,), max(now, row.updated_at), row.key_frame, row.step, row.visit,
        row.held_by_guard, ended=row.ended, failure=row.failure, release=True, keep_crashes=True, progress=row.progress,
        waiting=row.waiting, wakes_at=row.wakes_at, parent=row.parent,
    )  # fmt: skip
