"""The flag file of a store on a disk: it exists while everything is paused.

The hook of an agent looks at it when no server of its gate runs. Engines look at it, too, because it is written before
the pause is stored: while another process keeps the database locked, it is the only sign of the request. From then on
the store is the truth, and the file follows it.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from pausepoint.model.sessions import Pause

Version = tuple[int, int] | None


class PauseFlag:
    """The flag file of one store. Any thread may use it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = os.fspath(path)
        self._read: tuple[Version, Pause | None] = (None, None)

    def version(self) -> Version:
        """Return a value that changes with the file; None if there is none. Takes a microsecond then."""
        if not os.access(self._name, os.F_OK):
            return None
        try:
            found = os.stat(self._name)
        except OSError:  # it was just removed
            return None
        return found.st_ino, found.st_mtime_ns

    def request(self) -> Pause | None:
        """Return the pause that was requested and is not known to be stored; None if there is none."""
        version = self.version()
        if version is None:
            return None
        if version != self._read[0]:
            self._read = version, _request_in(self.path)
        return self._read[1]

    def fulfil(self, request: Pause) -> None:
        """Note that a request in the file is stored."""
        version, found = self._read
        if found is request:
            self._read = version, None

    def ask(self, pause: Pause) -> None:
        """Write a request that is not stored yet. Raises `OSError`."""
        how = {"id": pause.id, "at": pause.created_at, "mode": pause.mode, "freeze": pause.freeze}
        self._write({**_told(pause), "request": how})

    def show(self, pause: Pause) -> None:
        """Write the pause that is in effect. Raises `OSError`."""
        self._write(_told(pause))

    def remove(self) -> None:
        """Delete the file. Raises `OSError`; a missing file is not an error."""
        self.path.unlink(missing_ok=True)

    def _write(self, content: dict[str, Any]) -> None:
        part = self.path.with_name(f"{self.path.name}.{os.getpid()}.{threading.get_ident()}")
        part.write_text(json.dumps(content), "utf-8")
        os.replace(part, self.path)
        self._read = None, None


def _told(pause: Pause) -> dict[str, Any]:
    return {"by": pause.by, "reason": pause.reason, "at": pause.created_at / 1e6}


def _request_in(path: Path) -> Pause | None:
    """Return the request that the file holds. A file that was written by something else holds none."""
    try:
        told = json.loads(path.read_text("utf-8"))
        how = told["request"]
        pause = Pause(
            str(how["id"]), "operator", str(told["reason"]), None if told["by"] is None else str(told["by"]),
            int(how["at"]), mode="abort" if how["mode"] == "abort" else "finish", freeze=bool(how["freeze"]),
            standing=True,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return pause
