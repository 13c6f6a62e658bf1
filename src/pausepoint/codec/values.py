"""The codec: values are stored as data, never as code.

The stored form is JSON text (UTF-8). Types that JSON lacks are stored as an object with one key, a tag that starts with
``$``. The tags are a closed set:

    $datetime $date $time $timedelta    ISO 8601 text; [text, zone, fold] for IANA zones; [days, seconds, micros]
    $uuid $decimal $path $bytes         text; bytes in base64
    $tuple $set $frozenset              a list; sets are sorted, so that equal sets give equal bytes
    $map                                a list of pairs, for dicts with keys that are not strings or start with ``$``
    $float $int                         nan, inf, -inf; integers beyond 64 bits, in hexadecimal

Enums, models, dataclasses and named tuples are stored as their plain content. The *declared* type (`Typed`) restores
them; no name is ever imported from stored data. Without a declared type they are refused. So is a time zone that is
neither a fixed offset nor a ``ZoneInfo``. The order of dicts is kept; `model_fields_set` is not.

`Limits`: 64 levels of nesting, 32 MiB per encoded value, 1,000,000 nodes. Every refusal names the path to the value,
its type and what to do instead. Encoding checks that the value decodes to an equal value, unless its type guarantees
that.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator
from datetime import datetime, time
from decimal import Decimal
from enum import Enum
from functools import cached_property, lru_cache
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_origin

import msgspec

from pausepoint.codec.annotations import Plan, immutable, json_only, plan, scalars
from pausepoint.codec.walk import (
    DEFAULT_LIMITS,
    INT_MAX,
    INT_MIN,
    LEAVES,
    DumpedWalk,
    Limits,
    NotPlain,
    OpenWalk,
    Refusal,
    Walk,
    encode_json,
    encode_sorted,
    is_model,
    key_segment,
    model_fields,
    read,
    refused,
    survey,
    type_name,
    write,
)
from pausepoint.errors import DefinitionError, StateRefused, ValueRefused

if TYPE_CHECKING:
    from pydantic import TypeAdapter

PART = 1000
"""How many items of a long list are encoded or decoded at once."""

LONG = 256 * 1024
"""The encoded size from which a list is decoded in parts."""

_raw_list = msgspec.json.Decoder(list[msgspec.Raw])

__all__ = ["DEFAULT_LIMITS", "Limits", "Typed", "as_json", "as_plain", "decode", "encode", "fingerprint", "typed"]


def encode(data: object, path: str, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Return the stored form of a value without a declared type. Error messages refer to the value as ``path``.

    >>> encode({"when": datetime(2024, 2, 29), "tags": {"b", "a"}}, "facts")
    b'{"when":{"$datetime":"2024-02-29T00:00:00"},"tags":{"$set":["a","b"]}}'
    >>> encode([{"source": print}], "facts")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    pausepoint.errors.ValueRefused: facts[0]['source']: builtin_function_or_method cannot be stored: ...
    """
    return write(Walk(limits), data, path)


def decode(data: bytes) -> Any:
    """Return the value that `encode` stored.

    >>> decode(encode((1, 1.0, True, None), "x"))
    (1, 1.0, True, None)
    """
    return read(data)


def fingerprint(*parts: object) -> bytes:
    """Return a digest of values. Equal values have equal digests in every process, in any order of dicts and sets.

    >>> fingerprint("look_up", {"a": 1, "b": 2}) == fingerprint("look_up", {"b": 2, "a": 1})
    True
    >>> fingerprint(1) == fingerprint(1.0)
    False
    """
    return sha256(write(OpenWalk(DEFAULT_LIMITS), list(parts), "input", encode_sorted)).digest()


def as_json(value: object) -> bytes:
    """Return a value as JSON for other programs, without tags."""
    from pydantic_core import to_json  # imported here because listing sessions must not load Pydantic

    return to_json(value)


def as_plain(value: object) -> Any:
    """Return a value as front ends see it: as plain JSON data."""
    from pydantic_core import from_json, to_json

    return from_json(to_json(value, inf_nan_mode="strings", bytes_mode="base64"))


def typed(annotation: Any) -> Typed:
    """Return the `Typed` for an annotation. Hashable annotations share one object."""
    try:
        # The text distinguishes annotations that compare equal but differ in order: `int | str` and `str | int`.
        return _typed(annotation, repr(annotation))
    except TypeError:
        return Typed(annotation)


@lru_cache(maxsize=4096)
def _typed(annotation: Any, text: str) -> Typed:
    return Typed(annotation)


