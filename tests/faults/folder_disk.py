"""Run a session whose artifact folder is on a disk that is full or failing at a chosen file call.

The fault is in the module `os` as the code of the folder sees it. The store is in memory, so no call of it is hit.
``python -m tests.faults.folder_disk`` lets every call fail; the suite samples them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

import pausepoint.artifacts.folder
import pausepoint.stores.disk
from pausepoint import Artifact, Context, Engine, Outcome, Session, Workflow, step
from pausepoint.artifacts import detect
from pausepoint.definition.artifacts import OWN
from pausepoint.errors import FolderRefused
from tests.faults.tally import Tally, main

READS = ("open", "read", "stat", "fstat", "listdir")
CASES = [(errno.ENOSPC, False), (errno.ENOSPC, True), (errno.EIO, False), (errno.EIO, True)]
"""The error number, and whether it lasts."""

WRITES = ("write", "fsync", "fchmod", "mkdir", "rename", "unlink", "open")


class Disk:
    """The module `os`, whose ``at``-th file call fails with ``code``, once or from then on.

    Only calls that write fail with ENOSPC. ``fired`` counts the failed calls.
    """

    def __init__(self, at: int = 0, code: int = errno.EIO, lasting: bool = False) -> None:
        self.at, self.code, self.lasting = at, code, lasting
        self.calls = self.fired = self.healed_at = 0

    def heal(self) -> None:
        self.at, self.healed_at = 0, self.calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        counted = name in WRITES or (name in READS and self.code == errno.EIO)
        return self._counted(name, found) if counted else found

    def _counted(self, name: str, act: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.code == errno.ENOSPC and name == "open" and not args[1] & os.O_CREAT:
                return act(*args, **kwargs)
            self.calls += 1
            if self.at and (self.calls >= self.at if self.lasting else self.calls == self.at):
                self.fired += 1
                raise OSError(self.code, os.strerror(self.code))
            return act(*args, **kwargs)

        return call


@contextmanager
def in_use(disk: Any) -> Iterator[None]:
    """Let the folder's code use this disk."""
    modules: tuple[Any, ...] = (pausepoint.stores.disk, pausepoint.artifacts.folder)
    for module in modules:
        module.os = disk
    try:
        yield
    finally:
        for module in modules:
            module.os = os


class Notes(BaseModel):
    first: str = ""
    parts: dict[str, str] = {}


RUNS: list[str] = []


@step(writes="first", publishes=Artifact("first.md", min_bytes=1))
async def begin() -> str:
    RUNS.append("begin")
    return "The first text.\n"


@step(writes="parts", publishes=Artifact("parts/*.md", min_bytes=1))
async def divide(first: str, ctx: Context) -> dict[str, str]:
    there = await ctx.artifact("parts/*.md").spared()
    await ctx.artifact("first.md").read()
    RUNS.append("divide")
    return {"a": "Part a.\n", "b": "Part b.\n"} | there


notes = Workflow("notes", state=Notes, steps=[begin, divide])
FILES = {"first.md": "The first text.\n", "parts/a.md": "Part a.\n", "parts/b.md": "Part b.\n"}


class Seen(NamedTuple):
    """What happened: the errors and pauses that the caller saw, and the events of the session."""

    refusals: list[BaseException]
    pauses: list[str]
    events: list[str]
    fired: int


async def live(folder: Path, disk: Disk) -> Seen:
    """Run the session on this disk, repair the disk, and resume the session until it is completed."""
    RUNS.clear()
    refusals: list[BaseException] = []
    pauses: list[str] = []

    async def act(engine: Engine) -> Outcome[Any] | None:
        try:
            session = await engine.start(notes, session_id="s1", folder=folder / "deep" / "output")
            return await _outcome(session, pauses)
        except (FolderRefused, OSError) as error:
            refusals.append(error)
            return None

    with in_use(disk):
        async with Engine(":memory:", workflows=[notes], signals=False) as engine:
            for _ in range(2):  # the second time, the session is resumed on the same disk
                await act(engine)
            disk.heal()
            outcome = await act(engine)
            with suppress(FolderRefused):
                outcome = await _outcome(await engine.session("s1").resume(), pauses)
            assert outcome is not None, f"{refusals!r}"
            assert outcome.status.value == "completed", f"{outcome!r} after {refusals!r}"
            assert {each.state for each in await engine.session("s1").artifacts()} == {"valid"}
            events = [each.event_type async for each in engine.session("s1").events()]
    found = {path: (folder / "deep" / "output" / path).read_text() for path in FILES}
    assert found == FILES
    assert detect(folder / "deep" / "output", notes).complete
    staged = folder / "deep" / "output" / OWN / "staged"
    assert not [each for each in staged.iterdir() if not each.name.startswith(".")]
    return Seen(refusals, pauses, events, disk.fired)


async def _outcome(session: Session[Any], pauses: list[str]) -> Outcome[Any]:
    outcome = await session.outcome()
    assert outcome.status.value in ("completed", "paused"), f"{outcome.failure}"
    pauses += [f"{each.kind}: {each.reason}" for each in outcome.pauses]
    return outcome


def verdict(seen: Seen) -> list[str]:
    """Return everything that is wrong with a run whose disk failed."""
    wrong = [f"{RUNS} ran"] if sorted(RUNS) != ["begin", "divide"] else []
    wrong += [f"bare {error!r}" for error in seen.refusals if not isinstance(error, FolderRefused)]
    wrong += [
        f"{error!r} names no path or no error number"
        for error in seen.refusals
        if isinstance(error, FolderRefused) and not (error.path and error.errno)
    ]
    wrong += [f"event {each}" for each in seen.events if each in ("step.retried", "session.failed")]
    wrong += [pause for pause in seen.pauses if not pause.startswith("disk: ") or "then resume" not in pause]
    return wrong if seen.fired else [*wrong, "the fault did not fire"]


Sweep = tuple[int, dict[int, list[str]]]


def sweep(path: Path, code: int, lasting: bool, first: int = 1, stride: int = 1) -> Sweep:
    """Run the session once for each file call that fails. Return how often, and what went wrong."""
    whole = Disk(code=code)
    asyncio.run(live(path / "whole", whole))
    wrong: dict[int, list[str]] = {}
    calls = range(first, whole.healed_at + 1, stride)
    for at in calls:
        try:
            found = verdict(asyncio.run(live(path / str(at), Disk(at, code, lasting))))
        except AssertionError as error:
            found = [str(error)]
        if found:
            wrong[at] = found
    return len(calls), wrong


def run(tally: Tally) -> None:
    """Let every file call fail in every way. This ends by itself; the time limit does not apply."""
    for code, lasting in CASES:
        with tempfile.TemporaryDirectory() as folder:
            tried, wrong = sweep(Path(folder), code, lasting)
        tally.done["calls that failed"] += tried
        for at, found in wrong.items():
            tally.fail(f"{errno.errorcode[code]} {'from' if lasting else 'at'} call {at}: {'; '.join(found)}")


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
