"""From the fields of a state to options of ``run``, by the model's JSON schema.

Text, numbers and choices are options with a value, booleans are switches (``--x``, ``--no-x``), lists are given by
repeating, all else as JSON. ``--field NAME=VALUE`` sets any field, also one whose name is an option of ``run``.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.exits import USAGE, Refused
from pausepoint.errors import did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pausepoint.definition.workflow import Workflow

PREFIX = "field__"
"""Before the name of a field in the parameters of a call: a name that no other parameter can have."""

SCALARS = {"string": click.STRING, "integer": click.INT, "number": click.FLOAT, "boolean": click.BOOL}


class Json(click.ParamType[Any]):
    """A value written as JSON. Where a text would do as well, what is no JSON is taken as one."""

    name = "json"

    def __init__(self, or_text: bool = False) -> None:
        self.or_text = or_text

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError as error:
            if self.or_text:
                return value
            self.fail(f"{value!r} is no JSON ({error}); an example: '{{\"a\": [1, 2]}}'", param, ctx)


class OneOf(click.ParamType[Any]):
    """One of the values of an enumeration, written as they are."""

    name = "choice"

    def __init__(self, values: Iterable[Any]) -> None:
        self.values = {str(value) if isinstance(value, str) else json.dumps(value): value for value in values}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value not in self.values:
            self.fail(f"{value!r} is none of them{did_you_mean(str(value), self.values)}", param, ctx)
        return self.values[value]


class Field:
    """One field of the state and how it is given."""

    def __init__(self, name: str, schema: dict[str, Any], definitions: dict[str, Any], required: bool) -> None:
        self.name = name
        self.required = required
        self.default = schema.get("default")
        self.help = str(schema.get("description", ""))
        kind = resolved(schema, definitions)
        self.many = kind.get("type") == "array" and "prefixItems" not in kind
        self.type = _type(resolved(kind.get("items", {}), definitions) if self.many else kind)
        self.switch = self.type is click.BOOL and not self.many
        self.is_path = str(kind.get("format", "")).endswith("path")
        self.taken = False  # its option means something else: only --field can set it
        self.by_position = False

    @property
    def option(self) -> str:
        """As it is written on the command line."""
        return "--" + self.name.rstrip("_").replace("_", "-")

    @property
    def metavar(self) -> str:
        """What stands for the value."""
        if isinstance(self.type, OneOf):
            return "|".join(self.type.values)
        if self.is_path:
            return "PATH"
        return {"text": "TEXT", "integer": "INTEGER", "float": "NUMBER", "boolean": "true|false"}.get(
            self.type.name, "JSON"
        )

    @property
    def usage(self) -> str:
        """How to give it."""
        if self.by_position:
            return f"{self.name.upper()}..." if self.many else self.name.upper()
        if self.taken:
            return f"--field {self.name}={self.metavar}"
        return f"{self.option} / --no-{self.option[2:]}" if self.switch else f"{self.option} {self.metavar}"

    def convert(self, texts: list[str]) -> Any:
        """The value of ``--field NAME=VALUE``; several only for a list."""
        if self.many:
            return [self.type.convert(text, None, None) for text in texts]
        if len(texts) > 1:
            raise click.UsageError(f"--field {self.name}= was given {len(texts)} times; it takes one value")
        return self.type.convert(texts[0], None, None)


def resolved(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Without references, and without the ``null`` of an optional field."""
    if "$ref" in schema:
        return resolved(definitions.get(schema["$ref"].rpartition("/")[2], {}), definitions)
    some = [resolved(each, definitions) for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if len(some) == 1:
        return some[0]
    if some and all(each.get("type") in SCALARS for each in some) and any(each["type"] == "string" for each in some):
        return {"type": "string"}  # a Decimal, say: the model makes of the text what it is
    return {"texts": any(each.get("type") == "string" for each in some)} if some else schema


def _type(kind: dict[str, Any]) -> click.ParamType[Any]:
    if "enum" in kind or "const" in kind:
        return OneOf(kind.get("enum", [kind.get("const")]))
    if kind.get("type") in SCALARS:
        return SCALARS[kind["type"]]
    return Json(or_text=bool(kind.get("texts")) or not kind.get("type"))


def fields_of(model: type[BaseModel]) -> dict[str, Field]:
    """The fields of a workflow's state, or of what a program makes it from, in their order."""
    from pydantic.errors import PydanticInvalidForJsonSchema

    try:
        schema = model.model_json_schema(by_alias=False)
    except PydanticInvalidForJsonSchema:
        schema = {}  # a type of its own that says nothing about JSON: then every field takes JSON, or a text
    known, definitions = schema.get("properties", {}), schema.get("$defs", {})
    return {
        name: Field(name, known.get(name, {}), definitions, info.is_required())
        for name, info in model.model_fields.items()
    }


class FieldOption(click.Option):
    """The option of a field. It is left out of a call unless it was given."""

    def __init__(self, field: Field) -> None:
        self.field = field
        shown = f"{field.option}/--no-{field.option[2:]}" if field.switch else field.option
        kind: dict[str, Any] = {"is_flag": True, "default": None} if field.switch else {"type": field.type}
        super().__init__(
            [shown, PREFIX + field.name], help=field.help, metavar=None if field.switch else field.metavar,
            multiple=field.many, **kind,
        )  # fmt: skip

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """With what else there is to know: required, repeatable, what it is if nobody says."""
        return self.field.usage, field_help(self.field)


class FieldArgument(click.Argument):
    """A field that is given by its place. Whether one is missing is said of all fields at once, so not here."""

    def __init__(self, field: Field) -> None:
        field.by_position = True
        super().__init__(
            [PREFIX + field.name], type=field.type, nargs=-1 if field.many else 1, required=False,
            metavar=field.usage if field.required else f"[{field.usage}]",
        )  # fmt: skip


def field_help(field: Field) -> str:
    """What the help says about a field."""
    notes = ["required"] if field.required else []
    notes += ["repeatable"] if field.many else []
    if not field.required and field.default not in (None, "", [], {}):
        notes.append(f"default: {json.dumps(field.default, ensure_ascii=False)}")
    return "  ".join(part for part in (field.help, f"[{'; '.join(notes)}]" if notes else "") if part)


def options_for(fields: Iterable[Field], taken: Iterable[str], arguments: Sequence[str] = ()) -> list[click.Parameter]:
    """An option for every field whose name is still free; those that are ``arguments`` are given by their place."""
    known = {field.name: field for field in fields}
    used = set(taken)
    found: list[click.Parameter] = [FieldArgument(known.pop(name)) for name in arguments]
    for field in known.values():
        names = {field.option, f"--no-{field.option[2:]}"} if field.switch else {field.option}
        field.taken = bool(names & used)
        if not field.taken:
            used |= names
            found.append(FieldOption(field))
    return found


def collect_values(given: dict[str, Any], pairs: Iterable[str], fields: dict[str, Field]) -> dict[str, Any]:
    """The fields that were given, by options and by ``--field``. Refuses unknown ones and says which are missing."""
    values = {
        name.removeprefix(PREFIX): list(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if name.startswith(PREFIX) and value is not None and value != ()
    }
    texts: dict[str, list[str]] = {}
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not mark:
            raise click.UsageError(f"--field takes NAME=VALUE, not {pair!r}")
        name = name if name in fields else name.replace("-", "_")
        if name not in fields:
            raise Refused(f"there is no field {name!r}{did_you_mean(name, fields)}", USAGE)
        texts.setdefault(name, []).append(text)
    values |= {name: fields[name].convert(found) for name, found in texts.items()}
    missing = [field for field in fields.values() if field.required and field.name not in values]
    if missing:
        raise click.UsageError(f"missing: {', '.join(field.usage for field in missing)}")
    return values


def start_arguments(workflow: Workflow[Any], values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The input as `Engine.start` takes it: fields; a model if one of them has the name of an option there."""
    from pausepoint.engine.engine import Engine

    if values.keys().isdisjoint(inspect.signature(Engine.start).parameters):
        return None, values
    state = workflow.shape.build(workflow.shape.start(values))
    state.model_fields_set.intersection_update(values)  # defaults are no input
    return state, {}


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
