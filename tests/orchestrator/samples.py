"""Two snapshots that take turns."""

from __future__ import annotations

from pausepoint.orchestrator import AgentState, RunStateSnapshot, TaskState

OLD = RunStateSnapshot(1, (AgentState("old", {"goal": "x"}, {"facts": ["old"] * 50}),), (TaskState("t1"),))
NEW = RunStateSnapshot(2, (AgentState("new", {"goal": "y"}, {"facts": ["new"] * 90}),), (TaskState("t2"),))
