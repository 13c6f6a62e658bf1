"""Opening a store whose write-ahead log is damaged: it is refused, nothing is changed, and both ways out work."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from pausepoint.engine import accept_loss
from pausepoint.errors import StoreDamaged, StoreUnavailable
from pausepoint.stores.sqlite import SqliteStore, recovery, schema
from pausepoint.stores.sqlite.connection import LOCKS_OF_FILES
from pausepoint.stores.sqlite.wal import HEADER, Read
from tests.stores.kit import ENGINE, LOCKER, on_loop, opened, payloads, process, started
from tests.support.killed import copy_as_killed, flip, harm, log_of

COMMITS = 8


def alive_copy(path: Path) -> Path:
    return path.with_name(f"alive-{path.name}")


async def leave_a_killed_store(path: Path) -> None:
    """Create the files that ``kill -9`` leaves: a copy of an open store, as other processes see it."""
    alive = alive_copy(path)
    async with opened(alive) as store:
        driver = await started(store, "s")
        for number in range(COMMITS):
            await driver.commit(b"payload %d" % number)
        copy_as_killed(alive, path)


@pytest.fixture
def killed(path: Path) -> Path:
    asyncio.run(leave_a_killed_store(path))
    return path


def contents(path: Path) -> dict[str, bytes]:
    return {ending: Path(f"{path}{ending}").read_bytes() for ending in ("", "-wal")}


def copies(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}-wal-damaged-*"))


def refused(path: Path, **options: str) -> StoreDamaged:
    with pytest.raises(StoreDamaged) as caught:
        schema.prepare(schema.Place(str(path), **options))  # type: ignore[arg-type]
    return caught.value


async def remembered(path: Path) -> int:
    async with opened(path) as store:
        row = await store.get("s")
        return 0 if row is None else len(await payloads(store, row.key))


def test_a_killed_store_opens_with_everything(killed: Path) -> None:
    whole = asyncio.run(remembered(killed))
    assert whole >= COMMITS
    assert copies(killed) == []


def test_a_damaged_log_is_refused_and_nothing_is_changed(killed: Path) -> None:
    harm(killed)
    before = contents(killed)
    error = refused(killed)
    assert contents(killed) == before
    assert error.path == str(killed)
    assert [str(copy) for copy in copies(killed)] == [error.kept]
    assert Path(error.kept or "").read_bytes() == before["-wal"]
    assert Path(error.kept or "").stat().st_mode & 0o777 == 0o600
    for part in (
        "write-ahead log is damaged",
        "Nothing was changed",
        "Restore a backup",
        "accept the loss",
        error.kept,
    ):
        assert str(part) in str(error)


def test_the_copy_is_made_once_and_never_overwritten(killed: Path) -> None:
    harm(killed)
    refused(killed)
    (copy,) = copies(killed)
    copy.write_bytes(b"mine")
    refused(killed)
    assert [each.read_bytes() for each in copies(killed)] == [b"mine"]


def test_a_backup_can_be_put_in_place(killed: Path, tmp_path: Path) -> None:
    connection = apsw.Connection(str(alive_copy(killed)))
    connection.execute("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
    connection.close()
    harm(killed)
    refused(killed)
    for ending in ("-wal", "-shm"):
        Path(f"{killed}{ending}").unlink(missing_ok=True)
    shutil.copy(tmp_path / "backup.db", killed)
    assert asyncio.run(remembered(killed)) >= COMMITS


def test_the_loss_can_be_accepted_and_the_alarm_does_not_return(killed: Path) -> None:
    whole = asyncio.run(remembered(alive_copy(killed)))
    harm(killed)
    error = refused(killed)
    assert accept_loss(killed) == error.kept
    assert 0 < asyncio.run(remembered(killed)) < whole
    assert accept_loss(killed) is None

    async def commit_more() -> None:
        async with opened(killed) as store:
            await started(store, "another")
            subprocess.run(["cp", str(killed), f"{killed}-wal", str(killed.parent / "cut")], check=True)

    (killed.parent / "cut").mkdir()
    asyncio.run(commit_more())
    schema.prepare(schema.Place(str(killed.parent / "cut" / killed.name)))
    assert len(copies(killed)) == 1


def test_without_the_last_step_of_accepting_the_old_frames_would_raise_the_alarm_again(killed: Path) -> None:
    """Checkpoint only, without emptying the log, and commit something short. This is what `accept_loss` avoids."""
    harm(killed)
    connection = apsw.Connection(str(killed))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    connection.execute("UPDATE engines SET host = 'x'")
    connection.close()
    refused(killed)


def test_a_refused_header_is_noticed_and_can_be_accepted(killed: Path) -> None:
    flip(Path(f"{killed}-wal"), 17)
    assert "its header cannot be read" in str(refused(killed))
    assert accept_loss(killed) is not None
    assert asyncio.run(remembered(killed)) == 0


def test_the_index_of_a_killed_process_shows_the_loss_of_the_last_commit(killed: Path) -> None:
    log = log_of(killed)
    flip(Path(f"{killed}-wal"), log.place(log.live()[0]) + 50)
    first = refused(killed)
    assert refused(killed).kept == first.kept  # SQLite has rebuilt the index since, so the copy is the only trace
    assert accept_loss(killed) == first.kept
    assert asyncio.run(remembered(killed)) > 0


def test_an_index_of_another_log_says_nothing(killed: Path) -> None:
    other = killed.with_name("other.db")
    asyncio.run(leave_a_killed_store(other))
    log = log_of(killed)
    Path(f"{killed}-wal").write_bytes(Path(f"{killed}-wal").read_bytes()[: log.place(log.live()[0])])  # cut in a commit
    shutil.copy(f"{other}-shm", f"{killed}-shm")
    schema.prepare(schema.Place(str(killed)))


def test_a_torn_tail_opens(killed: Path) -> None:
    log = log_of(killed)
    Path(f"{killed}-shm").unlink()
    with open(f"{killed}-wal", "r+b") as file:
        file.truncate(log.place(log.live()[0]) + 1000)
    schema.prepare(schema.Place(str(killed)))
    assert copies(killed) == []


def test_a_sqlite_without_the_noop_checkpoint_finds_the_same(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_NOOP", None)
    schema.prepare(schema.Place(str(killed)))
    harm(killed)
    told = str(refused(killed))
    monkeypatch.undo()
    assert str(refused(killed)) == told


def test_a_store_that_does_not_sync_every_commit_is_not_checked(killed: Path) -> None:
    harm(killed)
    schema.prepare(schema.Place(str(killed), synchronous="NORMAL"))
    refused(killed, synchronous="EXTRA")


def test_a_database_of_another_program_is_refused_as_such(tmp_path: Path, killed: Path) -> None:
    connection = apsw.Connection(str(alive_copy(killed)))
    connection.execute("PRAGMA application_id = 7").fetchall()
    connection.execute("PRAGMA wal_checkpoint").fetchall()
    foreign = tmp_path / "foreign.db"
    for _ in range(3):
        connection.execute("UPDATE engines SET host = host || 'x'")
    copy_as_killed(alive_copy(killed), foreign)
    connection.close()
    flip(Path(f"{foreign}-wal"), HEADER + 200)
    with pytest.raises(StoreUnavailable, match="database of another program"):
        schema.prepare(schema.Place(str(foreign)))
    with pytest.raises(StoreUnavailable, match="database of another program"):
        accept_loss(foreign)
    assert copies(foreign) == []


def test_a_copy_that_cannot_be_written_is_reported_and_the_loss_not_accepted(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harm(killed)

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recovery, "_write", full)
    before = contents(killed)
    error = refused(killed)
    assert error.kept is None
    assert "a copy of the log could not be written (No space left on device)" in str(error)
    with pytest.raises(StoreUnavailable, match="could not be copied"):
        accept_loss(killed)
    assert contents(killed) == before


def test_a_log_that_cannot_be_written_is_not_checked(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(log: recovery.Suspect) -> apsw.Connection:
        return apsw.Connection(log.path, flags=apsw.SQLITE_OPEN_READONLY)

    harm(killed)
    monkeypatch.setattr(recovery, "_connect", read_only)
    log = recovery.suspect(str(killed), None)
    assert log is not None
    recovery.refuse_damage(log)


# next to others


@pytest.mark.long
def test_the_check_waits_for_nobody_if_another_engine_is_alive(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "PATIENCE", 20)
    with process(ENGINE, path), process(LOCKER, path):
        log = recovery.suspect(str(path), None)
        assert log is not None
        recovery.refuse_damage(log)


@pytest.mark.long
def test_the_check_waits_for_a_writer_that_is_not_an_engine(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "PATIENCE", 20)
    monkeypatch.setattr(schema, "PATIENCE", 100)
    with process(LOCKER, killed) as locker:
        with pytest.raises(StoreUnavailable, match="kept the database locked"):
            schema.prepare(schema.Place(str(killed)))
        locker.send()
        locker.finish()
    schema.prepare(schema.Place(str(killed)))


class Intruder:
    """Commits three times between the moment when the check reads the end of the log and when it reads on."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.wal_autocheckpoint(0)
        self.connection.set_busy_timeout(0)
        self.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self.end = 0
        self.busy = 0

    def reader(self, connection: apsw.Connection, which: int) -> Read:
        plain = connection.read

        def read(offset: int, amount: int) -> bytes:
            data = plain("main", which, offset, amount)[1]
            if which == 1 and offset == self.end:
                self.write()
            return data

        return read

    def write(self) -> None:
        self.end = -1
        try:
            for _ in range(3):
                self.connection.execute("UPDATE engines SET host = host || 'x'")
        except apsw.BusyError:
            self.busy += 1


