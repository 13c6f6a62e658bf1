"""The base of JSON documents: structs that are filled from records, and the JSON schema that is derived from them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any, Self

import msgspec

Moment = Annotated[
    str,
    msgspec.Meta(
        title="moment",
        description="A time in ISO 8601, in UTC.",
        pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?\+00:00$",
    ),
]


class Document(msgspec.Struct):
    """A JSON document. Its docstring and its fields are its schema, which `definitions` returns.

    A field that may be left out has the default ``UNSET``, or any default in a struct with ``omit_defaults``.
    """

    @classmethod
    def of(cls, record: Any, **fields: Any) -> Self:
        """Return the document of a record. ``fields`` are those that the record lacks, or has in another form.

        Times become text in ISO 8601, and spans of time become seconds.

        >>> class Lesson(Document):
        ...     begins_at: Moment
        ...     room: str
        >>> Lesson.of(None, begins_at=datetime.fromisoformat("2026-11-19T10:00+00:00"), room="A").begins_at
        '2026-11-19T10:00:00+00:00'
        """
        own = {name: getattr(record, name) for name in cls.__struct_fields__ if name not in fields}
        return cls(**{name: _plain(value) for name, value in (own | fields).items()})


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return list(value) if isinstance(value, tuple) else value


def definitions(documents: Iterable[type], at: str = "#/$defs/") -> dict[str, Any]:
    """Return the JSON schemas of documents and of everything that they contain, by name. ``at`` is where they will be.

    >>> class Room(Document):
    ...     '''A room, with its ``number``.'''
    ...     number: int
    >>> definitions([Room])
    {'room': {'description': 'A room, with its `number`.', 'type': 'object',\
 'properties': {'number': {'type': 'integer'}}, 'required': ['number']}}
    """
    roots = list(documents)
    _, schemas = msgspec.json.schema_components(roots, ref_template=at + "{name}")
    extending = [each for each in _below(Document) if each.__name__ in schemas and each.__bases__[0] is not Document]
    if bases := {each.__bases__[0] for each in extending if each.__bases__[0].__name__ not in schemas}:
        return definitions([*roots, *bases], at)
    sparse = {each.__name__ for each in _below(msgspec.Struct) if each.__struct_config__.omit_defaults}
    named: dict[str, Any] = {}
    for name, schema in schemas.items():
        if (own := document_name(name)) in named:
            raise ValueError(f"Two documents have the name {own!r} in the schema. Rename one of the classes.")
        named[own] = _tidied(_without_defaults(schema) if name in sparse else schema, named, at)
    extensions = {document_name(each.__name__): _extension(named, each, at) for each in extending}
    return dict(sorted((named | extensions).items()))


def document_name(class_name: str) -> str:
    """Return the name of a document in the schema.

    >>> document_name("StandingPauseDocument"), document_name("LimitsRemoved")
    ('standing_pause', 'limits_removed')
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_name.removesuffix("Document")).lower()


def _below(base: type[msgspec.Struct]) -> Iterable[type[msgspec.Struct]]:
    for child in base.__subclasses__():
        yield child
        yield from _below(child)


def _extension(named: dict[str, Any], document: type, at: str) -> dict[str, Any]:
    """Return the schema of a document that extends another one: a reference to that, and the fields of its own."""
    schema, base = (named[document_name(each.__name__)] for each in (document, document.__bases__[0]))
    fields = {name: kind for name, kind in schema["properties"].items() if base["properties"].get(name) != kind}
    required = [name for name in schema["required"] if name in fields]
    reference = {"$ref": at + document_name(document.__bases__[0].__name__)}
    own = {"type": "object", "properties": fields, "required": required}
    return {"description": schema["description"], "allOf": [reference, own]}


def _without_defaults(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a struct that leaves out fields with their defaults: null as a default is never there."""
    fields: dict[str, Any] = {}
    for name, kind in schema["properties"].items():
        fields[name] = {key: value for key, value in kind.items() if key != "default"}
        if "default" in kind and kind["default"] is None and "anyOf" in kind:
            [fields[name]] = [option for option in kind["anyOf"] if option != {"type": "null"}]
    return schema | {"properties": fields}


def _tidied(schema: Any, named: dict[str, Any], at: str) -> Any:
    """Return a part of a schema with our names. A type that has a name of its own goes to ``named``."""
    if isinstance(schema, list):
        return [_tidied(part, named, at) for part in schema]
    if not isinstance(schema, dict):
        return schema
    tidy: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$ref":
            tidy[key] = at + document_name(value.rpartition("/")[2])
        elif key == "description":
            tidy[key] = re.sub(r"\bNone\b", "null", " ".join(value.split()).replace("``", "`"))
        elif key == "properties":
            tidy[key] = {name: _tidied(kind, named, at) for name, kind in value.items()}
            # A default is for readers of input; a document has the field anyhow, unless it is UNSET.
            tidy["required"] = [name for name in value if name in schema["required"] or "default" in value[name]]
        elif key not in ("title", "required", "default"):
            tidy[key] = _tidied(value, named, at)
    title = schema.get("title", "")
    if not title[:1].islower():
        return tidy
    named[title] = tidy
    return {"$ref": at + title}
