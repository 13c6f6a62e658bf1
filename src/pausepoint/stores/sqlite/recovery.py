"""Refuse a store whose write-ahead log is damaged, before SQLite drops the commits behind the damage.

The check changes nothing. It copies a damaged log to a file next to the store, because an accepted loss empties the
log.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import apsw

from pausepoint.errors import StoreDamaged
from pausepoint.stores.disk import sync_folder
from pausepoint.stores.liveness import FileHold
from pausepoint.stores.sqlite.wal import HEADER, INDEX, Damage, Index, Read, Wal, find_damage, index_of

PATIENCE = 500  # milliseconds to wait for a writer
_CHUNK = 2**20
_DATABASE, _WAL = 0, 1  # the files that `apsw.Connection.read` can read
_NOOP = getattr(apsw, "SQLITE_CHECKPOINT_NOOP", None)  # since SQLite 3.51


@dataclass(frozen=True)
class Suspect:
    """A log that has to be checked, and its index as it was before SQLite opened the store."""

    path: str
    vfs: str | None
    index: Index | None


def suspect(path: str, vfs: str | None) -> Suspect | None:
    """Return the log of a store if there is one. Call it before SQLite opens the store and rebuilds the index."""
    return Suspect(path, vfs, _index(f"{path}-shm")) if _size(f"{path}-wal") > HEADER else None


def refuse_damage(log: Suspect) -> None:
    """Raise `StoreDamaged` if a log has lost acknowledged commits. Raises `apsw.BusyError` if a writer is in the way.

    A writer that is an engine has checked the log when it opened the store, so nothing is checked again.
    """
    try:
        with _locked(log) as connection:
            damage = _damage(log, connection)
            if damage is not None:
                raise _refusal(log.path, damage, _kept(log.path, connection))
    except apsw.ReadOnlyError:
        return  # without the lock, a commit of another process could look like damage
    except apsw.BusyError:
        if not _is_open_elsewhere(log.path):
            raise


def accept_loss(log: Suspect) -> str | None:
    """Give up the commits behind the damage. Return the path of the log's copy; None if the log is not damaged."""
    with _locked(log) as connection:
        if _damage(log, connection) is None:
            return None
        kept = _keep(log.path, connection)
    connection = _connect(log)
    try:
        # The old frames have to go. They would look like damage again, behind the next commit.
        connection.execute("SELECT 1 FROM sqlite_schema").fetchall()
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.close()
    return kept


# the check


def _connect(log: Suspect) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOMUTEX
    connection = apsw.Connection(log.path, flags=flags, vfs=log.vfs)
    connection.set_busy_timeout(PATIENCE)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return connection


@contextmanager
def _locked(log: Suspect) -> Iterator[apsw.Connection]:
    """Keep every process from appending to the log or emptying it."""
    connection = _connect(log)
    try:
        if connection.readonly("main"):
            raise apsw.ReadOnlyError(f"{log.path} cannot be written")  # SQLite would begin, but lock nothing
        connection.execute("BEGIN IMMEDIATE")
        yield connection
    finally:
        connection.close()


def _damage(log: Suspect, connection: apsw.Connection) -> Damage | None:
    database = _reader(connection, _DATABASE)
    wal = Wal(_reader(connection, _WAL), _size(f"{log.path}-wal"), _page_size(database))
    last = _last_frame(log)
    found = find_damage(wal, database, last, log.index, _pads(log))
    if found is None and _was_refused_before(log.path, connection):
        return Damage(wal.live(last or 0)[0] + 1, 0)
    return found


