"""The records of a session's log. Each is verified against its digest."""

from __future__ import annotations

from pausepoint.model.records import Record, first_digest
from pausepoint.stores.sql import sessions
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.records import damaged, prove
from pausepoint.stores.sql.rows import Seq, every, one, typed


def read(connection: Connection, key: int, since: int, until: int | None) -> list[Record]:
    head = one(connection, connection.queries["log_head"], key)
    if head is None:
        raise sessions.no_session(key)
    session_id, last_seq, last_digest = typed(head, tuple[str, Seq, bytes])
    first, last = max(since, 1), last_seq if until is None else min(until, last_seq)
    if first > last:
        return []
    found = [Record(*row) for row in every(connection, connection.queries["records"], key, first - 1, last)]
    previous = first_digest(session_id)
    if first > 1:
        if not found or found[0].seq != first - 1:
            raise damaged(session_id, first - 1, "is missing")
        previous = found.pop(0).digest
    prove(session_id, first, last, found, previous)
    if last == last_seq and found[-1].digest != last_digest:
        raise damaged(session_id, last, "is not the session's last record")
    return found
