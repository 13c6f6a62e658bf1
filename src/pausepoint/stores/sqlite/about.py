"""Facts about a database and its place: sizes, versions, disk, engines. Its file is checked and made smaller here."""

from __future__ import annotations

import os
from contextlib import suppress

import apsw

from pausepoint.model.stores import About, Space
from pausepoint.stores.sql.connection import Connection as AnyConnection
from pausepoint.stores.sql.engines import Present
from pausepoint.stores.sql.holders import holders
from pausepoint.stores.sqlite import schema
from pausepoint.stores.sqlite.ballast import Ballast
from pausepoint.stores.sqlite.connection import Connection
from pausepoint.stores.sqlite.errors import edge


def about(connection: AnyConnection, place: schema.Place, ballast: Ballast, present: Present) -> About:
    folder = os.path.dirname(os.path.realpath(place.path))
    disk = None if place.in_memory else os.statvfs(folder)
    room = space(connection)
    return About(
        "sqlite",
        place.path,
        int(connection.execute("PRAGMA user_version").get),
        room.total if place.in_memory else _size(place.path),
        room.free,
        {"sqlite": apsw.sqlite_lib_version(), "apsw": apsw.apsw_version()},
        tuple(holders(connection, present)),
        None if place.in_memory else schema.file_system(folder, schema.mounts()),
        None if disk is None else disk.f_bavail * disk.f_frsize,
        ballast.kept(),
        ballast.size,
    )


def _size(path: str) -> int:
    """Return the size of the database with its write-ahead log."""
    total = 0
    for name in (path, f"{path}-wal"):
        with suppress(FileNotFoundError):
            total += os.stat(name).st_size
    return total


def space(connection: AnyConnection) -> Space:
    assert isinstance(connection, Connection)
    size = connection.pragma("page_size")
    return Space(connection.pragma("page_count") * size, connection.pragma("freelist_count") * size)


def compact(connection: AnyConnection, count: int) -> int:
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


def check(connection: AnyConnection) -> list[str]:
    """Return a line for each problem that SQLite finds in its file, and for each row that does not fit."""
    said = [str(line) for (line,) in connection.execute("PRAGMA integrity_check(20)") if line != "ok"]
    from pausepoint.stores.sql import verify  # a listing needs none of it

    return said + verify.check(connection)
