"""Many agents under one pause button: see `docs/orchestrator.md`. All names in `__all__` are public."""

from __future__ import annotations

from pausepoint.orchestrator.bus import (
    BusEvent,
    EventBus,
    EventLog,
    Logged,
    MemoryLog,
    OrchestratorPaused,
    OrchestratorResumed,
    TaskCompleted,
    TaskFailed,
    TaskStarted,
)
from pausepoint.orchestrator.controller import OrchestratorState, PauseResumeController, Phase
from pausepoint.orchestrator.graph import Task
from pausepoint.orchestrator.history import SessionLog, SessionStateStore
from pausepoint.orchestrator.orchestrator import Orchestrator
from pausepoint.orchestrator.registry import Agent, AgentRegistry, Agents
from pausepoint.orchestrator.runs import AgentStatus, RunReader, RunReport, TaskStatus, phase_of, runs
from pausepoint.orchestrator.safety import Safety
from pausepoint.orchestrator.sessions import SessionAgents
from pausepoint.orchestrator.snapshot import (
    AgentState,
    FileStateStore,
    RunStateSnapshot,
    SnapshotStore,
    TaskState,
    ToolCall,
)
from pausepoint.orchestrator.workflow import TaskAgent

__all__ = [
    "Agent",
    "AgentRegistry",
    "AgentState",
    "AgentStatus",
    "Agents",
    "BusEvent",
    "EventBus",
    "EventLog",
    "FileStateStore",
    "Logged",
    "MemoryLog",
    "Orchestrator",
    "OrchestratorPaused",
    "OrchestratorResumed",
    "OrchestratorState",
    "PauseResumeController",
    "Phase",
    "RunReader",
    "RunReport",
    "RunStateSnapshot",
    "Safety",
    "SessionAgents",
    "SessionLog",
    "SessionStateStore",
    "SnapshotStore",
    "Task",
    "TaskAgent",
    "TaskCompleted",
    "TaskFailed",
    "TaskStarted",
    "TaskState",
    "TaskStatus",
    "ToolCall",
    "phase_of",
    "runs",
]
