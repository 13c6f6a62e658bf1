"""The files of sessions. Each is a signal; its bytes are in a folder."""

from __future__ import annotations

import msgspec

from pausepoint.errors import FileRefused
from pausepoint.model.files import FileFacts, file_facts
from pausepoint.model.records import SignalRecord
from pausepoint.stores.sql import pickup, sessions, signals
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Engine
from pausepoint.stores.sql.rows import every
from pausepoint.stores.text import storable


def read(connection: Connection, key: int, id: str | None, sha256: str | None) -> list[SignalRecord]:
    """Return the signals that added files: all of them, the one with ``id``, or those with the given content."""
    if id is not None:
        return signals.picked(connection, key, every(connection, connection.queries["file_by_id"], key, id))
    if sha256 is not None:
        numbers = every(connection, connection.queries["files_of_content"], key, bytes.fromhex(sha256))
        return signals.picked(connection, key, numbers)
    return signals.picked(connection, key, every(connection, connection.queries["file_signals"], key))


def add(
    connection: Connection, engine: Engine, session_id: str, by: str | None, at: int, file: FileFacts,
    fence: int | None,
) -> tuple[SignalRecord, bool]:  # fmt: skip
    row = sessions.known(connection, session_id, engine.present)
    if fence not in (None, row.fence):
        raise pickup.changed_meanwhile(row)
    for signal in read(connection, row.key, None, file.sha256):
        if file_facts(signal.payload).size == file.size:
            return signal, False
    if read(connection, row.key, file.id, None):
        raise FileRefused(
            f"Another file of session {session_id!r} was just given the id {file.id!r}. Add this file again.",
            session_id=session_id,
        )
    n = signals.append(connection, row.key, "file", storable(by), at, msgspec.json.encode(file))
    note(connection, row.key, n, file)
    return signals.read(connection, row.key, n - 1, n)[0], True


def note(connection: Connection, key: int, n: int, file: FileFacts) -> None:
    connection.execute(connection.queries["note_file"], (key, file.id, bytes.fromhex(file.sha256), n))
