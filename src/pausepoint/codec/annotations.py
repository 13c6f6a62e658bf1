"""Analyse annotations once, so that plain values can be stored on a fast path.

`plan` returns the fast path for values that exactly match their annotation. Annotations that it does not know (unions,
dataclasses, custom serializers, hidden content) have no plan; their values take the slow path of `codec.values.Typed`.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, Flag
from math import isfinite
from operator import methodcaller
from pathlib import PurePath
from typing import Annotated, Any, Literal, NamedTuple, NewType, Union, get_args, get_origin

from pausepoint.codec.walk import INT_MAX, INT_MIN, LEAVES, NotPlain, Walk, encode_sorted, is_model, model_fields

_SCALARS: frozenset[type] = frozenset({str, int, float, bool, types.NoneType})


def _options(annotation: Any) -> tuple[Any, ...] | None:
    """Return the members of a union; None for anything else."""
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else None


def scalars(annotation: Any) -> frozenset[type] | None:
    """Return the exact types of a JSON scalar or a union of scalars; None for anything else."""
    if isinstance(annotation, NewType):
        return scalars(annotation.__supertype__)
    members = _options(annotation) or (types.NoneType if annotation is None else annotation,)
    kinds = [member for member in members if isinstance(member, type) and member in _SCALARS]
    return frozenset(kinds) if len(kinds) == len(members) else None


# Pydantic's names for types with a constraint. They are classes at run time, but no value is an instance of them.
_CONSTRAINED: dict[str, type] = {
    "AwareDatetime": datetime, "NaiveDatetime": datetime, "PastDatetime": datetime, "FutureDatetime": datetime,
    "PastDate": date, "FutureDate": date, "EmailStr": str,
}  # fmt: skip


def unconstrained(annotation: Any) -> Any:
    """Return the type of the values, which differs from the annotation for ``AwareDatetime`` and similar types.

    >>> from pydantic import AwareDatetime
    >>> unconstrained(AwareDatetime), unconstrained(int)
    (<class 'datetime.datetime'>, <class 'int'>)
    """
    if isinstance(annotation, type) and annotation.__module__ in ("pydantic.types", "pydantic.networks"):
        return _CONSTRAINED.get(annotation.__name__, annotation)
    return annotation


def immutable(annotation: Any) -> bool:
    """Return whether values of this type cannot be changed in place."""
    annotation = unconstrained(annotation)
    if isinstance(annotation, NewType):
        return immutable(annotation.__supertype__)
    if annotation is None or isinstance(annotation, type):
        return annotation is None or annotation in LEAVES or issubclass(annotation, Enum | PurePath)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return immutable(args[0])
    if origin is Literal:
        return True
    if origin in (Union, types.UnionType, tuple, frozenset):
        return all(arg is Ellipsis or immutable(arg) for arg in args)
    return False


def json_only(annotation: Any) -> bool:
    if scalars(annotation) is not None:
        return True
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is list:
        return json_only(args[0])
    if origin is dict:
        return args[0] is str and json_only(args[1])
    return _options(annotation) is not None and all(map(json_only, args))


_Dump = Callable[[Any, Walk], Any]


class Plan(NamedTuple):
    """The fast path for values that exactly match their annotation, without subclasses or hidden content.

    ``dump`` raises `NotPlain` for any other value. ``safe`` means that the stored data always decodes to the same
    value; with validators or constraints, the caller must check that.
    """

    dump: _Dump
    safe: bool


def plan(annotation: Any, depth: int, within: tuple[Any, ...]) -> Plan | None:
    """Return the plan for an annotation, or None. ``within`` are the enclosing models; recursive models have none."""
    kinds = scalars(annotation)
    if kinds is not None:
        return Plan(_exactly(kinds), True)
    if annotation is Any:
        return Plan(lambda value, walk: walk.tag(value, depth), True)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = plan(args[0], depth, within)
        return inner and Plan(inner.dump, False)
    if origin is Literal:
        return _choice(args)
    if _options(annotation) is not None:
        return _optional(args, depth, within)
    if origin is not None:
        return _container(origin, args, depth, within)
    if isinstance(annotation, type) and annotation in _BARE:
        return _container(annotation, _BARE[annotation], depth, within)
    if isinstance(annotation, type):
        return _of_class(annotation, depth, within)
    return None


_BARE: dict[Any, tuple[Any, ...]] = {list: (Any,), dict: (Any, Any), tuple: (Any, ...), set: (Any,), frozenset: (Any,)}


def _of_class(kind: type, depth: int, within: tuple[Any, ...]) -> Plan | None:
    plain = unconstrained(kind)
    if plain is not kind:
        return _zoned(kind.__name__) or Plan(_exactly(frozenset({plain})), False)
    if kind in LEAVES:
        return Plan(_exactly(frozenset({kind})), kind is not Decimal)  # pydantic refuses decimals that are not finite
    if issubclass(kind, Enum):
        return _enum(kind)
    if is_model(kind) and kind not in within:
        return _model(kind, depth, (*within, kind))
    return None


def _zoned(name: str) -> Plan | None:
    """Return the plan for datetimes with, or without, a time zone. That is visible, so no round trip is needed."""
    if name not in ("AwareDatetime", "NaiveDatetime"):
        return None
    aware = name == "AwareDatetime"

    def dump(value: Any, walk: Walk) -> Any:
        if type(value) is not datetime or (value.tzinfo is not None) is not aware:
            raise NotPlain
        return walk.tag(value, 0)

    return Plan(dump, True)


def _exactly(kinds: frozenset[type]) -> _Dump:
    def dump(value: Any, walk: Walk) -> Any:
        kind = type(value)
        if kind not in kinds:
            raise NotPlain
        if kind is str:
            walk.size -= len(value)
            return value
        return value if kind is bool or value is None else walk.tag(value, 0)

    return dump


def _choice(choices: tuple[Any, ...]) -> Plan | None:
    if any(type(choice) is not str for choice in choices):
        return None

    def dump(value: Any, walk: Walk) -> Any:
        if type(value) is not str or value not in choices:
            raise NotPlain
        return value

    return Plan(dump, True)


def _enum(kind: type[Enum]) -> Plan | None:
    values = {type(member.value) for member in kind}
    if issubclass(kind, Flag) or len(values) != 1 or not values <= {str, int}:
        return None

    def dump(value: Any, walk: Walk) -> Any:
        if type(value) is not kind:
            raise NotPlain
        return walk.tag(value.value, 0)

    return Plan(dump, True)


def _optional(args: tuple[Any, ...], depth: int, within: tuple[Any, ...]) -> Plan | None:
    """Return the plan for ``T | None``. With more members, only pydantic can decide which one a value belongs to."""
    others = [arg for arg in args if arg is not type(None)]
    inner = plan(others[0], depth, within) if len(others) == 1 else None
    if inner is None:
        return None
    some = inner.dump

    def dump(value: Any, walk: Walk) -> Any:
        return None if value is None else some(value, walk)

    return Plan(dump, inner.safe)


def _container(origin: Any, args: tuple[Any, ...], depth: int, within: tuple[Any, ...]) -> Plan | None:
    if origin is dict:
        return _dict(args, depth, within)
    if origin is tuple and args[1:] != (Ellipsis,):
        return _fixed_tuple(args, depth, within)
    if origin not in (list, tuple, set, frozenset):
        return None
    bulk = _BULK.get(args[0]) if origin is list and isinstance(args[0], type) else None
    if bulk is not None:
        return Plan(_bulk_list(args[0], bulk, depth), True)
    item = plan(args[0], depth + 1, within)
    return item and Plan(_collection(origin, item.dump, depth), item.safe)


def _collection(origin: Any, item: _Dump, depth: int) -> _Dump:
    def dump(value: Any, walk: Walk) -> Any:
        if type(value) is not origin:
            raise NotPlain
        walk.enter(value, depth)
        items = [item(entry, walk) for entry in value]
        if origin is list:
            return items
        if origin is not tuple:
            items.sort(key=encode_sorted)
        return {f"${origin.__name__}": items}

    return dump


def _fixed_tuple(args: tuple[Any, ...], depth: int, within: tuple[Any, ...]) -> Plan | None:
    plans = [plan(arg, depth + 1, within) for arg in args]
    known = [plan for plan in plans if plan is not None]
    if len(known) < len(args):
        return None

    def dump(value: Any, walk: Walk) -> Any:
        if type(value) is not tuple or len(value) != len(known):
            raise NotPlain
        walk.enter(value, depth)
        return {"$tuple": [plan.dump(entry, walk) for plan, entry in zip(known, value, strict=True)]}

    return Plan(dump, all(plan.safe for plan in known))


_dollar = methodcaller("startswith", "$")


def _dict(args: tuple[Any, ...], depth: int, within: tuple[Any, ...]) -> Plan | None:
    item = plan(args[1], depth + 1, within) if args[0] is str or args[0] is Any else None
    if item is None:
        return None
    entry = item.dump

    def dump(value: Any, walk: Walk) -> Any:
        if type(value) is not dict or not _only(str, value) or any(map(_dollar, value)):
            raise NotPlain
        walk.enter(value, depth)
        walk.size -= sum(map(len, value))
        return {key: entry(part, walk) for key, part in value.items()}

    return Plan(dump, item.safe)


def _only(kind: type, values: Iterable[Any]) -> bool:
    return {kind}.issuperset(map(type, values))


def _bulk_str(values: list[str], walk: Walk) -> bool:
    walk.size -= sum(map(len, values))
    return True


# Lists of one JSON scalar are stored as they are. Each type has the check that msgspec does not make.
_BULK: dict[Any, Callable[[list[Any], Walk], bool]] = {
    str: _bulk_str,
    int: lambda values, walk: not values or (min(values) >= INT_MIN and max(values) <= INT_MAX),
    float: lambda values, walk: all(map(isfinite, values)),
    bool: lambda values, walk: True,
}


def _bulk_list(kind: type, check: Callable[[list[Any], Walk], bool], depth: int) -> _Dump:
    def dump(value: Any, walk: Walk) -> Any:
        if type(value) is not list or not _only(kind, value):
            raise NotPlain
        walk.enter(value, depth)
        return value if check(value, walk) else [walk.tag(entry, depth) for entry in value]

    return dump


# Model settings that cannot change the stored or loaded data.
_HARMLESS = frozenset({
    "arbitrary_types_allowed", "extra", "frozen", "from_attributes", "json_schema_extra", "populate_by_name",
    "protected_namespaces", "title", "use_attribute_docstrings", "validate_assignment", "validate_by_alias",
    "validate_by_name", "serialize_by_alias", "alias_generator",
})  # fmt: skip


def _model(model: Any, depth: int, within: tuple[Any, ...]) -> Plan | None:
    """Return the plan for a model whose only content is its fields."""
    infos = model_fields(model)
    deco = model.__pydantic_decorators__
    hidden = (
        model.__pydantic_root_model__
        or model.__private_attributes__
        or model.model_config.get("extra") == "allow"
        or deco.field_serializers
        or deco.model_serializers
        or any(info.exclude or getattr(info, "exclude_if", None) or name[0] == "$" for name, info in infos.items())
    )
    plans = {} if hidden else {name: plan(info.annotation, depth + 1, within) for name, info in infos.items()}
    dumps = {name: plan.dump for name, plan in plans.items() if plan is not None}
    if hidden or len(dumps) < len(infos):
        return None
    quiet = not (
        deco.field_validators
        or deco.model_validators
        or deco.validators
        or deco.root_validators
        or model.__pydantic_custom_init__
        or model.__pydantic_post_init__
        or not _HARMLESS.issuperset(model.model_config)
        or any(info.metadata for info in infos.values())
        or _customised(model)
    )
    return Plan(_fields(model, dumps, depth), quiet and all(plan.safe for plan in plans.values() if plan))


def _customised(model: Any) -> bool:
    from pydantic import BaseModel

    return any("__get_pydantic_core_schema__" in vars(base) for base in model.__mro__ if base not in BaseModel.__mro__)


def _fields(model: type, dumps: dict[str, _Dump], depth: int) -> _Dump:
    def dump(value: Any, walk: Walk) -> Any:
        if type(value) is not model:
            raise NotPlain
        content = value.__dict__
        if content.keys() != dumps.keys():
            raise NotPlain
        walk.enter(content, depth)
        return {name: part(content[name], walk) for name, part in dumps.items()}

    return dump
