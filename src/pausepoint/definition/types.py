"""Compares types: may a value of one type be used where another type is expected?

A workflow uses this to compare the annotations of its steps with the fields of its state. Containers count as
read-only (a `list[Dog]` can be read as `Sequence[Animal]`), and an `int` can be read as a `float`. Types that cannot be
compared here (protocols, type variables, callables) fit, because the value itself is validated at run time.
"""

from __future__ import annotations

import types
from collections import abc
from typing import (
    Annotated,
    Any,
    ForwardRef,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from pausepoint.codec.annotations import unconstrained

NONE = type(None)

_WIDER_NUMBERS: dict[type, tuple[type, ...]] = {int: (float, complex), float: (complex,), bool: (float, complex)}


def bare(annotation: Any) -> Any:
    """Return a type without its wrappers: Annotated, NewType, type aliases, Required and similar.

    >>> bare(Annotated[int, "positive"])
    <class 'int'>
    """
    while True:
        if hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif hasattr(annotation, "__value__") and type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        elif get_origin(annotation) is Annotated or _qualifier(annotation):
            annotation = get_args(annotation)[0]
        else:
            return NONE if annotation is None else annotation


def _qualifier(annotation: Any) -> bool:
    """Return whether this is Required[X], NotRequired[X], ReadOnly[X] or Final[X], which do not change the value."""
    name = getattr(get_origin(annotation), "_name", None) or getattr(get_origin(annotation), "__name__", None)
    return name in {"Required", "NotRequired", "ReadOnly", "Final"}


def members(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, flattened. A type that is not a union is its own single member.

    >>> members(int | None)
    (<class 'int'>, <class 'NoneType'>)
    """
    annotation = bare(annotation)
    if get_origin(annotation) in {Union, types.UnionType}:
        return tuple(member for part in get_args(annotation) for member in members(part))
    if get_origin(annotation) is Literal and None in get_args(annotation):
        others = tuple(value for value in get_args(annotation) if value is not None)
        return (Literal[others], NONE) if others else (NONE,)
    return (annotation,)


def admits_none(annotation: Any) -> bool:
    """Return whether None is a value of this type.

    >>> admits_none(str | None), admits_none(Any), admits_none(str)
    (True, True, False)
    """
    return any(member in (NONE, Any, object) for member in members(annotation))


def misreturned(name: str, annotation: Any, value: object) -> str:
    """Return the error of a function that returned a value of another type; empty if no part of its type excludes it.

    >>> misreturned("count", int | float, None)[:49]
    'count returns int | float, but returned None. Cor'
    >>> misreturned("count", list[int], ["a"])
    ''
    """
    if any(_is_of(member, value) for member in members(annotation)):
        return ""
    returned = "None" if value is None else type(value).__name__
    return (
        f"{name} returns {show(annotation)}, but returned {returned}. Correct the function or its annotation, then"
        " resume the session: finished operations do not run again."
    )


def _is_of(member: Any, value: object) -> bool:
    """Return whether a value may be of a type. Its parts are not compared, and unusual types count as fitting."""
    kind = get_origin(member) or member
    try:
        return not isinstance(kind, type) or isinstance(value, kind)
    except TypeError:  # such as a typed dict
        return True


def without_none(annotation: Any) -> Any:
    """Return the type without None. The type None itself is returned as it is.

    >>> without_none(str | None)
    <class 'str'>
    """
    left = tuple(member for member in members(annotation) if member is not NONE)
    return Union[left] if left else NONE  # noqa: UP007  (built from a tuple)


def promises_more(given: Any, wanted: Any) -> bool:
    """Return whether ``wanted`` has a constraint, such as ``AwareDatetime``, on a type that has none in ``given``.

    >>> from pydantic import AwareDatetime
    >>> from datetime import datetime
    >>> promises_more(list[datetime], list[AwareDatetime]), promises_more(list[AwareDatetime], list[datetime])
    (True, False)
    """
    known = set(_innermost(given))
    more = [part for part in _innermost(wanted) if unconstrained(part) is not part and part not in known]
    return any(unconstrained(part) in known for part in more)


def _innermost(annotation: Any) -> abc.Iterator[Any]:
    for member in members(annotation):
        inside = [part for part in get_args(member) if not isinstance(part, list)]
        if inside and get_origin(member) is not Literal:
            for part in inside:
                yield from _innermost(part)
        elif isinstance(member, type):
            yield member


def fits(given: Any, wanted: Any) -> bool:
    """Return whether every value of type ``given`` can be used where ``wanted`` is expected.

    Constraints are compared only if both types have one. Pydantic checks the others when a value is written.

    >>> fits(list[bool], abc.Sequence[int]), fits(int, str)
    (True, False)
    """
    return all(any(_fits(one, other) for other in members(wanted)) for one in members(given))


def _fits(given: Any, wanted: Any) -> bool:
    """Compare two types that are neither unions nor wrapped."""
    if given == wanted or wanted is object or _unjudged(given) or _unjudged(wanted):
        return True
    plain, other = unconstrained(given), unconstrained(wanted)
    if plain is not given or other is not wanted:
        return (plain is given or other is wanted) and _fits(plain, other)
    if get_origin(given) is Literal:
        return all(_literal_fits(value, wanted) for value in get_args(given))
    if get_origin(wanted) is Literal:
        return False
    if is_typeddict(given) or is_typeddict(wanted):
        return _typed_dict_fits(given, wanted)
    return _class_fits(given, wanted) and _arguments_fit(given, wanted)


def _unjudged(annotation: Any) -> bool:
    if annotation is Any or isinstance(annotation, (TypeVar, ForwardRef, str)):
        return True
    origin: Any = get_origin(annotation) or annotation
    if origin is Literal or is_typeddict(origin):
        return False
    return not isinstance(origin, type) or getattr(origin, "_is_protocol", False) or origin is abc.Callable


def _literal_fits(value: object, wanted: Any) -> bool:
    if get_origin(wanted) is Literal:
        return any(value == other and type(value) is type(other) for other in get_args(wanted))
    return fits(type(value), wanted)


def _class_fits(given: Any, wanted: Any) -> bool:
    one, other = get_origin(given) or given, get_origin(wanted) or wanted
    try:
        return issubclass(one, other) or other in _WIDER_NUMBERS.get(one, ())
    except TypeError:
        return True


def _arguments_fit(given: Any, wanted: Any) -> bool:
    """Compare the type arguments: `list[int]` as `Sequence[str]` fails here."""
    inside = get_args(wanted)
    if not inside:
        return True
    if issubclass(get_origin(wanted), tuple):
        return _tuple_fits(get_args(given), inside)
    seen = _seen_as(given, len(inside))
    return seen is None or all(fits(one, other) for one, other in zip(seen, inside, strict=True))


def _tuple_fits(given: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    if not given:
        return True
    if wanted[-1] is Ellipsis:
        return all(fits(one, wanted[0]) for one in given if one is not Ellipsis)
    return len(given) == len(wanted) and all(fits(one, other) for one, other in zip(given, wanted, strict=True))


def _seen_as(given: Any, count: int) -> tuple[Any, ...] | None:
    """Return the type arguments of ``given`` as a generic with ``count`` arguments; None if unknown."""
    origin, inside = get_origin(given) or given, get_args(given)
    if count == 1 and origin is str:
        return (str,)
    if count == 1 and origin in (bytes, bytearray):
        return (int,)
    if count == 1 and origin is tuple and inside:
        return (Union[tuple(one for one in inside if one is not Ellipsis)],)  # noqa: UP007  (built from a tuple)
    if count == 1 and len(inside) == 2 and issubclass(origin, abc.Mapping):
        return inside[:1]
    return inside if len(inside) == count else None


def _typed_dict_fits(given: Any, wanted: Any) -> bool:
    """Compare TypedDicts key by key. A TypedDict can also be read as a mapping of str."""
    if is_typeddict(given) and is_typeddict(wanted):
        have, need = get_type_hints(given), get_type_hints(wanted)
        return all(key in have and fits(have[key], need[key]) for key in need)
    if is_typeddict(wanted):
        origin, inside = get_origin(given) or given, get_args(given)
        return isinstance(origin, type) and issubclass(origin, abc.Mapping) and (not inside or bare(inside[1]) is Any)
    values = tuple(get_type_hints(given).values())
    seen = types.GenericAlias(dict, (str, Union[values] if values else Any))  # noqa: UP007  (built from a tuple)
    return _class_fits(dict, wanted) and _arguments_fit(seen, wanted)


def show(annotation: Any) -> str:
    """Return a type as its author would write it.

    >>> show(list[int] | None)
    'list[int] | None'
    """
    parts = members(annotation)
    if len(parts) > 1:
        return " | ".join(show(part) for part in parts)
    (one,) = parts
    if one is NONE:
        return "None"
    inside = get_args(one)
    if get_origin(one) is Literal:
        return f"Literal[{', '.join(repr(value) for value in inside)}]"
    name = getattr(get_origin(one) or one, "__name__", None) or str(one).removeprefix("typing.")
    shown = ", ".join(
        "..." if part is Ellipsis else show(part) if not isinstance(part, list) else "..." for part in inside
    )
    return f"{name}[{shown}]" if shown else name
