"""The first ten minutes, typed into two shells as the page says."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.pages import DOCS, EXAMPLES
from tests.support.loop import PATIENCE

PAGE = DOCS / "start.md"
KEYS = {"^C": b"\x03", "^D": b"\x04", "^Z": b"\x1a"}
SLEEP = "    await asyncio.sleep(2)  # a service that takes its time\n"
GATE = """\
    while not Path("ended", question).exists():
        await asyncio.sleep(0.01)
"""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


class Line(NamedTuple):
    """A line of a console: a command, a key, or a text that appears."""

    terminal: str
    text: str


def lines() -> Iterator[Line]:
    found = re.findall(
        r"^```console(?: title=\"(.*?)\")?\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    return (Line(title, text) for title, block in found for text in block.splitlines())


class Shell:
    """An interactive bash at a terminal of its own."""

    def __init__(self, folder: Path, terminal: int, process: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self.terminal = terminal
        self.process = process
        self.shown = ""
        self.read_to = 0

    def type(self, text: bytes) -> None:
        os.write(self.terminal, text)

    def until(self, text: str) -> str:
        """Wait until the text appears below what was awaited before, and return the line with it."""
        end = time.monotonic() + PATIENCE
        while (found := self.shown.find(text, self.read_to)) < 0 or "\n" not in self.shown[found:]:
            assert time.monotonic() < end, f"{text!r} did not appear, but: {self.shown[self.read_to :][-1500:]!r}"
            self._read()
        self.read_to = found + len(text)
        return self.shown[found:].partition("\n")[0]

    def _read(self) -> None:
        if select.select([self.terminal], [], [], 0.1)[0]:
            self.shown += _ESCAPES.sub("", os.read(self.terminal, 65536).decode("utf-8", "replace"))


@contextmanager
def shell(folder: Path) -> Iterator[Shell]:
    own, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PAUSEPOINT_")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    process = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "--noediting", "-i"], cwd=folder, stdin=other, stdout=other, stderr=other,
        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        env=kept | {"PATH": path, "TERM": "xterm", "PS1": "at the prompt\n", "HISTFILE": "/dev/null"},
    )  # fmt: skip
    os.close(other)
    try:
        yield Shell(folder, own, process)
    finally:
        os.killpg(process.pid, signal.SIGHUP)
        process.kill()
        process.wait(PATIENCE)
        os.close(own)


def ended(folder: Path, looked_up: str) -> None:
    """Let a look-up end."""
    (folder / "ended" / looked_up).touch()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash, for its job control")
def test_the_first_ten_minutes_are_as_the_page_says(tmp_path: Path) -> None:
    """A look-up ends when the page shows a line after it, so the test never depends on how long it takes."""
    text = (EXAMPLES / "researcher.py").read_text("utf-8")
    assert text.count(SLEEP) == 1
    text = text.replace(SLEEP, GATE).replace("import asyncio\n", "import asyncio\nfrom pathlib import Path\n")
    (tmp_path / "researcher.py").write_text(text)
    (tmp_path / "ended").mkdir()
    typed, looked_up, appeared, fresh = 0, "", "", False
    with ExitStack() as stack:
        shells = {name: stack.enter_context(shell(tmp_path)) for name in ("", "second terminal")}
        for terminal, line in lines():
            here = shells[terminal]
            if line.startswith("$ "):
                command = line.removeprefix("$ ").replace("pausepoint serve", "pausepoint serve --port 0")
                here.type(command.encode() + b"\n")
                here.until(command)
                typed, fresh = typed + 1, True
            elif line in KEYS:
                here.type(KEYS[line])
                fresh = True
            else:
                if looked_up and not fresh:
                    ended(tmp_path, looked_up)
                appeared = here.until(line.partition("…")[2] or line.partition("7333")[0])
                looked_up = line.removeprefix("looking up ") if line.startswith("looking up ") else looked_up
                fresh = False
        assert typed == 11
        address = "http://127.0.0.1:" + re.split(r"[:/#]+", appeared)[2]
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            assert b"<title>" in answer.read()
        shells[""].type(KEYS["^C"])
        shells[""].until("at the prompt")
