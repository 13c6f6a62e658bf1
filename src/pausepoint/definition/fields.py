"""The engine's view of a state model: its places, which of them grow, and how a value is validated.

A *place* is a field of the state, or a field of a nested model ("plan.title"). Every place can be read and validated
on its own, so a checkpoint touches only the fields that a step wrote. Fields are identified by their attribute names,
never by aliases.

A validator that reads other fields cannot run on a single place. A model with such a validator has
`Shape.needs_whole` set, and a checkpoint then validates the whole state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, get_args, get_origin

from pausepoint.codec.values import Typed, typed
from pausepoint.definition.types import NONE, admits_none, bare, members, show, without_none
from pausepoint.errors import DefinitionError, StateRefused, did_you_mean
from pausepoint.model.ids import shortened

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

T = TypeVar("T")
Growing = Literal["append", "merge"]

_WINDOW = re.compile(r"(?P<path>[^\[\]]+)\[-(?P<count>[1-9][0-9]{0,8}):\]", re.ASCII)


class Growth:
    """The type of the markers `Append` and `Merge`, which declare that a field grows."""

    __slots__ = ("kind", "name")

    def __init__(self, name: str, kind: Growing) -> None:
        self.name: str = name
        self.kind: Growing = kind

    def __repr__(self) -> str:
        return self.name


Append: Growth = Growth("Append", "append")
"""``Annotated[list[X], Append]``: a step that writes the field returns only the new items."""

Merge: Growth = Growth("Merge", "merge")
"""``Annotated[dict[str, X], Merge]``: a step that writes the field returns only the new or changed keys."""


class Replace(Generic[T]):
    """A value that overwrites a field marked `Append` or `Merge`, instead of adding to it.

    >>> Replace(["only this"])
    Replace(['only this'])
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value: T = value

    def __repr__(self) -> str:
        return f"Replace({self.value!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Replace) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash((Replace, self.value))


class At:
    """The path that a parameter reads: ``Annotated[str, At("plan.title")]``. Its own name does not matter.

    ``Annotated[list[Message], At("messages[-20:]")]`` reads only the last 20 items of a list. The cost depends on these
    items, not on the length of the list.
    """

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path: str = path

    def __repr__(self) -> str:
        return f"At({self.path!r})"


def windowed(path: str) -> tuple[str, int | None]:
    """Split a path into the place and the number of items to read from its end; None means the whole place.

    >>> windowed("messages[-20:]"), windowed("messages")
    (('messages', 20), ('messages', None))
    """
    if "[" not in path and "]" not in path:
        return path, None
    found = _WINDOW.fullmatch(path)
    if found is None:
        place = path.partition("[")[0] or "messages"
        raise DefinitionError(
            f"At({path!r}) is not valid. Read a whole field, as in At({place!r}), or the last items of a list, as in"
            f" At('{place}[-20:]')."
        )
    return found["path"], int(found["count"])


class Place:
    """A place in a state model that can be read and written. ``annotation`` is its type without growth markers.

    ``under_optional``: a model on the path may be None, so the place can be read but not written.
    ``frozen``: the model declares the field as frozen, so it cannot be written.
    """

    __slots__ = (
        "_rules",
        "_validate",
        "admits_none",
        "annotation",
        "field",
        "frozen",
        "grows",
        "growth",
        "parts",
        "path",
        "typed",
        "under_optional",
    )

    def __init__(self, path: str, info: FieldInfo, rules: _Rules, under_optional: bool) -> None:
        self.path: str = path
        self.parts: tuple[str, ...] = tuple(path.split("."))
        self.field: str = self.parts[0]
        self.annotation: Any = info.annotation
        self.grows: Growing | None = next((mark.kind for mark in info.metadata if isinstance(mark, Growth)), None)
        self.typed: Typed = typed(_storable(info))
        self.growth: Typed | None = self.typed if self.grows else None
        self.admits_none: bool = admits_none(info.annotation)
        self.under_optional: bool = under_optional
        self.frozen: bool = bool(info.frozen)
        self._rules = rules
        self._validate: Callable[[object], Any] | None = None

    def check(self, value: object) -> Any:
        """Validate a value for this place with the constraints and validators of its field. Raises `StateRefused`.

        Validators that read other fields run only in `Shape.check_whole`. If such a validator runs before the type
        check, the value is returned unchecked here.
        """
        validate = self._validate
        if validate is None:
            validate = self._validate = self._rules.validator(self.parts[-1])
        try:
            return validate(value)
        except Exception as exc:
            raise refusal(self.path, value, exc) from exc

    @property
    def is_list(self) -> bool:
        """Whether the stored value is a list (or None), so that its last items can be read alone."""
        stored = self.typed.annotation
        kinds = [get_origin(member) or member for member in members(stored) if member is not NONE]
        return get_origin(stored) is not Annotated and kinds == [list]

    def __repr__(self) -> str:
        return f"Place({self.path!r}, {show(self.annotation)})"


