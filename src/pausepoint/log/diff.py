"""Compares two stored states.

The cost depends on the difference: equal slots are not read, and of a list that only grew, only the new items are read.
Any other change to a list is reported item by item, or as a change of the whole list if most items differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any

import msgspec

from pausepoint.log.state import Grown, Slot, State
from pausepoint.model.views import Difference


class Comparison:
    """Two states, reduced to the slots that may differ. `provide` the blobs that it `needs`, then read `changes`."""

    def __init__(self, a: State, b: State) -> None:
        before: dict[str, Slot] = {}
        after: dict[str, Slot] = {}
        self._shared: dict[str, list[Slot]] = {}
        for name in dict.fromkeys([*a.slots, *b.slots]):
            old, new = a.slots.get(name), b.slots.get(name)
            if old is not None and new is not None:
                if _same(old, new):
                    continue
                old, new, shared = _without_shared(old, new)
                if shared:
                    self._shared[name] = shared
            if old is not None:
                before[name] = old
            if new is not None:
                after[name] = new
        self.a, self.b = State(before), State(after)

    def needs(self) -> set[bytes]:
        """Return the hashes of the blobs to `provide` next. Call it again until it returns an empty set."""
        needed = self.a.needs(self.a.slots) | self.b.needs(self.b.slots)
        while self._shared and not needed:
            name, shared = self._shared.popitem()
            if not _only_grew(_value(self.a.read(name)), _value(self.b.read(name))):
                for state in (self.a, self.b):
                    state.slots[name] = Grown("append", [*shared, *_segments(state.slots[name])])
                needed = self.a.needs([name]) | self.b.needs([name])
        return needed

    def provide(self, blobs: dict[bytes, bytes]) -> None:
        """Pass in the blobs that `needs` asked for."""
        self.a.provide(blobs)
        self.b.provide(blobs)

    def changes(self) -> Iterator[Difference]:
        """Yield the differences, field by field."""
        for name in dict.fromkeys([*self.a.slots, *self.b.slots]):
            old, new = self.a.read(name), self.b.read(name)
            if old is None:
                yield Difference(name, "added", after=_value(new))
            elif new is None:
                yield Difference(name, "removed", before=_value(old))
            else:
                yield from compare(name, _value(old), _value(new))


def compare(path: str, old: Any, new: Any) -> Iterator[Difference]:
    """Yield the differences between two plain values. Objects are compared key by key, lists that grew by new items.

    >>> [str(each) for each in compare("", {"a": [1], "b": 1}, {"a": [1, 2], "c": None})]
    ['a: 1 item added: [2]', 'b: removed, was 1', 'c: added null']
    """
    if isinstance(old, dict) and isinstance(new, dict) and not (_tagged(old) or _tagged(new)):
        for key in dict.fromkeys([*old, *new]):
            place = f"{path}.{key}" if path else key
            if key not in new:
                yield Difference(place, "removed", before=old[key])
            elif key not in old:
                yield Difference(place, "added", after=new[key])
            else:
                yield from compare(place, old[key], new[key])
    elif isinstance(old, list) and isinstance(new, list) and len(old) < len(new) and _only_grew(old, new):
        yield Difference(path, "grown", added=tuple(new[len(old) :]))
    elif isinstance(old, list) and isinstance(new, list) and (blocks := _blocks(old, new)):
        yield from _compare_items(path, old, new, blocks)
    elif not _equal(old, new):
        yield Difference(path, "changed", old, new)


MOST_ITEMS = 2_000
"""Longer lists are not compared item by item, because that takes too long."""

Block = tuple[str, int, int, int, int]


def _blocks(old: list[Any], new: list[Any]) -> list[Block]:
    """Return the differing stretches of two lists; nothing if fewer than half of the items are the same."""
    if not old or not new or max(len(old), len(new)) > MOST_ITEMS:
        return []
    matcher = SequenceMatcher(None, [_encoded(each) for each in old], [_encoded(each) for each in new], autojunk=False)
    same = sum(block.size for block in matcher.get_matching_blocks())
    return [each for each in matcher.get_opcodes() if each[0] != "equal"] if 2 * same >= max(len(old), len(new)) else []


def _compare_items(path: str, old: list[Any], new: list[Any], blocks: list[Block]) -> Iterator[Difference]:
    """Yield the differences of two lists, each at the place of the item: removed ones by their former place."""
    for _, old_from, old_to, new_from, new_to in blocks:
        both = min(old_to - old_from, new_to - new_from)
        for index in range(both):
            yield from compare(f"{path}.{new_from + index}", old[old_from + index], new[new_from + index])
        for index in range(old_from + both, old_to):
            yield Difference(f"{path}.{index}", "removed", before=old[index])
        for index in range(new_from + both, new_to):
            yield Difference(f"{path}.{index}", "added", after=new[index])


def _only_grew(old: Any, new: Any) -> bool:
    """Return whether the new list starts with the whole old list."""
    return _equal(old, new[: len(old)])


def _equal(old: Any, new: Any) -> bool:
    """Compare two values as they are stored, because in Python 1, 1.0 and True are equal."""
    return _encoded(old) == _encoded(new)


def _encoded(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def _value(data: bytes | None) -> Any:
    return msgspec.json.decode(data or b"null")


def _tagged(value: dict[str, Any]) -> bool:
    """Return whether an object encodes a value that JSON does not have, such as a date."""
    return len(value) == 1 and next(iter(value)).startswith("$")


def _same(old: Slot, new: Slot) -> bool:
    return old is new or (type(old) is type(new) and msgspec.json.encode(old) == msgspec.json.encode(new))


def _without_shared(old: Slot, new: Slot) -> tuple[Slot, Slot, list[Slot]]:
    """Return two versions of an appended list without the segments that they share, and the shared segments."""
    grown = [slot for slot in (old, new) if type(slot) is Grown]
    if not grown or any(slot.act != "append" for slot in grown):
        return old, new, []
    first, second = _segments(old), _segments(new)
    shared = 0
    while shared < min(len(first), len(second)) and _same(first[shared], second[shared]):
        shared += 1
    return Grown("append", first[shared:]), Grown("append", second[shared:]), first[:shared]


def _segments(slot: Slot) -> list[Slot]:
    return slot.segments if type(slot) is Grown else [slot]
