"""What the store tests share: sessions and commits in few words, other processes, a look from outside."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Any, ParamSpec

import holdfast
from holdfast.model import Commit, Flags, NewSession, Pause, Record, SessionRow, first_digest, seal
from holdfast.stores.sqlite import SqliteStore

P = ParamSpec("P")

SOURCE = str(Path(holdfast.__file__).parents[1])


def on_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an ``async def`` test on a loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@asynccontextmanager
async def opened(
    path: str | Path, on_change: Callable[[], None] = lambda: None, **options: Any
) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, **options)
    await store.open(on_change)
    try:
        yield store
    finally:
        await store.close()


def new_session(session_id: str = "s1", **changes: Any) -> NewSession:
    first = seal(first_digest(session_id), 1, 0, "key", "first", 1, 1000, b"{}")
    values: dict[str, Any] = {
        "session_id": session_id, "workflow": "brief", "version": 1, "owner": None, "tags": (),
        "input_digest": b"\0" * 32, "created_at": 1000, "step": "first", "visit": 1, "budget_usd": None,
        "records": (first,),
    }  # fmt: skip
    return NewSession(**(values | changes))


def operator(reason: str = "lunch", by: str | None = "ann", at: int = 5000, **changes: Any) -> Pause:
    return Pause("", "operator", reason, by, at, **changes)


class Driver:
    """Plays the engine: knows where its session stands and moves it on."""

    def __init__(self, store: SqliteStore, row: SessionRow) -> None:
        self.store, self.key, self.fence = store, row.key, row.fence
        self.seq, self.digest, self.at = row.seq, row.digest, row.updated_at

    def next(self, payload: bytes = b"{}", **changes: Any) -> Commit:
        """The next commit; the driver now stands behind it."""
        record = seal(self.digest, self.seq + 1, self.seq, "checkpoint", "first", 1, self.at, payload)
        values: dict[str, Any] = {
            "key": self.key, "fence": self.fence, "base_seq": self.seq, "records": (record,),
            "updated_at": self.at + 1, "key_frame": 1, "step": "second", "visit": 1,
        }  # fmt: skip
        self.seq, self.digest, self.at = record.seq, record.digest, self.at + 1
        return Commit(**(values | changes))

    def commit(self, payload: bytes = b"{}", **changes: Any) -> Awaitable[Flags | None]:
        return self.store.commit(self.next(payload, **changes))


async def started(store: SqliteStore, session_id: str = "s1", **changes: Any) -> Driver:
    row = await store.create(new_session(session_id, **changes))
    assert row is not None
    return Driver(store, row)


async def stored(store: SqliteStore, session_id: str = "s1") -> SessionRow:
    row = await store.get(session_id)
    assert row is not None
    return row


async def payloads(store: SqliteStore, key: int) -> list[bytes]:
    found: list[Record] = await store.records(key, 1)
    return [record.payload for record in found]


def outside(path: str | Path, *statements: str) -> list[Any]:
    """Run SQL as somebody else would: another process, another SQLite. Rows of the last statement come back."""
    program = (
        "import json, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], timeout=10, isolation_level=None)\n"
        "for statement in sys.argv[2:]: rows = connection.execute(statement).fetchall()\n"
        "print(json.dumps(rows, default=bytes.hex))\n"
    )
    command = [sys.executable, "-c", program, str(path), *statements]
    rows: list[Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return rows


class Process:
    """A child that says ``ready`` and then does what the lines sent to it let it do."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self.child = child

    @property
    def pid(self) -> int:
        return self.child.pid

    def send(self, line: str = "go") -> None:
        _pipe(self.child.stdin).write(line + "\n")
        _pipe(self.child.stdin).flush()

    def line(self) -> str:
        return _pipe(self.child.stdout).readline().strip()

    def ask(self, line: str) -> str:
        self.send(line)
        return self.line()

    def finish(self) -> int:
        """Let it come to its end."""
        _pipe(self.child.stdin).close()
        return self.child.wait()

    def kill(self) -> int:
        self.child.kill()
        return self.child.wait()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


@contextmanager
def process(program: str, *args: str | Path) -> Iterator[Process]:
    """Start a Python program and wait until it has said ``ready``."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((SOURCE, os.getcwd()))}
    child = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with child:
        try:
            running = Process(child)
            assert running.line() == "ready"
            yield running
        finally:
            child.kill()


# An engine of its own: opens the store named by its argument and does what its lines say, with one
# line of answer each. At the end of its input it closes the store; "exit" leaves without.
ENGINE = """
import asyncio, sys
from holdfast.stores.sqlite import SqliteStore
from tests.stores.kit import Driver

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open(lambda: None)
    print("ready", flush=True)
    driver = None
    for line in sys.stdin:
        verb, _, session_id = line.strip().partition(" ")
        try:
            if verb == "claim":
                driver = Driver(store, await store.claim(session_id))
            elif verb == "commit":
                await driver.commit(b"by another process")
            else:
                return
            print("done", flush=True)
        except Exception as exc:
            print(type(exc).__name__, flush=True)
    await store.close()

asyncio.run(main())
"""

# Holds the write lock of the database until it gets a line.
LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("ready", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
"""
