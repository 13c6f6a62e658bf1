"""Open a database file: check it first, create or migrate the schema, and make connections.

The following are refused without changing a byte: files of other programs or of a newer version of Pausepoint, network
file systems (SQLite's locks are not reliable there), and a version of SQLite whose WAL can lose committed pages.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import apsw

from pausepoint.errors import NewerSchema, StoreMissing, StoreUnavailable
from pausepoint.name import NAME
from pausepoint.stores.disk import make_folder, sync_folder
from pausepoint.stores.sql.statements import Migration
from pausepoint.stores.sqlite import recovery, sql
from pausepoint.stores.sqlite.connection import Connection
from pausepoint.stores.sqlite.errors import edge
from pausepoint.stores.sqlite.locks import Presence
from pausepoint.stores.suspension import unsuspended

APPLICATION_ID = 0x486F6C64  # "Hold"
VERSION = 1
PAGE_SIZE = 4096
WAL_PAGES = 200
PATIENCE = 10_000  # milliseconds
FOLD_PATIENCE = 500
_WAL_BYTES_KEPT = 16 * 2**20
_JOURNAL = bytes.fromhex("d9d505f920a163d7")  # the first bytes of SQLite's rollback journals

_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|ncpfs|afs|coda|9p|virtiofs|vboxsf|prl_fs|vmhgfs|ceph|glusterfs|lustre|gpfs|beegfs|ocfs2|gfs2"
    r"|fuse\.(sshfs|s3fs|rclone|glusterfs|ceph|smb\w*|nfs\w*|vmhgfs\S*|gcsfuse|davfs\w*)|davfs2?"
)

T = TypeVar("T")


class Place(NamedTuple):
    """The location of a database and how to open it. ``create`` means: create the file if it does not exist."""

    path: str
    vfs: str | None = None
    synchronous: str = "FULL"
    create: bool = True

    @property
    def in_memory(self) -> bool:
        return self.path == ":memory:"

    @property
    def syncs_commits(self) -> bool:
        """Whether every commit is synced. Otherwise a power loss cannot be told from damage."""
        return self.synchronous in ("FULL", "EXTRA")


def prepare(place: Place, presence: Presence | None = None) -> None:
    """Make sure that ``place`` has a database with the current schema. Raises `StoreError` otherwise.

    ``presence`` begins here, and the caller ends it.
    """
    refuse_affected_sqlite(apsw.sqlite_lib_version())
    if place.in_memory:
        return
    try:
        with edge(place.path):
            _prepare_file(place, presence or Presence())
    except OSError as exc:
        raise StoreUnavailable(
            f"{place.path} cannot be opened ({exc.strerror}: {exc.filename}). Check the path, the free disk space and"
            " the folder's permissions."
        ) from exc


def _prepare_file(place: Place, presence: Presence) -> None:
    path = Path(place.path)
    if path.is_dir():
        raise StoreUnavailable(f"{path} is a folder. Name a file in it, such as {path / f'{NAME}.db'}.")
    if not place.create and not path.exists():
        raise _missing(path)
    make_folder(path.parent)
    refuse_network(path.parent, mounts())
    _make_file(path)
    _patiently(presence.take)
    header = _checked_header(place)
    if not header.version and not place.create:
        raise _missing(path)
    if not header.in_wal_mode:
        presence.withdraw()
        _patiently(lambda: _switch_to_wal(place))
        _patiently(presence.take)
    if header.version < VERSION:
        _patiently(lambda: _bring_up(place))


def _checked_header(place: Place) -> Header:
    """Return what the database says about itself. Raises `StoreDamaged` if its log is damaged.

    The version may be in the log. A database of another program is refused first, however its log looks.
    """
    log = recovery.suspect(place.path, place.vfs) if place.syncs_commits else None
    try:
        header = _patiently(lambda: _look(place))
    except apsw.CorruptError:
        _refuse_damage(log)
        raise
    _refuse_damage(log)
    return header


def accept_loss(place: Place) -> str | None:
    """Give up what a damaged log has lost. Return the path of the log's copy; None if the log is not damaged."""
    with edge(place.path):
        log = recovery.suspect(place.path, place.vfs)
        if log is None:
            return None
        with suppress(apsw.CorruptError):
            _look(place)  # refuses a database of another program
        return recovery.accept_loss(log)


def _refuse_damage(log: recovery.Suspect | None) -> None:
    if log is not None:
        _patiently(lambda: recovery.refuse_damage(log))


def _missing(path: Path) -> StoreMissing:
    return StoreMissing(
        f"There is no store at {path}, and create=False does not create one. Check the path, or open the engine with"
        " create=True.",
        path=str(path),
    )


def connect(place: Place, serialized: bool = False) -> Connection:
    """Return a new connection with the store's settings.

    Unless it is ``serialized``, no two threads may use it at once, so SQLite does not need to lock it for each call.
    """
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if place.in_memory else 0)
    flags |= apsw.SQLITE_OPEN_FULLMUTEX if serialized else apsw.SQLITE_OPEN_NOMUTEX
    connection = Connection(place.path, flags=flags, vfs=place.vfs)
    try:
        _tune(connection, place)
    except BaseException:
        connection.close(True)  # the error may be kept for long, and with it this frame
        raise
    return connection


