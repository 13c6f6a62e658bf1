"""Pausepoint: the pause button for long-running agent work."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pausepoint.artifacts.detection import Detection, detect
    from pausepoint.artifacts.numbered import VersionFolders
    from pausepoint.cli.host import Start
    from pausepoint.cli.program import program
    from pausepoint.definition.artifacts import Artifact, Codec
    from pausepoint.definition.fields import Append, At, Merge, Replace
    from pausepoint.definition.retry import Retry
    from pausepoint.definition.steps import Scope, guard, migrate, route, step
    from pausepoint.definition.workflow import Workflow
    from pausepoint.engine.blocking import BlockingEngine, BlockingSession
    from pausepoint.engine.engine import Engine, run
    from pausepoint.engine.plan import Plan
    from pausepoint.engine.session import Session
    from pausepoint.errors import MapFailed, PausepointError
    from pausepoint.model.chunks import Chunk, Chunked
    from pausepoint.model.ids import SessionId
    from pausepoint.model.questions import Question
    from pausepoint.model.schemas import ChunkState, File
    from pausepoint.model.sessions import Event, Status
    from pausepoint.model.views import Outcome, SessionInfo
    from pausepoint.runtime.collect import Tool, collect
    from pausepoint.runtime.context import BlockingContext, Context
    from pausepoint.runtime.fanout import Batch

_HOMES = {
    "Append": "definition.fields",
    "Artifact": "definition.artifacts",
    "At": "definition.fields",
    "Batch": "runtime.fanout",
    "BlockingContext": "runtime.context",
    "BlockingEngine": "engine.blocking",
    "BlockingSession": "engine.blocking",
    "Chunk": "model.chunks",
    "ChunkState": "model.schemas",
    "Chunked": "model.chunks",
    "Codec": "definition.artifacts",
    "Context": "runtime.context",
    "Detection": "artifacts.detection",
    "Engine": "engine.engine",
    "Event": "model.sessions",
    "File": "model.schemas",
    "MapFailed": "errors",
    "Merge": "definition.fields",
    "Outcome": "model.views",
    "PausepointError": "errors",
    "Plan": "engine.plan",
    "Question": "model.questions",
    "Replace": "definition.fields",
    "Retry": "definition.retry",
    "Scope": "definition.steps",
    "Session": "engine.session",
    "SessionId": "model.ids",
    "SessionInfo": "model.views",
    "Start": "cli.host",
    "Status": "model.sessions",
    "Tool": "runtime.collect",
    "VersionFolders": "artifacts.numbered",
    "Workflow": "definition.workflow",
    "collect": "runtime.collect",
    "detect": "artifacts.detection",
    "guard": "definition.steps",
    "migrate": "definition.steps",
    "program": "cli.program",
    "route": "definition.steps",
    "run": "engine.engine",
    "step": "definition.steps",
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
