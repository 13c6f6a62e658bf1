"""The HTTP server: an ASGI application over an engine, and the command ``pausepoint serve``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pausepoint.lazy import exported

if TYPE_CHECKING:
    from pausepoint.server.asgi import app
    from pausepoint.server.people import Person

_HOMES = {
    "Person": "people",
    "app": "asgi",
}

__all__ = [
    "Person",
    "app",
]

__getattr__, __dir__ = exported(__name__, _HOMES)
