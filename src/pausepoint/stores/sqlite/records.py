"""The records of a session's log. Each is verified against its digest."""

from __future__ import annotations

from pausepoint.model.records import Record, first_digest
from pausepoint.stores.sql import sessions
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.records import damaged, prove
from pausepoint.stores.sql.rows import Seq, every, one, typed
from pausepoint.stores.sqlite.sql import QUERIES


def read(connection: Connection, key: int, since: int, until: int | None) -> list[Record]:
    head = one(connection, QUERIES["log_head"], key)
    if head is None:
        raise sessions.no_session(key)
    session_id, last_seq, last_digest, end = typed(head, tuple[str, Seq, bytes, int])
    first, last = max(since, 1), last_seq if until is None else min(until, last_seq)
    if first > last:
        return []
    if last < last_seq:  # the chain is read backwards, so start as close as possible
        near = one(connection, QUERIES["key_frame_after"], key, last)
        end = end if near is None else near[0]
    found = [Record(*row) for row in every(connection, QUERIES["records"], end, key, first - 1, last)]
    found.reverse()
    lowest = found[0].seq if found else last + 1
    if lowest > max(first - 1, 1):  # the chain ends before the first record
        raise damaged(session_id, lowest - 1, "is missing")
    previous = found.pop(0).digest if first > 1 else first_digest(session_id)
    prove(session_id, first, last, found, previous)
    if last == last_seq and found[-1].digest != last_digest:
        raise damaged(session_id, last, "is not the session's last record")
    return found
