"""Runs one session: its steps, their operations, waits, files and artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pausepoint.lazy import exported

if TYPE_CHECKING:
    from pausepoint.runtime.fanout import Batch
    from pausepoint.runtime.guests import BlockingGuestContext, GuestContext
    from pausepoint.runtime.pending import First

_HOMES = {
    "Batch": "fanout",
    "BlockingGuestContext": "guests",
    "First": "pending",
    "GuestContext": "guests",
}

__all__ = [
    "Batch",
    "BlockingGuestContext",
    "First",
    "GuestContext",
]

__getattr__, __dir__ = exported(__name__, _HOMES)
