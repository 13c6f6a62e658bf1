"""One session while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pausepoint.lazy import exported

if TYPE_CHECKING:
    from pausepoint.runtime.fanout import Batch

_HOMES = {
    "Batch": "fanout",
}

__all__ = [
    "Batch",
]

__getattr__, __dir__ = exported(__name__, _HOMES)
