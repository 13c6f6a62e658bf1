"""Pausepoint: the pause button for long-running agent work."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pausepoint.lazy import exported

if sys.platform == "win32":
    from pausepoint.windows import refuse

    refuse()

if TYPE_CHECKING:
    from pausepoint.cli.program import program
    from pausepoint.definition.artifacts import Artifact
    from pausepoint.definition.fields import Append, Merge, Replace
    from pausepoint.definition.function_workflow import workflow
    from pausepoint.definition.rate import Rate
    from pausepoint.definition.retry import Retry
    from pausepoint.definition.steps import Scope, guard, migrate, route, step
    from pausepoint.definition.workflow import Workflow
    from pausepoint.engine.engine import Engine, run
    from pausepoint.engine.session import Session
    from pausepoint.errors import (
        AlreadyRunning,
        AnswerRefused,
        ChildFailed,
        Declined,
        DefinitionError,
        InputConflict,
        MapFailed,
        NotFinished,
        OperationTimeout,
        OutsideStep,
        Parked,
        PausepointError,
        QuestionExpired,
        RoundsExhausted,
        SessionEnded,
        StateRefused,
        StoreError,
        UndecidedEdits,
        UnknownSession,
        VerbRefused,
    )
    from pausepoint.model.budgets import Budget
    from pausepoint.model.limits import Limit
    from pausepoint.model.questions import Question
    from pausepoint.model.schemas import File
    from pausepoint.model.sessions import Status
    from pausepoint.model.views import Outcome
    from pausepoint.runtime.blocking import BlockingContext
    from pausepoint.runtime.collect import Tool, collect
    from pausepoint.runtime.context import Context
    from pausepoint.runtime.current import current, durable

_HOMES = {
    "AlreadyRunning": "errors",
    "AnswerRefused": "errors",
    "Append": "definition.fields",
    "Artifact": "definition.artifacts",
    "BlockingContext": "runtime.blocking",
    "Budget": "model.budgets",
    "ChildFailed": "errors",
    "Context": "runtime.context",
    "Declined": "errors",
    "DefinitionError": "errors",
    "Engine": "engine.engine",
    "File": "model.schemas",
    "InputConflict": "errors",
    "Limit": "model.limits",
    "MapFailed": "errors",
    "Merge": "definition.fields",
    "NotFinished": "errors",
    "OperationTimeout": "errors",
    "Outcome": "model.views",
    "OutsideStep": "errors",
    "Parked": "errors",
    "PausepointError": "errors",
    "Question": "model.questions",
    "QuestionExpired": "errors",
    "Rate": "definition.rate",
    "Replace": "definition.fields",
    "Retry": "definition.retry",
    "RoundsExhausted": "errors",
    "Scope": "definition.steps",
    "Session": "engine.session",
    "SessionEnded": "errors",
    "StateRefused": "errors",
    "Status": "model.sessions",
    "StoreError": "errors",
    "Tool": "runtime.collect",
    "UndecidedEdits": "errors",
    "UnknownSession": "errors",
    "VerbRefused": "errors",
    "Workflow": "definition.workflow",
    "collect": "runtime.collect",
    "current": "runtime.current",
    "durable": "runtime.current",
    "guard": "definition.steps",
    "migrate": "definition.steps",
    "program": "cli.program",
    "route": "definition.steps",
    "run": "engine.engine",
    "step": "definition.steps",
    "workflow": "definition.function_workflow",
}

__all__ = [
    "AlreadyRunning",
    "AnswerRefused",
    "Append",
    "Artifact",
    "BlockingContext",
    "Budget",
    "ChildFailed",
    "Context",
    "Declined",
    "DefinitionError",
    "Engine",
    "File",
    "InputConflict",
    "Limit",
    "MapFailed",
    "Merge",
    "NotFinished",
    "OperationTimeout",
    "Outcome",
    "OutsideStep",
    "Parked",
    "PausepointError",
    "Question",
    "QuestionExpired",
    "Rate",
    "Replace",
    "Retry",
    "RoundsExhausted",
    "Scope",
    "Session",
    "SessionEnded",
    "StateRefused",
    "Status",
    "StoreError",
    "Tool",
    "UndecidedEdits",
    "UnknownSession",
    "VerbRefused",
    "Workflow",
    "collect",
    "current",
    "durable",
    "guard",
    "migrate",
    "program",
    "route",
    "run",
    "step",
    "workflow",
]

__getattr__, __dir__ = exported(__name__, _HOMES)
