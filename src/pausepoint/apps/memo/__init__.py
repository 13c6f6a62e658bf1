"""The investment memo: thirteen agents write it from documents, and publish files that people can edit."""

from pausepoint.apps.memo.models import MemoDocument, MemoState
from pausepoint.apps.memo.workflow import AGENTS, memo

__all__ = ["AGENTS", "MemoDocument", "MemoState", "memo"]
