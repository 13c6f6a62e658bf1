"""Create sessions."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from pausepoint.errors import DamagedRecord
from pausepoint.model.commits import NewSession
from pausepoint.model.files import file_facts
from pausepoint.model.records import first_digest
from pausepoint.model.sessions import SessionRow
from pausepoint.stores import checksums as sums
from pausepoint.stores import text
from pausepoint.stores.sql import blobs, drawers, endings, files, limits, pauses, sessions, signals, standing
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Engine
from pausepoint.stores.sql.rows import one


def create(connection: Connection, engine: Engine, new: NewSession) -> SessionRow | None:
    new = text.of_session(new)
    _check_names(connection, new)
    above = None if new.parent is None else sessions.get_by_key(connection, new.parent, engine.present)
    pause = new.pause or pauses.above(connection, new.parent)
    paused, limited = one(connection, connection.queries["standing_or_limited"])
    if new.parent is None and paused and standing.read(connection) is not None:
        new = replace(new, claim=False, due=False)  # it is paused, so no engine needs to drive it
    if limited and new.claim and not new.guest and not _has_slot(connection, engine, new):
        new = replace(new, claim=False, due=True)
    key = connection.create(bindings(engine, new))
    if key is None:
        return None
    connection.append(key, new.records)
    if new.tags:
        connection.execute(connection.queries["tag"], (key,))
    if new.blobs or new.names:
        blobs.keep(connection, key, new.blobs, new.names)
    for file in new.files:
        n = signals.append(connection, key, file.kind, file.by, file.at, file.payload)
        files.note(connection, key, n, file_facts(file.payload))
    if new.drawers_of is not None:
        drawers.copy(connection, new.drawers_of, key)
    if new.claim and above is None and pause is None and not new.files:
        return _claimed(new, key, engine.number)
    row = sessions.get_by_key(connection, key, engine.present)
    if pause is not None:
        row = pauses.request(connection, engine, row, pause)
    elif row.under_everything and new.parent is None:
        standing.note(connection, key, row.step, at=new.created_at)
        row = sessions.again(connection, row, engine.present)
    if above is not None and above.cancel_requested:
        row = endings.request(connection, engine, row, None, "its parent was cancelled", new.created_at)
    return row


def bindings(engine: Engine, new: NewSession) -> tuple[Any, ...]:
    """Return the bindings of the query `create`."""
    last, key_frame = new.records[-1], _key_frame(new)
    tags, fence = msgspec.json.encode(new.tags).decode(), int(new.claim)
    return (
        new.session_id, new.workflow, new.version, new.owner, tags, new.input_digest,
        new.created_at, new.created_at, last.seq, len(new.records), key_frame, last.digest, new.step, new.visit,
        engine.number if new.claim else None, None if new.claim or new.guest else 0, fence, new.budget_usd,
        first_digest(new.session_id), new.parent, new.keep_for, new.held_by_guard,
        sums.given(new.session_id, new.workflow, new.version, new.owner, tags, new.input_digest, new.created_at,
                   new.parent, new.keep_for, new.budget_usd, new.budget_tokens, new.budget_operations, 0,
                   int(new.guest), new.queue, new.priority, new.lane),
        sums.moved(last.seq, key_frame, last.digest, new.step, new.visit, new.held_by_guard, None, None, None,
                   fence),
        new.budget_tokens, new.budget_operations, new.guest, new.queue, new.priority, new.lane,
        0 if new.due and not new.claim else None,
    )  # fmt: skip


def _key_frame(new: NewSession) -> int:
    return next((record.seq for record in reversed(new.records) if record.kind == "key"), new.records[0].seq)


def _has_slot(connection: Connection, engine: Engine, new: NewSession) -> bool:
    """Use a slot for a new session, if it does not exist yet and a slot is free."""
    if connection.execute(connection.queries["id_is_taken"], (new.session_id,)).get:
        return True  # nothing will be stored
    return limits.Room(connection, engine.present, engine.now(), lock=True).admit(new)


def _claimed(new: NewSession, key: int, holder: int) -> SessionRow:
    """Return the facts of a session that its creator drives, without reading them again: most sessions begin so."""
    last = new.records[-1]
    return SessionRow(
        key, new.session_id, new.workflow, new.version, new.owner, new.tags, new.input_digest, new.created_at,
        new.created_at, last.seq, _key_frame(new), last.digest, new.step, new.visit, new.held_by_guard,
        None, None, False, "finish", False, holder, 1, True, None, None, 0, 0, 0, new.budget_usd, 0, None,
        keep_for=new.keep_for, budget_tokens=new.budget_tokens, budget_operations=new.budget_operations,
        guest=new.guest, queue=new.queue, priority=new.priority, lane=new.lane,
    )  # fmt: skip


def _check_names(connection: Connection, new: NewSession) -> None:
    """Check that the shared large values still exist. They may have been deleted since the caller read them."""
    for name in new.names:
        if not connection.execute(connection.queries["has_blob"], (name,)).get:
            raise DamagedRecord(
                f"The large value {name.hex()}, which session {new.session_id!r} shares with another session, no"
                " longer exists. Nothing was written. Read the other session again, then retry.",
                hash=name.hex(),
            )
