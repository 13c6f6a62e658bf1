"""Convert questions to MCP elicitations (2025-06-18, 2025-11-25 and 2026-07-28), and their results to answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pausepoint.integrations.answers import Said, declined, schema_of
from pausepoint.model.questions import Question


def to_mcp(question: Question) -> dict[str, Any]:
    """Return the parameters of ``elicitation/create``.

    MCP forms are flat. An answer with nested values becomes one string field that takes JSON. The question's payload
    follows its text, as JSON.
    """
    message = question.next_question + (f" ({question.complaint})" if question.complaint else "")
    if question.payload is not None:
        message += f"\n\n{msgspec.json.format(msgspec.json.encode(question.payload)).decode()}"
    return {"mode": "form", "message": message, "requestedSchema": _form(question)[0]}


def from_mcp(question: Question, result: Mapping[str, Any]) -> Said | None:
    """Convert the result of ``elicitation/create`` to an answer, or None if the person did not answer.

    Raises `ValueError` if the action is unknown.
    """
    match result.get("action"):
        case "accept":
            content = result.get("content") or {}
            is_whole = _form(question)[1]
            return Said(question.id, content if is_whole else content.get("answer"), question.digest)
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


def _field(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a form field for a string, number, boolean or choice, or None for a nested value."""
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
    """Resolve references in a schema, and unwrap the type of a value that may be null."""
    some = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    inner = some[0] if len(some) == 1 else definitions.get(name)
    if inner is None:
        return schema
    own = {name: value for name, value in schema.items() if name not in ("anyOf", "$ref")}
    return _resolved({**inner, **own}, definitions)
