"""Turn the fields of a state into options of ``run``, by the model's JSON schema.

Text, numbers and choices are options with a value, booleans are switches (``--x``, ``--no-x``), lists are repeated
options or one JSON list, everything else is JSON. ``--field NAME=VALUE`` sets any field, even one whose name is
an option of ``run``.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.exits import USAGE, Refused, not_one_of
from pausepoint.errors import did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pausepoint.definition.workflow import Workflow

PREFIX = "field__"
"""The prefix of a field's parameter name, which no other parameter has."""


class Scalar(click.ParamType[Any]):
    """A type of click, with an error message that names what is accepted."""

    def __init__(self, kind: click.ParamType[Any], accepted: str) -> None:
        self.kind = kind
        self.name = kind.name
        self.accepted = accepted

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.kind.convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is not {self.accepted}.", param, ctx)


SCALARS: dict[str, click.ParamType[Any]] = {
    "string": click.STRING,
    "integer": Scalar(click.INT, "a whole number"),
    "number": Scalar(click.FLOAT, "a number"),
    "boolean": Scalar(click.BOOL, "true or false"),
}


class Json(click.ParamType[Any]):
    """A value written as JSON. With ``or_text``, anything that is not JSON is a string."""

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
            self.fail(f"{value!r} is not JSON ({error}). Write for example '{{\"a\": [1, 2]}}'.", param, ctx)


class OneOf(click.ParamType[Any]):
    """One of the values of an enumeration."""

    name = "choice"

    def __init__(self, values: Iterable[Any]) -> None:
        self.values = {str(value) if isinstance(value, str) else json.dumps(value): value for value in values}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value not in self.values:
            self.fail(not_one_of(value, self.values), param, ctx)
        return self.values[value]


class Items(click.ParamType[Any]):
    """One item of a list, or all of them as a JSON list, as `edit --set` accepts it."""

    def __init__(self, kind: click.ParamType[Any]) -> None:
        self.kind = kind
        self.name = kind.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and value.lstrip().startswith("["):
            try:
                return _Many(json.loads(value))
            except ValueError:
                pass  # a text that only begins like a list
        return self.kind.convert(value, param, ctx)


class _Many(list[Any]):
    """Several items that one option gave."""


def _flat(items: Iterable[Any]) -> list[Any]:
    return [each for item in items for each in (item if isinstance(item, _Many) else [item])]


class Field:
    """One field of the state, as an option or argument."""

    def __init__(self, name: str, schema: dict[str, Any], definitions: dict[str, Any], required: bool) -> None:
        self.name = name
        self.required = required
        self.default = schema.get("default")
        self.help = str(schema.get("description", ""))
        kind = resolved(schema, definitions)
        self.many = kind.get("type") == "array" and "prefixItems" not in kind
        item = resolved(kind.get("items", {}), definitions)
        self.type = _type(item if self.many else kind)
        if self.many and item.get("type") != "array":  # of a list of lists, a JSON list is one item
            self.type = Items(self.type)
        self.switch = self.type is SCALARS["boolean"] and not self.many
        self.is_path = str(kind.get("format", "")).endswith("path")
        self.taken = False  # its option has another meaning, so only --field can set it
        self.by_position = False

    @property
    def option(self) -> str:
        """The name of the option."""
        return "--" + self.name.rstrip("_").replace("_", "-")

    @property
    def metavar(self) -> str:
        """The placeholder for the value in the help."""
        kind = self.type.kind if isinstance(self.type, Items) else self.type
        if isinstance(kind, OneOf):
            return "|".join(kind.values)
        if self.is_path:
            return "PATH"
        return {"text": "TEXT", "integer": "INTEGER", "float": "NUMBER", "boolean": "true|false"}.get(
            self.type.name, "JSON"
        )

    @property
    def usage(self) -> str:
        """How to write the field on the command line."""
        if self.by_position:
            return f"{self.name.upper()}..." if self.many else self.name.upper()
        if self.taken:
            return f"--field {self.name}={self.metavar}"
        return f"{self.option} / --no-{self.option[2:]}" if self.switch else f"{self.option} {self.metavar}"

    def convert(self, texts: list[str]) -> Any:
        """Return the value of ``--field NAME=VALUE``. Only a list accepts several texts."""
        if self.many:
            return _flat(self.type.convert(text, None, None) for text in texts)
        if len(texts) > 1:
            raise click.UsageError(f"--field {self.name} is given {len(texts)} times. Give it once.")
        return self.type.convert(texts[0], None, None)


