"""Opens a database file: looks before it touches, creates or migrates the schema, makes connections.

What is refused is refused with no byte changed: files that are not ours or were written by a
newer Pausepoint, network file systems (SQLite's locks cannot be relied on there) and a SQLite
whose WAL can lose committed pages.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import apsw

from pausepoint.errors import NewerSchema, StoreMissing, StoreUnavailable
from pausepoint.name import NAME
from pausepoint.stores.sqlite import sql
from pausepoint.stores.sqlite.errors import edge
from pausepoint.stores.sqlite.sql import Migration

APPLICATION_ID = 0x486F6C64  # "Hold"
VERSION = 1
PAGE_SIZE = 4096
WAL_PAGES = 200
PATIENCE = 10_000  # milliseconds
FOLD_PATIENCE = 500
_WAL_BYTES_KEPT = 16 * 2**20
_JOURNAL = bytes.fromhex("d9d505f920a163d7")  # how SQLite's rollback journals begin

_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|ncpfs|afs|coda|9p|virtiofs|vboxsf|prl_fs|vmhgfs|ceph|glusterfs|lustre|gpfs|beegfs|ocfs2|gfs2"
    r"|fuse\.(sshfs|s3fs|rclone|glusterfs|ceph|smb\w*|nfs\w*|vmhgfs\S*|gcsfuse|davfs\w*)|davfs2?"
)

T = TypeVar("T")


class Place(NamedTuple):
    """Where a database is and how it is to be opened. ``create``: made if it is not there."""

    path: str
    vfs: str | None = None
    synchronous: str = "FULL"
    create: bool = True

    @property
    def in_memory(self) -> bool:
        return self.path == ":memory:"


def prepare(place: Place) -> None:
    """Make sure that there is a database of today's schema at ``place``, or refuse."""
    refuse_affected_sqlite(apsw.sqlite_lib_version())
    if place.in_memory:
        return
    try:
        with edge(place.path):
            _prepare_file(place)
    except OSError as exc:
        raise StoreUnavailable(
            f"{place.path} cannot be opened ({exc.strerror}: {exc.filename}); look at the path, the space on the disk"
            " and the folder's permissions"
        ) from exc


def _prepare_file(place: Place) -> None:
    path = Path(place.path)
    if path.is_dir():
        raise StoreUnavailable(f"{path} is a folder; name a file in it, such as {path / f'{NAME}.db'}")
    if not place.create and not path.exists():
        raise _missing(path)
    _make_folder(path.parent)
    refuse_network(path.parent, mounts())
    _make_file(path)
    version = _patiently(lambda: _look(place))
    if not version and not place.create:
        raise _missing(path)
    if version < VERSION:
        _patiently(lambda: _bring_up(place))


def _missing(path: Path) -> StoreMissing:
    return StoreMissing(
        f"there is no store at {path}, and this engine makes none (create=False); look at the path, or start a session"
        " with an engine that may",
        path=str(path),
    )


def connect(place: Place) -> apsw.Connection:
    """A connection with the store's settings."""
    # No connection is used by two threads at once, so SQLite need not lock it for each of its calls.
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOMUTEX | (apsw.SQLITE_OPEN_CREATE if place.in_memory else 0)
    connection = apsw.Connection(place.path, flags=flags, vfs=place.vfs)
    # Whoever was last to leave keeps the database to itself for a moment.
    connection.set_busy_timeout(PATIENCE)
    # Closing must not checkpoint unless `disconnect` says so: an interpreter that ends in a
    # forked child also closes, and would write to a file that is no longer its own.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.execute(f"PRAGMA synchronous = {place.synchronous}")
    connection.execute("PRAGMA secure_delete = ON").fetchall()  # what was deleted is not to be found in the file
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_KEPT}").fetchall()
    return connection


def disconnect(connection: apsw.Connection) -> None:
    """Close in order: the last to leave folds the WAL into the database.

    If that fails nothing is lost: what was acknowledged is in the WAL, and the next to open finds it there.
    """
    with suppress(apsw.Error):
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        connection.close()


def fold(place: Place) -> bool:
    """Copy the WAL into the database and empty it. False if somebody who reads or writes prevents it for too long."""
    with edge(place.path):
        connection = connect(place)
        connection.set_busy_timeout(FOLD_PATIENCE)  # others cannot commit while it waits for who reads
        try:
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
        finally:
            connection.close()
        return not busy


def create(connection: apsw.Connection) -> None:
    """Today's schema, into an empty database, in one transaction. Does nothing if another process was quicker."""
    connection.execute("BEGIN IMMEDIATE")
    with _rolled_back_on_error(connection):
        if not _user_version(connection):
            _run(connection, sql.schema())
            _stamp(connection, VERSION)
        connection.execute("COMMIT")