def _storable(info: FieldInfo) -> Any:
    """Return the type that decodes stored values of a field.

    A stored value has already passed the field's validators and must not run through them twice. So constraints and
    before/after/wrap validators are removed, and only annotations that define the type remain.
    """
    kept = [mark for mark in info.metadata if _defines_type(mark)]
    if info.discriminator is not None:
        from pydantic import Discriminator

        kept.append(Discriminator(info.discriminator) if isinstance(info.discriminator, str) else info.discriminator)
    annotation = info.annotation
    for mark in kept:
        annotation = Annotated[annotation, mark]  # type: ignore[assignment]  # a type made at run time
    return annotation


def _defines_type(mark: object) -> bool:
    passed = {"AfterValidator", "BeforeValidator", "WrapValidator"}
    return hasattr(mark, "__get_pydantic_core_schema__") and type(mark).__name__ not in passed


class Shape:
    """The places of a state model. Create it with `shape`."""

    __slots__ = ("_nested", "_places", "fields", "model", "needs_whole")

    def __init__(self, model: type[BaseModel]) -> None:
        self.model: type[BaseModel] = model
        rules = _Rules(model)
        self.fields: dict[str, Place] = {
            name: Place(name, info, rules, under_optional=False) for name, info in model.model_fields.items()
        }
        self._places = dict(self.fields)
        self._nested = {name: found for name, info in model.model_fields.items() if (found := _nested(info.annotation))}
        self.needs_whole: bool = any(_Rules(each).crosses_fields for each in _reachable(model))

    def __repr__(self) -> str:
        return f"Shape({self.model.__name__}: {', '.join(self.fields)})"

    def place(self, path: str) -> Place:
        """Return the place at ``path``. Raises `DefinitionError`, with the closest name, if there is none."""
        found = self._places.get(path)
        if found is None:
            found = self._places[path] = self._find(path)
        return found

    def _find(self, path: str) -> Place:
        if "[" in path:
            whole = path.partition("[")[0]
            raise DefinitionError(
                f"{path!r} is not a field. A window can only be read, with At({path!r}). Name {whole!r} here."
            )
        model, under_optional, parts = self.model, False, path.split(".")
        for depth, name in enumerate(parts):
            here = ".".join(parts[:depth])
            if name not in model.model_fields:
                known = [f"{here}.{field}" if here else field for field in model.model_fields]
                raise DefinitionError(
                    f"{self.model.__name__} has no field {shortened(path)}{did_you_mean(path, known)}"
                )
            info = model.model_fields[name]
            if depth == len(parts) - 1:
                return Place(path, info, _Rules(model), under_optional)
            nested = _nested(info.annotation)
            if nested is None:
                raise DefinitionError(_no_parts(path, ".".join(parts[: depth + 1]), info.annotation))
            model, under_optional = nested, under_optional or admits_none(info.annotation)
        raise AssertionError("a path has at least one part")

    def start(self, given: Mapping[str, Any] | BaseModel) -> dict[str, Any]:
        """Return the validated first values of a session, by field name. Missing fields get fresh defaults."""
        if not isinstance(given, Mapping):
            if type(given) is not self.model:
                raise StateRefused(
                    f"The state must be a {self.model.__name__}, not a {type(given).__name__}."
                    f" Pass {self.model.__name__}(...), or its fields by name.",
                    field="",
                )
            given = given.__dict__
        for name in given:
            if name not in self.fields:
                problem = f"{self.model.__name__} has no field {name!r}{did_you_mean(str(name), self.fields)}"
                raise StateRefused(problem, field=str(name))
        return self._validated(dict(given))

    def build(self, values: Mapping[str, Any]) -> BaseModel:
        """Return a state made of values that are already valid. No validator runs. A missing field gets its default."""
        content: dict[str, Any] = {}
        for name, info in self.model.model_fields.items():
            if name in values:
                content[name] = values[name]
            elif info.is_required():
                raise StateRefused(
                    f"{self.model.__name__}.{name} has no value and no default. Give the field a default, or write it"
                    " in an earlier step.",
                    field=name,
                )
            else:
                content[name] = info.get_default(call_default_factory=True, validated_data=content)
        made = self.model.__new__(self.model)
        # Unpickling is the only way to fill a model that neither validates nor runs model_post_init.
        made.__setstate__(
            {
                "__dict__": content,
                "__pydantic_fields_set__": set(values),
                "__pydantic_extra__": None,
                "__pydantic_private__": None,
            }
        )
        return made

    def check_whole(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Run every validator of the model, and return all values. Raises `StateRefused`."""
        # Pydantic treats an instance of a nested model as valid. It may be invalid after a partial write, so nested
        # models are validated again from their fields.
        return self._validated(
            {
                name: _opened(value, self._nested[name]) if name in self._nested else value
                for name, value in values.items()
            }
        )

    def _validated(self, values: dict[str, Any]) -> dict[str, Any]:
        try:
            made = self.model.__pydantic_validator__.validate_python(values, by_alias=False, by_name=True)
        except Exception as exc:
            raise refusal("", values, exc, self._field_of) from exc
        return dict(made.__dict__)

    def _field_of(self, place: str) -> str:
        """Return the name of a field that pydantic reports by its name or its alias."""
        for name, info in self.model.model_fields.items():
            if place in (info.validation_alias, info.alias):
                return name
        return place


def shape(model: type[BaseModel]) -> Shape:
    """Return the shape of a state model. Raises `DefinitionError` if the class cannot be a state."""
    problems = list(_unfit(model))
    if problems:
        raise DefinitionError(" ".join(problems), problems=tuple(problems))
    return _shape(model)


@lru_cache(maxsize=512)
def _shape(model: type[BaseModel]) -> Shape:
    return Shape(model)


def _unfit(model: Any) -> Iterator[str]:
    """Yield the reasons why a class cannot be a state: some of its content would not be stored."""
    from pydantic import BaseModel, RootModel

    if isinstance(model, BaseModel):
        yield f"state= is an instance of {type(model).__name__}. Pass the class itself."
        return
    if not isinstance(model, type) or not issubclass(model, BaseModel) or model is BaseModel:
        yield f"state= must be a pydantic model (a subclass of BaseModel), not {show(model)}."
        return
    if issubclass(model, RootModel):
        yield f"{model.__name__} is a RootModel and has no fields. Put its value into a field of a BaseModel."
        return
    if model.__pydantic_complete__ is not True and model.model_rebuild(raise_errors=False) is not True:
        yield f"{model.__name__} uses a type that is not defined. Define it before the workflow."
        return
    if model.model_config.get("extra") == "allow":
        yield f'{model.__name__} allows extra fields (extra="allow"), which have no type. Declare a dict field.'
    for each in _reachable(model):
        yield from _unstored(each)
    if model.model_config.get("arbitrary_types_allowed"):  # otherwise pydantic has already refused them
        yield from _unknown_types(model)


def _unstored(model: type[BaseModel]) -> Iterator[str]:
    for name in model.__private_attributes__:
        yield f"{model.__name__}.{name} is a private attribute and is not stored. Declare a field without underscore."
    for name, info in model.model_fields.items():
        if info.exclude:
            yield f"{model.__name__}.{name} has exclude=True and would not be stored. Remove exclude, or the field."
        marks = [mark for mark in info.metadata if isinstance(mark, Growth)]
        if len(marks) > 1:
            yield f"{model.__name__}.{name} is marked {' and '.join(map(repr, marks))}. Choose one."
        elif marks and not _can_grow(marks[0], info.annotation):
            wanted = "list[X]" if marks[0] is Append else "dict[str, X]"
            yield f"{model.__name__}.{name} is marked {marks[0]} and must be a {wanted}, not {show(info.annotation)}."
        elif _buried(info.annotation):
            yield (
                f"{model.__name__}.{name}: Append and Merge mark a whole field. Write Annotated[..., Append] around"
                " the whole type."
            )


def _unknown_types(model: type[BaseModel]) -> Iterator[str]:
    for name, info in model.model_fields.items():
        try:
            _ = typed(_storable(info)).adapter
        except DefinitionError as exc:
            yield f"{model.__name__}.{name}: {exc.message}"


def _can_grow(mark: Growth, annotation: Any) -> bool:
    annotation = bare(annotation)
    if mark.kind == "append":
        return (get_origin(annotation) or annotation) is list
    inside = get_args(annotation)
    return (get_origin(annotation) or annotation) is dict and (not inside or bare(inside[0]) is str)


def _buried(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated and any(isinstance(mark, Growth) for mark in annotation.__metadata__):
        return True
    return any(_buried(part) for part in get_args(annotation))


def _nested(annotation: Any) -> type[BaseModel] | None:
    """Return the model type of a field that holds a model, or a model or None; otherwise None."""
    from pydantic import BaseModel, RootModel

    (*others, one) = members(without_none(annotation))
    if not others and isinstance(one, type) and issubclass(one, BaseModel) and not issubclass(one, RootModel):
        return one if one is not BaseModel else None
    return None


def _reachable(model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return the model and all nested models whose fields are places of it."""
    found = [model]
    for each in found:
        for info in each.model_fields.values():
            nested = _nested(info.annotation)
            if nested is not None and nested not in found:
                found.append(nested)
    return found


def _opened(value: object, model: type[BaseModel]) -> object:
    """Return a nested model as a dict of its fields, so that it is validated again. Return other values unchanged."""
    if type(value) is not model:
        return value
    return {
        name: _opened(part, nested) if (nested := _nested(model.model_fields[name].annotation)) else part
        for name, part in value.__dict__.items()
    }


def _no_parts(path: str, here: str, annotation: Any) -> str:
    kinds = {get_origin(member) or member for member in members(annotation)}
    if dict in kinds:
        hint = f" Read or write {here!r} as a whole, or mark it Merge and return only the keys that change."
    elif list in kinds:
        hint = f" Read or write {here!r} as a whole, or mark it Append and return only the new items."
    else:
        hint = " Only fields of a nested pydantic model have a path."
    return f"{path!r} is not a field: {here!r} is {show(annotation)}, which has no fields.{hint}"


class _Rules:
    """The validation rules of one model, field by field, taken from its pydantic core schema."""

    def __init__(self, model: type[BaseModel]) -> None:
        self.model = model
        self.definitions: dict[str, Any] = {}
        self.config: Any = None
        self.model_wide: bool = False
        self.fields: dict[str, Any] = self._open(model.__pydantic_core_schema__)
        self.reads_others: set[str] = {
            name for name, field in self.fields.items() if _reads_other_fields(field["schema"])
        }

    def _open(self, schema: Any) -> dict[str, Any]:
        """Return the schemas of the fields. Note the validators around them, which apply to the whole model."""
        while schema["type"] != "model-fields":
            if schema["type"] == "definitions":
                self.definitions = {each["ref"]: each for each in schema["definitions"]}
            elif schema["type"] == "model":
                self.config = schema.get("config")
                self.model_wide |= bool(schema.get("post_init") or schema.get("custom_init"))
            elif schema["type"] != "definition-ref":
                self.model_wide = True
            schema = self.definitions[schema["schema_ref"]] if "schema_ref" in schema else schema.get("schema")
            if schema is None:  # a model with a custom schema can only be validated as a whole
                return {}
        return dict(schema["fields"])

    @property
    def crosses_fields(self) -> bool:
        """Whether the model can be invalid although each field is valid on its own."""
        return bool(self.model_wide or self.reads_others or any(self._watched()) or not self._complete())

    def _complete(self) -> bool:
        return self.fields.keys() == self.model.model_fields.keys()

    def _watched(self) -> Iterator[bool]:
        """Yield, for each field that grows, whether something other than the item type constrains the whole value."""
        for name, info in self.model.model_fields.items():
            if name in self.fields and any(isinstance(mark, Growth) for mark in info.metadata):
                schema = self.fields[name]["schema"]
                plain = schema["schema"] if schema["type"] == "default" else schema
                yield not plain.keys() <= {"type", "items_schema", "keys_schema", "values_schema", "metadata", "ref"}

    def validator(self, name: str) -> Callable[[object], Any]:
        """Return a function that validates one field alone, without validators that read other fields."""
        schema = _alone(self.fields[name]["schema"]) if self._complete() else None
        if schema is None:
            return _unchecked
        from pydantic_core import SchemaValidator

        if self.definitions:
            schema = {"type": "definitions", "schema": schema, "definitions": list(self.definitions.values())}
        return partial(SchemaValidator(schema, self.config).validate_python, by_alias=False, by_name=True)


def _alone(schema: Any) -> Any:
    """Return a field's schema without trailing validators that read other fields; None if others remain."""
    while _reads_other_fields(schema):
        if schema["type"] not in ("default", "function-after"):
            return None
        schema = schema["schema"]
    return schema


def _unchecked(value: object) -> object:
    return value


def _reads_other_fields(schema: Any) -> bool:
    """Return whether a validator of this field takes `ValidationInfo`, which shows it the fields before it."""
    if isinstance(schema, (list, tuple)):
        return any(_reads_other_fields(each) for each in schema)
    # Validators inside another model, dataclass or TypedDict see only the fields of that type.
    if not isinstance(schema, dict) or schema.get("type") in {"model", "dataclass", "typed-dict"}:
        return False
    function = schema.get("function")
    if isinstance(function, dict) and function.get("type") == "with-info":
        return True
    passed = {"metadata", "serialization", "default", "function", "config"}
    return any(_reads_other_fields(each) for key, each in schema.items() if key not in passed)


def refusal(path: str, value: object, exc: Exception, name: Callable[[str], str] = str) -> StateRefused:
    """Convert an error from pydantic about the value for ``path`` into a `StateRefused`."""
    from pydantic import ValidationError

    where = path or "the state"
    if isinstance(exc, RecursionError):
        return StateRefused(
            f"{where}: the {type(value).__name__} is nested too deep to validate. Make it flatter.", field=path
        )
    if not isinstance(exc, ValidationError):
        return StateRefused(
            f"A validator of {where} raised {type(exc).__name__}: {str(exc).rstrip('.')}. Raise ValueError to refuse a"
            " value.",
            field=path,
        )
    errors = exc.errors(include_url=False, include_context=False)
    lines = [f"{_located(path, error['loc'], name)}: {_reason(error)}" for error in errors[:5]]
    more = f"; and {len(errors) - 5} more" if len(errors) > 5 else ""
    first = str(errors[0]["loc"][0]) if errors[0]["loc"] else ""
    return StateRefused("; ".join(lines) + more, field=path or name(first))


def _located(path: str, loc: tuple[int | str, ...], name: Callable[[str], str]) -> str:
    for index, part in enumerate(loc):
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            part = name(part) if index == 0 and not path else part
            path += f".{part}" if path else part
    return path or "the state"


def _reason(error: Any) -> str:
    if error["type"] == "missing":
        return "a value is required"
    return f"{error['msg']} (got {type(error['input']).__name__})"


def overlap(one: str, other: str) -> bool:
    """Return whether two paths are the same place, or one is a part of the other."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")
