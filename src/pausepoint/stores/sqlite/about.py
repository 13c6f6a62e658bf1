"""Facts about a database and its location: sizes, versions, the disk, the engines."""

from __future__ import annotations

import os
from contextlib import suppress

import apsw

from pausepoint.model.stores import About
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Present
from pausepoint.stores.sql.holders import holders
from pausepoint.stores.sqlite import pages, schema
from pausepoint.stores.sqlite.ballast import Ballast


def about(connection: Connection, place: schema.Place, ballast: Ballast, present: Present) -> About:
    folder = os.path.dirname(os.path.realpath(place.path))
    disk = None if place.in_memory else os.statvfs(folder)
    space = pages.space(connection)
    return About(
        "sqlite",
        place.path,
        int(connection.execute("PRAGMA user_version").get),
        space.total if place.in_memory else _size(place.path),
        space.free,
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
