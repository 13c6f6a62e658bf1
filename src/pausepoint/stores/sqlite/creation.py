"""Create sessions."""

from __future__ import annotations

import apsw
import msgspec
from msgspec.structs import astuple, replace

from pausepoint.errors import DamagedRecord
from pausepoint.model.files import file_facts
from pausepoint.model.records import first_digest
from pausepoint.model.sessions import NewSession, SessionRow
from pausepoint.stores.sqlite import blobs, commits, endings, files, pauses, sessions, signals, standing
from pausepoint.stores.sqlite import checksums as sums
from pausepoint.stores.sqlite.engines import OwnEngine
from pausepoint.stores.sqlite.sql import QUERIES


def create(connection: apsw.Connection, engine: OwnEngine, new: NewSession) -> SessionRow | None:
    _check_names(connection, new)
    above = None if new.parent is None else sessions.get_by_key(connection, new.parent, engine.present)
    pause = new.pause or pauses.above(connection, new.parent)
    end, everything = connection.execute(commits.END).get
    if new.parent is None and everything is not None and standing.read(connection) is not None:
        new = replace(new, claim=False)  # it is paused, so no engine needs to drive it
    last = new.records[-1]
    key_frame = next((record.seq for record in reversed(new.records) if record.kind == "key"), new.records[0].seq)
    head = end + len(new.records)
    tags, fence = msgspec.json.encode(new.tags).decode(), int(new.claim)
    values = (
        new.session_id, new.workflow, new.version, new.owner, tags, new.input_digest,
        new.created_at, new.created_at, last.seq, head, key_frame, last.digest, new.step, new.visit,
        engine.number if new.claim else None, None if new.claim or new.guest else 0, fence, new.budget_usd,
        first_digest(new.session_id), new.parent, new.keep_for, new.held_by_guard,
        sums.given(new.session_id, new.workflow, new.version, new.owner, tags, new.input_digest, new.created_at,
                   new.parent, new.keep_for, new.budget_usd, new.budget_tokens, new.budget_operations, 0,
                   int(new.guest)),
        sums.moved(last.seq, key_frame, last.digest, new.step, new.visit, new.held_by_guard, None, None, None,
                   fence),
        new.budget_tokens, new.budget_operations, new.guest,
    )  # fmt: skip
    connection.execute(QUERIES["create"], values)
    if not connection.changes():
        return None
    key = connection.last_insert_rowid()
    first = head - len(new.records) + 1
    lines = [(id, id - 1 if id > first else 0, key, *astuple(r)) for id, r in enumerate(new.records, first)]
    connection.executemany(QUERIES["append"], lines)
    if new.tags:
        connection.execute(QUERIES["tag"], (key,))
    if new.blobs or new.names:
        blobs.keep(connection, key, new.blobs, new.names)
    for file in new.files:
        n = signals.append(connection, key, file.kind, file.by, file.at, file.payload)
        files.note(connection, key, n, file_facts(file.payload))
    if new.claim and above is None and pause is None and not new.files:
        return _claimed(new, key, engine.number, key_frame)
    row = sessions.get_by_key(connection, key, engine.present)
    if pause is not None:
        row = pauses.request(connection, engine, row, pause)
    elif row.under_everything and new.parent is None:
        standing.note(connection, key, row.step, at=new.created_at)
        row = sessions.again(connection, row, engine.present)
    if above is not None and above.cancel_requested:
        row = endings.request(connection, engine, row, None, "its parent was cancelled", new.created_at)
    return row


def _claimed(new: NewSession, key: int, holder: int, key_frame: int) -> SessionRow:
    """Return the facts of a session that its creator drives, without reading them again: most sessions begin so."""
    last = new.records[-1]
    return SessionRow(
        key, new.session_id, new.workflow, new.version, new.owner, new.tags, new.input_digest, new.created_at,
        new.created_at, last.seq, key_frame, last.digest, new.step, new.visit, new.held_by_guard,
        None, None, False, "finish", False, holder, 1, True, None, None, 0, 0, 0, new.budget_usd, 0, None,
        keep_for=new.keep_for, budget_tokens=new.budget_tokens, budget_operations=new.budget_operations,
        guest=new.guest,
    )  # fmt: skip


def _check_names(connection: apsw.Connection, new: NewSession) -> None:
    """Check that the shared large values still exist. They may have been deleted since the caller read them."""
    for name in new.names:
        if not connection.execute(QUERIES["has_blob"], (name,)).get:
            raise DamagedRecord(
                f"The large value {name.hex()}, which session {new.session_id!r} shares with another session, no"
                " longer exists. Nothing was written. Read the other session again, then retry.",
                hash=name.hex(),
            )