@pytest.fixture
def intruder(killed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Intruder]:
    """An intruder, and a log with room behind its end: frames of an older log."""
    found = Intruder(killed)
    connection = found.connection
    connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    connection.execute("UPDATE engines SET host = 'y'")
    log = log_of(killed)
    found.end = log.place(log.live()[0] + 1)
    monkeypatch.setattr(recovery, "_reader", found.reader)
    yield found
    connection.close()


def checked(path: Path) -> None:
    log = recovery.suspect(str(path), None)
    assert log is not None
    recovery.refuse_damage(log)


def test_nobody_writes_while_the_log_is_read(killed: Path, intruder: Intruder) -> None:
    checked(killed)
    assert intruder.busy == 1


def test_a_check_without_the_lock_takes_a_writer_for_damage(
    killed: Path, intruder: Intruder, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lockless(apsw.Connection):
        def execute(self, statements: str, *args: object, **kwargs: object) -> apsw.Cursor:
            return super().execute(statements.replace("BEGIN IMMEDIATE", "SELECT 1 FROM sqlite_schema"))

    def connect(log: recovery.Suspect) -> apsw.Connection:
        connection = Lockless(log.path)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return connection

    monkeypatch.setattr(recovery, "_connect", connect)
    with pytest.raises(StoreDamaged):
        checked(killed)
    assert intruder.busy == 0


# the descriptor of the index

HELD = 128  # the byte of the index that every open connection keeps locked

LOCK_INDEX = f"""
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, {HELD})
    except OSError:
        print("locked")
    else:
        print("free")
"""


def lock_on_index(path: Path) -> str:
    command = [sys.executable, "-c", LOCK_INDEX, f"{path}-shm"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@on_loop
async def test_reading_the_index_keeps_the_locks_of_this_process(path: Path) -> None:
    async with opened(path) as store:
        await started(store)
        async with opened(path):
            pass
        assert lock_on_index(path) == "locked"
        os.close(os.open(f"{path}-shm", os.O_RDONLY))
        # what a check that closes its descriptor would do
        assert lock_on_index(path) == ("locked" if LOCKS_OF_FILES else "free")


@on_loop
async def test_the_descriptor_of_the_index_is_closed_when_the_index_is_deleted(path: Path) -> None:
    async with opened(path) as store:
        await started(store)
        async with opened(path):
            there = os.stat(f"{path}-shm")
            assert (there.st_dev, there.st_ino) in recovery._descriptors
    assert (there.st_dev, there.st_ino) not in recovery._descriptors


def test_a_store_without_a_log_is_not_checked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema.prepare(schema.Place(str(path)))
    monkeypatch.setattr(recovery, "_connect", lambda log: pytest.fail("a connection was opened"))
    monkeypatch.setattr(recovery, "_index", lambda name: pytest.fail("the index was read"))
    schema.prepare(schema.Place(str(path)))
    assert accept_loss(path) is None
    assert SqliteStore(":memory:").accept_loss() is None
