"""Jobs of processes that are killed while they write artifacts: see `tests.support.forkserver`."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pausepoint.artifacts.folder
import pausepoint.stores.disk
from pausepoint.artifacts.folder import ArtifactFolder, mark
from tests.artifacts.pipeline import Desk, calls
from tests.support.forkserver import say

OUTLINE = ["01-intro", "02-team"]

WRITES = ("write", "rename", "fsync", "mkdir", "unlink")


class Mortal:
    """The module `os` with a counter of writes. The process dies before the n-th write."""

    def __init__(self, dies_at: int) -> None:
        self.left = dies_at
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return self._counted(found) if name in WRITES else found

    def _counted(self, act: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.count == self.left:
                os.kill(os.getpid(), signal.SIGKILL)
            return act(*args, **kwargs)

        return counted


def warm_up() -> None:
    """Run the session once: what is made on first use is then there in every fork."""
    with TemporaryDirectory() as folder:
        asyncio.run(Desk(Path(folder)).run(outline=OUTLINE))


def live(path: str, dies_at: int, edits: str | None, broken: str) -> None:
    """Start or resume the session, and die meanwhile."""
    mortal = Mortal(dies_at)
    pausepoint.stores.disk.os = pausepoint.artifacts.folder.os = mortal  # type: ignore[attr-defined,assignment]
    if broken:
        BROKEN[broken]()
    desk = Desk(Path(path))
    calls.file = Path(path) / "calls"
    outcome = asyncio.run(desk.resume(edits=edits, by="ada") if edits else desk.run(outline=OUTLINE))
    say({"status": outcome.status.value, "writes": mortal.count})


# deliberately broken code


def _half_files() -> None:
    """Write the content under the final name, in two pieces."""

    def publish(self: ArtifactFolder, path: str, digest: str, ours: Any) -> str:
        disk: Mortal = vars(pausepoint.artifacts.folder)["os"]
        data = self.read(f".pausepoint/staged/{mark(path, digest)}") or b""
        target = self.path / path
        target.parent.mkdir(exist_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
            disk.write(descriptor, piece)
        os.close(descriptor)
        disk.unlink(self.path / ".pausepoint" / "staged" / mark(path, digest))
        return ""

    ArtifactFolder.publish = publish  # type: ignore[method-assign]


def _too_early() -> None:
    """Publish a staged file before anything is recorded."""
    stage = ArtifactFolder.stage

    def early(self: ArtifactFolder, path: str, data: bytes) -> str:
        digest = stage(self, path, data)
        self.publish(path, digest, ())
        return digest

    ArtifactFolder.stage = early  # type: ignore[method-assign]


def _forgotten() -> None:
    """Discard the files that were staged when the process died."""
    ArtifactFolder.staged = lambda self: set()  # type: ignore[method-assign]


BROKEN = {"half files": _half_files, "too early": _too_early, "forgotten": _forgotten}
