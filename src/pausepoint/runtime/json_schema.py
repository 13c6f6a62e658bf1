"""Checks an answer against a JSON schema, with complaints that a person understands.

The package ``jsonschema`` does the work. It is an extra, because most programs describe answers by Python types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from pausepoint.errors import StepError

MOST_COMPLAINTS = 5
"""How many complaints one answer gets."""


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
