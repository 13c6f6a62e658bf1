"""Database errors become Holdfast's at this edge, with the reason and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from holdfast.errors import DamagedRecord, StoreError, StoreUnavailable

LOCK_PATIENCE = 30.0  # seconds that the writer waits for a foreign write lock

# After one of these the connection is not trusted any more.
BROKEN = (apsw.IOError, apsw.CorruptError, apsw.NotADBError, apsw.CantOpenError, apsw.ProtocolError)

_HINTS: tuple[tuple[type[apsw.Error], str], ...] = (
    (apsw.FullError, "the disk is full; nothing was written. Free some space and try again"),
    (
        apsw.BusyError,
        f"another process has kept the database locked for over {LOCK_PATIENCE:.0f} s; nothing was written."
        " Look for a program with an open write transaction (a database browser?) and close it",
    ),
    (apsw.ReadOnlyError, "it cannot be written; nothing was. Look at the permissions of the file and its folder"),
    (apsw.CantOpenError, "it cannot be opened. Look at the path and at the permissions of the file and its folder"),
    (apsw.PermissionsError, "access was denied. Look at the permissions of the file and its folder"),
    (apsw.IOError, "the disk reported an error; nothing was written. Look at the system's log, then try again"),
)


def translated(exc: apsw.Error | UnicodeDecodeError, path: str) -> StoreError:
    """The error to raise, ``from exc``, for what SQLite said about the store at ``path``."""
    if isinstance(exc, apsw.CorruptError | apsw.NotADBError | UnicodeDecodeError):
        return DamagedRecord(f"{path}: the database is damaged ({exc}); restore it from a backup")
    for kind, hint in _HINTS:
        if isinstance(exc, kind):
            return StoreUnavailable(f"{path}: {hint} ({exc})")
    return StoreUnavailable(f"{path}: the database refused ({type(exc).__name__}: {exc}); nothing was written")


@contextmanager
def edge(path: str) -> Iterator[None]:
    """Translate whatever SQLite raises inside."""
    try:
        yield
    except (apsw.Error, UnicodeDecodeError) as exc:
        raise translated(exc, path) from exc
