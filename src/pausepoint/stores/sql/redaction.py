"""Delete the payload of records and signals, and the content of drawers. The digests stay, so chains still verify."""

from __future__ import annotations

import msgspec

from pausepoint.model.commits import Commit
from pausepoint.stores.sql import drawers
from pausepoint.stores.sql.connection import Connection


def blank(connection: Connection, commit: Commit) -> None:
    """Redact what ``commit`` lists, in the commit's transaction. SQLite's `secure_delete` overwrites the bytes."""
    if commit.redact:
        numbers = msgspec.json.encode(commit.redact).decode()
        connection.execute(connection.queries["blank_records"], (commit.key, min(commit.redact), numbers))
    if commit.redact_signals:
        numbers = msgspec.json.encode(commit.redact_signals).decode()
        connection.execute(connection.queries["blank_signals"], (commit.key, numbers))
        connection.execute(connection.queries["forget_files"], (commit.key, numbers))
        connection.execute(connection.queries["blank_mail"], (commit.key, numbers))
    connection.executemany(connection.queries["unname_blob"], [(commit.key, hash_) for hash_ in commit.unname])
    connection.executemany(connection.queries["drop_unnamed_blob"], [(hash_,) for hash_ in commit.unname])
    drawers.empty(connection, commit.key, commit.empty_drawers, commit.updated_at)