def resolved(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without references, and without the ``null`` of an optional field."""
    if "$ref" in schema:
        return resolved(definitions.get(schema["$ref"].rpartition("/")[2], {}), definitions)
    some = [resolved(each, definitions) for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if len(some) == 1:
        return some[0]
    if some and all(each.get("type") in SCALARS for each in some) and any(each["type"] == "string" for each in some):
        return {"type": "string"}  # such as a Decimal; the model parses the text
    return {"texts": any(each.get("type") == "string" for each in some)} if some else schema


def _type(kind: dict[str, Any]) -> click.ParamType[Any]:
    if "enum" in kind or "const" in kind:
        return OneOf(kind.get("enum", [kind.get("const")]))
    if kind.get("type") in SCALARS:
        return SCALARS[kind["type"]]
    return Json(or_text=bool(kind.get("texts")) or not kind.get("type"))


def fields_of(model: type[BaseModel]) -> dict[str, Field]:
    """Return the fields of a model in their order: of a workflow's state, or of a program's ``begin``."""
    from pydantic.errors import PydanticInvalidForJsonSchema

    try:
        schema = model.model_json_schema(by_alias=False)
    except PydanticInvalidForJsonSchema:
        schema = {}  # a custom type without a JSON schema: every field then accepts JSON or text
    known, definitions = schema.get("properties", {}), schema.get("$defs", {})
    return {
        name: Field(name, known.get(name, {}), definitions, info.is_required())
        for name, info in model.model_fields.items()
    }


def input_of(workflow: Workflow[Any]) -> dict[str, Field]:
    """Return the fields that a session of the workflow can start with. The return value of a function is not input."""
    return {name: field for name, field in fields_of(workflow.model).items() if name != workflow.returns}


class FieldOption(click.Option):
    """The option of a field. It is passed to the command only if it was given."""

    def __init__(self, field: Field) -> None:
        self.field = field
        shown = f"{field.option}/--no-{field.option[2:]}" if field.switch else field.option
        kind: dict[str, Any] = {"is_flag": True, "default": None} if field.switch else {"type": field.type}
        super().__init__(
            [shown, PREFIX + field.name], help=field.help, metavar=None if field.switch else field.metavar,
            multiple=field.many, **kind,
        )  # fmt: skip

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the help of the option: required, repeatable, default."""
        return self.field.usage, field_help(self.field)


class FieldArgument(click.Argument):
    """A field as an argument. Missing fields are reported together, so the argument itself is optional."""

    def __init__(self, field: Field) -> None:
        field.by_position = True
        super().__init__(
            [PREFIX + field.name], type=field.type, nargs=-1 if field.many else 1, required=False,
            metavar=field.usage if field.required else f"[{field.usage}]",
        )  # fmt: skip


def field_help(field: Field) -> str:
    """Return the help text of a field."""
    notes = ["required"] if field.required else []
    notes += ["repeatable, or a JSON list" if isinstance(field.type, Items) else "repeatable"] if field.many else []
    if not field.required and field.default not in (None, "", [], {}):
        notes.append(f"default: {json.dumps(field.default, ensure_ascii=False)}")
    return "  ".join(part for part in (field.help, f"[{'; '.join(notes)}]" if notes else "") if part)


def options_for(fields: Iterable[Field], taken: Iterable[str], arguments: Sequence[str] = ()) -> list[click.Parameter]:
    """Return an argument for each name in ``arguments``, and an option for every other field whose name is free."""
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
    """Return the values of all fields, from options and ``--field``. Refuse unknown and missing fields."""
    values = {
        name.removeprefix(PREFIX): _flat(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if name.startswith(PREFIX) and value is not None and value != ()
    }
    texts: dict[str, list[str]] = {}
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not mark:
            raise click.UsageError(f"--field {pair!r} has no value. Write NAME=VALUE.")
        name = name if name in fields else name.replace("-", "_")
        if name not in fields:
            raise Refused(f"The workflow has no field {name!r}{did_you_mean(name, fields)}", USAGE)
        texts.setdefault(name, []).append(text)
    values |= {name: fields[name].convert(found) for name, found in texts.items()}
    missing = [field for field in fields.values() if field.required and field.name not in values]
    if missing:
        raise click.UsageError(f"Missing input: {', '.join(field.usage for field in missing)}")
    return values


def start_arguments(workflow: Workflow[Any], values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the input for `Engine.start`: fields, or a model if a field has the name of a parameter there."""
    from pausepoint.engine.engine import Engine

    if values.keys().isdisjoint(inspect.signature(Engine.start).parameters):
        return None, values
    state = workflow.shape.build(workflow.shape.start(values))
    state.model_fields_set.intersection_update(values)  # defaults are not input
    return state, {}


_JSON_TYPES = {
    str: {"string"}, bool: {"boolean"}, int: {"integer", "number"}, float: {"number"}, list: {"array"},
    dict: {"object"}, type(None): {"null"},
}  # fmt: skip


def assigned(workflow: Workflow[Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Return the values of ``--set``, by field or part of a field (``plan.title``). The model validates them later."""
    found: dict[str, Any] = {}
    for each in assignments:
        path, equals, text = each.partition("=")
        path = path.strip()
        if not equals or not path:
            raise Refused(f"--set {each!r} has no field or no value. Write FIELD=VALUE, such as topic=squid.", USAGE)
        if path in found:
            raise Refused(f"--set {path} is given twice. Give it once.", USAGE)
        found[path] = from_text(workflow.shape.place(path).annotation, text)
    return found


def from_text(annotation: Any, text: str) -> Any:
    """Return the value that a text means for a type.

    If the type accepts only strings, the text stays as it is; otherwise it is read as JSON. Text that is not JSON stays
    as it is, too, and the type itself reads or refuses it.

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
    """Return plain values, by field or part of a field, converted to the fields' types. A strict model needs this."""
    return {path: _typed(workflow.shape.place(path).annotation, value) for path, value in plain.items()}


def _typed(annotation: Any, plain: Any) -> Any:
    from pydantic import PydanticUserError, TypeAdapter, ValidationError

    try:
        return TypeAdapter(annotation).validate_json(json.dumps(plain))
    except (ValidationError, PydanticUserError):
        return plain  # the state model reports what is wrong


def _kinds(annotation: Any) -> set[str]:
    """Return the JSON types that a type accepts; empty if they are not known."""
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
