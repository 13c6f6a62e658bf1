"""``FIELD=VALUE`` on the command line: a text becomes what the field's type takes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pausepoint.cli.failing import USAGE, Refused

if TYPE_CHECKING:
    from pausepoint.workflow import Workflow

_JSON_TYPES = {
    str: {"string"}, bool: {"boolean"}, int: {"integer", "number"}, float: {"number"}, list: {"array"},
    dict: {"object"}, type(None): {"null"},
}  # fmt: skip


def assigned(workflow: Workflow[Any], assignments: Iterable[str]) -> dict[str, Any]:
    """The values of ``--set``, by field or part of one (``plan.title``). They are plain; the model validates them."""
    found: dict[str, Any] = {}
    for each in assignments:
        path, equals, text = each.partition("=")
        path = path.strip()
        if not equals or not path:
            raise Refused(f"--set {each!r}: write FIELD=VALUE, such as --set topic=squid", USAGE)
        if path in found:
            raise Refused(f"--set {path} is given twice", USAGE)
        found[path] = from_text(workflow.shape.place(path).annotation, text)
    return found


def from_text(annotation: Any, text: str) -> Any:
    """What a text means where a value of some type is wanted.

    A text where only a text can be meant; else JSON; what is no JSON is left for the type itself to read or refuse.

    >>> from_text(str, "5"), from_text(int, "5"), from_text(list[str], '["a"]'), from_text(bool, "yes")
    ('5', 5, ['a'], 'yes')
    >>> from_text(str | None, "null"), from_text(str | None, "five"), from_text(int | str, "5")
    (None, 'five', 5)
    """
    kinds = _kinds(annotation)
    if kinds == {"string"}:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if "string" in kinds and kinds.isdisjoint(_JSON_TYPES[type(value)]):
        return text
    return value


def typed(workflow: Workflow[Any], plain: dict[str, Any]) -> dict[str, Any]:
    """Plain values, by field or part of one, as their types read them from JSON: a strict model takes no others."""
    return {path: _typed(workflow.shape.place(path).annotation, value) for path, value in plain.items()}


def _typed(annotation: Any, plain: Any) -> Any:
    from pydantic import PydanticUserError, TypeAdapter, ValidationError

    try:
        return TypeAdapter(annotation).validate_json(json.dumps(plain))
    except (ValidationError, PydanticUserError):
        return plain  # so that the state's own model says what is wrong


def _kinds(annotation: Any) -> set[str]:
    """Which kinds of JSON a type takes; empty if that is not known."""
    from pydantic import PydanticUserError, TypeAdapter

    try:
        schema = TypeAdapter(annotation).json_schema()
    except PydanticUserError:
        return set()
    return set(_walk(schema, schema.get("$defs", {})))


def _walk(schema: dict[str, Any], known: dict[str, Any]) -> Iterator[str]:
    if "$ref" in schema:
        yield from _walk(known[schema["$ref"].rpartition("/")[2]], known)
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _walk(part, known)
    if "type" in schema:
        yield schema["type"]
    elif "enum" in schema or "const" in schema:
        for value in schema.get("enum", [schema.get("const")]):
            yield from _JSON_TYPES[type(value)]
