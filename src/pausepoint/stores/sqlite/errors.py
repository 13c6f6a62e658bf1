"""Translate SQLite's errors into Pausepoint's, with the reason and what to do next."""

from __future__ import annotations

from typing import NamedTuple

import apsw

from pausepoint.errors import DamagedRecord, StoreError, StoreUnavailable

LOCK_PATIENCE = 30.0  # seconds that the writer waits for another process's write lock

# After one of these errors the connection is no longer trusted.
BROKEN = (apsw.IOError, apsw.CorruptError, apsw.NotADBError, apsw.CantOpenError, apsw.ProtocolError)

# Errors of a disk that cannot be written. If a write raises one, the store becomes read-only.
DISK = (apsw.FullError, apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError)


class Hint(NamedTuple):
    """What an error means, and what to do about it."""

    happened: str
    way_out: str


_FULL = Hint("the disk is full", "Free some space")

_HINTS: tuple[tuple[type[apsw.Error], Hint], ...] = (
    (apsw.FullError, _FULL),
    (
        apsw.BusyError,
        Hint(
            f"another process has kept the database locked for over {LOCK_PATIENCE:.0f} s",
            "",  # the process that does so is looked for
        ),
    ),
    (apsw.ReadOnlyError, Hint("the database cannot be written", "Check the permissions of the file and its folder")),
    (
        apsw.CantOpenError,
        Hint(
            "the database cannot be opened",
            "Check the path, the permissions of the file and its folder, and the limit of open files (ulimit -n)",
        ),
    ),
    (apsw.PermissionsError, Hint("access was denied", "Check the permissions of the file and its folder")),
    (apsw.IOError, Hint("the disk reported an error", "Check the system log")),
)


def hint(exc: apsw.Error) -> Hint | None:
    """Return the hint for an error, if there is one."""
    if is_full(exc):
        return _FULL
    return next((hint for kind, hint in _HINTS if isinstance(exc, kind)), None)


def is_full(exc: BaseException | None) -> bool:
    """Return whether the error means that the disk is full.

    SQLite reports a separate error if there is no space for the WAL index, a file that reading needs too.
    """
    if isinstance(exc, apsw.FullError):
        return True
    return isinstance(exc, apsw.IOError) and getattr(exc, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE


def translated(exc: apsw.Error | UnicodeDecodeError, path: str) -> StoreError:
    """Return the error to raise, ``from exc``, for an error of the database at ``path``."""
    if isinstance(exc, apsw.CorruptError | apsw.NotADBError | UnicodeDecodeError):
        return DamagedRecord(f"{path}: the database is damaged ({exc}). Restore it from a backup.")
    if known := hint(exc):
        way_out = known.way_out or _blocked(path)
        return StoreUnavailable(f"{path}: {known.happened} ({exc}). Nothing was written. {way_out}, then try again.")
    return StoreUnavailable(
        f"{path}: the database reported {type(exc).__name__}: {exc}. Nothing was written. Check the database with"
        " engine.verify(), then try again."
    )


class edge:  # a class, because a generator would slow down every read
    """Translate every SQLite error that is raised inside the ``with`` block."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> object:
        return None

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if isinstance(exc, apsw.Error | UnicodeDecodeError):
            raise translated(exc, self.path) from exc


def _blocked(path: str) -> str:
    from pausepoint.stores.sqlite import blockers  # only a locked database needs it

    return blockers.way_out(path)
