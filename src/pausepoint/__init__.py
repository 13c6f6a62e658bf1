"""Pausepoint: the pause button for long-running agent work."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pausepoint.api import Engine, run
    from pausepoint.artifacts import Artifact, Codec
    from pausepoint.blocking import BlockingEngine, BlockingSession
    from pausepoint.chunks import Chunk, Chunked
    from pausepoint.cli.host import Start
    from pausepoint.cli.program import program
    from pausepoint.collecting import Tool, collect
    from pausepoint.context import BlockingContext, Context
    from pausepoint.errors import MapFailed, PausepointError
    from pausepoint.fanout import Batch
    from pausepoint.fields import Append, At, Merge, Replace
    from pausepoint.forms import ChunkState, File
    from pausepoint.ids import SessionId
    from pausepoint.model import Event, Status
    from pausepoint.outcome import Outcome, SessionInfo
    from pausepoint.plan import Plan
    from pausepoint.questions import Question
    from pausepoint.rebuilding import Detection, VersionFolders, detect
    from pausepoint.retry import Retry
    from pausepoint.session import Session
    from pausepoint.steps import Scope, guard, migrate, route, step
    from pausepoint.workflow import Workflow

_HOMES = {
    "Append": "fields",
    "Artifact": "artifacts",
    "At": "fields",
    "Batch": "fanout",
    "BlockingContext": "context",
    "BlockingEngine": "blocking",
    "BlockingSession": "blocking",
    "Chunk": "chunks",
    "ChunkState": "forms",
    "Chunked": "chunks",
    "Codec": "artifacts",
    "Context": "context",
    "Detection": "rebuilding",
    "Engine": "api",
    "Event": "model",
    "File": "forms",
    "PausepointError": "errors",
    "MapFailed": "errors",
    "Merge": "fields",
    "Outcome": "outcome",
    "Plan": "plan",
    "Question": "questions",
    "Replace": "fields",
    "Retry": "retry",
    "Scope": "steps",
    "Session": "session",
    "SessionId": "ids",
    "SessionInfo": "outcome",
    "Start": "cli.host",
    "Status": "model",
    "Tool": "collecting",
    "VersionFolders": "rebuilding",
    "Workflow": "workflow",
    "collect": "collecting",
    "detect": "rebuilding",
    "guard": "steps",
    "migrate": "steps",
    "program": "cli.program",
    "route": "steps",
    "run": "api",
    "step": "steps",
}

__all__ = [
    "Append",
    "Artifact",
    "At",
    "Batch",
    "BlockingContext",
    "BlockingEngine",
    "BlockingSession",
    "Chunk",
    "ChunkState",
    "Chunked",
    "Codec",
    "Context",
    "Detection",
    "Engine",
    "Event",
    "File",
    "MapFailed",
    "Merge",
    "Outcome",
    "PausepointError",
    "Plan",
    "Question",
    "Replace",
    "Retry",
    "Scope",
    "Session",
    "SessionId",
    "SessionInfo",
    "Start",
    "Status",
    "Tool",
    "VersionFolders",
    "Workflow",
    "collect",
    "detect",
    "guard",
    "migrate",
    "program",
    "route",
    "run",
    "step",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pausepoint' has no attribute {name!r}")
    value = getattr(import_module(f"pausepoint.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
