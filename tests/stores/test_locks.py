"""The locks of SQLite stay, whatever the process that has a store open does with the store's files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from pausepoint.stores.sqlite import locks, schema
from tests.stores.kit import process
from tests.support.loop import PATIENCE

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine not in locks._INSTRUCTIONS,
    reason="SQLite's locks belong to open files only on Linux with x86-64 and ARM64",
)

# Each program opens the store named by its first argument. With the argument "twin", it does so without our part.
PRELUDE = """
import asyncio, os, sqlite3, sys
import apsw
from pausepoint.stores.sqlite import SqliteStore, locks, schema
path, twin = sys.argv[1], sys.argv[2:] == ["twin"]
if twin:
    apsw.VFS("twin", "unix").xSetSystemCall("fcntl", 0)

async def opened():
    store = SqliteStore(path)
    await store.open(lambda keys: None)
    return store

def writing():
    connection = schema.connect(schema.Place(path))
    connection.execute("BEGIN IMMEDIATE")
    return connection

def wait():
    print("ready", flush=True)
    return sys.stdin.readline()
"""


def is_free(path: Path) -> bool:
    """Return whether another process may write now."""
    connection = schema.connect(schema.Place(str(path)))
    connection.set_busy_timeout(0)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except apsw.BusyError:
        return False
    finally:
        connection.close(True)
    return True


@pytest.mark.parametrize("twin", [False, True])
def test_reading_the_files_of_a_store_keeps_the_lock_of_a_write(path: Path, twin: bool) -> None:
    program = """
async def main():
    store = await opened()
    connection = writing()
    for file in os.scandir(os.path.dirname(path)):
        if file.is_file():
            with open(file.path, "rb") as content:
                content.read(1)
    wait()
asyncio.run(main())
"""
    with process(PRELUDE + program, path, *["twin"] * twin):
        assert is_free(path) is twin


@pytest.mark.parametrize("twin", [False, True])
def test_python_sqlite3_in_the_same_process_leaves_the_log(path: Path, twin: bool) -> None:
    program = """
async def main():
    if twin:
        locks.Presence.take = lambda self: None
    store = await opened()
    connection = sqlite3.connect(path)
    connection.execute("SELECT status FROM workflow_states").fetchall()
    connection.close()
    wait()
asyncio.run(main())
"""
    with process(PRELUDE + program, path, *["twin"] * twin):
        assert Path(f"{path}-wal").exists() is not twin


def test_an_open_connection_of_python_sqlite3_keeps_the_log_when_the_store_is_closed(path: Path) -> None:
    program = """
async def main():
    store = await opened()
    connection = sqlite3.connect(path)
    connection.execute("SELECT status FROM workflow_states").fetchall()
    await store.close()
    wait()
asyncio.run(main())
"""
    with process(PRELUDE + program, path):
        assert Path(f"{path}-wal").exists()


@pytest.mark.parametrize("twin", [False, True])
def test_a_forked_child_does_not_keep_the_locks_of_a_killed_parent(path: Path, twin: bool) -> None:
    program = """
async def main():
    store = await opened()
    connection = writing()
    if len(sys.argv) > 2:
        locks._present.clear()
    alive, forked = os.pipe()
    if os.fork() == 0:
        os.write(forked, b"!")
        sys.stdin.readline()  # ends with the test
        os._exit(0)
    os.read(alive, 1)
    wait()
asyncio.run(main())
"""
    with process(PRELUDE + program, path, *["without the hook"] * twin) as parent:
        assert not is_free(path)
        os.kill(parent.pid, signal.SIGKILL)
        parent.child.wait(PATIENCE)
        assert is_free(path) is not twin


def test_the_last_engine_of_a_process_deletes_the_log_in_either_order(path: Path) -> None:
    program = """
async def main():
    for first in (0, 1):
        stores = [await opened(), await opened()]
        await stores.pop(first).close()
        assert os.path.exists(path + "-wal")
        await stores.pop().close()
        assert not os.path.exists(path + "-wal")
    wait()
asyncio.run(main())
"""
    with process(PRELUDE + program, path):
        pass


def test_another_database_of_the_program_gives_its_locks_back(path: Path) -> None:
    program = """
connections = [apsw.Connection(path) for _ in range(2)]
connections[0].execute("CREATE TABLE rows (n)")
for connection in connections:
    connection.execute("BEGIN").execute("SELECT * FROM rows").fetchall()
for connection in connections:
    connection.execute("COMMIT")
wait()
"""
    with process(PRELUDE + program, path):
        connection = apsw.Connection(str(path))
        connection.execute("BEGIN EXCLUSIVE")
        connection.close()


@pytest.mark.parametrize(
    ("machine", "assembler", "objcopy", "syntax"),
    [
        ("x86_64", "as", "objcopy", ".intel_syntax noprefix\n"),
        ("aarch64", "aarch64-linux-gnu-as", "aarch64-linux-gnu-objcopy", ".arch armv8.5-a\n"),
    ],
)
def test_the_bytes_are_those_of_the_listing(
    tmp_path: Path, machine: str, assembler: str, objcopy: str, syntax: str
) -> None:
    if shutil.which(assembler) is None or (assembler == "as" and os.uname().machine != machine):
        pytest.skip(f"the assembler for {machine} is not installed")
    listing = locks._INSTRUCTIONS[machine]
    source = [line.split(maxsplit=1)[1] for line in listing.strip().splitlines()]
    (tmp_path / "code.s").write_text(syntax + "\n".join(source) + "\naddress:\n")
    subprocess.run([assembler, "-o", "code.o", "code.s"], cwd=tmp_path, check=True)
    subprocess.run([objcopy, "-O", "binary", "-j", ".text", "code.o", "code"], cwd=tmp_path, check=True)
    assert (tmp_path / "code").read_bytes() == locks.instructions(listing)
