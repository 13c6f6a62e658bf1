"""Record the gate for README and docs:  python -m tests.gate.recording FOLDER

Fake agents work in terminals of a real tmux, with the hooks that `pausepoint gate install` writes. A shell pauses all
of them, lists them and resumes them. The recording is written to ``gate.cast`` and ``gate.svg``, if it proves what it
shows: no call begins between the end of `pause --wait` and the resume, and each call is made once.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from socket import gethostname
from typing import NamedTuple

from tests.gate.animation import animated_svg
from tests.gate.film import Film, Pane, asciicast, plain
from tests.gate.show_agent import CALLS, EFFECTS, ENDED, HURRY, PATIENT, STORIES, WAITS, effects_of
from tests.gate.stage import HOW, Stage, find_tmux
from tests.support.children import ROOT

WIDTH, HEIGHT = 34, 7
"""Columns and lines of an agent's terminal."""

STRIP = 16
"""Lines of the shell."""

SHELL = "any terminal of the project"
TITLE = "Six agents, one pause: all wait at the gate until they are resumed"
MOST = 200_000
"""Bytes that the picture may have."""

PARTS = {
    "work": 4.0,
    "pause": 5.5,
    "paused": 2.5,
    "list": 2.5,
    "listed": 2.5,
    "resume": 3.0,
    "resumed": 4.5,
    "end": 1.5,
}
"""The parts of the recording, and the most seconds that each one lasts in it."""


class Effect(NamedTuple):
    """A call that was made: its name, and when it began."""

    name: str
    at: float


class NotProven(Exception):
    """The recording does not show what it should. Nothing was written."""


def check(effects: Sequence[Effect], expected: Sequence[str], paused_at: float, resumed_at: float) -> None:
    """Raise `NotProven` if a call began while everything was paused, or was not made exactly once."""
    late = [each.name for each in effects if paused_at < each.at < resumed_at]
    if late:
        raise NotProven(f"Calls began while everything was paused: {', '.join(late)}.")
    counted = Counter(each.name for each in effects)
    wrong = [f"{name} {counted[name]} times" for name in {*expected, *counted} if counted[name] != (name in expected)]
    if wrong:
        raise NotProven(f"Each call has to be made once, but was made: {', '.join(sorted(wrong))}.")
    if not any(each.at > resumed_at for each in effects) or not any(each.at < paused_at for each in effects):
        raise NotProven("The pause did not come in the middle of the work.")


