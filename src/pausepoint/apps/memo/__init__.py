"""The investment memo: thirteen agents that write one from documents, leaving files that people edit."""

from pausepoint.apps.memo.models import MemoDocument, MemoState
from pausepoint.apps.memo.workflow import AGENTS, memo

__all__ = ["AGENTS", "MemoDocument", "MemoState", "memo"]
