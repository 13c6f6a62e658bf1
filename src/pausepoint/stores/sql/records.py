"""Verify the records of a session's log against their digests."""

from __future__ import annotations

from pausepoint.errors import DamagedRecord
from pausepoint.model.records import Record, intact
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.rows import one


def key_frame(connection: Connection, key: int, seq: int) -> int:
    found = one(connection, connection.queries["key_frame_before"], key, seq)
    if found is None:
        raise DamagedRecord(
            f"There is no key frame at or before record {seq} (session key {key}), so the state cannot be rebuilt."
            " Restore the database from a backup."
        )
    number: int = found[0]
    return number


def prove(session_id: str, first: int, last: int, found: list[Record], previous: bytes) -> None:
    expected = first
    for record in found:
        if record.seq != expected:
            break
        if not _intact(record, previous):
            raise damaged(session_id, expected, "does not match its digest")
        previous, expected = record.digest, expected + 1
    if expected <= last:
        raise damaged(session_id, expected, "is missing")


def _intact(record: Record, previous: bytes) -> bool:
    try:
        return intact(record, previous)
    except TypeError:  # a value has the wrong type
        return False


def damaged(session_id: str, seq: int, what: str) -> DamagedRecord:
    return DamagedRecord(
        f"Session {session_id!r}: record {seq} {what}. Restore the database from a backup.",
        session_id=session_id,
        seq=seq,
    )
