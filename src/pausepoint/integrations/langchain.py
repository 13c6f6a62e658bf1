"""Convert questions to LangChain's human review requests, and its decisions to answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pausepoint.integrations.answers import Said, declined
from pausepoint.model.questions import Question


def to_langchain(question: Question) -> dict[str, Any]:
    """Return a review request with one action. The kind of the question determines the allowed decisions.

    The arguments of the action are the parameters collected so far, or the question's payload.
    """
    name = question.pending_tool_name or question.llm_node_id
    collected = question.collected_params_json
    decisions = {"confirm": ["approve", "reject"], "collect": ["edit", "respond"], "ask": ["respond"]}[question.kind]
    return {
        "action_requests": [
            {
                "name": name,
                "args": _payload(question) if collected is None else msgspec.json.decode(collected),
                "description": question.next_question,
            }
        ],
        "review_configs": [{"action_name": name, "allowed_decisions": decisions}],
    }


def _payload(question: Question) -> dict[str, Any]:
    if question.payload is None:
        return {}
    return question.payload if isinstance(question.payload, dict) else {"payload": question.payload}


def from_langchain(question: Question, decision: Mapping[str, Any]) -> Said | None:
    """Convert a decision (approve, edit, reject or respond) to an answer.

    Returns None if a question that is not a confirmation is rejected. Raises `ValueError` for a decision that the
    question does not allow.
    """
    match decision.get("type"):
        case "approve" if question.kind == "confirm":
            return Said(question.id, {"approved": True})
        case "edit" if question.kind != "confirm":
            return Said(question.id, dict(decision["edited_action"]["args"]))
        case "reject":
            return declined(question, str(decision.get("message") or ""))
        case "respond" if question.kind != "confirm":
            return Said(question.id, decision.get("message"))
    raise ValueError(
        f"Question {question.id} ({question.kind}) does not take the decision {decision.get('type')!r}."
        " Use one of the allowed_decisions that to_langchain returned."
    )
