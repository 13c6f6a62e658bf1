"""The definition API: workflows, steps, fields, artifacts and retries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pausepoint.lazy import exported

if TYPE_CHECKING:
    from pausepoint.definition.artifacts import Codec
    from pausepoint.definition.fields import At

_HOMES = {
    "At": "fields",
    "Codec": "artifacts",
}

__all__ = [
    "At",
    "Codec",
]

__getattr__, __dir__ = exported(__name__, _HOMES)
