"""Questions as LangChain's human review, and its decisions back as answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pausepoint.integrations.answers import Said, declined
from pausepoint.model.questions import Question


def to_langchain(question: Question) -> dict[str, Any]:
    """A review request with one action. What can be decided follows from what is asked."""
    name = question.pending_tool_name or question.llm_node_id
    collected = question.collected_params_json
    decisions = {"confirm": ["approve", "reject"], "collect": ["edit", "respond"], "ask": ["respond"]}[question.kind]
    return {
        "action_requests": [
            {
                "name": name,
                "args": {} if collected is None else msgspec.json.decode(collected),
                "description": question.next_question,
            }
        ],
        "review_configs": [{"action_name": name, "allowed_decisions": decisions}],
    }


def from_langchain(question: Question, decision: Mapping[str, Any]) -> Said | None:
    """One of the decisions that come back: approve, edit, reject or respond."""
    match decision.get("type"):
        case "approve" if question.kind == "confirm":
            return Said(question.id, {"approved": True})
        case "edit" if question.kind != "confirm":
            return Said(question.id, dict(decision["edited_action"]["args"]))
        case "reject":
            return declined(question, str(decision.get("message") or ""))
        case "respond" if question.kind != "confirm":
            return Said(question.id, decision.get("message"))
    raise ValueError(f"{decision.get('type')!r} is no decision that question {question.id} ({question.kind}) can take")