def _tune(connection: apsw.Connection, place: Place) -> None:
    # The last connection to close locks the database for a moment.
    connection.set_busy_timeout(PATIENCE)
    # Only `disconnect` may checkpoint on close. A forked child also closes its copy of the connection when it exits,
    # and would write to a file that it does not own.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    # Without it, SQLite prepares some statements again for every new value, which takes much longer than running them.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.execute(f"PRAGMA synchronous = {place.synchronous}")
    connection.execute("PRAGMA secure_delete = ON").fetchall()  # deleted data must not remain in the file
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_KEPT}").fetchall()


def disconnect(connection: apsw.Connection) -> None:
    """Close a connection. The last one to close copies the WAL into the database.

    If that fails, nothing is lost: acknowledged writes are in the WAL, and the next process to open it finds them.
    """
    with suppress(apsw.Error):
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        connection.close()


def fold(place: Place) -> bool:
    """Copy the WAL into the database and empty it durably.

    Return False if a reader or writer prevents that for too long, or if the empty WAL cannot be synced.
    """
    with edge(place.path):
        connection = connect(place)
        connection.set_busy_timeout(FOLD_PATIENCE)  # others cannot commit while this waits for readers
        try:
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
        finally:
            connection.close()
        # SQLite does not sync the empty WAL, and a power loss could bring erased content back.
        return not busy and _synced(f"{place.path}-wal")


@unsuspended
def create(connection: apsw.Connection) -> None:
    """Create the current schema in an empty database, in one transaction, unless another process was faster."""
    connection.execute("BEGIN IMMEDIATE")
    with _rolled_back_on_error(connection):
        if not _user_version(connection):
            _run(connection, sql.schema())
            _stamp(connection, VERSION)
        connection.execute("COMMIT")


@unsuspended
def migrate(connection: apsw.Connection, road: Sequence[Migration]) -> None:
    """Run each pending migration and store its version number, in one transaction per migration."""
    for step in road:
        connection.execute("BEGIN IMMEDIATE")
        with _rolled_back_on_error(connection):
            if step.number > _user_version(connection):
                _run(connection, step.text)
                _stamp(connection, step.number)
            connection.execute("COMMIT")


