"""``ctx.artifact(path)``: an artifact as a step sees it while it runs.

A step writes its artifacts by returning values. What it may want to know is where a file lies, what is in one that was
left before, and, if it runs again because some of its files are gone, which entries it need not make again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from pausepoint.artifacts.folder import digest_of
from pausepoint.artifacts.publisher import Desk, artifact_of
from pausepoint.definition.artifacts import check_inside
from pausepoint.definition.functions import callee
from pausepoint.errors import FolderRefused, StepError
from pausepoint.runtime.fanout import Runner
from pausepoint.runtime.visit import Operation
from pausepoint.threads import in_thread


class StepArtifact:
    """One artifact of the session, by the path of a file, or the one that the step declares: ``"sections/*.md"``."""

    __slots__ = ("_ctx", "_desk", "_path")

    def __init__(self, ctx: Runner, path: str) -> None:
        ctx._visit.check_open()
        desk = ctx._visit.host.desk
        if desk is None:
            raise StepError(f"{ctx._visit.step.name}: the session has no folder; none of its steps leaves artifacts")
        self._ctx, self._desk, self._path = ctx, desk, path

    @property
    def path(self) -> Path:
        """Where the file lies, or will."""
        return self._desk.shelf.path / check_inside(self._path)

    async def read(self) -> bytes:
        """What is recorded of a file that a step has left. `FolderRefused` if the file is not there as it was left."""
        return await self._ctx._visit.busily(in_thread(_recorded, self._desk, check_inside(self._path)))

    async def spared(self) -> dict[str, Any]:
        """If this step runs again because files of it are missing: the entries that are still there and good.

        Otherwise empty. Remembered, as an operation is: make the other entries and return both.
        """
        step = self._ctx._visit.step
        artifact = artifact_of(step, self._path)
        operation = Operation(f"{self._ctx._frame.scope}/artifact.spared[{self._path}]", "artifact.spared", "", True)
        found: dict[str, str] = await self._ctx._once(
            operation, callee(_spared), _spared, (self._desk, step.name, self._path), {}
        )
        return {key: artifact.decoded(text.encode()) for key, text in found.items()}


def _spared(desk: Desk, step: str, path: str) -> dict[str, str]:
    return desk.spared(step, path)


def _recorded(desk: Desk, path: str) -> bytes:
    found = desk.trail.files().get(path)
    if found is None:
        raise FolderRefused(
            f"no step of this session has left {path!r} yet", session_id=desk.held.session_id, path=path
        )
    data = desk.shelf.read(path)
    if data is None or digest_of(data) != found[0].sha256:
        raise FolderRefused(
            f"{path} is not as {found[1].step} left it; pause the session, then resume it, which looks into that",
            session_id=desk.held.session_id, path=path,
        )  # fmt: skip
    return data


class BlockingStepArtifact:
    """The same for a ``def`` step."""

    __slots__ = ("_artifact", "_wait")

    def __init__(self, artifact: StepArtifact, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._artifact = artifact
        self._wait = wait

    @property
    def path(self) -> Path:
        """See `StepArtifact.path`."""
        return self._artifact.path

    def read(self) -> bytes:
        """See `StepArtifact.read`."""
        data: bytes = self._wait(self._artifact.read())
        return data

    def spared(self) -> dict[str, Any]:
        """See `StepArtifact.spared`."""
        found: dict[str, Any] = self._wait(self._artifact.spared())
        return found
