"""One program in a folder of its own, driven by one process after another, each held at a point that is named.

`passed` is for the process: every point is a line in a file, and at the one that the test has named the process says so
through one pipe and waits at another. `Held` is for the test, which meets it there.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections import Counter
from pathlib import Path

from tests.support.forkserver import Child, ForkServer

PATIENCE = 30


def passed(point: str) -> None:
    """The process has come to a point."""
    with open(os.environ["HELD_CALLS"], "a", encoding="utf-8") as file:
        file.write(f"{point}\n")
    if point == os.environ.get("HELD_AT"):
        with open(os.environ["HELD_REACHED"], "w") as pipe:
            pipe.write("here")
        with open(os.environ["HELD_GATE"], "rb", buffering=0) as pipe:
            pipe.read(1)


class Held:
    """A folder, its store, and the processes that work there. ``job`` is what the fork server runs."""

    job: str

    def __init__(self, folder: Path, server: ForkServer) -> None:
        self.folder = folder
        self.server = server
        self.store = folder / "store.db"
        self.calls_file = folder / "calls.txt"
        for pipe in ("reached", "gate"):
            os.mkfifo(folder / pipe)
        # Opened for both, so that neither side hangs or sees an end if the other one dies.
        self.reached = os.open(folder / "reached", os.O_RDWR)
        self.gate = os.open(folder / "gate", os.O_RDWR)

    def close(self) -> None:
        os.close(self.reached)
        os.close(self.gate)

    def begin(self, *args: str, hold: str = "") -> Child:
        """Start a process; with ``hold``, return when it has come to that point."""
        environment = {
            "HELD_CALLS": str(self.calls_file), "HELD_AT": hold,
            "HELD_REACHED": str(self.folder / "reached"), "HELD_GATE": str(self.folder / "gate"),
        }  # fmt: skip
        child = self.server.start(
            self.job, args=[*args, "--store", str(self.store)], folder=str(self.folder),
            said=str(self._said(self.server.next)), environment=environment,
        )  # fmt: skip
        if hold:
            self._reach(child)
        return child

    def _reach(self, child: Child) -> None:
        end = time.monotonic() + PATIENCE
        while not select.select([self.reached], [], [], 0.05)[0]:
            assert child.is_alive(), self.said(child)
            assert time.monotonic() < end, "the point was never passed"
        assert os.read(self.reached, 100) == b"here"

    def release(self) -> None:
        os.write(self.gate, b"x")

    def ends(self, child: Child, *codes: int) -> str:
        """Wait for a process and see that it ended as it should."""
        assert child.wait(PATIENCE) in codes, self.said(child)
        return self.said(child)

    def said(self, child: Child) -> str:
        out = self._said(child.number)
        errors = Path(f"{out}.err")
        return out.read_text("utf-8") + (errors.read_text("utf-8") if errors.exists() else "")

    def _said(self, number: int) -> Path:
        return self.folder / f"said-{number}.txt"

    def kill(self, child: Child) -> None:
        child.signal(signal.SIGKILL)
        self.ends(child, -signal.SIGKILL)

    @property
    def calls(self) -> Counter[str]:
        return Counter(self.calls_file.read_text("utf-8").splitlines())
