"""The lock points of a SQLite store: the moment before each of its statements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw

from pausepoint.stores.base import Store
from pausepoint.stores.sqlite import SqliteStore


def at_each_statement(store: Store, reached: Callable[[], None]) -> None:
    """Call ``reached`` before each statement of an open SQLite store."""
    assert isinstance(store, SqliteStore)

    def before(cursor: apsw.Cursor, statement: str, bindings: Any) -> bool:
        reached()
        return True

    assert store._read is not None
    for connection in (store._writer.inline.connection, store._writer.threaded.connection, store._read):
        connection.exec_trace = before
