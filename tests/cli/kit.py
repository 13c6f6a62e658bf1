"""Commands as real processes, with and without a terminal.

`run` waits for the end. A test can watch a `Process`, type into it or kill it. Both are forked from a process that has
imported Pausepoint, unless the test asks for a new Python, as a shell starts it.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen
from typing import NamedTuple

from pausepoint.cli.app import COMMANDS
from pausepoint.runtime.signals import ECHO
from tests.cli import documents, ways
from tests.support.forked import FORKS, Program
from tests.support.loop import PATIENCE

PAUSEPOINT = ("-m", "pausepoint")


class Done(NamedTuple):
    """The result of a process. On a terminal all of its output is in ``stdout``."""

    code: int
    stdout: str
    stderr: str


def run(
    *args: str | Path,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    tty: bool = False,
    size: tuple[int, int] = (80, 24),
    typed: str = "",
    program: Sequence[str] = PAUSEPOINT,
    new: bool = False,
) -> Done:
    """Run ``pausepoint ARGS`` with ``typed`` as its input; with ``tty`` on a terminal of ``size`` columns and lines."""
    if tty:
        with Process(*args, cwd=cwd, env=env, tty=True, size=size, program=program, new=new) as process:
            process.type(typed)
            return process.wait()
    words = [*program, *map(str, args)]
    with ExitStack() as stack:
        ends = [stack.enter_context(tempfile.TemporaryFile("w+", errors="replace")) for _ in range(3)]
        ends[0].write(typed)
        ends[0].seek(0)
        child = _started(words, [end.fileno() for end in ends], cwd, _environment(env), new)
        code = child.wait(PATIENCE)
        for end in ends:
            end.seek(0)
        done = Done(code, ends[1].read(), ends[2].read())
    _check_documents(words[len(program) :], done.stdout)
    return done


def _started(words: list[str], ends: list[int], cwd: Path, env: dict[str, str], new: bool) -> Program | Popen[bytes]:
    if FORKS and not new:
        return Program(_recorded(words, env), ends, cwd, env)
    before = (lambda: os.login_tty(0)) if os.isatty(ends[0]) else None
    stdin, stdout, stderr = ends
    command = [sys.executable, *words]
    return Popen(command, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, preexec_fn=before)


def _recorded(words: list[str], env: Mapping[str, str]) -> list[str]:
    """Return the words of a program that also records the commands that it prints, if the environment asks for that."""
    if ways.RECORD not in env:
        return words
    text = (
        f"import runpy; from pathlib import Path; from tests.cli import ways; ways.record(Path({env[ways.RECORD]!r}))"
    )
    return ["-c", f"{text}; runpy.run_module({words[1]!r}, run_name='__main__', alter_sys=True)", *words[2:]]


def _check_documents(args: list[str], stdout: str) -> None:
    """Check the output of --json and --jsonl against the schema."""
    if stdout and args and args[0] in COMMANDS:
        for form in {"json", "jsonl"} & {each.removeprefix("--") for each in args}:
            documents.check(args[0], stdout, "field" if args[0] == "show" and "--field" in args else form)


class Process:
    """A running ``pausepoint ARGS``. The end of the block kills it."""

    def __init__(
        self,
        *args: str | Path,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        tty: bool = False,
        size: tuple[int, int] = (80, 24),
        program: Sequence[str] = PAUSEPOINT,
        beside: Process | None = None,
        new: bool = False,
    ) -> None:
        """Start the process. ``beside``: another one, whose output is read too; a full terminal would stop it."""
        self.seen = ""
        self.beside = beside
        environment = _environment(env)
        if tty:
            self.out, far = os.openpty()
            fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
            environment["TERM"] = "xterm-256color"
            near, self.keys = far, self.out
        else:
            self.out, far = os.pipe()
            near, self.keys = os.pipe()
        try:
            self.child = _started([*program, *map(str, args)], [near, far, far], cwd, environment, new)
        finally:
            for end in {near, far}:
                os.close(end)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait(PATIENCE)
        for end in {self.keys, self.out}:
            os.close(end)

    def type(self, text: str) -> None:
        """Type a text; ``\\x03`` on a terminal is Ctrl+C."""
        os.write(self.keys, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl+C once the process waits for an answer. Python would see an earlier one only with the next key."""
        stat = Path(f"/proc/{self.child.pid}/stat")
        while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "S":
            time.sleep(0.01)
        self.type("\x03")

    def signal(self, number: signal.Signals) -> None:
        time.sleep(2 * ECHO)  # an engine would take it for the same as one just before
        self.child.send_signal(number)

    def until(self, text: str) -> str:
        """Read until this text was printed, in any colour, and return the output so far."""
        end = time.monotonic() + PATIENCE
        while text not in plain(self.seen):
            if not self._read(end):
                raise AssertionError(f"{text!r} was never said; what was:\n{plain(self.seen)}")
        return plain(self.seen)

    def said(self) -> str:
        """Return the output so far, without waiting for more."""
        while select.select([self.out], [], [], 0)[0] and self._take():
            pass
        return plain(self.seen)

    def wait(self) -> Done:
        """Wait for the end and return the exit code and the output."""
        end = time.monotonic() + PATIENCE
        while self._read(end):
            pass
        return Done(self.child.wait(PATIENCE), self.seen, "")

    def _read(self, end: float) -> bool:
        ready: list[int] = []
        while self.out not in ready:
            watched = [self.out] if self.beside is None else [self.out, self.beside.out]
            ready, _, _ = select.select(watched, [], [], max(end - time.monotonic(), 0))
            if not ready:
                raise AssertionError(f"nothing more was said within {PATIENCE} s; what was:\n{plain(self.seen)}")
            if self.beside is not None and self.beside.out in ready and not self.beside._take():
                self.beside = None
        return self._take()

    def _take(self) -> bool:
        """Read what has arrived. Return False if nothing more will."""
        try:
            got = os.read(self.out, 65536)
        except OSError:  # how Linux says that the last one closed its side of a terminal
            got = b""
        self.seen += got.decode(errors="replace")
        return bool(got)


def plain(text: str) -> str:
    """Return a text without colours and cursor movements, and with plain line ends."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r\n", "\n")


def screen(text: str) -> str:
    """Return the lines that a terminal shows at the end. Lines that were replaced are gone."""
    lines, row, column = [""], 0, 0
    for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|\r|\n)", text):
        if part == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif part == "\r":
            column = 0
        elif part.startswith("\x1b["):
            if part.endswith("A"):
                row = max(row - int(part[2:-1] or 1), 0)
            elif part.endswith("K"):
                lines[row] = ""
        elif part:
            lines[row] = f"{lines[row][:column].ljust(column)}{part}{lines[row][column + len(part) :]}"
            column += len(part)
    return "\n".join(line.rstrip() for line in lines).rstrip()


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    """Return the environment without the variables that choose a store or colours."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("PAUSEPOINT_", "NO_COLOR", "COLUMNS"))
    }
    return kept | {"PYTHONUNBUFFERED": "1"} | dict(more or {})
