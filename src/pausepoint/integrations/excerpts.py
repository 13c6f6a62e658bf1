"""Documents cut to a size that a language model can read. What was left out is marked where it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

ROOM = 30_000
"""The most bytes of JSON in one result: about 10,000 tokens, after which clients warn or cut it themselves."""

STAGES = ((4_000, 200, 12), (1_000, 60, 10), (300, 20, 6), (80, 8, 4), (30, 3, 2))
"""The most characters of a text, the most members of a list or object, and the most levels. The first stage that fits
is used."""


def encoded(value: Any) -> str:
    """Return a value as compact JSON."""
    return msgspec.json.encode(value).decode()


def size(value: Any) -> int:
    """Return how many bytes a value takes as JSON.

    >>> size("é\\n")
    6
    """
    return len(msgspec.json.encode(value))


def excerpt(value: Any, room: int = ROOM) -> Any:
    """Return a value that takes at most ``room`` bytes of JSON: itself if it fits.

    >>> excerpt({"title": "Squid", "draft": "word " * 1_000}, 500)["draft"][-40:]
    'word word word … (4,700 more characters)'
    >>> excerpt([1, 2, 3])
    [1, 2, 3]
    """
    whole = size(value)
    if whole <= room:
        return value
    for characters, members, levels in STAGES:
        found = _cut(value, characters, members, levels)
        if size(found) <= room:
            return found
    return f"… ({whole:,} bytes)"


def excerpts(document: Mapping[str, Any], room: int) -> dict[str, Any]:
    """Return a document with all its members, each of which takes at most ``room`` bytes.

    >>> excerpts({"id": "s1", "tags": ["night"] * 500}, 400)["tags"][-1]
    '… (480 more items)'
    """
    return {name: excerpt(value, room) for name, value in document.items()}


def fitted(document: Mapping[str, Any], room: int = ROOM) -> dict[str, Any]:
    """Return a document with all its members, which are cut until it takes at most ``room`` bytes.

    A document of very many members may take more: none of them is cut below 300 bytes.

    >>> found = fitted({name: ["night"] * 500 for name in "abcdefgh"}, 3_000)
    >>> size(found) <= 3_000, list(found), found["h"][-1]
    (True, ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'], '… (480 more items)')
    """
    each = room
    while size(found := excerpts(document, each)) > room and each > 300:
        each = max(each // 2, 300)
    return found


def _cut(value: Any, characters: int, members: int, depth: int) -> Any:
    if isinstance(value, str):
        more = len(value) - characters
        return value if more <= 0 else f"{value[:characters]}… ({more:,} more characters)"
    if not isinstance(value, list | dict):
        return value
    if depth == 0:
        return "… (nested deeper)"
    if isinstance(value, list):
        kept = [_cut(each, characters, members, depth - 1) for each in value[:members]]
        return kept if len(value) <= members else [*kept, f"… ({len(value) - members:,} more items)"]
    names = list(value)
    some = {_cut(name, 200, 0, 1): _cut(value[name], characters, members, depth - 1) for name in names[:members]}
    return some if len(names) <= members else some | {"…": f"({len(names) - members:,} more members)"}


def part(text: str, offset: int, room: int = ROOM) -> tuple[str, int | None]:
    """Return a part of a text that takes at most ``room`` bytes of JSON, and where the next one begins.

    The beginning of the next one is None if this is the last.

    >>> part("octopus", 3, 4), part("octopus", 5, 4), part("octopus", 70, 4)
    (('op', 5), ('us', None), ('', None))
    """
    end = offset + room
    while end > offset + 1 and size(text[offset:end]) > room:
        end = offset + (end - offset) * 3 // 4
    return text[offset:end], end if end < len(text) else None
