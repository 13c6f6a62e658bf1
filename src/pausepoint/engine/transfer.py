"""The verbs that export a session to a file and import it. The module of the file is loaded when one is called."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from pausepoint.artifacts.folder import ArtifactFolder
from pausepoint.artifacts.notes import check_free
from pausepoint.definition.artifacts import OWN
from pausepoint.engine.queries import Queries
from pausepoint.model.ids import check_session_id
from pausepoint.model.views import SessionInfo

if TYPE_CHECKING:
    from pausepoint.engine.bundle import Bundle


class Transfer(Queries):
    """The verbs that export a session to a file and import it."""

    async def export_session(self, session_id: str, path: str | Path | None = None) -> Bundle:
        """Export a session and its children as a `Bundle`; with ``path``, also write it to that file.

        The session may have any status and is not changed. An existing file is replaced atomically. Without a path,
        `Bundle.to_bytes` returns the content of the file.
        """
        from pausepoint.engine import bundle

        self._check_open()
        found = await bundle.collect(self.store, check_session_id(session_id))
        if path is not None:
            await asyncio.to_thread(bundle.write, found, path)
        return found

    async def import_session(
        self, path: str | Path, *, session_id: str | None = None, folder: str | Path | None = None
    ) -> SessionInfo:
        """Import a session with its children from an exported file, and return its facts.

        The session is as it was at the export. It runs when it is resumed or becomes due. Pass ``session_id`` to import
        it under another id.

        A session that publishes artifacts needs a ``folder`` for them on this machine; the folder in the file is not
        used. Copy the artifact files there before the import, or write them again afterwards with `restore`.

        The file may come from anyone: every name in it is checked, and nothing outside of the store is written.

        Raises `DamagedRecord` if the file is damaged or names something that could lead out of the store,
        `InputConflict` if the id exists, and `FolderRefused` if the folder is missing or belongs to another session.
        Nothing is stored then.
        """
        from pausepoint.engine import bundle

        self._check_open()
        found = await asyncio.to_thread(bundle.read, path)
        if session_id is not None and session_id != found.session_id:
            found = bundle.renamed(found, check_session_id(session_id))
        found = bundle.in_folder(found, folder)
        if folder is not None:
            await asyncio.to_thread(_check_free, Path(folder).absolute(), found.session_id)
        row = await bundle.import_(self.store, found)
        self.driver.on_change()  # it may be due
        return (await self._infos((row,)))[0]


def _check_free(folder: Path, session_id: str) -> None:
    """Check that an artifact folder does not belong to another session."""
    check_free(ArtifactFolder(folder).read(f"{OWN}/session.json"), folder, session_id)
