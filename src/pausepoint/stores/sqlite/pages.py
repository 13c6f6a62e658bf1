"""The pages of a SQLite file: how many there are, giving free ones back, and checking all of them."""

from __future__ import annotations

from pausepoint.model.stores import Space
from pausepoint.stores.sql import connection as shared
from pausepoint.stores.sqlite import schema
from pausepoint.stores.sqlite.connection import Connection
from pausepoint.stores.sqlite.errors import edge


def space(connection: shared.Connection) -> Space:
    assert isinstance(connection, Connection)
    size = connection.pragma("page_size")
    return Space(connection.pragma("page_count") * size, connection.pragma("freelist_count") * size)


def compact(connection: shared.Connection, count: int) -> int:
    """Give free pages at the end of the file back to the system. Return how many."""
    assert isinstance(connection, Connection)
    before = connection.pragma("freelist_count")
    connection.execute(f"PRAGMA incremental_vacuum({count})").fetchall()
    return int(before - connection.pragma("freelist_count"))


def check_file(place: schema.Place) -> list[str]:
    """Run `check` on a separate connection, because it reads every page and is slow."""
    with edge(place.path):
        connection = schema.connect(place)
        try:
            return check(connection)
        finally:
            connection.close()


def check(connection: shared.Connection) -> list[str]:
    """Return a line for each problem that SQLite finds in its file, and for each row that does not fit."""
    said = [str(line) for (line,) in connection.execute("PRAGMA integrity_check(20)") if line != "ok"]
    from pausepoint.stores.sql import verify  # a listing needs none of it

    return said + verify.check(connection)
