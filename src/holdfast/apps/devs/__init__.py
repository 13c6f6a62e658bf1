"""Devs: a plan of tasks, worked through in a workspace by several agents under one pause button."""

from holdfast.apps.devs.models import Plan
from holdfast.apps.devs.plan import read

__all__ = ["Plan", "read"]
