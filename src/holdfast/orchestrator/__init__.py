"""Many agents under one pause button: see `docs/orchestrator.md`. What is named here is public."""

from __future__ import annotations

from holdfast.orchestrator.bus import (
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
from holdfast.orchestrator.controller import OrchestratorState, PauseResumeController, Phase
from holdfast.orchestrator.graph import Task
from holdfast.orchestrator.kept import SessionLog, SessionStateStore
from holdfast.orchestrator.orchestrator import Orchestrator, RunReport
from holdfast.orchestrator.performing import TaskAgent, TaskStatus
from holdfast.orchestrator.registry import Agent, AgentRegistry, Agents
from holdfast.orchestrator.safety import Safety
from holdfast.orchestrator.sessions import SessionAgents
from holdfast.orchestrator.snapshot import (
    AgentState,
    FileStateStore,
    RunStateSnapshot,
    SnapshotStore,
    TaskState,
    ToolCall,
)

__all__ = [
    "Agent",
    "AgentRegistry",
    "AgentState",
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
]
