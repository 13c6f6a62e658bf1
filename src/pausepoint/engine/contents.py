"""The content of artifacts: of the file in the folder, or the one that the log records."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pausepoint.artifacts.folder import ArtifactFolder, digest_of
from pausepoint.artifacts.notes import check_free
from pausepoint.artifacts.publisher import Past, Publisher
from pausepoint.definition.artifacts import LONGEST, OWN, unfit_file
from pausepoint.definition.workflow import Workflow
from pausepoint.errors import DefinitionError, FolderRefused, StepError, VerbRefused, did_you_mean
from pausepoint.log.replay import Line
from pausepoint.log.trail import PublishedFile, Trail, Work
from pausepoint.model.ids import shortened
from pausepoint.model.sessions import SessionRow
from pausepoint.threads import in_thread

if TYPE_CHECKING:
    from pausepoint.engine.base import Service

Version = Literal["present", "recorded"]
"""Which content of an artifact to read: that of the file in the folder, or the one that the log records."""


class UnheldSession:
    """A session without a hold, for the parts of `Publisher` that do not write to the log."""

    def __init__(self, service: Service, workflow: Workflow[Any], row: SessionRow, line: Line) -> None:
        self.session_id, self.row, self.line = row.session_id, row, line
        self.store, self.workflow, self.limits = service.store, workflow, service.sizes


async def check_past(service: Service, row: SessionRow, line: Line) -> None:
    """Raise an error if the files of a point in time are missing by now. Sessions without artifacts have none."""
    workflow = service.workflows.get(row.workflow)
    if line.trail is not None and workflow is not None:
        await Publisher(UnheldSession(service, workflow, row, line), line.trail).check_past()


async def content_of(service: Service, row: SessionRow, path: str, version: Version) -> bytes:
    """Return the content of one artifact of a session. See `Session.artifact`."""
    if version not in get_args(Version):
        raise ValueError(f"version must be 'present' or 'recorded', not {shortened(version)}.")
    if not isinstance(path, str):
        raise TypeError(f"path must be a string, not {type(path).__name__}: {path!r:.60}.")
    line = await service.timeline(row).line()
    if line.trail is None:
        raise no_artifacts(row)
    file, work = _published(row, line.trail, path)
    folder = ArtifactFolder(Path(line.trail.folder))
    if version == "present":
        return await in_thread(_present, folder, row.session_id, line.trail, path)
    data = await in_thread(_unchanged, folder, file)
    if data is not None:
        return data
    return await _made_again(UnheldSession(service, service.workflow_of(row), row, line), folder, file, work)


def no_artifacts(row: SessionRow) -> VerbRefused:
    """Return the error for a session whose workflow publishes nothing."""
    return VerbRefused(
        f"Session {row.session_id!r} has no artifacts, because no step of its workflow publishes any. Declare one with"
        " @step(publishes=Artifact(...)).",
        session_id=row.session_id, status=row.status.value,
    )  # fmt: skip


def _published(row: SessionRow, trail: Trail, path: str) -> tuple[PublishedFile, Work]:
    """Return the artifact at a path. Raises an error for any other path, so that no other file can be read."""
    files = trail.files()
    if path not in files or unfit_file(path):
        near = did_you_mean(path, files) if len(path) <= LONGEST else "."
        raise FolderRefused(
            f"Session {row.session_id!r} has no artifact {shortened(path)}{near} List them with artifacts().",
            session_id=row.session_id, path=path[:1000],
        )  # fmt: skip
    return files[path]


def _present(folder: ArtifactFolder, session_id: str, trail: Trail, path: str) -> bytes:
    """Return the content of the file in the folder, unless the folder belongs to another session by now."""
    check_free(folder.read(f"{OWN}/session.json"), folder.path, session_id, trail.rebuilt_from)
    data = folder.read(path)
    if data is None:
        raise FolderRefused(
            f"Artifact {path!r} is missing in {folder.path}. Write it again with restore(), or read it with"
            " version='recorded'.",
            session_id=session_id, path=path,
        )  # fmt: skip
    return data


def _unchanged(folder: ArtifactFolder, file: PublishedFile) -> bytes | None:
    """Return the recorded content, if the folder has it: as the file itself, or as the text of an accepted edit."""
    with suppress(FolderRefused):  # the log has the content, whatever is wrong with the folder
        data = folder.read(file.path)
        if data is not None and digest_of(data) == file.sha256:
            return data
    with suppress(FolderRefused):
        return folder.kept_edit(file.sha256)
    return None


async def _made_again(held: UnheldSession, folder: ArtifactFolder, file: PublishedFile, work: Work) -> bytes:
    try:
        return await Past(held, folder).content_of(file, work.step)
    except (StepError, DefinitionError) as error:
        raise FolderRefused(
            f"The recorded content of {file.path!r} cannot be made again, because this code does not publish it:"
            f" {str(error).rstrip('.')}. Read it with version='present', or run the code that published it.",
            session_id=held.session_id, path=file.path,
        ) from error  # fmt: skip
