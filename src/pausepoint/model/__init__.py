"""Records and facts: plain data types. Nothing in this package does I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pausepoint.lazy import exported

if TYPE_CHECKING:
    from pausepoint.model.approvals import approval_of, approval_text
    from pausepoint.model.bulk import BulkItem, BulkProgress, BulkReport
    from pausepoint.model.changes import Change
    from pausepoint.model.chunks import Chunk, Chunked
    from pausepoint.model.drawers import DrawerInfo, DrawerStream, DrawerValue
    from pausepoint.model.ids import SessionId
    from pausepoint.model.marks import marked
    from pausepoint.model.schemas import ChunkState
    from pausepoint.model.sessions import Event, Pause
    from pausepoint.model.streams import Gap, Restarted, StreamChunk, StreamItem, StreamText
    from pausepoint.model.views import Finishing, SessionInfo, StandingPause, Working

_HOMES = {
    "BulkItem": "bulk",
    "BulkProgress": "bulk",
    "BulkReport": "bulk",
    "Change": "changes",
    "Chunk": "chunks",
    "ChunkState": "schemas",
    "Chunked": "chunks",
    "DrawerInfo": "drawers",
    "DrawerStream": "drawers",
    "DrawerValue": "drawers",
    "Event": "sessions",
    "Finishing": "views",
    "Gap": "streams",
    "Pause": "sessions",
    "Restarted": "streams",
    "SessionId": "ids",
    "SessionInfo": "views",
    "StandingPause": "views",
    "StreamChunk": "streams",
    "StreamItem": "streams",
    "StreamText": "streams",
    "Working": "views",
    "approval_of": "approvals",
    "approval_text": "approvals",
    "marked": "marks",
}

__all__ = [
    "BulkItem",
    "BulkProgress",
    "BulkReport",
    "Change",
    "Chunk",
    "ChunkState",
    "Chunked",
    "DrawerInfo",
    "DrawerStream",
    "DrawerValue",
    "Event",
    "Finishing",
    "Gap",
    "Pause",
    "Restarted",
    "SessionId",
    "SessionInfo",
    "StandingPause",
    "StreamChunk",
    "StreamItem",
    "StreamText",
    "Working",
    "approval_of",
    "approval_text",
    "marked",
]

__getattr__, __dir__ = exported(__name__, _HOMES)
