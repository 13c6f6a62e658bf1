"""Numbered folders ``<name>-v0.0.1``, ``<name>-v0.0.2`` … for several runs with one name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pausepoint.artifacts.detection import START, detect
from pausepoint.definition.artifacts import safe_name
from pausepoint.definition.workflow import Workflow
from pausepoint.errors import FolderRefused, PausepointError
from pausepoint.stores.disk import make_folder, new_folder

_MODE = 0o777  # as the umask allows: the folders belong to the user
_VERSION = re.compile(r"v0\.0\.(\d{1,9})")


class VersionFolders:
    """The folders ``<root>/<name>-v0.0.<n>`` for the runs with one name, in the order of their numbers.

    >>> VersionFolders("output", "Fern & Stone").pattern
    'Fern-Stone-v0.0.*'
    """

    def __init__(self, root: str | Path, name: str) -> None:
        self.root = Path(root)
        self.name = safe_name(name)

    @property
    def pattern(self) -> str:
        """The glob pattern of the folders."""
        return f"{self.name}-v0.0.*"

    def all(self) -> list[Path]:
        """Return the existing folders, the latest last."""
        found = [(number(path.name, self.name), path) for path in self.root.glob(self.pattern) if path.is_dir()]
        return [path for at, path in sorted(pair for pair in found if pair[0] is not None)]

    def latest(self) -> Path | None:
        """Return the folder with the highest number; None if there is none."""
        return next(reversed(self.all()), None)

    def find(self, version: str) -> Path:
        """Return the folder of a version such as ``v0.0.3``. Raises `FolderRefused` if it does not exist."""
        path = self.root / f"{self.name}-{version}"
        if path not in self.all():
            there = ", ".join(each.name.removeprefix(f"{self.name}-") for each in self.all()) or "none"
            raise FolderRefused(
                f"No artifacts found for {self.name} {version} in {self.root}. Available versions: {there}.",
                path=str(path),
            )
        return path

    def make(self) -> Path:
        """Create a folder with the next number and return it. Two programs never get the same one."""
        make_folder(self.root, _MODE)
        last = self.latest()
        at = (number(last.name, self.name) or 0) + 1 if last is not None else 1
        while True:
            path = self.root / f"{self.name}-v0.0.{at}"
            try:
                new_folder(path, _MODE)
            except FileExistsError:
                at += 1
                continue
            return path

    def incomplete(self, workflow: Workflow[Any], **given: Any) -> list[Path]:
        """Return the folders of sessions that have started and are not complete.

        A folder that cannot be judged is included.
        """
        return [path for path in self.all() if _begun(path, workflow, given)]


def number(folder: str, name: str) -> int | None:
    """Return the number of a folder with this name; None if the folder has another name."""
    found = _VERSION.fullmatch(folder.removeprefix(f"{name}-"))
    return int(found[1]) if found and folder.startswith(f"{name}-") else None


def _begun(path: Path, workflow: Workflow[Any], given: Mapping[str, Any]) -> bool:
    try:
        found = detect(path, workflow, **given)
    except PausepointError:
        return True  # unknown, so list it
    return not found.complete and (found.resume_at != START or found.recorded)
