"""Database errors become Pausepoint's at this edge, with the reason and what to do next."""

from __future__ import annotations

from typing import NamedTuple

import apsw

from pausepoint.errors import DamagedRecord, StoreError, StoreUnavailable

LOCK_PATIENCE = 30.0  # seconds that the writer waits for a foreign write lock

# After one of these the connection is not trusted any more.
BROKEN = (apsw.IOError, apsw.CorruptError, apsw.NotADBError, apsw.CantOpenError, apsw.ProtocolError)

# What a disk says that cannot be written. Met in a write, they make the store read-only.
DISK = (apsw.FullError, apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError)


class Hint(NamedTuple):
    """What an error means, and what a person can do about it."""

    happened: str
    way_out: str


_FULL = Hint("the disk is full", "Free some space on it")

_HINTS: tuple[tuple[type[apsw.Error], Hint], ...] = (
    (apsw.FullError, _FULL),
    (
        apsw.BusyError,
        Hint(
            f"another process has kept the database locked for over {LOCK_PATIENCE:.0f} s",
            "Look for a program with an open write transaction (a database browser?) and close it",
        ),
    ),
    (apsw.ReadOnlyError, Hint("it cannot be written", "Look at the permissions of the file and its folder")),
    (
        apsw.CantOpenError,
        Hint("it cannot be opened", "Look at the path and at the permissions of the file and its folder"),
    ),
    (apsw.PermissionsError, Hint("access was denied", "Look at the permissions of the file and its folder")),
    (apsw.IOError, Hint("the disk reported an error", "Look at the system's log")),
)


def hint(exc: apsw.Error) -> Hint | None:
    """What is known about an error."""
    if is_full(exc):
        return _FULL
    return next((hint for kind, hint in _HINTS if isinstance(exc, kind)), None)


def is_full(exc: BaseException | None) -> bool:
    """Whether it says that there is no space. For the index of the WAL, a file that reading needs too, SQLite says
    it in words of its own."""
    if isinstance(exc, apsw.FullError):
        return True
    return isinstance(exc, apsw.IOError) and getattr(exc, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE


def translated(exc: apsw.Error | UnicodeDecodeError, path: str) -> StoreError:
    """The error to raise, ``from exc``, for what SQLite said about the store at ``path``."""
    if isinstance(exc, apsw.CorruptError | apsw.NotADBError | UnicodeDecodeError):
        return DamagedRecord(f"{path}: the database is damaged ({exc}); restore it from a backup")
    if known := hint(exc):
        return StoreUnavailable(
            f"{path}: {known.happened}; nothing was written ({exc}). {known.way_out}, then try again"
        )
    return StoreUnavailable(f"{path}: the database refused ({type(exc).__name__}: {exc}); nothing was written")


class edge:  # a class: what a generator costs would be paid by every read
    """Translate whatever SQLite raises inside."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> object:
        return None

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if isinstance(exc, apsw.Error | UnicodeDecodeError):
            raise translated(exc, self.path) from exc
