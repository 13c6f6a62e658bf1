"""Facts about a database and its location: sizes, versions, the disk, the engines."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from contextlib import suppress

import apsw
import msgspec

from pausepoint.model.sessions import About, Holder
from pausepoint.stores.sqlite import removal as cleaning
from pausepoint.stores.sqlite import schema
from pausepoint.stores.sqlite.ballast import Ballast
from pausepoint.stores.sqlite.engines import Present
from pausepoint.stores.sqlite.rows import every
from pausepoint.stores.sqlite.sql import QUERIES


def about(connection: apsw.Connection, place: schema.Place, ballast: Ballast, present: Present) -> About:
    folder = os.path.dirname(os.path.realpath(place.path))
    space = cleaning.space(connection)
    return About(
        "sqlite",
        place.path,
        int(connection.pragma("user_version")),
        space.total if place.in_memory else _size(place.path),
        space.free,
        {"sqlite": apsw.sqlite_lib_version(), "apsw": apsw.apsw_version()},
        tuple(_holders(connection, present)),
        None if place.in_memory else schema.file_system(folder, schema.mounts()),
        None if place.in_memory else shutil.disk_usage(folder).free,
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


def _workflows(stored: str) -> tuple[str, ...]:
    try:
        return msgspec.json.decode(stored, type=tuple[str, ...])
    except msgspec.MsgspecError:
        return ()  # damaged; it must not hide the engine


def _holders(connection: apsw.Connection, present: Present) -> list[Holder]:
    held = defaultdict(list)
    for number, session_id in every(connection, QUERIES["held_sessions"]):
        held[number].append(str(session_id))
    engines = every(connection, QUERIES["engines"])
    known = [
        Holder(number, pid, host, since, present.alive(number), tuple(held.pop(number, ())), _workflows(driven))
        for number, pid, host, since, driven in engines
    ]
    # The row of an engine that died may be missing.
    lost = [Holder(number, 0, "", 0, present.alive(number), tuple(ids)) for number, ids in held.items()]
    return [each for each in known + lost if each.live or each.sessions]
