"""Run one program in its own folder, in one process after another, and interrupt each at a named point.

In the process: `as_program` runs a job of the fork server as a program, `watch` turns the calls of a function into
points, and `passed` is one point. Every point is a line in a file. At the point that the test names, the process
sends itself a signal, or reports through one pipe and waits at another. In the test: `Driven` makes processes send
themselves a signal, and `Held` makes them wait at a point.
"""

from __future__ import annotations

import functools
import inspect
import os
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tests.support.forkserver import Child, Forks
from tests.support.loop import PATIENCE
from tests.support.waits import until

ENDS = {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 130, signal.SIGTERM: 143}
"""The exit code of a program, by the signal that ended it."""


# for the process


@contextmanager
def as_program(module: str, args: Sequence[str], folder: str, said: str, environment: dict[str, str]) -> Iterator[None]:
    """Make the process look like ``python -m MODULE ARGS`` in a folder, with its output in files."""
    os.chdir(folder)
    sys.argv = [module, *args]
    sys.orig_argv = [sys.executable, "-m", module, *args]
    for name in [name for name in os.environ if name.startswith("PAUSEPOINT_")]:
        del os.environ[name]
    os.environ.update(environment)
    for number, path in ((1, said), (2, f"{said}.err")):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    try:
        yield
    finally:
        sys.stdout.flush()


def passed(point: str) -> None:
    """Note that the process reached a point."""
    folder = Path(os.environ["HELD_FOLDER"])
    with open(folder / "calls.txt", "a", encoding="utf-8") as file:
        file.write(f"{point}\n")
    if point != os.environ["HELD_AT"]:
        return
    if by := os.environ["HELD_BY"]:
        sys.stdout.flush()  # a killed process would take with it what it printed
        os.kill(os.getpid(), signal.Signals[by])
        return
    with open(folder / "reached", "w") as pipe:
        pipe.write("here")
    with open(folder / "gate", "rb", buffering=0) as pipe:
        pipe.read(1)


def watched(real: Callable[..., Any], called: Callable[..., object]) -> Callable[..., Any]:
    """Return a wrapper that calls ``called`` with the arguments before it calls the function."""

    @functools.wraps(real)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        called(*args)
        return real(*args, **kwargs)

    @functools.wraps(real)
    async def async_stand_in(*args: Any, **kwargs: Any) -> Any:
        called(*args)
        return await real(*args, **kwargs)

    return async_stand_in if inspect.iscoroutinefunction(real) else stand_in


def watch(owner: Any, function: str, name: str | Callable[..., str | None]) -> None:
    """Make every call of a function a point. If ``name`` is a function and returns None, the call is not a point."""

    def called(*args: Any) -> None:
        if (point := name(*args) if callable(name) else name) is not None:
            passed(point)

    setattr(owner, function, watched(getattr(owner, function), called))


# for the test


class Driven:
    """A folder, its store, and the processes that work there. ``job`` is the job that the fork server runs."""

    job: str
    variables: Mapping[str, str] = {}
    """What is added to the environment of the processes."""

    def __init__(self, folder: Path, forks: Forks) -> None:
        self.folder = folder
        self.server = forks(self.job.partition(":")[0])
        self.store = folder / "store.db"
        self.options = ["--store", str(self.store)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Close what the test holds open."""

    def begin(self, *args: str, at: str = "", by: signal.Signals | None = None) -> Child:
        """Start a process that sends itself the signal ``by`` at the point ``at``."""
        environment = {"HELD_FOLDER": str(self.folder), "HELD_AT": at, "HELD_BY": by.name if by else ""}
        return self.server.start(
            self.job, args=[*args, *self.options], folder=str(self.folder), said=str(self._said(self.server.next)),
            environment=environment | dict(self.variables),
        )  # fmt: skip

    def run(self, *args: str, at: str = "", by: signal.Signals = signal.SIGKILL, code: int = 0) -> str:
        """Run a process until it ends and check its exit code: that of the signal if ``at`` is set, else ``code``."""
        return self.ends(self.begin(*args, at=at, by=by), ENDS[by] if at else code)

    def ends(self, child: Child, *codes: int) -> str:
        """Wait for a process and check its exit code."""
        assert child.wait(PATIENCE) in codes, self.said(child)
        return self.said(child)

    def said(self, child: Child) -> str:
        return "".join(self.outputs(child))

    def outputs(self, child: Child) -> tuple[str, str]:
        """Return what the process wrote to standard output and standard error."""
        out = self._said(child.number)
        return out.read_text("utf-8"), Path(f"{out}.err").read_text("utf-8")

    def first_line(self, child: Child) -> str:
        """Wait until a process that goes on has written a line to standard output, and return it."""
        out = self._said(child.number)

        def line() -> str:
            assert child.is_alive(), self.said(child)
            return out.read_text("utf-8").partition("\n")[0] if out.exists() and "\n" in out.read_text("utf-8") else ""

        return until(line, "the process has written nothing")

    def _said(self, number: int) -> Path:
        return self.folder / f"said-{number}.txt"

    def kill(self, child: Child) -> None:
        child.signal(signal.SIGKILL)
        self.ends(child, -signal.SIGKILL)

    @property
    def order(self) -> list[str]:
        """Return the points that were passed, in order."""
        return (self.folder / "calls.txt").read_text("utf-8").splitlines()

    @property
    def calls(self) -> Counter[str]:
        """Return how often each point was passed."""
        return Counter(self.order)


class Held(Driven):
    """Like `Driven`, with processes that wait at a point until the test releases them."""

    def __init__(self, folder: Path, forks: Forks) -> None:
        super().__init__(folder, forks)
        for pipe in ("reached", "gate"):
            os.mkfifo(folder / pipe)
        # Opened for reading and writing, so that neither side hangs or sees an end of file if the other one dies.
        self.reached = os.open(folder / "reached", os.O_RDWR)
        self.gate = os.open(folder / "gate", os.O_RDWR)

    def __exit__(self, *exc: object) -> None:
        os.close(self.reached)
        os.close(self.gate)

    def begin(self, *args: str, at: str = "", by: signal.Signals | None = None) -> Child:
        """Start a process. With a point and without a signal, return when the process waits there."""
        child = super().begin(*args, at=at, by=by)
        if at and by is None:
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
