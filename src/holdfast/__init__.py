"""Holdfast: the pause button for long-running agent work."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.api import Engine, run
    from holdfast.artifacts import Artifact, Codec
    from holdfast.blocking import BlockingEngine, BlockingSession
    from holdfast.chunks import Chunk, Chunked
    from holdfast.cli.host import Start
    from holdfast.cli.program import program
    from holdfast.collecting import Tool, collect
    from holdfast.context import BlockingContext, Context
    from holdfast.errors import HoldfastError, MapFailed
    from holdfast.fanout import Batch
    from holdfast.fields import Append, At, Merge, Replace
    from holdfast.forms import ChunkState, File
    from holdfast.ids import SessionId
    from holdfast.model import Event, Status
    from holdfast.outcome import Outcome, SessionInfo
    from holdfast.plan import Plan
    from holdfast.questions import Question
    from holdfast.rebuilding import Detection, VersionFolders, detect
    from holdfast.retry import Retry
    from holdfast.session import Session
    from holdfast.steps import Scope, guard, migrate, route, step
    from holdfast.workflow import Workflow

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
    "HoldfastError": "errors",
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
    "HoldfastError",
    "MapFailed",
    "Merge",
    "Outcome",
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
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(import_module(f"holdfast.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