def migrate(connection: apsw.Connection, road: Sequence[Migration]) -> None:
    """Each step of the road that is still ahead, together with its number, in one transaction."""
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


def _look(place: Place) -> int:
    """The schema's version, 0 for an empty database. Opens read-only and leaves no trace."""
    path = Path(place.path)
    if not path.stat().st_size or _creation_was_cut_off(path):
        return 0
    # Without a WAL nobody has it open, and an immutable look does not even create side files.
    mode = "" if Path(f"{path}-wal").exists() else "?immutable=1"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(path.absolute().as_uri() + mode, flags=flags, vfs=place.vfs)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return _version_of_ours(connection, path)
    except apsw.NotADBError as exc:
        raise StoreUnavailable(f"{path} is not a database; name another file for the store") from exc
    finally:
        connection.close()


def _creation_was_cut_off(path: Path) -> bool:
    """Whether there is a journal that would make the file empty again.

    Somebody turns an empty file into a database, or died doing so. What the file contains is not to be believed;
    SQLite sets it right when it is opened for writing.
    """
    try:
        with open(f"{path}-journal", "rb") as journal:
            head = journal.read(20)
    except FileNotFoundError:
        return False
    return head.startswith(_JOURNAL) and head[16:20] == bytes(4)  # the size before, in pages


def _version_of_ours(connection: apsw.Connection, path: Path) -> int:
    mark, version = connection.pragma("application_id"), _user_version(connection)
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    if mark != APPLICATION_ID:
        if tables or mark or version:
            raise StoreUnavailable(f"{path} is a database of another program; name another file for the store")
        return 0
    if version > VERSION:
        raise NewerSchema(
            f"{path} was written by a newer Pausepoint (schema {version}; this one knows {VERSION}); nothing was changed."
            " Upgrade Pausepoint, or name another file for the store"
        )
    return version


def _bring_up(place: Place) -> None:
    connection = connect(place)
    try:
        connection.pragma("page_size", PAGE_SIZE)
        connection.pragma("journal_mode", "wal")
        _let_it_shrink(connection)
        create(connection)
        migrate(connection, sql.migrations())
    finally:
        disconnect(connection)


def _let_it_shrink(connection: apsw.Connection) -> None:
    """Have SQLite keep track of its pages, so that space can be given back in small batches.

    Asked for in the WAL, while the database is empty. Before that it would be a transaction with a journal of its own,
    and who looks at a file with such a journal cannot do so without changing it.
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
    """Two processes may create one store at once, and not all of SQLite's locks wait for their turn."""
    end = time.monotonic() + PATIENCE / 1000
    while True:
        try:
            return act()
        except apsw.BusyError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def _make_folder(folder: Path) -> None:
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        _sync_folder(folder.parent)


def _make_file(path: Path) -> None:
    """Only the owner may read it; SQLite gives its side files the same rights."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    except OSError as exc:
        raise StoreUnavailable(f"{path} cannot be created ({exc.strerror}); look at the folder's permissions") from exc
    os.close(descriptor)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """A new name is durable only when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refuse_affected_sqlite(version: str) -> None:
    """SQLite 3.7.0 to 3.51.2 can skip committed pages when a checkpoint meets a write; two branches have the repair."""
    numbers = tuple(int(part) for part in version.split(".")[:3])
    repaired = numbers[:2] in ((3, 44), (3, 50)) and numbers >= {44: (3, 44, 6), 50: (3, 50, 7)}[numbers[1]]
    if (3, 7, 0) <= numbers < (3, 51, 3) and not repaired:
        raise StoreUnavailable(
            f"apsw brings SQLite {version}, which can lose committed data (its WAL-reset bug);"
            " upgrade apsw to a version with SQLite 3.51.3 or later"
        )


def refuse_network(folder: Path, mounts: str) -> None:
    """Refuse a folder that lies on a network or guest file system. ``mounts``: as in /proc/self/mountinfo."""
    found = file_system(os.path.realpath(folder), mounts)
    if found and _NETWORK.fullmatch(found):
        raise StoreUnavailable(
            f"{folder} is on a network file system ({found}), where SQLite's locks cannot be relied on;"
            " put the store on a local disk"
        )


def file_system(path: str, mounts: str) -> str | None:
    """The type of the file system that ``path`` is on; None where the table does not say."""
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
    # Only Linux tells in this way; elsewhere nothing is refused.
    table = Path("/proc/self/mountinfo")
    return table.read_text(encoding="utf-8", errors="surrogateescape") if table.exists() else ""
