"""The study planner: read course material, estimate its topics, and plan every day up to the last midterm."""

from pausepoint.apps.planner.models import PlannerState, SessionDocument
from pausepoint.apps.planner.workflow import planner

__all__ = ["PlannerState", "SessionDocument", "planner"]
