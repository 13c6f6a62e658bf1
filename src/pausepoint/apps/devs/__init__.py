"""Devs: run a plan of tasks in a workspace with several agents under one pause button."""

from pausepoint.apps.devs.models import Plan
from pausepoint.apps.devs.plan import read

__all__ = ["Plan", "read"]
