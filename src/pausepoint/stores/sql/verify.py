"""Reads that only `verify` needs. They check everything in the database, damaged or not."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from pausepoint.errors import DamagedRecord, UnknownSession
from pausepoint.model.sessions import SessionRow
from pausepoint.model.stores import Proved
from pausepoint.stores.sql import descriptions, limits, remembered, schedules, sessions
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Present
from pausepoint.stores.sql.rows import every

Surveyed = tuple[int, str, SessionRow | DamagedRecord]


def survey(connection: Connection, after: int, limit: int, present: Present) -> list[Surveyed]:
    """Return sessions by key, each with its facts or their damage. Sessions that are being removed are left out."""
    found: list[Surveyed] = []
    for key, session_id in every(connection, connection.queries["survey"], after, limit):
        found.append((key, str(session_id), _facts(connection, key, present)))
    return found


def _facts(connection: Connection, key: int, present: Present) -> SessionRow | DamagedRecord:
    unreadable: tuple[type[Exception], ...] = (UnknownSession, *connection.unreadable)
    try:
        return sessions.get_by_key(connection, key, present)
    except DamagedRecord as exc:
        return exc
    except unreadable as exc:
        return DamagedRecord(
            f"The facts about session number {key} cannot be read ({exc}). Restore the database from a backup."
        )


def names(connection: Connection, key: int) -> dict[bytes, bool]:
    return {hash_: bool(there) for hash_, there in every(connection, connection.queries["names"], key)}


def values(connection: Connection, after: int, limit: int) -> Proved:
    rows: Sequence[Any] = every(connection, connection.queries["some_blobs"], after, limit)
    damaged = tuple(hash_.hex() for _, hash_, data in rows if sha256(data).digest() != hash_)
    return Proved(rows[-1][0] if rows else None, len(rows), damaged)


def check(connection: Connection) -> list[str]:
    """Return a line for each row that does not fit."""
    said = []
    for key, count in every(connection, connection.queries["strays"]):
        some = "1 record" if count == 1 else f"{count} records"
        said.append(f"the log has {some} for session key {key}, but no session has this key and this many records")
    for (n,) in every(connection, connection.queries["stray_questions"]):
        said.append(f"question {n} does not belong to any session")
    for key, n in every(connection, connection.queries["stray_files"]):
        said.append(f"the list of files does not match signal {n} (session key {key})")
    for key, n in every(connection, connection.queries["stray_sent"]):
        said.append(f"the list of messages with a key does not match signal {n} (session key {key})")
    for (key,) in every(connection, connection.queries["stray_tags"]):
        said.append(f"the list of tags does not match session key {key}")
    for (what,) in every(connection, connection.queries["stray_drawers"]):
        said.append(f"{what} in the drawers belongs to no drawer, stream or session")
    if not connection.execute(connection.queries["rounds_agree"]).get:
        said.append("the pause of everything does not match its rounds. Pause everything and lift it to correct this")
    said += [*remembered.damaged(connection), *descriptions.damaged(connection)]
    return [*said, *schedules.damaged(connection), *limits.damaged(connection)]
