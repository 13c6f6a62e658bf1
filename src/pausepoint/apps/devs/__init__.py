"""Devs: a plan of tasks, worked through in a workspace by several agents under one pause button."""

from pausepoint.apps.devs.models import Plan
from pausepoint.apps.devs.plan import read

__all__ = ["Plan", "read"]
