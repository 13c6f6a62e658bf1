"""Many agents under one pause button: see `docs/orchestrator.md`. All names in `__all__` are public."""

from __future__ import annotations

from pausepoint.orchestrator.approval import restriction, restriction_of_call
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
from pausepoint.orchestrator.callers import GateCaller, GatePlace, Verdict, find_place
from pausepoint.orchestrator.controller import OrchestratorState, PauseResumeController, Phase
from pausepoint.orchestrator.graph import Task
from pausepoint.orchestrator.history import SessionLog, SessionStateStore
from pausepoint.orchestrator.hooks import AGENT_KINDS, AgentKind, HookCommand, HookSettings, hook_command
from pausepoint.orchestrator.installation import Installation
from pausepoint.orchestrator.orchestrator import Orchestrator
from pausepoint.orchestrator.registry import Agent, AgentRegistry, Agents
from pausepoint.orchestrator.runs import AgentStatus, RunReader, RunReport, TaskStatus, phase_of, runs
from pausepoint.orchestrator.safety import Safety
from pausepoint.orchestrator.sessions import SessionAgents
from pausepoint.orchestrator.settings import GateSettings, SettingsRefused, find_gate, read_gate, socket_path
from pausepoint.orchestrator.snapshot import (
    AgentState,
    FileStateStore,
    RunStateSnapshot,
    SnapshotStore,
    TaskState,
    ToolCall,
)
from pausepoint.orchestrator.warden import Processes, adopt_orphans, warden_command
from pausepoint.orchestrator.workflow import TaskAgent

__all__ = [
    "AGENT_KINDS",
    "Agent",
    "AgentKind",
    "AgentRegistry",
    "AgentState",
    "AgentStatus",
    "Agents",
    "BusEvent",
    "EventBus",
    "EventLog",
    "FileStateStore",
    "GateCaller",
    "GatePlace",
    "GateSettings",
    "HookCommand",
    "HookSettings",
    "Installation",
    "Logged",
    "MemoryLog",
    "Orchestrator",
    "OrchestratorPaused",
    "OrchestratorResumed",
    "OrchestratorState",
    "PauseResumeController",
    "Phase",
    "Processes",
    "RunReader",
    "RunReport",
    "RunStateSnapshot",
    "Safety",
    "SessionAgents",
    "SessionLog",
    "SessionStateStore",
    "SettingsRefused",
    "SnapshotStore",
    "Task",
    "TaskAgent",
    "TaskCompleted",
    "TaskFailed",
    "TaskStarted",
    "TaskState",
    "TaskStatus",
    "ToolCall",
    "Verdict",
    "adopt_orphans",
    "find_gate",
    "find_place",
    "hook_command",
    "phase_of",
    "read_gate",
    "restriction",
    "restriction_of_call",
    "runs",
    "socket_path",
    "warden_command",
]
