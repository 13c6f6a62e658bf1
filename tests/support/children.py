"""Run code in other processes: programs that talk over their standard streams, and SQL from outside the store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pausepoint
from tests.support.forked import Piped, piped
from tests.support.loop import PATIENCE, excused

ROOT = Path(__file__).parents[2]
LEAN = ("-p", "no:schemathesis", "-p", "no:langsmith_plugin", "-p", "no:hypothesispytest", "-p", "no:playwright")
"""Options for a pytest in its own process: without plugins that take long to import."""
_SOURCE = Path(pausepoint.__file__).parents[1]

_PRELUDE = """
import asyncio, os, sys
from pausepoint import *
from tests.support.pipeline import Doc, Pipeline
def say(*words): print(*words, flush=True)
async def heard(): return (await asyncio.to_thread(sys.stdin.readline)).strip()
"""

_SQL = f"""
import json, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout={PATIENCE}, isolation_level=None)
connection.row_factory = sqlite3.Row
for statement in sys.argv[2:]:
    rows = [dict(row) for row in connection.execute(statement)]
print(json.dumps(rows, default=bytes.hex))
"""


class Child:
    """A running Python program."""

    def __init__(self, popen: subprocess.Popen[str] | Piped) -> None:
        self.popen = popen

    @property
    def pid(self) -> int:
        return self.popen.pid

    def tell(self, line: str = "go") -> None:
        _pipe(self.popen.stdin).write(line + "\n")
        _pipe(self.popen.stdin).flush()

    def line(self) -> str:
        with excused():
            return _pipe(self.popen.stdout).readline().strip()

    def expect(self, line: str) -> None:
        """Wait for a line. Any other output means that the child itself failed."""
        heard = self.line()
        assert heard == line, f"the child said {heard!r}, not {line!r}"

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def ended(self) -> int:
        """Wait until the program ends and return its exit code."""
        with excused():
            return self.popen.wait(PATIENCE)


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join((str(_SOURCE), str(ROOT)))}


@contextmanager
def child(program: str, *args: object) -> Iterator[Child]:
    """Start a program: the body of ``async def main(args)``, with Pausepoint's public names and `Pipeline` imported."""
    text = _PRELUDE + "async def main(args):\n" + textwrap.indent(textwrap.dedent(program), "    ")
    words = ["-c", text + "\nasyncio.run(main(sys.argv[1:]))\n", *map(str, args)]
    with piped(words, Path.cwd(), environment()) as started, _ended_in_time(started):
        yield Child(started)


@contextmanager
def script(text: str, *args: object) -> Iterator[Child]:
    """Start a whole program, in a new Python."""
    command = [sys.executable, "-c", text, *map(str, args)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment()) as popen:
        try:
            with _ended_in_time(popen):
                yield Child(popen)
        finally:
            popen.kill()


@contextmanager
def _ended_in_time(program: subprocess.Popen[str] | Piped) -> Iterator[None]:
    """End a child that never prints what the test expects, instead of blocking the test."""
    patience = threading.Timer(PATIENCE, program.kill)
    patience.start()
    try:
        yield
    finally:
        patience.cancel()


def run_child(program: str, *args: object) -> str:
    """Run such a program until it ends and return its output."""
    with child(program, *args) as running:
        with excused():
            printed = _pipe(running.popen.stdout).read()
            code = running.popen.wait(PATIENCE)
        assert code == 0, f"the child ended with {code}: {printed}"
        return printed.strip()


def outside_sql(path: Path, *statements: str) -> list[dict[str, Any]]:
    """Run SQL in another process with Python's own sqlite3, and return the rows of the last statement."""
    command = [sys.executable, "-I", "-c", _SQL, str(path), *statements]
    with excused():
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows
