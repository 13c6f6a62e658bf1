"""The walks that turn values into what JSON can express, and back.

`pausepoint.codec.values` describes the stored form. This module has its tags, its limits and three walks: `Walk`
accepts only the stored types, `DumpedWalk` also what pydantic dumps, and `OpenWalk` also looks into models.
"""

from __future__ import annotations

import binascii
import dataclasses
import sys
import types
from collections import deque
from collections.abc import Callable, Collection, Iterator
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from math import isfinite
from pathlib import Path, PurePath
from typing import Any
from uuid import UUID

import msgspec

from pausepoint.errors import DamagedRecord, OversizedValue, ValueRefused


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The maximum size of one stored value.

    ``depth`` limits nested containers, ``nodes`` the number of containers and scalars, ``value_bytes`` the size of the
    encoded value.
    """

    depth: int = 64
    value_bytes: int = 32 * 2**20
    nodes: int = 1_000_000

    def __post_init__(self) -> None:
        # The walk is recursive. With a higher limit it could hit the interpreter's recursion limit first.
        if not 1 <= self.depth <= 128:
            raise ValueError(f"Limits.depth is {self.depth}. It must be between 1 and 128.")
        if self.value_bytes < 1 or self.nodes < 1:
            raise ValueError("Limits.value_bytes and Limits.nodes must be at least 1.")


DEFAULT_LIMITS = Limits()

encode_json = msgspec.json.Encoder().encode
encode_sorted = msgspec.json.Encoder(order="deterministic").encode
decode_json = msgspec.json.Decoder().decode
INT_MIN, INT_MAX = -(2**63), 2**64 - 1
_STORABLE = (
    "Store None, bool, int, float, str, bytes, datetime, date, time, timedelta, UUID, Decimal, Path,"
    " list, tuple, set, dict, or a declared enum, model or dataclass of these."
)


class NotPlain(Exception):
    """The value is not exactly what its annotation says, so it needs the slow path."""


class Refusal(Exception):
    """The reason why a value cannot be stored. Collects the path to the value while the walk unwinds."""

    def __init__(self, value: object, why: str, hint: str, oversized: bool = False, whole: bool = False) -> None:
        super().__init__(why)
        self.value = value
        self.why = why
        self.hint = hint
        self.oversized = oversized
        self.whole = whole
        self.inside = ""
        self.trail: list[tuple[object, str]] = []

    def through(self, container: object, segment: str) -> None:
        self.trail.append((container, segment))

    def inside_of(self, container: object, what: str) -> None:
        """Keys and elements of a set have no path of their own, so the path ends at their container."""
        self.trail.clear()
        self.inside = f"{what} of the {type_name(container)}: "

    def error(self, root: object, path: str) -> ValueRefused:
        if self.whole:
            return oversized(path, type_name(root), self.why, self.hint)
        self._shorten_cycle()
        full = path + "".join(segment for _, segment in reversed(self.trail))
        kind = type_name(self.value)
        if self.oversized:
            return oversized(full, kind, self.why, self.hint)
        return refused(full, kind, f"{self.inside}{self.why}", self.hint)

    def _shorten_cycle(self) -> None:
        """If the value is too deep because it contains itself, end the path where the cycle closes."""
        if not self.oversized:
            return
        chain = [(container, index) for index, (container, _) in enumerate(reversed(self.trail))]
        chain.append((self.value, len(chain)))
        seen: set[int] = set()
        for container, index in chain:
            if id(container) in seen:
                self.trail = self.trail[len(self.trail) - index :]
                self.value, self.oversized = container, False
                self.why = "it contains itself"
                self.hint = "Store the parts once and refer to them by key."
                return
            seen.add(id(container))


def type_name(value: object) -> str:
    return type(value).__qualname__


def refused(path: str, kind: str, why: str, hint: str) -> ValueRefused:
    return ValueRefused(f"{path}: {kind} cannot be stored: {why}. {hint}", path=path, type=kind)


def oversized(path: str, kind: str, why: str, hint: str) -> OversizedValue:
    return OversizedValue(f"{path}: {kind} {why}. {hint}", path=path, type=kind)


def _unsupported(value: object) -> Refusal:
    """Return the refusal of a type, with a matching hint."""
    kind = type(value)
    if isinstance(value, Enum) or named_parts(value) is not None:
        why, hint = "its type is not declared here", f"Annotate the field or the return value with {kind.__qualname__}."
    elif callable(value):
        why, hint = "it is code", "Store its name and look it up in the step."
    elif hasattr(kind, "fileno"):
        why, hint = "it is an open resource", "Store the path or the address and open it in the step."
    elif isinstance(value, Iterator):
        why, hint = "it can be read only once", "Make it a list."
    else:
        why, hint = "its type is not supported", _STORABLE
    return Refusal(value, why, hint)


def key_segment(key: object) -> str:
    text = repr(key) if type(key) in LEAVES else f"<{type_name(key)}>"
    return f"[{text if len(text) <= 80 else text[:77] + '...'}]"


def named_parts(value: object) -> dict[str, Any] | None:
    """Return the named fields of a dataclass, model, named tuple or struct; None for anything else."""
    kind = type(value)
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(kind):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(kind) if hasattr(value, f.name)}
    if is_model(kind):
        extra: dict[str, Any] = getattr(value, "__pydantic_extra__", None) or {}
        return {name: value.__dict__[name] for name in model_fields(kind) if name in value.__dict__} | extra
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return dict(zip(kind._fields, value, strict=False))
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__ if hasattr(value, name)}
    return None


def is_model(kind: object) -> bool:
    # If pydantic was never imported, nothing can be a model, so this module does not need to import it.
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def model_fields(model: Any) -> dict[str, Any]:
    fields: dict[str, Any] = model.model_fields
    return fields


def _moment(value: datetime | time) -> Any:
    zone = value.tzinfo
    if type(zone) is timezone and not value.fold:  # the usual case, and by far the fastest
        return value.isoformat()
    key = getattr(zone, "key", None) if type(zone).__module__.startswith("zoneinfo") else None
    if key is not None:
        return [value.replace(tzinfo=None, fold=0).isoformat(), key, value.fold]
    if zone is None or _is_fixed(zone):
        return [value.isoformat(), None, 1] if value.fold else value.isoformat()
    raise Refusal(value, f"its time zone is a {type_name(zone)}", "Use zoneinfo.ZoneInfo or a fixed offset.")


def _is_fixed(zone: tzinfo) -> bool:
    # A zone that knows its offset without a date has only one offset.
    try:
        return zone.utcoffset(None) is not None
    except Exception:
        return False


def _from_moment(kind: type[datetime] | type[time], stored: Any) -> Any:
    if isinstance(stored, str):
        return kind.fromisoformat(stored)
    text, key, fold = stored
    value = kind.fromisoformat(text).replace(fold=fold)
    if key is None:
        return value
    from zoneinfo import ZoneInfo

    return value.replace(tzinfo=ZoneInfo(key))


def _to_base64(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode()


def _whole(kind: Callable[[list[Any]], Any]) -> Callable[[Any], Any]:
    """Return a function that builds a container from a list, and fails if entries were duplicates."""

    def build(entries: Any) -> Any:
        built = kind(entries)
        if type(entries) is not list or len(built) != len(entries):
            raise ValueError("entries are missing")
        return built

    return build


_PATH = type(Path())
TAGGERS: dict[type, Callable[[Any], Any]] = {
    datetime: lambda v: {"$datetime": _moment(v)},
    date: lambda v: {"$date": v.isoformat()},
    time: lambda v: {"$time": _moment(v)},
    timedelta: lambda v: {"$timedelta": [v.days, v.seconds, v.microseconds]},
    UUID: lambda v: {"$uuid": str(v)},
    Decimal: lambda v: {"$decimal": str(v)},
    bytes: lambda v: {"$bytes": _to_base64(v)},
    _PATH: lambda v: {"$path": str(v)},
}
_READERS: dict[str, Callable[[Any], Any]] = {
    "$datetime": lambda v: _from_moment(datetime, v),
    "$date": date.fromisoformat,
    "$time": lambda v: _from_moment(time, v),
    "$timedelta": lambda v: timedelta(*v),
    "$uuid": UUID,
    "$decimal": lambda v: Decimal(_as_text(v)),
    "$bytes": lambda v: binascii.a2b_base64(v, strict_mode=True),
    "$path": Path,
    "$float": lambda v: {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}[v],
    "$int": lambda v: int(v, 16),
    "$tuple": _whole(tuple),
    "$set": _whole(set),
    "$frozenset": _whole(frozenset),
    "$map": _whole(dict),
}
LEAVES: frozenset[type] = frozenset({str, int, float, bool, types.NoneType, *TAGGERS})


def _as_text(stored: Any) -> str:
    if type(stored) is not str:
        raise TypeError("not text")
    return stored


class Walk:
    """Turns a value of the stored types, and no others, into what JSON can express. Counts nodes and bytes."""

    __slots__ = ("limits", "nodes", "size", "thorough")

    def __init__(self, limits: Limits, thorough: bool = False) -> None:
        self.limits = limits
        self.nodes = limits.nodes - 1
        self.size = limits.value_bytes
        self.thorough = thorough

    def tag(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return self.text(value)
        if kind is int:
            return value if INT_MIN <= value <= INT_MAX else {"$int": hex(value)}
        if value is None or kind is bool:
            return value
        if kind is float:
            return value if isfinite(value) else {"$float": repr(value)}
        if kind is list:
            return self.items(value, depth)
        if kind is dict:
            return self.mapping(value, depth)
        tagger = TAGGERS.get(kind)
        if tagger is not None:
            return self.leaf(value, tagger)
        if kind is tuple:
            return {"$tuple": self.items(value, depth)}
        if kind is set or kind is frozenset:
            return {f"${kind.__name__}": self.elements(value, depth)}
        return self.other(value, depth)

    def text(self, value: str) -> str:
        self.size -= len(value)
        if self.thorough:
            self.check()
            if not _encodable(value):
                hint = "Clean it with .encode('utf-8', 'replace').decode()."
                raise Refusal(value, "it contains a lone surrogate", hint)
        return value

    def leaf(self, value: Any, tagger: Callable[[Any], Any]) -> Any:
        if type(value) is bytes:
            self.size -= len(value)
            if self.size < 0:
                self.check()
        tagged = tagger(value)
        if self.thorough and isinstance(value, Path) and not _encodable(str(value)):
            raise Refusal(value, "its name is not valid text", "Rename the file.")
        return tagged

    def enter(self, container: Collection[Any], depth: int) -> None:
        """Count a container before walking its items."""
        self.nodes -= len(container)
        if depth >= self.limits.depth:
            why = f"is nested more than {self.limits.depth} levels deep"
            raise Refusal(container, why, "Flatten it, or refer to its parts by key.", oversized=True)
        if self.nodes < 0 or self.size < 0:
            self.check()

    def check(self) -> None:
        if self.nodes < 0:
            why = f"has more than {self.limits.nodes:,} nodes"
            hint = "Split it into several fields, or store it as a file."
            raise Refusal(None, why, hint, oversized=True, whole=True)
        if self.size < 0:
            raise too_large(self.limits)

    def items(self, value: Collection[Any], depth: int) -> list[Any]:
        self.enter(value, depth)
        out: list[Any] = []
        try:
            for item in value:
                out.append(self.tag(item, depth + 1))
        except Refusal as refusal:
            refusal.through(value, f"[{len(out)}]")
            raise
        return out

    def elements(self, value: Collection[Any], depth: int) -> list[Any]:
        self.enter(value, depth)
        try:
            # Sorted, because the order of a set differs between processes.
            return sorted((self.tag(item, depth + 1) for item in value), key=encode_sorted)
        except Refusal as refusal:
            refusal.inside_of(value, "an element")
            raise

    def mapping(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        self.enter(value, depth)
        for key in value:
            if type(key) is not str or key[:1] == "$":
                return {"$map": self.pairs(value, depth)}
            self.size -= len(key)
        if self.thorough:
            for key in value:
                self.key(value, key, depth)
        return self.named(value, value, depth, key_segment)

    def named(self, owner: object, parts: dict[str, Any], depth: int, segment: Callable[[str], str]) -> dict[str, Any]:
        out = {}
        key = ""
        try:
            for key, item in parts.items():
                out[key] = self.tag(item, depth + 1)
        except Refusal as refusal:
            refusal.through(owner, segment(key))
            raise
        return out

    def pairs(self, value: dict[Any, Any], depth: int) -> list[list[Any]]:
        out = []
        for key, item in value.items():
            tagged = self.key(value, key, depth)
            try:
                out.append([tagged, self.tag(item, depth + 1)])
            except Refusal as refusal:
                refusal.through(value, key_segment(key))
                raise
        return out

    def key(self, owner: object, key: object, depth: int) -> Any:
        try:
            return self.tag(key, depth + 1)
        except Refusal as refusal:
            refusal.inside_of(owner, "a key")
            raise

    def other(self, value: Any, depth: int) -> Any:
        raise _unsupported(value)


class DumpedWalk(Walk):
    """Walks what pydantic dumps. Enums and subclasses become their plain base; the declared type restores them."""

    __slots__ = ()

    def other(self, value: Any, depth: int) -> Any:
        if isinstance(value, Enum):
            return self.tag(value.value, depth)
        for base in (str, int, float, bytes, *TAGGERS):
            if isinstance(value, base):
                return self.tag(_plain_leaf(base, value), depth)
        if type(value).__module__ in _TEXTUAL:
            return self.text(str(value))
        if isinstance(value, dict):
            return self.mapping(value, depth)
        if isinstance(value, tuple):
            return {"$tuple": self.items(value, depth)}
        if isinstance(value, list | deque):
            return self.items(value, depth)
        if isinstance(value, set | frozenset):
            return {"$set": self.elements(value, depth)}
        raise _unsupported(value)


class OpenWalk(DumpedWalk):
    """Also walks into models and dataclasses, to make fingerprints and to locate a value that cannot be stored.

    With ``opaque``, unknown types are accepted, because pydantic may know how to dump them.
    """

    __slots__ = ("opaque",)

    def __init__(self, limits: Limits, thorough: bool = False, opaque: bool = False) -> None:
        super().__init__(limits, thorough)
        self.opaque = opaque

    def other(self, value: Any, depth: int) -> Any:
        parts = named_parts(value)
        if parts is not None:
            self.enter(parts, depth)
            return {f"$:{type_name(value)}": self.named(value, parts, depth, ".{}".format)}
        if isinstance(value, Enum):
            return {f"$:{type_name(value)}": self.tag(value.value, depth)}
        try:
            return super().other(value, depth)
        except Refusal as refusal:
            if self.opaque and refusal.value is value and not refusal.oversized:
                return None
            raise

    def pairs(self, value: dict[Any, Any], depth: int) -> list[list[Any]]:
        return sorted(super().pairs(value, depth), key=encode_sorted)


_TEXTUAL = frozenset({"ipaddress", PurePath.__module__, "pydantic.networks", "pydantic_core._pydantic_core"})


def _plain_leaf(base: type, value: Any) -> Any:
    if base is datetime:
        return datetime.combine(date(value.year, value.month, value.day), value.timetz())
    if base is date:
        return date(value.year, value.month, value.day)
    if base is time:
        return time(value.hour, value.minute, value.second, value.microsecond, value.tzinfo, fold=value.fold)
    if base is timedelta:
        return timedelta(value.days, value.seconds, value.microseconds)
    if base is UUID:
        return UUID(int=value.int)
    if base is str:
        return str.__str__(value)
    return base(value) if base is not int else int.__int__(value)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def too_large(limits: Limits) -> Refusal:
    why = f"is larger than {limits.value_bytes:,} bytes when encoded"
    return Refusal(None, why, "Store it as a file and keep the file's name.", oversized=True, whole=True)


def write(walk: Walk, data: object, path: str, to_json: Callable[[Any], bytes] = encode_json) -> bytes:
    """Return the encoded value. Raises `ValueRefused` with the path to what cannot be stored."""
    try:
        tagged = walk.tag(data, 0)
        walk.check()
        text = to_json(tagged)
        if len(text) > walk.limits.value_bytes:
            raise too_large(walk.limits)
    except Refusal as refusal:
        raise refusal.error(data, path) from None
    except UnicodeEncodeError:
        # Some text contains a lone surrogate. Only now search for it, so that other values do not pay for the check.
        if walk.thorough:
            raise
        return write(type(walk)(walk.limits, thorough=True), data, path, to_json)
    except RecursionError:
        raise _no_room(data, path) from None
    return text


def _no_room(value: object, path: str) -> OversizedValue:
    hint = "Store it from code with a shallower call stack."
    return oversized(path, type_name(value), "needs more call stack than is left", hint)


def survey(value: object, path: str, limits: Limits, opaque: bool = False) -> None:
    """Raise `ValueRefused` for the first value that cannot be stored. The path includes attribute names."""
    walk = OpenWalk(limits, thorough=True, opaque=opaque)
    try:
        walk.tag(value, 0)
        walk.check()
    except Refusal as refusal:
        raise refusal.error(value, path) from None
    except RecursionError:
        raise _no_room(value, path) from None


def read(data: bytes) -> Any:
    """Return the value that `write` encoded. Raises `DamagedRecord` if the data cannot be read."""
    try:
        value = decode_json(data)
    except (ValueError, RecursionError) as exc:
        raise DamagedRecord(
            f"A stored value cannot be read ({exc}). Check the session with engine.verify(), then rewind it or restore"
            " the database from a backup."
        ) from exc
    # A value has tags only if some text starts with "$". This one search saves most values the walk.
    return _untag(value) if b'"$' in data else value


def _untag(value: Any) -> Any:
    """Return a value without its tags. It was just decoded, so it is changed in place instead of copied."""
    kind = type(value)
    if kind is list:
        for index, item in enumerate(value):
            if type(item) is dict or type(item) is list:
                value[index] = _untag(item)
    elif kind is dict:
        if len(value) == 1:
            (key,) = value
            if key[:1] == "$":
                return _read_tag(key, value[key])
        for key, item in value.items():
            if type(item) is dict or type(item) is list:
                value[key] = _untag(item)
    return value


def _read_tag(tag: str, content: Any) -> Any:
    reader = _READERS.get(tag)
    if reader is None:
        raise DamagedRecord(
            f"A stored value has the unknown tag {tag!r}. It is damaged, or a newer version of Pausepoint wrote it."
            " Upgrade Pausepoint, or restore the database from a backup."
        )
    content = _untag(content)
    try:
        return reader(content)
    except Exception as exc:
        raise DamagedRecord(
            f"A stored value with the tag {tag!r} cannot be read ({exc}). Check the session with engine.verify()."
        ) from exc
