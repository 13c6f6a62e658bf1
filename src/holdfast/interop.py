"""Questions in the shapes of other protocols, and their answers back: AG-UI interrupts, MCP elicitation, and the human
review of LangChain's agents.

Pure functions. Every ``from_…`` returns what to pass to `Engine.answer`, or None if the person has left the question
open: then it goes on waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.questions import Question

_FLAT = ("string", "number", "integer", "boolean")


class Said(NamedTuple):
    """An answer from elsewhere. ``seen`` binds it to what was shown, where the protocol brings that back."""

    question_id: str
    value: Any
    seen: str | None = None


def _declined(question: Question, reason: str = "") -> Said | None:
    """A no. To anything but a confirmation it is no answer."""
    return Said(question.id, {"approved": False, "reason": reason}) if question.kind == "confirm" else None


# AG-UI


def to_ag_ui(question: Question) -> dict[str, Any]:
    """An ``Interrupt``; several of them are the ``interrupts`` of a finished run's outcome."""
    found: dict[str, Any] = {
        "id": question.id,
        "reason": "confirmation" if question.kind == "confirm" else "input_required",
        "message": question.next_question,
        "responseSchema": question.answer_schema or {"type": "string"},
        "metadata": {"digest": question.digest, "round": question.current_round, "complaint": question.complaint},
    }
    if question.pending_tool_id is not None:
        found["toolCallId"] = question.pending_tool_id
    if question.expired_at is not None:
        found["expiresAt"] = question.expired_at.isoformat()
    return found


def ag_ui_outcome(questions: Sequence[Question]) -> dict[str, Any]:
    """The ``outcome`` of the event ``RUN_FINISHED``."""
    if not questions:
        return {"type": "success"}
    return {"type": "interrupt", "interrupts": [to_ag_ui(each) for each in questions]}


def from_ag_ui(question: Question, entry: Mapping[str, Any]) -> Said | None:
    """One entry of the next run's ``resume``."""
    if entry.get("interruptId") != question.id:
        raise ValueError(f"the entry answers {entry.get('interruptId')!r}, not question {question.id}")
    match entry.get("status"):
        case "resolved":
            return Said(question.id, entry.get("payload"))
        case "cancelled":
            return _declined(question)
    raise ValueError(f"an entry is resolved or cancelled, not {entry.get('status')!r}")


# MCP


def to_mcp(question: Question) -> dict[str, Any]:
    """The parameters of ``elicitation/create``. A form there is flat: what is not goes in as a text of JSON."""
    message = question.next_question + (f" ({question.complaint})" if question.complaint else "")
    return {"mode": "form", "message": message, "requestedSchema": _form(question)[0]}


def from_mcp(question: Question, result: Mapping[str, Any]) -> Said | None:
    """The result of ``elicitation/create``."""
    match result.get("action"):
        case "accept":
            content = result.get("content") or {}
            is_whole = _form(question)[1]
            return Said(question.id, content if is_whole else content.get("answer"), question.digest)
        case "decline":
            return _declined(question)
        case "cancel":
            return None
    raise ValueError(f"an elicitation is accepted, declined or cancelled, not {result.get('action')!r}")


def _form(question: Question) -> tuple[dict[str, Any], bool]:
    """A flat form, and whether its content as a whole is the answer (otherwise its field ``answer`` is)."""
    schema = question.answer_schema or {"type": "string"}
    fields = schema.get("properties", {})
    if schema.get("type") == "object" and all(_is_flat(field) for field in fields.values()):
        return {"type": "object", "properties": fields, "required": list(schema.get("required", ()))}, True
    field = schema if _is_flat(schema) else {"type": "string", "description": "JSON"}
    if (choices := schema.get("enum")) is not None:
        field = {"type": "string", "enum": [str(each) for each in choices]}
    return {"type": "object", "properties": {"answer": field}, "required": ["answer"]}, False


def _is_flat(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") in _FLAT


# LangChain


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
            return _declined(question, str(decision.get("message") or ""))
        case "respond" if question.kind != "confirm":
            return Said(question.id, decision.get("message"))
    raise ValueError(f"{decision.get('type')!r} is no decision that question {question.id} ({question.kind}) can take")
