"""Records and facts: plain data types. Nothing in this package does I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pausepoint.lazy import exported

if TYPE_CHECKING:
    from pausepoint.model.chunks import Chunk, Chunked
    from pausepoint.model.ids import SessionId
    from pausepoint.model.schemas import ChunkState
    from pausepoint.model.sessions import Event, Pause
    from pausepoint.model.views import SessionInfo, Working

_HOMES = {
    "Chunk": "chunks",
    "ChunkState": "schemas",
    "Chunked": "chunks",
    "Event": "sessions",
    "Pause": "sessions",
    "SessionId": "ids",
    "SessionInfo": "views",
    "Working": "views",
}

__all__ = [
    "Chunk",
    "ChunkState",
    "Chunked",
    "Event",
    "Pause",
    "SessionId",
    "SessionInfo",
    "Working",
]

__getattr__, __dir__ = exported(__name__, _HOMES)
