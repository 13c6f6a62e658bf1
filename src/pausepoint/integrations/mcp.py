"""Convert questions to MCP elicitations (2025-06-18, 2025-11-25 and 2026-07-28), and their results to answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pausepoint.integrations.answers import Said, declined, schema_of
from pausepoint.model.approvals import approval_of, approval_text
from pausepoint.model.questions import Question
from pausepoint.name import NAME

MISSING = f"The MCP server needs the package mcp, version 2 or newer. Install it with pip install '{NAME}[mcp]'."
"""What a person must do to start the server of `mcp_server`. The functions of this module need no package."""


def to_mcp(question: Question, longest: int | None = None) -> dict[str, Any]:
    """Return the parameters of ``elicitation/create``.

    MCP forms are flat. An answer with nested values becomes one string field that takes JSON. The question's payload
    follows its text, as JSON. ``longest``: the most characters of the text, of the complaint and of the payload. Each
    of them is cut on its own, so that none of them hides the next.
    """
    message = _cut(question.next_question, longest)
    if question.complaint:
        message += f" ({_cut(question.complaint, longest)})"
    if (approval := approval_of(question.payload)) is not None:
        message += f"\n\n{_cut(approval_text(approval, whole=longest is None), longest)}"
    elif question.payload is not None:
        payload = msgspec.json.format(msgspec.json.encode(question.payload)).decode()
        message += f"\n\n{_cut(payload, longest)}"
    return {"mode": "form", "message": message, "requestedSchema": _form(question)[0]}


def _cut(text: str, longest: int | None) -> str:
    if longest is None or len(text) <= longest:
        return text
    return f"{text[:longest]}… ({len(text) - longest:,} more characters)"


def from_mcp(question: Question, result: Mapping[str, Any]) -> Said | None:
    """Convert the result of ``elicitation/create`` to an answer, or None if the person did not answer.

    Raises `ValueError` if the action is unknown.
    """
    match result.get("action"):
        case "accept":
            content = result.get("content") or {}
            return Said(question.id, _answer(question, content), question.digest)
        case "decline":
            return declined(question)
        case "cancel":
            return None
    raise ValueError(
        f"The elicitation result for question {question.id} has action {result.get('action')!r}."
        " Use 'accept', 'decline' or 'cancel'."
    )


_FORMATS = ("email", "uri", "date", "date-time")


_FIELDS: dict[str, tuple[str, ...]] = {
    "string": ("title", "description", "minLength", "maxLength", "default"),
    "number": ("title", "description", "minimum", "maximum", "default"),
    "integer": ("title", "description", "minimum", "maximum", "default"),
    "boolean": ("title", "description", "default"),
}
"""The properties that the protocol allows for a form field, by its type."""


def _form(question: Question) -> tuple[dict[str, Any], bool]:
    """Return a flat form, and whether its whole content is the answer. Otherwise the field ``answer`` is the answer."""
    schema = schema_of(question)
    definitions = schema.get("$defs", {})
    kind = _resolved(schema, definitions)
    fields = {name: _field(each, definitions) for name, each in kind.get("properties", {}).items()}
    if kind.get("type") == "object" and fields and all(fields.values()):
        return {"type": "object", "properties": fields, "required": list(kind.get("required", ()))}, True
    field = _field(schema, definitions) or {"type": "string", "description": "JSON"}
    return {"type": "object", "properties": {"answer": field}, "required": ["answer"]}, False


def _answer(question: Question, content: Mapping[str, Any]) -> Any:
    """Return the answer that a form contains."""
    schema = schema_of(question)
    definitions = schema.get("$defs", {})
    if not _form(question)[1]:
        return _chosen(content.get("answer"), schema, definitions)
    fields = _resolved(schema, definitions)["properties"]
    return {name: _chosen(value, fields.get(name, {}), definitions) for name, value in content.items()}


def _chosen(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    """Return the choice whose text a person chose: a form has texts only, and a question may have other choices."""
    choices = _choices(_resolved(schema, definitions)) or ()
    return next((each for each in choices if str(each) == value), value)


def _choices(schema: Mapping[str, Any]) -> Sequence[Any] | None:
    found: Sequence[Any] | None = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return found


def _field(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a form field for a string, number, boolean or choice, or None for a nested value."""
    schema = _resolved(schema, definitions)
    if (choices := _choices(schema)) is not None:
        about = {name: schema[name] for name in ("title", "description") if name in schema}
        return {"type": "string", **about, "enum": [str(each) for each in choices]}
    known = _FIELDS.get(schema.get("type", ""))
    if known is None:
        return None
    found = {"type": schema["type"]} | {name: schema[name] for name in known if schema.get(name) is not None}
    return found | ({"format": schema["format"]} if schema.get("format") in _FORMATS else {})


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Resolve references in a schema, and unwrap the type of a value that may be null."""
    some = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    inner = some[0] if len(some) == 1 else definitions.get(name)
    if inner is None:
        return schema
    own = {name: value for name, value in schema.items() if name not in ("anyOf", "$ref")}
    return _resolved({**inner, **own}, definitions)
