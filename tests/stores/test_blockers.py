"""The process that keeps a database locked is found, whatever kind of lock it has, and described with a way out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from pausepoint.stores.sqlite import blockers
from tests.stores.kit import LOCKER, process
from tests.support.waits import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who has a lock")

WRITER = ("-shm", 120)
RECOVERY = ("-shm", 122)
CHECKPOINT = ("-shm", 121)
READER = ("-shm", 124)
EXCLUSIVE = ("", 0x40000002)

HOLDER = """
import fcntl, os, struct, sys
path, kind, access, byte, _odd = sys.argv[1:]
file = open(path, "r+b")
lock = struct.pack("@hhqqi4x", getattr(fcntl, access), os.SEEK_SET, int(byte), 1, 0)
fcntl.fcntl(file, getattr(fcntl, kind), lock)
print("ready", flush=True)
sys.stdin.readline()
"""


@contextmanager
def holder(
    path: Path, place: tuple[str, int] = WRITER, kind: str = "F_SETLK", access: str = "F_WRLCK"
) -> Iterator[subprocess.Popen[str]]:
    """Start a process that locks one byte of a file of the database."""
    file = Path(f"{path}{place[0]}")
    file.touch()
    command = [sys.executable, "-ISc", HOLDER, str(file), kind, access, str(place[1]), "\x1b[2J"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as started:
        assert started.stdout is not None
        try:
            assert started.stdout.readline() == "ready\n"
            yield started
        finally:
            started.kill()


def suspend(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    until(lambda: blockers._described(pid).state == "T", "the process was not suspended")


@pytest.mark.parametrize("kind", ["F_SETLK", "F_OFD_SETLK"])
@pytest.mark.parametrize("place", [WRITER, RECOVERY, EXCLUSIVE])
def test_a_process_that_locks_others_out_is_named_with_its_state(
    tmp_path: Path, kind: str, place: tuple[str, int]
) -> None:
    path = tmp_path / "p.db"
    with holder(path, place, kind) as other:
        found = blockers.find(str(path))
        assert found is not None
        assert found.pid == other.pid
        assert found.way_out.endswith("has an open write transaction. Let it finish, or close it")
        suspend(other.pid)
        said = blockers.way_out(str(path))
        assert said.startswith(f"Process {other.pid} ({sys.executable} -ISc ")
        assert (
            "has been suspended in the middle of a write and keeps the store locked. Resume it with `kill -CONT" in said
        )
        assert f"`kill -9 {other.pid}`" in said
        assert said.isprintable()
    assert blockers.find(str(path)) is None


@pytest.mark.parametrize(
    ("place", "access"), [(WRITER, "F_RDLCK"), (CHECKPOINT, "F_WRLCK"), (READER, "F_WRLCK"), (EXCLUSIVE, "F_RDLCK")]
)
def test_a_process_that_only_reads_or_folds_the_log_is_not_named(
    tmp_path: Path, place: tuple[str, int], access: str
) -> None:
    with holder(tmp_path / "p.db", place, access=access):
        assert blockers.find(str(tmp_path / "p.db")) is None


def test_the_lock_of_sqlite_itself_is_found(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    with process(LOCKER, path) as other:
        found = blockers.find(str(path))
        assert found is not None
        assert found.pid == other.pid
    assert blockers.find(str(path)) is None
    assert "such as a suspended program or a database browser" in blockers.way_out(str(path))
    connection.execute("BEGIN IMMEDIATE")
    assert blockers.way_out(str(path)).startswith("This process itself")
    connection.close()
