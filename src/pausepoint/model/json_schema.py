"""Checks an answer against a JSON schema, with complaints that a person understands.

The package ``jsonschema`` does the work. It is an extra, because most programs describe answers by Python types.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from pausepoint.errors import StepError
from pausepoint.name import NAME

logger = logging.getLogger(NAME)

MOST_COMPLAINTS = 5
"""How many complaints one answer gets."""

Decides = Literal["step", "type", "schema"]
"""What decides whether an answer is valid: only the step, the plain type that the schema names, or all of the schema.
Types and choices may have validators of their own, which only the step has."""

PLAIN_TYPES = (int, float, bool)
"""The types without validators of their own whose answers can be judged without the step."""


class JsonSchema:
    """A JSON schema. Call it with a value to get what is wrong with it; an empty string if the value fits."""

    def __init__(self, schema: dict[str, Any]) -> None:
        try:
            from jsonschema.exceptions import SchemaError
            from jsonschema.validators import Draft202012Validator, validator_for
            from referencing import Registry
        except ImportError:
            raise StepError(
                "ctx.ask(schema=...) needs the package jsonschema, which is not installed. Install pausepoint[schema],"
                " or describe the answer by a type."
            ) from None
        kind = validator_for(schema, default=Draft202012Validator)
        try:
            kind.check_schema(schema)
        except SchemaError as error:
            raise ValueError(
                f"schema= is not a valid JSON schema: {error.message} at {error.json_path}. Correct the schema."
            ) from None
        self._schema = schema
        # An empty registry: a reference to another document must not load anything from the network.
        self._validator = kind(schema, registry=Registry(), format_checker=kind.FORMAT_CHECKER)

    def __call__(self, value: Any) -> str:
        from referencing.exceptions import Unresolvable

        try:
            errors = sorted(self._validator.iter_errors(value), key=lambda error: [str(part) for part in error.path])
        except Unresolvable as error:
            raise ValueError(f"schema= refers to {error.ref!r}, which is not part of it. Add it to $defs.") from None
        said = [": ".join(filter(None, (_place(error.path), error.message))) for error in errors[:MOST_COMPLAINTS]]
        return "; ".join(said)

    def read(self, value: Any) -> tuple[Any, str]:
        """Return an answer as a value that fits, also if it was typed as text, and what is wrong if none does."""
        wrong = self(value)
        if wrong:
            for other in readings(value, self._schema):
                if not self(other):
                    return other, ""
        return value, wrong


def _place(path: Any) -> str:
    return ".".join(str(part) for part in path)


def readings(value: Any, schema: dict[str, Any]) -> Iterator[Any]:
    """Yield what a text may mean: a choice in another case, or JSON, as people type values that are not text.

    >>> list(readings(" Formal", {"enum": ["formal", "playful"]}))
    ['formal']
    >>> list(readings("7", {"type": "integer"}))
    [7]
    """
    if not isinstance(value, str):
        return
    plain = value.strip().casefold()
    yield from (each for each in schema.get("enum", ()) if str(each).strip().casefold() == plain)
    try:
        yield msgspec.json.decode(value)
    except msgspec.MsgspecError:
        return


# before the step has seen it

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "integer": (int, float), "number": (int, float), "boolean": (bool, int, float),
    "null": (type(None),),
}  # fmt: skip


def objection(schema: dict[str, Any] | None, value: Any, decides: Decides = "step") -> str:
    """Return why an answer does not match its JSON schema; an empty string if it does, or only the step can decide.

    Text may be the written form of another type. If only the step decides, it reads the text.

    >>> objection({"enum": ["formal", "playful"]}, "rude")
    "it must be one of 'formal', 'playful'"
    >>> objection({"type": "object", "required": ["street"]}, {"town": "Kiel"})
    "'street' is missing"
    >>> objection({"type": "integer"}, "3", "type"), objection({"type": "integer"}, "XIV")
    ('', '')
    >>> objection({"type": "integer"}, "x", "type")
    'it must be of type integer, and this text is not'
    """
    return _plain_objection(schema, value) or _full_objection(schema or {}, value, decides)


def _plain_objection(schema: dict[str, Any] | None, value: Any) -> str:
    """Return what is wrong with an answer at first sight, whatever decides in the end."""
    schema = {"type": "string"} if schema is None else schema
    if (choices := schema.get("enum")) is not None:
        alike = [each for each in choices if each == value or (isinstance(value, str) and _same_text(each, value))]
        return "" if alike else f"it must be one of {', '.join(repr(each) for each in choices)}"
    if isinstance(value, str):
        return ""
    kind = schema.get("type")
    if isinstance(kind, str) and not isinstance(value, _TYPES.get(kind, (str,))):
        return f"it must be {'text' if kind == 'string' else f'of type {kind}'}, not {type(value).__name__}"
    missing = [name for name in schema.get("required", ()) if isinstance(value, dict) and name not in value]
    return f"{', '.join(map(repr, missing))} {'is' if len(missing) == 1 else 'are'} missing" if missing else ""


def _full_objection(schema: dict[str, Any], value: Any, decides: Decides) -> str:
    kind = schema.get("type")
    if decides == "type" and isinstance(kind, str) and not _is_plain(kind, value):
        return f"it must be of type {kind}, and this {'text' if isinstance(value, str) else 'number'} is not"
    if decides == "schema":
        try:
            return JsonSchema(schema).read(value)[1]
        except (StepError, ValueError) as error:  # jsonschema is not installed here, or a reference leads nowhere
            logger.warning("This process cannot check the answer, so only the step does: %s", error)
    return ""


_YES_OR_NO = frozenset(("0", "off", "f", "false", "n", "no", "1", "on", "t", "true", "y", "yes"))


def _is_plain(kind: str, value: Any) -> bool:
    """Return whether a step may read an answer as an integer, a number or a boolean."""
    if isinstance(value, str):
        text = value.strip()
        if kind == "boolean" and text.casefold() in _YES_OR_NO:
            return True
        try:
            return _is_plain(kind, float(text))
        except ValueError:
            pass
        try:
            inner = msgspec.json.decode(text)
        except msgspec.MsgspecError:
            return False
        return isinstance(inner, bool | str) and _is_plain(kind, inner)
    if not isinstance(value, int | float):
        return False
    return kind == "number" or (value in (0, 1) if kind == "boolean" else isinstance(value, int) or value.is_integer())


def _same_text(choice: Any, text: str) -> bool:
    return str(choice).strip().casefold() == text.strip().casefold()