def _pads(log: Suspect) -> bool:
    """Return whether SQLite fills a sector after each commit, because a torn write could harm the rest of it."""
    file = apsw.VFSFile(log.vfs or "", log.path, [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    try:
        return not file.xDeviceCharacteristics() & apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE
    finally:
        file.xClose()


def _was_refused_before(path: str, connection: apsw.Connection) -> bool:
    """Return whether this very log was found to be damaged. What the index said is gone after the first look."""
    folder, name = os.path.split(path)
    if not any(each.startswith(f"{name}{_KEPT}") for each in os.listdir(folder)):
        return False
    return os.path.exists(_copy_of(path, connection))


def _page_size(database: Read) -> int:
    size = int.from_bytes(database(16, 2), "big")
    return {0: 4096, 1: 65536}.get(size, size)


def _reader(connection: apsw.Connection, which: int) -> Read:
    # Read through SQLite's own descriptors: closing another one of the database would drop SQLite's locks.
    def read(offset: int, amount: int) -> bytes:
        return connection.read("main", which, offset, amount)[1]

    return read


def _last_frame(log: Suspect) -> int | None:
    """Return the last frame that SQLite has recovered; None if this SQLite cannot tell without a checkpoint."""
    if _NOOP is None:
        return None
    connection = _connect(log)  # the connection with the lock is in a transaction and would be refused
    try:
        connection.execute("SELECT 1 FROM sqlite_schema").fetchall()  # opens the log
        return connection.wal_checkpoint(mode=_NOOP)[0]
    except apsw.CorruptError:
        return None
    finally:
        connection.close()


def _is_open_elsewhere(path: str) -> bool:
    hold = FileHold(path)
    try:
        return hold.anyone()
    finally:
        hold.drop()


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _refusal(path: str, damage: Damage, kept: tuple[str | None, str]) -> StoreDamaged:
    where = f"it cannot be read from frame {damage.frame} on" if damage.frame else "its header cannot be read"
    lost = f"At least {damage.commits} commits" if damage.commits > 1 else "One or more commits"
    copy, said = kept
    return StoreDamaged(
        f"{path}: the write-ahead log is damaged ({where}). {lost} that were acknowledged are"
        f" lost. Nothing was changed; {said}. Restore a backup: remove {path}-wal and {path}-shm, then put"
        f" the backup in place of {path}. Or accept the loss with pausepoint.engine.accept_loss({path!r}).",
        path=path,
        kept=copy,
    )


# the copy of a damaged log

_KEPT = "-wal-damaged-"


def _kept(path: str, connection: apsw.Connection) -> tuple[str | None, str]:
    """Keep a copy of the log if possible. Return its path, and what to say about it."""
    try:
        copy = _keep(path, connection)
    except OSError as exc:
        return None, f"a copy of the log could not be written ({exc.strerror})"
    return copy, f"a copy of the log is in {copy}"


def _keep(path: str, connection: apsw.Connection) -> str:
    """Write a copy of the log, synced. Its name has the digest of its content, so that no copy is overwritten."""
    copy = _copy_of(path, connection)
    if not os.path.exists(copy):
        _write(copy, _chunks(path, connection), os.stat(f"{path}-wal").st_mode & 0o777)
    return copy


def _copy_of(path: str, connection: apsw.Connection) -> str:
    digest = sha256()
    for chunk in _chunks(path, connection):
        digest.update(chunk)
    return f"{path}{_KEPT}{digest.hexdigest()[:12]}"


def _chunks(path: str, connection: apsw.Connection) -> Iterator[bytes]:
    read, size = _reader(connection, _WAL), _size(f"{path}-wal")
    for offset in range(0, size, _CHUNK):
        yield read(offset, min(_CHUNK, size - offset))


def _write(path: str, chunks: Iterator[bytes], mode: int) -> None:
    part = f"{path}.part"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(descriptor)
        os.rename(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
    sync_folder(Path(path).parent)


# the index
#
# Closing any descriptor of the index drops the locks of all connections of this process. So a descriptor that was
# opened to read the index stays open until SQLite has deleted the file. There is at most one per file.

_guard = threading.Lock()
_descriptors: dict[tuple[int, int], int] = {}


def _renew_guard() -> None:
    """Replace the guard in a forked child. Another thread of the parent may have held it."""
    global _guard
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_renew_guard)


def _index(path: str) -> Index | None:
    with _guard:
        _close_deleted()
        try:
            descriptor = _descriptor(path)
        except FileNotFoundError:
            return None
        return index_of(os.pread(descriptor, INDEX, 0))


def _descriptor(path: str) -> int:
    found = os.stat(path)
    known = _descriptors.get((found.st_dev, found.st_ino))
    if known is not None:
        return known
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    found = os.fstat(descriptor)  # another process may have replaced the file
    return _descriptors.setdefault((found.st_dev, found.st_ino), descriptor)


def close_deleted() -> None:
    """Close the descriptors of indexes that SQLite has deleted."""
    with _guard:
        _close_deleted()


def _close_deleted() -> None:
    for key, descriptor in list(_descriptors.items()):
        if not os.fstat(descriptor).st_nlink:
            del _descriptors[key]
            os.close(descriptor)
