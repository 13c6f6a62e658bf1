"""Aura organises a student's week. Four agents gather assignments, assess mastery, plan the days and write a report.

>>> from pausepoint.apps.aura import run_aura_orchestrator
>>> result = run_aura_orchestrator("student@example.com", store=":memory:", reports=getfixture("tmp_path"))
>>> result["status"].value, result["current_step"].value, len(result["assignments"])
('completed', 'COMPLETED', 20)
"""

from pausepoint.apps.aura.models import WorkflowState
from pausepoint.apps.aura.orchestrator import (
    get_workflow_state,
    request_pause,
    run_aura_orchestrator,
    save_workflow_state,
)
from pausepoint.apps.aura.workflow import aura

__all__ = [
    "WorkflowState",
    "aura",
    "get_workflow_state",
    "request_pause",
    "run_aura_orchestrator",
    "save_workflow_state",
]
