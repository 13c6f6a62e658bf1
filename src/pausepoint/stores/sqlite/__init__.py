"""A store in a SQLite file, accessed through apsw.

Each noun has its own file, with the functions that read it and those that write it, all on a given connection.
Everything with a digest or checksum is verified when it is read.

A function that writes runs inside a transaction of the writer. It checks first and writes afterwards. If it raises, it
has written nothing, so others can share its transaction. It can run again after a rollback.
"""

from __future__ import annotations

from pausepoint.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