class Typed:
    """Validates, encodes and decodes values of a type annotation.

    >>> when = typed(list[datetime | None])
    >>> when.decode(when.encode([datetime(2024, 2, 29), None], "when"), "when")
    [datetime.datetime(2024, 2, 29, 0, 0), None]
    >>> when.validate("soon", "when")
    Traceback (most recent call last):
    ...
    pausepoint.errors.StateRefused: when: Input should be a valid list (got str)
    """

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation
        self.immutable: bool = immutable(annotation)
        self._direct = scalars(annotation) or frozenset()
        self._is_list = get_origin(annotation) is list

    def __repr__(self) -> str:
        return f"Typed({_describe(self.annotation)})"

    def validate(self, value: object, path: str) -> Any:
        """Return the value converted to the type. Raises `StateRefused` if it does not fit."""
        if type(value) in self._direct:
            return value
        try:
            return self.adapter.validate_python(value, by_name=True)
        except ValueError as exc:  # pydantic's ValidationError is one
            raise StateRefused(str(_complaint(exc, value, path)), field=path) from exc

    def store(self, value: object, path: str, limits: Limits = DEFAULT_LIMITS) -> bytes:
        """Validate and encode. A value that takes the fast path already has exactly the declared type."""
        data = self._encode_plainly(value, limits)
        return self.encode(self.validate(value, path), path, limits) if data is None else data

    def encode(self, value: object, path: str, limits: Limits = DEFAULT_LIMITS) -> bytes:
        """Return the stored form. Raises `ValueRefused` if the value would not decode to an equal value of the type."""
        data = self._encode_plainly(value, limits)
        if data is not None:
            return data
        if self.annotation is Any:
            return encode(value, path, limits)
        return self._encode_carefully(value, path, limits)

    def is_stored_as(self, value: object, data: bytes, limits: Limits = DEFAULT_LIMITS) -> bool:
        """Return whether a value has exactly this stored form. Only the fast path is tried, so False may be wrong.

        A plan stores different values differently, and the round trip was checked when the data was stored.
        """
        if self._is_long(value):
            return self._is_stored_in_parts(value, data, limits)
        written = self._write_plainly(value, limits)
        return written is not None and written[0] == data

    def decode(self, data: bytes, path: str) -> Any:
        """Return the stored value. Raises `StateRefused` if it does not fit the type, which may have changed."""
        decoder = self._decoder
        # Searching for one byte is ten times as fast as searching for two.
        if decoder is not None and (b"$" not in data or b'"$' not in data):
            try:
                return decoder.decode(data)
            except (ValueError, RecursionError):
                pass  # the slow path reports the error: read() about the text, pydantic about the value
        if self._is_list and len(data) > LONG:
            try:
                return self._load_in_parts(data)
            except Exception:
                pass  # decoding it as a whole reports the error with its place
        value = read(data)
        if self.annotation is Any or type(value) in self._direct:
            return value
        try:
            return self._load(value)
        except DefinitionError:
            raise
        except Exception as exc:
            why = f"The stored value does not fit {_describe(self.annotation)}: {_complaint(exc, value, path)}"
            raise StateRefused(why, field=path) from exc

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """Return pydantic's adapter for the annotation. Created on first use, because that is slow."""
        import pydantic

        try:
            return pydantic.TypeAdapter(self.annotation)
        except pydantic.errors.PydanticUserError as exc:
            raise DefinitionError(
                f"Values of type {_describe(self.annotation)} cannot be stored. Use a type that pydantic supports, or a"
                f" model. Pydantic reports: {exc.message}"
            ) from exc

    @cached_property
    def _plan(self) -> Plan | None:
        return None if self.annotation is Any else plan(self.annotation, 0, ())

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any] | None:
        """Return a msgspec decoder for types that need no tags. It is as strict as pydantic, and faster."""
        if not json_only(self.annotation):
            return None
        try:
            return msgspec.json.Decoder(self.annotation)
        except TypeError:
            return None

    def _encode_plainly(self, value: Any, limits: Limits) -> bytes | None:
        """Encode on the fast path, for a value that exactly matches the annotation. None means: use the slow path."""
        written = self._write_plainly(value, limits)
        if written is None:
            return None
        data, unproved = written
        return data if unproved is None or self._survives(unproved, data, limits) else None

    def _write_plainly(self, value: Any, limits: Limits) -> tuple[bytes, Plan | None] | None:
        """Return the fast path's encoding, and the plan if the round trip must still be checked."""
        kind = type(value)
        try:
            if kind in self._direct:
                if (kind is float and not isfinite(value)) or (kind is int and not INT_MIN <= value <= INT_MAX):
                    return None
                data = encode_json(value)
                return (data, None) if len(data) <= limits.value_bytes else None
            quick = self._plan
            if quick is None:
                return None
            walk = Walk(limits)
            pieces = _parts(value, quick, walk) if self._is_long(value) else [_written(value, quick, walk)]
            data = b"".join(pieces)
            if len(data) > limits.value_bytes:
                return None
        except (NotPlain, Refusal, UnicodeEncodeError, RecursionError):
            return None
        return data, None if quick.safe else quick

    def _is_long(self, value: Any) -> bool:
        return self._is_list and type(value) is list and len(value) > PART

    def _is_stored_in_parts(self, value: Any, data: bytes, limits: Limits) -> bool:
        """Compare a long list with its stored form part by part, without writing all of it again."""
        if self._plan is None or len(data) > limits.value_bytes:
            return False
        at = 0
        try:
            for part in _parts(value, self._plan, Walk(limits)):
                if not data.startswith(part, at):
                    return False
                at += len(part)
        except (NotPlain, Refusal, UnicodeEncodeError, RecursionError):
            return False
        return at == len(data)

    def _survives(self, quick: Plan, data: bytes, limits: Limits) -> bool:
        """Return whether the decoded value encodes to the same data.

        A plan stores different values differently, so the same data means the same value.
        """
        try:
            return encode_json(quick.dump(self._load(read(data)), Walk(limits))) == data
        except Exception:
            return False

    def _encode_carefully(self, value: object, path: str, limits: Limits) -> bytes:
        # Walk it first, because pydantic must not get a value that contains itself or never ends.
        survey(value, path, limits, opaque=True)
        data = self._dump(value, path, limits)
        try:
            back = self._load(read(data))
        except Exception as exc:
            where, kind, reason, _ = _complaint(exc, value, path, inside=value)
            why = f"it does not fit {_describe(self.annotation)} ({reason})"
            raise refused(where, kind, why, _DECLARE) from exc
        lost = _difference(value, back)
        if lost is not None:
            where, was, becomes = lost
            why = f"it would come back as {becomes}"
            raise refused(path + where, was, why, _DECLARE)
        return data

    def _dump(self, value: object, path: str, limits: Limits) -> bytes:
        try:
            # No warnings: the round trip below finds every problem, and knows the path.
            dumped = self.adapter.dump_python(value, round_trip=True, by_alias=False, warnings="none")
            return write(DumpedWalk(limits), dumped, path)
        except DefinitionError:
            raise
        except Exception as exc:
            # The dump has lost the attribute names, so locate the problem in the value itself.
            survey(value, path, limits)
            if isinstance(exc, ValueRefused):
                raise
            why = f"it does not fit {_describe(self.annotation)} ({_first_line(exc)})"
            raise refused(path, type_name(value), why, _DECLARE) from exc

    def _load_in_parts(self, data: bytes) -> list[Any]:
        """Decode a long list part by part, so that its plain form never exists as a whole."""
        items = _raw_list.decode(data)
        found: list[Any] = []
        for at in range(0, len(items), PART):
            found += self._load(read(b"[%b]" % b",".join(items[at : at + PART])))
        return found

    def _load(self, value: Any) -> Any:
        return self.adapter.validate_python(value, strict=False, by_alias=False, by_name=True)


