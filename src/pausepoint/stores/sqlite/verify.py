"""Reads that only `verify` needs. They check everything in the database, damaged or not."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import apsw

from pausepoint.errors import DamagedRecord, UnknownSession
from pausepoint.model.sessions import Proved, SessionRow
from pausepoint.stores.sqlite import descriptions, remembered, schema, sessions
from pausepoint.stores.sqlite.engines import Present
from pausepoint.stores.sqlite.errors import edge
from pausepoint.stores.sqlite.rows import every
from pausepoint.stores.sqlite.sql import QUERIES

Surveyed = tuple[int, str, SessionRow | DamagedRecord]


def survey(connection: apsw.Connection, after: int, limit: int, present: Present) -> list[Surveyed]:
    """Return sessions by key, each with its facts or their damage. Sessions that are being removed are left out."""
    found: list[Surveyed] = []
    for key, session_id in every(connection, QUERIES["survey"], after, limit):
        found.append((key, str(session_id), _facts(connection, key, present)))
    return found


def _facts(connection: apsw.Connection, key: int, present: Present) -> SessionRow | DamagedRecord:
    try:
        return sessions.get_by_key(connection, key, present)
    except DamagedRecord as exc:
        return exc
    except (UnknownSession, apsw.CorruptError, UnicodeDecodeError) as exc:
        return DamagedRecord(
            f"The facts about session number {key} cannot be read ({exc}). Restore the database from a backup."
        )


def names(connection: apsw.Connection, key: int) -> dict[bytes, bool]:
    return {hash_: bool(there) for hash_, there in every(connection, QUERIES["names"], key)}


def values(connection: apsw.Connection, after: int, limit: int) -> Proved:
    rows: Sequence[Any] = every(connection, QUERIES["some_blobs"], after, limit)
    damaged = tuple(hash_.hex() for _, hash_, data in rows if sha256(data).digest() != hash_)
    return Proved(rows[-1][0] if rows else None, len(rows), damaged)


def check_file(place: schema.Place) -> list[str]:
    """Run `check` on a separate connection, because it reads every page and is slow."""
    with edge(place.path):
        connection = schema.connect(place)
        try:
            return check(connection)
        finally:
            connection.close()


def check(connection: apsw.Connection) -> list[str]:
    """Return a line for each problem that SQLite finds in its file, and for each row that does not fit."""
    said = [str(line) for (line,) in connection.execute("PRAGMA integrity_check(20)") if line != "ok"]
    for key, count in every(connection, QUERIES["strays"]):
        some = "1 record" if count == 1 else f"{count} records"
        said.append(f"the log has {some} for session key {key}, but no session has this key and this many records")
    for (n,) in every(connection, QUERIES["stray_questions"]):
        said.append(f"question {n} does not belong to any session")
    for key, n in every(connection, QUERIES["stray_files"]):
        said.append(f"the list of files does not match signal {n} (session key {key})")
    for key, n in every(connection, QUERIES["stray_sent"]):
        said.append(f"the list of messages with a key does not match signal {n} (session key {key})")
    for (key,) in every(connection, QUERIES["stray_tags"]):
        said.append(f"the list of tags does not match session key {key}")
    if not connection.execute(QUERIES["rounds_agree"]).get:
        said.append("the pause of everything does not match its rounds. Pause everything and lift it to correct this")
    return [*said, *remembered.damaged(connection), *descriptions.damaged(connection)]
