"""The engine: every verb over sessions, async and blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pausepoint.lazy import exported

if TYPE_CHECKING:
    from pausepoint.engine.blocking import BlockingEngine, BlockingSession
    from pausepoint.engine.engine import accept_loss
    from pausepoint.engine.plan import Plan

_HOMES = {
    "BlockingEngine": "blocking",
    "BlockingSession": "blocking",
    "Plan": "plan",
    "accept_loss": "engine",
}

__all__ = [
    "BlockingEngine",
    "BlockingSession",
    "Plan",
    "accept_loss",
]

__getattr__, __dir__ = exported(__name__, _HOMES)
