"""``ctx.artifact(path)``: an artifact as a step sees it while it runs.

A step publishes artifacts by returning values. Through its context it can find the path of a file, read a file that
was published earlier and, when it runs again because some of its files are missing, reuse the entries that remain.
"""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pausepoint.artifacts.folder import digest_of
from pausepoint.artifacts.publisher import Publisher, artifact_of, disk_trouble
from pausepoint.definition.artifacts import check_inside
from pausepoint.definition.functions import callee
from pausepoint.errors import FolderRefused, FolderUnavailable, StepError
from pausepoint.runtime.visit import Operation
from pausepoint.threads import in_thread

if TYPE_CHECKING:
    from pausepoint.runtime.context import Context

T = TypeVar("T")


class StepArtifact:
    """One artifact of the session, named by a file's path or by the pattern a step declares: ``"sections/*.md"``."""

    __slots__ = ("_ctx", "_path", "_publisher")

    def __init__(self, ctx: Context, path: str) -> None:
        ctx._visit.check_open()
        publisher = ctx._visit.host.publisher
        if publisher is None:
            raise StepError(
                f"Step {ctx._visit.step.name!r} used ctx.artifact, but no step of this workflow publishes artifacts."
                " Declare one with @step(publishes=Artifact(...))."
            )
        self._ctx, self._publisher, self._path = ctx, publisher, path

    @property
    def path(self) -> Path:
        """The file's path in the session's folder, whether or not the file exists yet."""
        return self._publisher.folder.path / check_inside(self._path)

    async def read(self) -> bytes:
        """Return the bytes of a published file.

        Raises `FolderRefused` if no step has published the file, or if it was changed or deleted since.
        """
        path = check_inside(self._path)
        return await self._from_disk(self._ctx._visit.uninterrupted(in_thread(_recorded, self._publisher, path)))

    async def spared(self) -> dict[str, Any]:
        """Return the entries that are still intact when this step runs again because some of its files are missing.

        Create the missing entries and return them together with these. In any other run the result is empty. The
        result is remembered like that of an operation.
        """
        step = self._ctx._visit.step
        artifact = artifact_of(step, self._path)
        operation = Operation(f"{self._ctx._frame.scope}/artifact.spared[{self._path}]", "artifact.spared", "", True)
        found: dict[str, str] = await self._from_disk(
            self._ctx._once(operation, callee(_spared), _spared, (self._publisher, step.name, self._path), {})
        )
        return {key: artifact.decoded(text.encode()) for key, text in found.items()}

    async def _from_disk(self, work: Awaitable[T]) -> T:
        """Await a read of the folder. If the disk fails, pause the session: that is not the step's failure."""
        try:
            return await work
        except FolderUnavailable as error:
            await self._ctx._visit.refuse(self._ctx._frame, "disk", disk_trouble(error).reason)
            raise


def _spared(publisher: Publisher, step: str, path: str) -> dict[str, str]:
    return publisher.spared(step, path)


def _recorded(publisher: Publisher, path: str) -> bytes:
    found = publisher.trail.files().get(path)
    if found is None:
        raise FolderRefused(
            f"No step of session {publisher.held.session_id!r} has published {path!r} yet. Read it in a later step.",
            session_id=publisher.held.session_id, path=path,
        )  # fmt: skip
    data = publisher.folder.read(path)
    if data is None or digest_of(data) != found[0].sha256:
        raise FolderRefused(
            f"File {path!r} was changed or deleted since step {found[1].step!r} published it. Pause the session and"
            " resume it: the resume checks all its files.",
            session_id=publisher.held.session_id, path=path,
        )  # fmt: skip
    return data
