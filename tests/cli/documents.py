"""Checks of the documents that commands print with --json and --jsonl against their schema."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from pausepoint.cli.schema import schema

SCHEMA = schema()


def check(command: str, printed: str, form: str = "json") -> None:
    """Fail unless the schema allows everything that a command printed."""
    lines = printed.splitlines() if form == "jsonl" else [printed]
    for line in lines:
        validator(command, form).validate(json.loads(line))


@cache
def validator(command: str, form: str) -> Draft202012Validator:
    """Return a validator that also refuses names that the schema does not list."""
    schema = SCHEMA["commands"].get(command, {}).get(form)
    assert schema, f"src/pausepoint/cli/schema.py has no {form} of {command}; put it there"
    return Draft202012Validator({"$defs": _shapes(), **_closed(schema)})


@cache
def _shapes() -> Any:
    return _closed({"$defs": SCHEMA["$defs"]})["$defs"]


def _closed(schema: Any, extended: bool = False) -> Any:
    """Forbid other names, except in parts of ``allOf`` and in definitions, which other schemas extend."""
    if isinstance(schema, list):
        return [_closed(each, extended) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("$defs", "properties"):
            found[key] = {name: _closed(each, key == "$defs") for name, each in value.items()}
        else:
            found[key] = _closed(value, key == "allOf")
    if not extended and schema.keys() & {"$ref", "allOf", "properties"}:
        found["unevaluatedProperties"] = False
    return found
