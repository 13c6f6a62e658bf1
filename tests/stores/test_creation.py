"""Creating a store: the file gets its name when it is complete, even if several processes create it at once."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from pausepoint.errors import StoreUnavailable
from pausepoint.stores.sqlite import schema
from tests.stores.kit import on_loop, opened, outside, started


def test_a_new_database_gets_its_name_when_it_is_complete(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another SQLite library in the process must find no journal there, which it would delete."""
    renamed: list[Path] = []

    def rename(draft: str, name: Path) -> None:
        assert os.listdir(path.parent) == [os.path.basename(draft)]
        os.replace(draft, name)
        renamed.append(name)

    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(schema, "_bring_up", lambda place: pytest.fail("it was not complete"))
    monkeypatch.setattr(schema, "_switch_to_wal", lambda place: pytest.fail("it was not complete"))
    schema.prepare(schema.Place(str(path)))
    assert renamed == [path]
    assert os.listdir(path.parent) == [path.name]
    assert schema._look(schema.Place(str(path))) == schema.Header(schema.VERSION, in_wal_mode=True)
    assert outside(path, "PRAGMA auto_vacuum") == [[2]]


def test_a_store_whose_creation_was_killed_is_created_by_the_next_process(path: Path) -> None:
    draft = Path(f"{path}-new")
    draft.write_bytes(b"half a database, longer than nothing" * 20_000)
    schema.prepare(schema.Place(str(path)))
    assert os.listdir(path.parent) == [path.name]
    assert outside(path, "PRAGMA integrity_check") == [["ok"]]


def test_a_store_cannot_be_created_on_a_full_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, calls = os.write, []

    def write_a_little(descriptor: int, content: bytes) -> int:
        calls.append(descriptor)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, content[:5_000])

    monkeypatch.setattr(os, "write", write_a_little)
    with pytest.raises(StoreUnavailable, match=r"cannot be created \(No space left on device\)\. Check the free disk"):
        schema.prepare(schema.Place(str(path)))
    assert len(calls) == 3
    assert os.listdir(path.parent) == []
    monkeypatch.setattr(os, "write", write)
    schema.prepare(schema.Place(str(path)))


def test_one_process_creates_a_store_while_the_others_wait(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "PATIENCE", 50)
    descriptor = schema._locked(f"{path}-new")
    with pytest.raises(StoreUnavailable, match="another process is creating the store"):
        schema.prepare(schema.Place(str(path)))
    assert not path.exists()
    os.close(descriptor)
    schema.prepare(schema.Place(str(path)))


def test_a_store_that_another_process_has_created_meanwhile_is_not_replaced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(draft: str) -> int:
        path.write_bytes(schema._new_database())
        return lock(draft)

    lock = schema._locked
    monkeypatch.setattr(schema, "_locked", locked)
    monkeypatch.setattr(schema, "_fill", lambda *_: pytest.fail("it writes a second database"))
    schema.prepare(schema.Place(str(path)))
    assert os.listdir(path.parent) == [path.name]


@on_loop
async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    async with opened(path) as store:
        await started(store)


@pytest.mark.long
def test_two_processes_can_create_one_store_at_once(path: Path) -> None:
    program = (
        "import asyncio, sys; sys.path[:0] = sys.argv[2:]\n"
        "from tests.stores.kit import opened\n"
        "async def main():\n"
        "    async with opened(sys.argv[1]): pass\n"
        "asyncio.run(main())"
    )
    command = [sys.executable, "-c", program, str(path), str(Path(schema.__file__).parents[3]), str(Path.cwd())]
    children = [subprocess.Popen(command) for _ in range(4)]
    assert [child.wait() for child in children] == [0] * 4
    assert outside(path, "PRAGMA user_version") == [[schema.VERSION]]


@pytest.mark.parametrize("statement", range(1, 5))
def test_a_schema_that_appears_while_a_process_looks_is_not_taken_for_another_program(
    path: Path, statement: int
) -> None:
    """The four processes above meet in this way once in some thousand runs."""
    creator = apsw.Connection(str(path))
    creator.pragma("journal_mode", "wal")
    looker = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    seen: list[str] = []

    def meanwhile(_: object, text: str, __: object) -> bool:
        seen.append(text)
        if len(seen) == statement:
            schema.create(creator)
        return True

    looker.exec_trace = meanwhile
    assert schema._version_of_ours(looker, path) in (0, schema.VERSION)
    assert len(seen) >= statement
    looker.close()
    creator.close()
