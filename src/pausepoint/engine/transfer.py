"""The verbs that export a session to a file and import it. The module of the file is loaded when one is called."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from pausepoint.artifacts.folder import ArtifactFolder
from pausepoint.artifacts.notes import check_free
from pausepoint.definition.artifacts import OWN
from pausepoint.engine.base import Service
from pausepoint.model.ids import check_session_id
from pausepoint.model.views import SessionInfo

if TYPE_CHECKING:
    from pausepoint.engine.bundle import Bundle


class Transfer:
    """The verbs that export a session to a file and import it."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def export_session(self, session_id: str, path: str | Path | None = None) -> Bundle:
        """Export a session and its children as a `Bundle`; with ``path``, also write it to that file."""
        from pausepoint.engine import bundle

        self.service.check_open()
        found = await bundle.collect(self.service.store, check_session_id(session_id))
        if path is not None:
            await asyncio.to_thread(bundle.write, found, path)
        return found

    async def import_session(
        self, path: str | Path, *, session_id: str | None = None, folder: str | Path | None = None
    ) -> SessionInfo:
        """Import a session with its children from an exported file, and return its facts."""
        from pausepoint.engine import bundle

        self.service.check_open()
        found = await asyncio.to_thread(bundle.read, path)
        if session_id is not None and session_id != found.session_id:
            found = bundle.renamed(found, check_session_id(session_id))
        found = bundle.in_folder(found, folder)
        if folder is not None:
            await asyncio.to_thread(_check_free, Path(folder).absolute(), found.session_id)
        row = await bundle.import_(self.service.store, found)
        self.service.driver.on_change()  # it may be due
        return (await self.service.infos((row,)))[0]


def _check_free(folder: Path, session_id: str) -> None:
    """Check that an artifact folder does not belong to another session."""
    check_free(ArtifactFolder(folder).read(f"{OWN}/session.json"), folder, session_id)
