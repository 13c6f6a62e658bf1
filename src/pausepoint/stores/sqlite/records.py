"""The records of a session's log. Each is verified against its digest."""

from __future__ import annotations

import apsw

from pausepoint.errors import DamagedRecord
from pausepoint.model.records import Record, first_digest, intact
from pausepoint.stores.sqlite import sessions
from pausepoint.stores.sqlite.rows import Seq, every, one, typed
from pausepoint.stores.sqlite.sql import QUERIES


def read(connection: apsw.Connection, key: int, since: int, until: int | None) -> list[Record]:
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
        raise _damaged(session_id, lowest - 1, "is missing")
    previous = found.pop(0).digest if first > 1 else first_digest(session_id)
    _prove_records(session_id, first, last, found, previous)
    if last == last_seq and found[-1].digest != last_digest:
        raise _damaged(session_id, last, "is not the session's last record")
    return found


def key_frame(connection: apsw.Connection, key: int, seq: int) -> int:
    found = one(connection, QUERIES["key_frame_before"], key, seq)
    if found is None:
        raise DamagedRecord(
            f"There is no key frame at or before record {seq} (session key {key}), so the state cannot be rebuilt."
            " Restore the database from a backup."
        )
    number: int = found[0]
    return number


def _prove_records(session_id: str, first: int, last: int, found: list[Record], previous: bytes) -> None:
    expected = first
    for record in found:
        if record.seq != expected:
            break
        if not _intact(record, previous):
            raise _damaged(session_id, expected, "does not match its digest")
        previous, expected = record.digest, expected + 1
    if expected <= last:
        raise _damaged(session_id, expected, "is missing")


def _intact(record: Record, previous: bytes) -> bool:
    try:
        return intact(record, previous)
    except TypeError:  # a value has the wrong type
        return False


def _damaged(session_id: str, seq: int, what: str) -> DamagedRecord:
    return DamagedRecord(
        f"Session {session_id!r}: record {seq} {what}. Restore the database from a backup.",
        session_id=session_id,
        seq=seq,
    )
