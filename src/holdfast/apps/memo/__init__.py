"""The investment memo: thirteen agents that write one from documents, leaving files that people edit."""

from holdfast.apps.memo.models import MemoDocument, MemoState
from holdfast.apps.memo.workflow import AGENTS, memo

__all__ = ["AGENTS", "MemoDocument", "MemoState", "memo"]
