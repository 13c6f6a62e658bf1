"""Holdfast: the pause button for long-running agent work."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.api import Engine, run
    from holdfast.blocking import BlockingEngine, BlockingSession
    from holdfast.cli.program import program
    from holdfast.context import Batch, BlockingContext, Context
    from holdfast.errors import HoldfastError, MapFailed
    from holdfast.fields import Append, At, Merge, Replace
    from holdfast.ids import SessionId
    from holdfast.model import Event, Status
    from holdfast.outcome import Outcome
    from holdfast.retry import Retry
    from holdfast.session import Session
    from holdfast.steps import Scope, guard, migrate, route, step
    from holdfast.workflow import Workflow

_HOMES = {
    "Append": "fields",
    "At": "fields",
    "Batch": "context",
    "BlockingContext": "context",
    "BlockingEngine": "blocking",
    "BlockingSession": "blocking",
    "Context": "context",
    "Engine": "api",
    "Event": "model",
    "HoldfastError": "errors",
    "MapFailed": "errors",
    "Merge": "fields",
    "Outcome": "outcome",
    "Replace": "fields",
    "Retry": "retry",
    "Scope": "steps",
    "Session": "session",
    "SessionId": "ids",
    "Status": "model",
    "Workflow": "workflow",
    "guard": "steps",
    "migrate": "steps",
    "program": "cli.program",
    "route": "steps",
    "run": "api",
    "step": "steps",
}

__all__ = [
    "Append",
    "At",
    "Batch",
    "BlockingContext",
    "BlockingEngine",
    "BlockingSession",
    "Context",
    "Engine",
    "Event",
    "HoldfastError",
    "MapFailed",
    "Merge",
    "Outcome",
    "Replace",
    "Retry",
    "Scope",
    "Session",
    "SessionId",
    "Status",
    "Workflow",
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
