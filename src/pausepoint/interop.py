"""Questions in the shapes of other protocols, and their answers back: AG-UI interrupts (as of its core package 0.0.58),
MCP elicitation (2025-06-18, 2025-11-25 and 2026-07-28), and the human review of LangChain's agents.

Pure functions. Every ``from_…`` returns what to pass to `Engine.answer`, or None if the person has left the question
open: then it goes on waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pausepoint.questions import Question


class Said(NamedTuple):
    """An answer from elsewhere. ``seen`` binds it to what was shown, where the protocol brings that back."""

    question_id: str
    value: Any
    seen: str | None = None


def _declined(question: Question, reason: str = "") -> Said | None:
    """A no. To anything but a confirmation it is no answer."""
    return Said(question.id, {"approved": False, "reason": reason}) if question.kind == "confirm" else None


def _schema(question: Question) -> dict[str, Any]:
    return {"type": "string"} if question.answer_schema is None else question.answer_schema


# AG-UI

_OURS = "pausepoint"
"""The key of what is ours in the metadata of an interrupt; a client that sends it back binds its answer to it."""


def to_ag_ui(question: Question) -> dict[str, Any]:
    """An ``Interrupt``; several of them are the ``interrupts`` of a finished run's outcome."""
    call = _tool_call(question)
    ours = {"digest": question.digest, "round": question.current_round, "rounds": question.max_rounds}
    ours |= {"complaint": question.complaint} if question.complaint else {}
    ours |= {"tool": question.pending_tool_name} if question.pending_tool_name else {}
    found: dict[str, Any] = {
        "id": question.id,
        "reason": _reason(question, call),
        "message": question.next_question,
        "responseSchema": _schema(question),
        "metadata": {_OURS: ours},
    }
    if call is not None:
        found["toolCallId"] = call
    if question.expired_at is not None:
        found["expiresAt"] = question.expired_at.isoformat()
    return found


def _tool_call(question: Question) -> str | None:
    """The id of the call that waits. One that has only a name was not called where a front end could have seen it."""
    return None if question.pending_tool_id == question.pending_tool_name else question.pending_tool_id


def _reason(question: Question, call: str | None) -> str:
    if question.kind != "confirm":
        return "input_required"
    return "confirmation" if call is None else "tool_call"


def ag_ui_outcome(questions: Sequence[Question]) -> dict[str, Any]:
    """The ``outcome`` of the event ``RUN_FINISHED``."""
    if not questions:
        return {"type": "success"}
    return {"type": "interrupt", "interrupts": [to_ag_ui(each) for each in questions]}


def from_ag_ui(question: Question, entry: Mapping[str, Any]) -> Said | None:
    """One entry of the next run's ``resume``. A no is in its payload; ``cancelled`` means that nothing was said."""
    if entry.get("interruptId") != question.id:
        raise ValueError(f"the entry answers {entry.get('interruptId')!r}, not question {question.id}")
    match entry.get("status"):
        case "resolved":
            ours = (entry.get("metadata") or {}).get(_OURS) or {}
            return Said(question.id, entry.get("payload"), ours.get("digest"))
        case "cancelled":
            return None
    raise ValueError(f"an entry is resolved or cancelled, not {entry.get('status')!r}")


def from_ag_ui_resume(questions: Sequence[Question], resume: Sequence[Mapping[str, Any]]) -> list[Said]:
    """The whole ``resume`` of a run: it has to address every interrupt that is open, and no other."""
    entries = {entry.get("interruptId"): entry for entry in resume}
    open_ = {question.id for question in questions}
    if missing := sorted(open_ - entries.keys()):
        raise ValueError(f"the resume does not address {', '.join(missing)}; it has to address every open interrupt")
    if strange := sorted(map(repr, entries.keys() - open_)):
        raise ValueError(f"the resume addresses {', '.join(strange)}, which is not open")
    said = [from_ag_ui(question, entries[question.id]) for question in questions]
    return [each for each in said if each is not None]


# MCP

_FORMATS = ("email", "uri", "date", "date-time")
_FIELDS: dict[str, tuple[str, ...]] = {
    "string": ("title", "description", "minLength", "maxLength", "default"),
    "number": ("title", "description", "minimum", "maximum", "default"),
    "integer": ("title", "description", "minimum", "maximum", "default"),
    "boolean": ("title", "description", "default"),
}
"""What a field of a form can say, by its type: all that the protocol has, and it has no more."""


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
    schema = _schema(question)
    definitions = schema.get("$defs", {})
    kind = _resolved(schema, definitions)
    fields = {name: _field(each, definitions) for name, each in kind.get("properties", {}).items()}
    if kind.get("type") == "object" and fields and all(fields.values()):
        return {"type": "object", "properties": fields, "required": list(kind.get("required", ()))}, True
    field = _field(schema, definitions) or {"type": "string", "description": "JSON"}
    return {"type": "object", "properties": {"answer": field}, "required": ["answer"]}, False


def _field(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any] | None:
    """A field of a form: a text, a number, a yes or no, or a choice; None for what has parts of its own."""
    schema = _resolved(schema, definitions)
    if (choices := schema.get("enum", [schema["const"]] if "const" in schema else None)) is not None:
        about = {name: schema[name] for name in ("title", "description") if name in schema}
        return {"type": "string", **about, "enum": [str(each) for each in choices]}
    known = _FIELDS.get(schema.get("type", ""))
    if known is None:
        return None
    found = {"type": schema["type"]} | {name: schema[name] for name in known if schema.get(name) is not None}
    return found | ({"format": schema["format"]} if schema.get("format") in _FORMATS else {})


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a schema says by reference, and of what may be null, what it is otherwise."""
    some = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    inner = some[0] if len(some) == 1 else definitions.get(name)
    if inner is None:
        return schema
    own = {name: value for name, value in schema.items() if name not in ("anyOf", "$ref")}
    return _resolved({**inner, **own}, definitions)


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
