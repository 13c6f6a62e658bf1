"""Sessions that move between stores, each as one file. What writes and reads it is imported when it is used."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from pausepoint.ids import check_session_id
from pausepoint.outcome import SessionInfo
from pausepoint.reading import Reading

if TYPE_CHECKING:
    from pausepoint.bundle import Bundle


class Transfer(Reading):
    """The verbs that write a session to a file and read it from one."""

    async def export_session(self, session_id: str, path: str | Path) -> Bundle:
        """Write a session, and those that it called, to one file; what is written comes back.

        Works in any status and changes nothing. A file that is there is replaced, and never left half written.
        """
        from pausepoint import bundle

        self._check_open()
        found = await bundle.collect(self.store, check_session_id(session_id))
        await asyncio.to_thread(bundle.write, found, path)
        return found

    async def exported(self, session_id: str) -> bytes:
        """What `export_session` would write."""
        from pausepoint import bundle

        self._check_open()
        return bundle.to_bytes(await bundle.collect(self.store, check_session_id(session_id)))

    async def import_session(self, path: str | Path, *, session_id: str | None = None) -> SessionInfo:
        """Take in a session from such a file, as it was then; nobody drives it until it is resumed, or due.

        Everything in the file is proved first (`DamagedRecord`). ``session_id``: under another id than its own. An id
        that is taken is an `InputConflict`, and nothing is stored.
        """
        from pausepoint import bundle

        self._check_open()
        found = await asyncio.to_thread(bundle.read, path)
        if session_id is not None and session_id != found.session_id:
            found = bundle.renamed(found, check_session_id(session_id))
        row = await bundle.restore(self.store, found)
        self.driver.on_change()  # it may be due
        return self._info(row)