def _written(value: Any, quick: Plan, walk: Walk) -> bytes:
    """Return the encoding of a value. Raises `Refusal` before large texts are written out."""
    tagged = quick.dump(value, walk)
    walk.check()
    return encode_json(tagged)


def _parts(value: list[Any], quick: Plan, walk: Walk) -> Iterator[bytes | memoryview]:
    """Yield the encoding of a long list in parts. Its tagged form as a whole takes several times the memory."""
    for at in range(0, len(value), PART):
        yield b"," if at else b"["
        yield memoryview(_written(value[at : at + PART], quick, walk))[1:-1]
    yield b"]"


_DECLARE = "Declare the type that it has, or store plain data."


def _describe(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)


def _first_line(exc: Exception) -> str:
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return (lines[-1] if lines else type(exc).__name__)[:300]


class _Complaint(NamedTuple):
    """The first problem that an exception reports."""

    path: str
    type: str
    reason: str
    more: int = 0

    def __str__(self) -> str:
        more = f"; and {self.more} more" if self.more else ""
        return f"{self.path}: {self.reason} (got {self.type}){more}"


def _complaint(exc: Exception, value: object, path: str, inside: object = None) -> _Complaint:
    """Return the first problem. If ``inside`` is given, its attribute names make the better path."""
    from pydantic import ValidationError

    if not isinstance(exc, ValidationError):
        return _Complaint(path, type_name(value), _first_line(exc))
    first = exc.errors(include_url=False, include_context=False)[0]
    found = None if inside is None else _followed(inside, first["loc"])
    if found is not None:
        return _Complaint(path + found[0], type_name(found[1]), first["msg"])
    steps = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]]
    where = "".join(steps if len(steps) <= 16 else [*steps[:16], "…"])
    return _Complaint(path + where, type_name(first["input"]), first["msg"], exc.error_count() - 1)


