"""Named points in a program at which a test triggers an action: a kill, a signal, a stop, a wait at a gate.

Every point that is passed and every piece of work that begins is one line in the run file of a trial. The file is
opened with O_APPEND, so it collects the lines of several processes and survives their death.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

Action = Literal["kill", "term", "int", "stop", "gate", "hang"]

_SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT, "stop": signal.SIGSTOP}


class Points:
    """The points of this process. They do nothing until one is armed or a run file is set."""

    def __init__(self) -> None:
        self.point = ""
        self.action: Action = "kill"
        self.gate = ""
        self.say: Callable[[dict[str, Any]], None] = lambda message: None
        self._file = -1

    def arm(self, point: str, action: Action, gate: str = "") -> None:
        """Trigger ``action`` the first time that ``point`` is passed."""
        self.point, self.action, self.gate = point, action, gate

    def write_to(self, path: Path) -> None:
        """Write the run file of this trial to ``path``."""
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, what: str, name: str) -> None:
        """Add a line to the run file."""
        if self._file >= 0:
            os.write(self._file, f"{os.getpid()} {what} {name}\n".encode())

    def hit(self, point: str) -> None:
        """Pass a point."""
        self.note("hit", point)
        if self._fires(point):
            self._act(point)

    def enter(self, label: str) -> None:
        """Begin a piece of work in a thread."""
        self.note("run", label)
        fires = point_armed(self, label)
        self.hit(label)
        if fires:
            time.sleep(0.003)  # lets the loop see the signal before the work ends

    async def begin(self, label: str) -> None:
        """Begin a piece of work on the loop, and let the loop run other tasks in the middle of it."""
        self.note("run", label)
        if self.action == "hang" and self._fires(label):
            self.note("hit", label)
            self.say({"at": label})
            await asyncio.Event().wait()
        self.hit(label)
        for _ in range(5):
            await asyncio.sleep(0)

    def _fires(self, point: str) -> bool:
        if point != self.point:
            return False
        self.point = ""
        return True

    def _act(self, point: str) -> None:
        number = _SIGNALS.get(self.action)
        if number is not None:
            os.kill(os.getpid(), number)
            return
        self.say({"at": point})
        wait_at(self.gate)


def point_armed(points: Points, point: str) -> bool:
    """Return whether an action is armed at ``point``."""
    return points.point == point


def wait_at(gate: str) -> None:
    """Wait until another process opens the named pipe for writing."""
    with open(gate, "rb"):
        pass


points = Points()
