"""Delete the payload of records and signals. Their digests stay, so the chains still verify."""

from __future__ import annotations

import apsw
import msgspec

from pausepoint.model.sessions import Commit
from pausepoint.stores.sqlite.sql import QUERIES


def blank(connection: apsw.Connection, commit: Commit) -> None:
    """Redact what ``commit`` lists, in the commit's transaction. SQLite's `secure_delete` overwrites the bytes."""
    if commit.redact:
        numbers = msgspec.json.encode(commit.redact).decode()
        connection.execute(QUERIES["blank_records"], (commit.key, min(commit.redact), numbers))
    if commit.redact_signals:
        numbers = msgspec.json.encode(commit.redact_signals).decode()
        connection.execute(QUERIES["blank_signals"], (commit.key, numbers))
        connection.execute(QUERIES["forget_files"], (commit.key, numbers))
        connection.execute(QUERIES["blank_mail"], (commit.key, numbers))
    connection.executemany(QUERIES["unname_blob"], [(commit.key, hash_) for hash_ in commit.unname])
    connection.executemany(QUERIES["drop_unnamed_blob"], [(hash_,) for hash_ in commit.unname])
