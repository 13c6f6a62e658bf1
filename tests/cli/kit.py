"""Commands as real processes, with and without a terminal.

`run` forks ``pausepoint`` from a process that has imported it, and waits for the end. `Process` starts an interpreter,
as a shell does; a test can watch it, type into it or kill it.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pausepoint.cli.app import COMMANDS
from tests.cli import documents, forked

PATIENCE = 120.0

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
) -> Done:
    """Run ``pausepoint ARGS`` with ``typed`` as its input; with ``tty`` on a terminal of ``size`` columns and lines."""
    if tty:
        with Process(*args, cwd=cwd, env=env, tty=True, size=size, program=program) as process:
            process.type(typed)
            return process.wait()
    words = [str(each) for each in args]
    if program == PAUSEPOINT:
        done = Done(*forked.pausepoint(words, cwd, _environment(env), typed, PATIENCE))
    else:
        done = _ended(program, args, cwd, env, typed)
    _check_documents(words, done.stdout)
    return done


def _ended(
    program: Sequence[str], args: tuple[str | Path, ...], cwd: Path, env: Mapping[str, str] | None, typed: str
) -> Done:  # fmt: skip
    done = subprocess.run(
        _command(program, args), cwd=cwd, env=_environment(env), input=typed, capture_output=True, text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


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
    ) -> None:
        """Start the process. ``beside``: another one, whose output is read too; a full terminal would stop it."""
        self.seen = ""
        self.beside = beside
        command = _command(program, args)
        if tty:
            self.out, far = os.openpty()
            fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
            environment = _environment(env) | {"TERM": "xterm-256color"}
            self.child = subprocess.Popen(
                command, cwd=cwd, env=environment, stdin=far, stdout=far, stderr=far,
                preexec_fn=lambda: os.login_tty(0),
            )  # fmt: skip
            self.keys = self.out
        else:
            self.out, far = os.pipe()
            self.child = subprocess.Popen(
                command, cwd=cwd, env=_environment(env), stdin=subprocess.PIPE, stdout=far, stderr=far
            )
            assert self.child.stdin is not None
            self.keys = self.child.stdin.fileno()
        os.close(far)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait(PATIENCE)
        if self.child.stdin is not None:
            self.child.stdin.close()
        os.close(self.out)

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
        self.child.send_signal(number)

    def until(self, text: str) -> str:
        """Read until this text was printed, in any colour, and return the output so far."""
        end = time.monotonic() + PATIENCE
        while text not in plain(self.seen):
            if not self._read(end):
                raise AssertionError(f"{text!r} was never said; what was:\n{plain(self.seen)}")
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


def _command(program: Sequence[str], args: tuple[str | Path, ...]) -> list[str]:
    return [sys.executable, *program, *map(str, args)]


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
