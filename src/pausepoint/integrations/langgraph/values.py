"""The values of channels as they are stored: each version once, and one that only grew as what was added to it.

A serialized list or dict is a header, which has the number of items, and the items. If the items of the last stored
version are the beginning of the new ones, byte by byte, only the rest is stored. Bytes are compared by a digest, so it
does not matter whether items are the same objects, and an item that was changed in place makes the value a whole one.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from secrets import token_hex
from typing import NamedTuple, TypeGuard

import msgspec
import xxhash

DEEPEST = 64
"""The most additions that are stored before a version is stored as a whole again."""

KNOWN = 1_000
"""The most namespaces of threads whose last versions a saver knows. Those used last are kept."""

GROWS = "msgpack"
"""The type of serialized values that may be stored as an addition."""

_OURS = re.compile(r"\d{8,}\.[0-9a-f]{12}")


def next_version(current: str | int | float | None) -> str:
    """Return a version after the current one. No two branches of a thread get the same one.

    >>> next_version(None)[:9], next_version("00000041.0123456789ab")[:9], next_version(6)[:9]
    ('00000001.', '00000042.', '00000007.')
    """
    number = 0 if current is None else int(str(current).split(".")[0])
    return f"{number + 1:08}.{token_hex(6)}"


class StoredValue(msgspec.Struct, frozen=True, array_like=True):
    """One version of a channel's value.

    ``data`` is the serialized value, or what was added to the version ``before``. Then ``header`` is that of the value,
    ``root`` the version at which the additions begin, and ``depth`` the number of additions.
    """

    type: str
    data: bytes
    header: bytes = b""
    before: str = ""
    root: str = ""
    depth: int = 0


class Last(NamedTuple):
    """What a saver knows about a version that it has stored or read: enough to store the next one as an addition."""

    version: str
    root: str
    depth: int
    kind: int
    size: int
    digest: bytes


class Versions:
    """The versions that a saver has stored or read last, by namespace and channel."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, dict[str, Last]] = OrderedDict()

    def of(self, place: str) -> dict[str, Last]:
        """Return the versions in a namespace, for reading and writing."""
        found = self._known.setdefault(place, {})
        self._known.move_to_end(place)
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)
        return found

    def forget(self, prefix: str) -> None:
        """Forget the namespaces that begin with a prefix."""
        for place in [each for each in self._known if each.startswith(prefix)]:
            del self._known[place]


def packed(type: str, data: bytes, version: object, last: Last | None) -> tuple[StoredValue, Last | None]:
    """Return how to store a version, and what to know about it. ``last`` is the version stored before it."""
    start = _start(type, data)
    if start == 0 or not _is_ours(version):
        return StoredValue(type, data), None
    items = memoryview(data)[start:]
    if last is not None and last.version < version and last.depth < DEEPEST and _continues(items, data[0], last):
        stored = StoredValue(
            type, bytes(items[last.size :]), data[:start], before=last.version, root=last.root, depth=last.depth + 1
        )
        return stored, _known(version, last.root, stored.depth, data[0], items)
    return StoredValue(type, data), _known(version, version, 0, data[0], items)


def unpacked(stored: StoredValue, others: Mapping[str, StoredValue]) -> bytes | None:
    """Return a serialized value; None if a version that it was added to is missing from ``others``."""
    if not stored.before:
        return stored.data
    parts, each = [stored.data], stored
    while each.before:
        found = others.get(each.before)
        if found is None:
            return None
        parts.append(found.data if found.before else found.data[_start(found.type, found.data) :])
        each = found
    return b"".join([stored.header, *reversed(parts)])


def known(stored: StoredValue, version: object, data: bytes) -> Last | None:
    """Return what to know about a version that was read; ``data`` is the serialized value."""
    start = _start(stored.type, data)
    if start == 0 or not _is_ours(version):
        return None
    return _known(version, stored.root or version, stored.depth, data[0], memoryview(data)[start:])


def _is_ours(version: object) -> TypeGuard[str]:
    """Return whether a version is unique, so that the value stored under it is the one that was passed."""
    return isinstance(version, str) and _OURS.fullmatch(version) is not None


def _known(version: str, root: str, depth: int, first: int, items: memoryview) -> Last:
    return Last(version, root, depth, _kind(first), len(items), xxhash.xxh3_128_digest(items))


def _continues(items: memoryview, first: int, last: Last) -> bool:
    return (
        len(items) >= last.size
        and _kind(first) == last.kind
        and xxhash.xxh3_128_digest(items[: last.size]) == last.digest
    )


def _start(type: str, data: bytes) -> int:
    """Return where the items of a serialized list or dict begin; 0 for any other value."""
    if type != GROWS or not data:
        return 0
    match data[0]:
        case first if 0x80 <= first <= 0x9F:
            return 1
        case 0xDC | 0xDE:
            return 3
        case 0xDD | 0xDF:
            return 5
    return 0


def _kind(first: int) -> int:
    """Return 0 for the header of a dict, and 1 for that of a list."""
    return int(0x90 <= first <= 0x9F or first in (0xDC, 0xDD))
