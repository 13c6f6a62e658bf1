"""The study planner: reads course material, estimates its topics, and plans every day up to the last midterm."""

from pausepoint.apps.planner.models import PlannerState, SessionDocument
from pausepoint.apps.planner.workflow import planner

__all__ = ["PlannerState", "SessionDocument", "planner"]