def _followed(value: Any, location: tuple[int | str, ...]) -> tuple[str, Any] | None:
    """Return the path and value at a pydantic location; None if it is not a real place, such as a union's member."""
    path = ""
    for part in location:
        indexed = isinstance(value, list | tuple | dict) and not hasattr(value, "_fields")
        try:
            value = value[part] if indexed else getattr(value, str(part))
        except (LookupError, TypeError, AttributeError):
            return None
        path += key_segment(part) if indexed else f".{part}"
    return path, value


_Lost = tuple[str, str, str]


def _difference(value: Any, back: Any) -> _Lost | None:
    """Return where a value and its decoded copy differ: the path, the old type, and a description of the copy.

    Not recursive, and never compares a pair twice, because hidden parts of a value are not subject to the limits.
    """
    seen: set[tuple[int, int]] = set()
    todo: list[tuple[str, Any, Any]] = [("", value, back)]
    while todo:
        where, a, b = todo.pop()
        if type(a) is not type(b):
            if type(a) is int and type(b) is float and a == b:
                continue  # a float field with an integer default, which pydantic does not validate
            return where, type_name(a), type_name(b)
        if type(a) in LEAVES or isinstance(a, Enum):
            if not _same_leaf(a, b):
                return where, type_name(a), f"another {type_name(b)}"
            continue
        if (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        pairs = _opened(a, b)
        if pairs is None:
            return where, type_name(a), f"another {type_name(b)}"
        todo += [(where + step, x, y) for step, x, y in reversed(pairs)]
    return None


def _same_leaf(a: Any, b: Any) -> bool:
    if isinstance(a, Enum):
        return a is b
    if isinstance(a, float | Decimal):
        return str(a) == str(b)  # distinguishes 0.0 from -0.0, and treats nan as equal to nan
    if isinstance(a, datetime | time):
        return (a.isoformat(), a.fold, getattr(a.tzinfo, "key", None)) == (
            b.isoformat(), b.fold, getattr(b.tzinfo, "key", None)
        )  # fmt: skip
    return bool(a == b)


_MISSING = object()
_Pairs = list[tuple[str, Any, Any]]


def _opened(a: Any, b: Any) -> _Pairs | None:
    """Return the parts of two containers of one type in pairs; None if the containers cannot be equal."""
    if is_model(type(a)):
        return _opened_model(a, b)
    if dataclasses.is_dataclass(a):
        names = [field.name for field in dataclasses.fields(a)]
        return [(f".{name}", getattr(a, name, _MISSING), getattr(b, name, _MISSING)) for name in names]
    if isinstance(a, dict):
        return _opened_dict(a, b)
    if isinstance(a, list | tuple | deque):
        if len(a) != len(b) or getattr(a, "maxlen", None) != getattr(b, "maxlen", None):
            return None
        return [(f"[{index}]", x, y) for index, (x, y) in enumerate(zip(a, b, strict=True))]
    if isinstance(a, set | frozenset):
        return _opened_set(a, b)
    try:
        return [] if a is b or bool(a == b) else None
    except Exception:
        return None


def _opened_model(a: Any, b: Any) -> _Pairs:
    pairs = [
        (f".{name}", a.__dict__.get(name, _MISSING), b.__dict__.get(name, _MISSING)) for name in model_fields(type(a))
    ]
    for hidden in ("__pydantic_extra__", "__pydantic_private__"):
        x, y = getattr(a, hidden, None) or {}, getattr(b, hidden, None) or {}
        pairs += [(f".{name}", x.get(name, _MISSING), y.get(name, _MISSING)) for name in {**x, **y}]
    return pairs


def _opened_dict(a: dict[Any, Any], b: dict[Any, Any]) -> _Pairs | None:
    if len(a) != len(b) or getattr(a, "default_factory", None) is not getattr(b, "default_factory", None):
        return None
    keys = {key: key for key in b}
    pairs: _Pairs = []
    for key, item in a.items():
        other = keys.get(key, _MISSING)
        if other is _MISSING:
            return None
        pairs += [("", key, other), (key_segment(key), item, b[other])]
    return pairs


def _opened_set(a: Any, b: Any) -> _Pairs | None:
    twins = {element: element for element in b if element == element}  # a nan does not equal anything, not even itself
    known = {element for element in a if element == element}
    if known != twins.keys() or len(a) != len(b):
        return None
    return [("", element, twins[element]) for element in known]
