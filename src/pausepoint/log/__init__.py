"""A session's log: records, replay, state, events and telemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pausepoint.lazy import exported

if TYPE_CHECKING:
    from pausepoint.log.telemetry import SessionIdFilter, here

_HOMES = {
    "SessionIdFilter": "telemetry",
    "here": "telemetry",
}

__all__ = [
    "SessionIdFilter",
    "here",
]

__getattr__, __dir__ = exported(__name__, _HOMES)
