"""Helpers for the tests of the SQLite store, in addition to the suite's: other processes and SQL from outside."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pausepoint
from pausepoint.stores.base import OnChange
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing.suite.base import Driver, new_session, on_loop, operator, payloads, started, stored
from tests.support.forked import Piped, piped
from tests.support.loop import PATIENCE

__all__ = [
    "ENGINE", "LOCKER", "Driver", "Process", "new_session", "on_loop", "opened", "operator", "outside", "payloads",
    "process", "started", "stored", "unbound",
]  # fmt: skip

SOURCE = str(Path(pausepoint.__file__).parents[1])


@asynccontextmanager
async def opened(
    path: str | Path, on_change: OnChange = lambda keys: None, **options: Any
) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, **options)
    await store.open(on_change)
    try:
        yield store
    finally:
        await store.close()


def outside(path: str | Path, *statements: str) -> list[Any]:
    """Run SQL in another process with another SQLite, and return the rows of the last statement."""
    program = (
        "import json, sqlite3, sys\n"
        f"connection = sqlite3.connect(sys.argv[1], timeout={PATIENCE}, isolation_level=None)\n"
        "for statement in sys.argv[2:]: rows = connection.execute(statement).fetchall()\n"
        "print(json.dumps(rows, default=bytes.hex))\n"
    )
    command = [sys.executable, "-c", program, str(path), *statements]
    rows: list[Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return rows


def unbound(query: str) -> list[None] | dict[str, None]:
    """Return a binding for each parameter. Named and numbered parameters count once."""
    if named := re.findall(r":(\w+)", query):
        return dict.fromkeys(named)
    numbered = {int(number) for number in re.findall(r"\?(\d+)", query)}
    return [None] * (len(numbered) or query.count("?"))


class Process:
    """A child process that prints ``ready`` and then follows the lines sent to it."""

    def __init__(self, child: Piped | subprocess.Popen[str]) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self.child, self.stdin, self.stdout = child, child.stdin, child.stdout

    @property
    def pid(self) -> int:
        return self.child.pid

    def send(self, line: str = "go") -> None:
        self.stdin.write(line + "\n")
        self.stdin.flush()

    def line(self) -> str:
        return self.stdout.readline().strip()

    def ask(self, line: str) -> str:
        self.send(line)
        return self.line()

    def finish(self) -> int:
        """Close its input, wait until it ends, and return its exit code."""
        self.stdin.close()
        return self.child.wait()

    def kill(self) -> int:
        self.child.kill()
        return self.child.wait()


@contextmanager
def process(program: str, *args: str | Path) -> Iterator[Process]:
    """Start a Python program and wait until it prints ``ready``."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((SOURCE, os.getcwd()))}
    with piped(["-c", program, *map(str, args)], Path.cwd(), environment) as child:
        running = Process(child)
        assert running.line() == "ready"
        yield running


# A program that opens the store named by its argument and follows the lines of its input, with one line of
# output each. At the end of its input it closes the store; "exit" ends it without closing.
ENGINE = """
import asyncio, sys
from pausepoint.stores.sqlite import SqliteStore
from tests.stores.kit import Driver

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open(lambda keys: None)
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

# Holds the write lock of the database until it reads a line.
LOCKER = f"""
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout={PATIENCE}, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("ready", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
"""
