"""Terminals of a real tmux: programs run in them, keys are typed, and what they show is filmed."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.gate.film import Film, Frame, Pane, plain, read_screen
from tests.support.loop import PATIENCE

HOW = "tmux is not installed. Install it with `apt-get install tmux`, or with `brew install tmux`."
SHELL = ("bash", "--norc", "--noprofile", "-i")
EVERY = 0.08
"""Seconds between two looks at the terminals."""

KEY = 0.045
"""Seconds between two keys."""


def find_tmux() -> str | None:
    """Return the path of tmux."""
    return shutil.which("tmux")


class Stage:
    """Several terminals, each a session of one tmux. It films them while its block lasts.

    The last pane is a shell. ``names`` are replaced in what is filmed: (from, to).
    """

    def __init__(
        self, folder: Path, environ: Mapping[str, str], panes: Sequence[Pane], names: Sequence[tuple[str, str]] = ()
    ) -> None:
        self.film = Film(panes)
        self._folder = folder
        self._environ = dict(environ)
        self._shell = panes[-1].name
        self._names = names
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._camera = threading.Thread(target=self._shoot, daemon=True)

    def __enter__(self) -> Self:
        for pane in self.film.panes:
            size = ["-x", str(pane.width), "-y", str(pane.height)]
            self._tmux("new-session", "-d", "-s", pane.name, *size, *SHELL if pane.name == self._shell else ("cat",))
            self._tmux("set-option", "-t", pane.name, "status", "off")
        self._began = time.monotonic()
        self._camera.start()
        self.wait(lambda: bool(self.film.frames), "tmux shows something")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._camera.join()
        self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-u", "-S", str(self._folder / "tmux.sock"), "-f", os.devnull, *words]
        done = subprocess.run(
            command, cwd=self._folder, env=self._environ, check=True, capture_output=True, encoding="utf-8"
        )
        return done.stdout

    def start(self, name: str, command: Sequence[str]) -> None:
        """Run a program in a terminal."""
        self._tmux("respawn-pane", "-k", "-t", name, *command)

    def type(self, line: str, fast: bool = False) -> float:
        """Type a line into the shell, as a person does unless it is ``fast``. Return when Enter was pressed."""
        for keys in [line] if fast else line:
            self._tmux("send-keys", "-t", self._shell, "-l", keys)
            time.sleep(0 if fast else KEY)
        pressed = time.time()
        self._tmux("send-keys", "-t", self._shell, "Enter")
        return pressed

    def mark(self, name: str) -> None:
        """Note that a part of the film begins now."""
        self.film.marks[name] = time.monotonic() - self._began

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition, for as long as `PATIENCE` allows."""
        limit = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > limit:
                last = {name: screen for frame in self.film.frames[-1:] for name, screen in frame.screens.items()}
                shown = "".join(f"\n--- {name}\n{plain(screen)}" for name, screen in last.items())
                raise TimeoutError(f"{PATIENCE} s were not enough for this: {what}.{shown}")
            time.sleep(0.02)

    def _shoot(self) -> None:
        """Film until the end. One command looks at all terminals, and says where the shell's cursor is."""
        cut = "=" * 20
        words = ["display-message", "-p", "-t", self._shell, "#{cursor_x} #{cursor_y}"]
        for pane in self.film.panes:
            words += [";", "display-message", "-p", cut, ";", "capture-pane", "-p", "-e", "-t", pane.name]
        while not self._stop.wait(EVERY):
            cursor, *texts = self._neutral(self._tmux(*words)).split(f"{cut}\n")
            screens = {pane.name: read_screen(text) for pane, text in zip(self.film.panes, texts, strict=True)}
            column, row = map(int, cursor.split())
            self.film.add(Frame(time.monotonic() - self._began, screens, (column, row)))

    def _neutral(self, text: str) -> str:
        for old, new in self._names:
            text = text.replace(old, new)
        return text
