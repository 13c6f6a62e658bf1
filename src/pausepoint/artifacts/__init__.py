"""The folder with the files that steps publish and people edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pausepoint.lazy import exported

if TYPE_CHECKING:
    from pausepoint.artifacts.detection import Detection, detect
    from pausepoint.artifacts.numbered import VersionFolders

_HOMES = {
    "Detection": "detection",
    "VersionFolders": "numbered",
    "detect": "detection",
}

__all__ = [
    "Detection",
    "VersionFolders",
    "detect",
]

__getattr__, __dir__ = exported(__name__, _HOMES)
