"""The study planner: reads course material, estimates its topics, and plans every day up to the last midterm."""

from holdfast.apps.planner.models import PlannerState, SessionDocument
from holdfast.apps.planner.workflow import planner

__all__ = ["PlannerState", "SessionDocument", "planner"]
