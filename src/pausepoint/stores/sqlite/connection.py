"""A connection to a SQLite database, with the statements of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
from msgspec.structs import astuple

from pausepoint.model.records import Record
from pausepoint.stores.sql.rows import every
from pausepoint.stores.sqlite import locks
from pausepoint.stores.sqlite import records as log
from pausepoint.stores.sqlite.sql import PARTS, QUERIES

LOCKS_OF_FILES = locks.install()  # before the first connection: a lock must be given back as it was taken


class Connection(apsw.Connection):
    """A `pausepoint.stores.sql.connection.Connection`."""

    queries = QUERIES
    parts = PARTS
    hints = True
    refusals: tuple[type[Exception], ...] = (apsw.ConstraintError,)
    unreadable: tuple[type[Exception], ...] = (apsw.CorruptError, UnicodeDecodeError)

    def create(self, values: tuple[Any, ...]) -> int | None:
        # Without RETURNING, which would cost a temporary table for each session.
        self.execute(QUERIES["create"], values)
        return self.last_insert_rowid() if self.changes() else None

    def append(self, key: int, records: Sequence[Record]) -> int:
        first: int = self.execute(QUERIES["log_end"]).get + 1
        lines = [(id, id - 1 if id > first else 0, key, *astuple(r)) for id, r in enumerate(records, first)]
        self.executemany(QUERIES["append"], lines)
        return first

    def strip_log(self, key: int, limit: int) -> bool:
        last = every(self, QUERIES["last_records"], key, limit)
        if last:
            self.executemany(QUERIES["strip_record"], [(id,) for id, _ in last])
            self.execute(QUERIES["shorten_log"], (last[-1][1], key))
            return True
        if not self.execute(QUERIES["log_is_left"], (key,)).get:
            return False
        # The chain is damaged and ends here, so search the whole log for the remaining records.
        if not every(self, QUERIES["strip_lost_records"], key, limit):
            self.execute(QUERIES["shorten_log"], (0, key))
        return True

    def read_records(self, key: int, since: int, until: int | None) -> list[Record]:
        return log.read(self, key, since, until)

    def read_blob(self, hash: bytes) -> bytes | None:
        # Through its handle: as a column, SQLite would copy it once more, which takes six times as long.
        id: int | None = self.execute(QUERIES["blob_place"], (hash,)).get
        if id is None:
            return None
        try:
            blob = self.blob_open("main", "blobs", "data", id, False)
        except apsw.SQLError:  # the stored value is not a blob
            return b""
        try:
            return blob.read()
        finally:
            blob.close(True)
