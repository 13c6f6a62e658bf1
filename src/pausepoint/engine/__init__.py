"""The engine: every verb over sessions, async and blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pausepoint.lazy import exported

if TYPE_CHECKING:
    from pausepoint.engine.blocking import BlockingDrawer, BlockingEngine, BlockingSelection, BlockingSession
    from pausepoint.engine.drawers import Drawer
    from pausepoint.engine.plans import Plan
    from pausepoint.engine.selection import Selection
    from pausepoint.engine.stores import accept_loss

_HOMES = {
    "BlockingDrawer": "blocking",
    "BlockingEngine": "blocking",
    "BlockingSelection": "blocking",
    "BlockingSession": "blocking",
    "Drawer": "drawers",
    "Plan": "plans",
    "Selection": "selection",
    "accept_loss": "stores",
}

__all__ = [
    "BlockingDrawer",
    "BlockingEngine",
    "BlockingSelection",
    "BlockingSession",
    "Drawer",
    "Plan",
    "Selection",
    "accept_loss",
]

__getattr__, __dir__ = exported(__name__, _HOMES)
