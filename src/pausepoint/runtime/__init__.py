"""Runs one session: its steps, their operations, waits, files and artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pausepoint.lazy import exported

if TYPE_CHECKING:
    from pausepoint.runtime.fanout import Batch
    from pausepoint.runtime.pending import First

_HOMES = {
    "Batch": "fanout",
    "First": "pending",
}

__all__ = [
    "Batch",
    "First",
]

__getattr__, __dir__ = exported(__name__, _HOMES)