@contextmanager
def _rolled_back_on_error(connection: apsw.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class Header(NamedTuple):
    """What a database says about itself; version 0 if it is empty. A copy by ``VACUUM INTO`` is not in WAL mode."""

    version: int = 0
    in_wal_mode: bool = False


def _look(place: Place) -> Header:
    """Return the header of a database. Opens the file read-only and leaves no trace."""
    path = Path(place.path)
    if not path.stat().st_size or _creation_was_cut_off(path):
        return Header()
    # Without a WAL no process has the file open, and opening it as immutable does not even create side files.
    mode = "" if Path(f"{path}-wal").exists() else "?immutable=1"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(path.absolute().as_uri() + mode, flags=flags, vfs=place.vfs)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return Header(_version_of_ours(connection, path), connection.read("main", 0, 18, 1)[1] == b"\2")
    except apsw.NotADBError as exc:
        raise StoreUnavailable(f"{path} is not a database. Name another file for the store.") from exc
    finally:
        connection.close()


def _creation_was_cut_off(path: Path) -> bool:
    """Return whether there is a rollback journal that would make the file empty again.

    Then a process is turning an empty file into a database, or died while doing so. The file's content cannot be
    trusted. SQLite repairs it when the file is opened for writing.
    """
    try:
        with open(f"{path}-journal", "rb") as journal:
            head = journal.read(20)
    except FileNotFoundError:
        return False
    return head.startswith(_JOURNAL) and head[16:20] == bytes(4)  # the previous size of the file, in pages


def _version_of_ours(connection: apsw.Connection, path: Path) -> int:
    # In one transaction: another process may create the schema between two of these statements.
    connection.execute("BEGIN")
    mark, version = connection.pragma("application_id"), _user_version(connection)
    if mark != APPLICATION_ID:
        if mark or version or connection.execute("SELECT count(*) FROM sqlite_schema").get:
            raise StoreUnavailable(f"{path} is a database of another program. Name another file for the store.")
        return 0
    if version > VERSION:
        raise NewerSchema(
            f"{path} was written by a newer Pausepoint (schema {version}; this version supports {VERSION}). Nothing was"
            " changed. Upgrade Pausepoint, or name another file for the store."
        )
    return version


def _switch_to_wal(place: Place) -> None:
    connection = connect(place)
    try:
        connection.pragma("page_size", PAGE_SIZE)
        connection.pragma("journal_mode", "wal")
    finally:
        connection.close()  # leaves the log, which another library in this process may be deleting


def _bring_up(place: Place) -> None:
    connection = connect(place)
    try:
        _let_it_shrink(connection)
        create(connection)
        migrate(connection, sql.migrations())
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # a damaged log must not take the schema along
    finally:
        disconnect(connection)


def _let_it_shrink(connection: apsw.Connection) -> None:
    """Turn on incremental vacuum, so that space can be given back to the system in small batches.

    This runs in WAL mode, while the database is empty. Before WAL mode it would be a transaction with a rollback
    journal, and a file with such a journal cannot be read without changing it.
    """
    if not _user_version(connection) and not connection.pragma("auto_vacuum"):
        connection.pragma("auto_vacuum", "incremental")
        connection.execute("VACUUM")


def _user_version(connection: apsw.Connection) -> int:
    return int(connection.pragma("user_version"))


def _stamp(connection: apsw.Connection, version: int) -> None:
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", version)


def _run(connection: apsw.Connection, script: str) -> None:
    connection.execute(script).fetchall()


def _patiently(act: Callable[[], T]) -> T:
    """Retry while the database is busy. Two processes may create a store at once, and not all SQLite locks wait."""
    end = time.monotonic() + PATIENCE / 1000
    while True:
        try:
            return act()
        except apsw.BusyError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def _make_file(path: Path) -> None:
    """Create the database, unless the file exists. It gets its name when it is complete.

    Nobody can therefore work on half a database, not even another SQLite library in this process, for which SQLite's
    locks do not count. Only its owner can read the file. SQLite gives its side files the same permissions.
    """
    if os.path.lexists(path):
        return
    draft = f"{path}-new"
    try:
        descriptor = _patiently(lambda: _locked(draft))
        try:
            if os.path.lexists(path):  # another process was faster
                os.unlink(draft)
            else:
                _fill(descriptor, _new_database())
                os.rename(draft, path)
        except BaseException:
            with suppress(OSError):  # the first error is the one to tell
                os.unlink(draft)
            raise
        finally:
            os.close(descriptor)
    except OSError as exc:
        raise StoreUnavailable(
            f"{path} cannot be created ({exc.strerror}). Check the free disk space and the folder's permissions."
        ) from exc
    sync_folder(path.parent)


def _locked(draft: str) -> int:
    """Open a draft for this process alone. Its lock ends with the process, which may leave the file behind."""
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(draft)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    raise apsw.BusyError(f"{draft} is in use: another process is creating the store")


def _fill(descriptor: int, content: bytes) -> None:
    os.ftruncate(descriptor, 0)
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
    os.fsync(descriptor)


@cache
def _new_database() -> bytes:
    """Return the content of a new database: the current schema, and nothing else."""
    connection = apsw.Connection(":memory:")
    try:
        connection.pragma("page_size", PAGE_SIZE)
        connection.pragma("auto_vacuum", "incremental")  # space can be given back to the system in small batches
        create(connection)
        content = bytearray(connection.serialize("main"))
    finally:
        connection.close()
    content[18:20] = b"\2\2"  # WAL mode, which a database in memory cannot have
    return bytes(content)


def _synced(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True


def refuse_affected_sqlite(version: str) -> None:
    """Raise `StoreUnavailable` for a SQLite with the WAL-reset bug.

    SQLite 3.7.0 to 3.51.2 can lose committed pages when a checkpoint coincides with a write. Releases 3.44.6 and 3.50.7
    have the fix.
    """
    numbers = tuple(int(part) for part in version.split(".")[:3])
    repaired = numbers[:2] in ((3, 44), (3, 50)) and numbers >= {44: (3, 44, 6), 50: (3, 50, 7)}[numbers[1]]
    if (3, 7, 0) <= numbers < (3, 51, 3) and not repaired:
        raise StoreUnavailable(
            f"apsw includes SQLite {version}, which can lose committed data (the WAL-reset bug). Upgrade apsw to a"
            " version with SQLite 3.51.3 or later."
        )


def refuse_network(folder: Path, mounts: str) -> None:
    """Raise `StoreUnavailable` for a folder on a network or guest file system.

    ``mounts`` is a table in the format of /proc/self/mountinfo.
    """
    found = file_system(os.path.realpath(folder), mounts)
    if found and _NETWORK.fullmatch(found):
        raise StoreUnavailable(
            f"{folder} is on a network file system ({found}), where SQLite's locks are not reliable. Put the store on"
            " a local disk."
        )


def file_system(path: str, mounts: str) -> str | None:
    """Return the type of the file system that ``path`` is on; None if the table does not contain it."""
    best, kind = "", None
    for line in mounts.splitlines():
        left, separator, right = line.partition(" - ")
        if not separator:
            continue
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), left.split()[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # a later mount hides an earlier one
            best, kind = point, right.split()[0]
    return kind


def mounts() -> str:
    # Only Linux has this table. On other systems nothing is refused.
    table = Path("/proc/self/mountinfo")
    return table.read_text(encoding="utf-8", errors="surrogateescape") if table.exists() else ""
