"""Convert questions and answers to and from the formats of other protocols and frameworks, and send questions.

Every ``to_…`` function converts a question. Every ``from_…`` function returns the answer to pass to `Engine.answer`, or
None if the person did not answer; the question then stays open. `from_ag_ui_resume` returns a list of answers. All of
them are pure functions. `send_questions` sends questions by mail, chat or webhook; it needs the extra ``notify``.
`mirror_sessions` lets documents of Firestore follow sessions; it needs the extra ``firestore``. `PausepointDurability`
makes agents of pydantic-ai durable; it needs the extra ``pydantic-ai``.
`pausepoint.integrations.langgraph` makes workflows of graphs; it needs the extra ``langgraph``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pausepoint.lazy import exported

if TYPE_CHECKING:
    from pausepoint.integrations.ag_ui import ag_ui_outcome, from_ag_ui, from_ag_ui_resume, to_ag_ui
    from pausepoint.integrations.answers import Said
    from pausepoint.integrations.firestore import Mirrored, mirror_sessions
    from pausepoint.integrations.langchain import from_langchain, to_langchain
    from pausepoint.integrations.mcp import from_mcp, to_mcp
    from pausepoint.integrations.notify import Notice, send_questions
    from pausepoint.integrations.pydantic_ai import PausepointDurability

_HOMES = {
    "Mirrored": "firestore",
    "Notice": "notify",
    "PausepointDurability": "pydantic_ai",
    "Said": "answers",
    "ag_ui_outcome": "ag_ui",
    "from_ag_ui": "ag_ui",
    "from_ag_ui_resume": "ag_ui",
    "from_langchain": "langchain",
    "from_mcp": "mcp",
    "mirror_sessions": "firestore",
    "send_questions": "notify",
    "to_ag_ui": "ag_ui",
    "to_langchain": "langchain",
    "to_mcp": "mcp",
}

__all__ = [
    "Mirrored",
    "Notice",
    "PausepointDurability",
    "Said",
    "ag_ui_outcome",
    "from_ag_ui",
    "from_ag_ui_resume",
    "from_langchain",
    "from_mcp",
    "mirror_sessions",
    "send_questions",
    "to_ag_ui",
    "to_langchain",
    "to_mcp",
]

__getattr__, __dir__ = exported(__name__, _HOMES)