def layout(names: Sequence[str]) -> list[Pane]:
    """Return the terminals: three in a row, each below a line with its name, and the shell."""
    found = [Pane(name, n % 3 * (WIDTH + 1), 1 + n // 3 * (HEIGHT + 1), WIDTH, HEIGHT) for n, name in enumerate(names)]
    below = max(pane.top + pane.height for pane in found)
    return [*found, Pane(SHELL, 0, below + 1, 3 * WIDTH + 2, STRIP)]


class Play:
    """A project in a temporary folder, its agents, and what happens to them.

    ``hold`` are the seconds to look at what is shown. With 0, everything is as fast as it can be.
    """

    def __init__(
        self, home: Path, names: Sequence[str] = tuple(STORIES), calls: int = CALLS, hold: float = 2.0
    ) -> None:
        self.project = home / "shop"
        self.ended = home / "ended"
        self.names = names
        self.calls = calls
        self.hold = hold
        self.project.mkdir()
        if not hold:
            (self.project / PATIENT).touch()
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environ = {
            "HOME": str(home), "LOGNAME": "ann", "PATH": programs, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
            "XDG_RUNTIME_DIR": str(home), "LANG": "C.UTF-8", "TERM": "xterm-256color", "PS1": "$ ",
            "PROMPT_COMMAND": f"echo $? >> {self.ended}",
        }  # fmt: skip

    def record(self) -> Film:
        """Play it, and return the film."""
        self._run("gate", "install", "claude", "--yes")
        names = [(str(self.project), "~/shop"), (f"on {gethostname()}", "on laptop")]
        with self._served(), Stage(self.project, self.environ, layout(self.names), names) as stage:
            for name in self.names:
                program = [sys.executable, "-m", "tests.gate.show_agent"]
                stage.start(name, [*program, name, "--calls", str(self.calls)])
            stage.wait(lambda: bool(self._codes and self.effects), "the shell has a prompt, and an agent works")
            stage.mark("work")
            stage.wait(self._are_at_work, "each agent has made a call, and all of them a third of their calls")
            self._act(stage)
        return stage.film

    def _act(self, stage: Stage) -> None:
        stage.mark("pause")
        _, paused_at = self._typed(stage, "pausepoint pause --all --wait --reason lunch")
        stage.mark("paused")
        stage.wait(lambda: self._all_show(stage, WAITS), "each agent waits at the gate; a busy machine is too late")
        time.sleep(self.hold)
        stage.mark("list")
        self._typed(stage, "pausepoint ls")
        stage.mark("listed")
        time.sleep(self.hold)
        stage.mark("resume")
        if not self.hold:
            (self.project / HURRY).touch()
        resumed_at, _ = self._typed(stage, "pausepoint resume --all")
        stage.mark("resumed")
        stage.wait(lambda: self._all_show(stage, ENDED), "each agent ends")
        stage.mark("end")
        time.sleep(self.hold)
        expected = [effect for name in self.names for effect in effects_of(name, self.calls)]
        check(self.effects, expected, paused_at, resumed_at)

    def _typed(self, stage: Stage, line: str) -> tuple[float, float]:
        """Type a command, and return when it began and when it had ended."""
        before = len(self._codes)
        began = stage.type(line, fast=not self.hold)
        stage.wait(lambda: len(self._codes) > before, f"`{line}` ends")
        if self._codes[-1] != "0":
            shown = plain(stage.film.frames[-1].screens[SHELL])
            raise NotProven(f"`{line}` has ended with {self._codes[-1]}.\n{shown}")
        return began, self.ended.stat().st_mtime

    def _all_show(self, stage: Stage, text: str) -> bool:
        screens = stage.film.frames[-1].screens
        return all(text in plain(screens[name]) for name in self.names)

    def _are_at_work(self) -> bool:
        made = {each.name for each in self.effects}
        return 3 * len(made) >= len(self.names) * self.calls and all(f"{name}-1" in made for name in self.names)

    @property
    def _codes(self) -> list[str]:
        """The exit code of each command of the shell. The first prompt counts as one."""
        return _lines(self.ended)

    @property
    def effects(self) -> list[Effect]:
        """The calls that were made."""
        return [Effect(name, float(at)) for name, at in map(str.split, _lines(self.project / EFFECTS))]

    def _run(self, *words: str) -> None:
        command = [sys.executable, "-m", "pausepoint", *words]
        subprocess.run(command, cwd=self.project, env=self.environ, check=True, capture_output=True)

    @contextmanager
    def _served(self) -> Iterator[None]:
        command = [sys.executable, "-m", "pausepoint", "gate", "serve"]
        with subprocess.Popen(
            command, cwd=self.project, env=self.environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as server:
            try:
                if server.stderr is None or not server.stderr.readline():  # a line says that it listens
                    raise NotProven("`pausepoint gate serve` has ended.")
                yield
            finally:
                server.send_signal(signal.SIGINT)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def write(film: Film, folder: Path) -> None:
    """Write the recording as a file of asciinema, and as a picture that moves."""
    trimmed = film.trimmed(PARTS)
    picture = animated_svg(trimmed, trimmed.marks["list"] - 0.1, TITLE)
    if len(picture.encode()) > MOST:
        raise NotProven(f"The picture has {len(picture.encode()):,} bytes, more than {MOST:,}. Show less in it.")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gate.cast").write_text(asciicast(trimmed, TITLE), encoding="utf-8")
    (folder / "gate.svg").write_text(picture, encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gate.recording", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args(arguments).folder
    if find_tmux() is None:
        raise SystemExit(HOW)
    with tempfile.TemporaryDirectory(prefix="gate-", dir="/tmp", ignore_cleanup_errors=True) as home:
        film = Play(Path(home)).record()
    write(film, folder)
    for name in ("gate.cast", "gate.svg"):
        print(f"{name}: {(folder / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
