"""The stored state of a session: encoded values by field, folded from changes.

Values are decoded only when they are read. A *slot* holds one value:

- `Inline`: a small value, as JSON text
- `Blob`: a large value, by hash; its bytes are fetched when the value is read
- `Grown`: a list or dict that was appended to or merged into, as a list of segments in order
- `Parts`: a value with nested fields that were written later (``writes="a.b"``)
- `Part`: a nested field of another slot, before it grew

Before a key frame is written, the tails of growing fields are sealed into 64 KiB blobs. So the size of a key frame
depends on the number of fields, not on the size of their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Literal

import msgspec

from pausepoint.codec.values import Limits, decode, encode

INLINE_BYTES = 16 * 1024
"""Larger values are stored once, by hash, instead of inside a record."""

SEGMENT_BYTES = 64 * 1024
"""The size at which the tail of a growing field is sealed."""

# A value that grew by valid pieces must not be refused as a whole.
UNLIMITED = Limits(depth=128, value_bytes=2**62, nodes=2**62)

Act = Literal["set", "append", "merge"]


class Inline(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="v"):
    """A small value."""

    data: msgspec.Raw


class Blob(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="b"):
    """A large value, by the hex digits of its hash."""

    hash: str
    size: int


class Part(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """The value of ``of`` under the key ``name``."""

    of: Slot
    name: str


class Grown(msgspec.Struct, array_like=True, tag="g"):
    """Segments of a list (append) or a dict (merge: later keys win)."""

    act: Act
    segments: list[Slot]


class Parts(msgspec.Struct, array_like=True, tag="o"):
    """``base`` with some of its keys overwritten."""

    base: Slot
    over: dict[str, Slot]


Slot = Inline | Blob | Part | Grown | Parts
Blobs = list[tuple[bytes, bytes]]

_slots = msgspec.json.Decoder(dict[str, Slot])
_raw_dict = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


class Change(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One write of a checkpoint."""

    path: str
    act: Act
    value: Inline | Blob


def stored(data: bytes, blobs: Blobs, limit: int = INLINE_BYTES) -> Inline | Blob:
    """Return a slot for a value: inline if it is small, otherwise a reference to an entry added to ``blobs``."""
    if len(data) <= limit:
        return Inline(msgspec.Raw(data))
    key = sha256(data)
    blobs.append((key.digest(), data))
    return Blob(key.hexdigest(), len(data))


class State:
    """The slots of a state by field, and the blobs that have been read so far."""

    __slots__ = (
        "assumed", "deep", "loaded", "passing", "slots", "windows",
    )  # fmt: skip

    def __init__(self, slots: dict[str, Slot] | None = None) -> None:
        self.slots: dict[str, Slot] = slots if slots is not None else {}
        self.loaded: dict[str, bytes] = {}
        self.assumed: dict[str, Inline] = {}  # the defaults of fields that no record has
        # Fields that may need fetching before they can be read. Most steps read none of them.
        self.deep = {name for name, slot in self.slots.items() if type(slot) is not Inline}
        self.passing: set[str] = set()  # blobs that are not needed for whole values: appended, or read for a window
        self.windows: dict[str, set[str]] = {}  # the blobs that each window reads

    def copy(self) -> State:
        """Return an independent copy, for trying out changes."""
        twin = State(_slots.decode(msgspec.json.encode(self.slots)))
        twin.loaded = dict(self.loaded)
        return twin

    def apply(self, change: Change) -> None:
        """Apply one change."""
        if change.act != "set" and type(change.value) is Blob:
            self.passing.add(change.value.hash)
        if "." not in change.path:
            field = change.path
            slot = self.slots[field] = _changed(self.slots.get(field), change)
            if self.assumed:
                self.assumed.pop(field, None)
            if type(slot) is Inline:
                self.deep.discard(field)
            else:
                self.deep.add(field)
            return
        field, *rest = change.path.split(".")
        self.deep.add(field)
        level = self.slots
        slot = level[field]
        for name in rest[:-1]:
            level, field, slot = _opened(level, field, slot, name)
        level, name, slot = _opened(level, field, slot, rest[-1])
        level[name] = _changed(slot, change)

    def carry(self, fields: Mapping[str, Slot], moved: Mapping[str, str], dropped: Iterable[str]) -> None:
        """Migrate whole fields: rename ``moved`` ones (new name to old), remove ``dropped`` ones, set ``fields``."""
        kept = {new: self.slots[old] for new, old in moved.items()}
        for name in (*dropped, *moved.values()):
            self.slots.pop(name, None)
        self.slots.update(kept)
        self.slots.update(fields)
        self.deep = {name for name, slot in self.slots.items() if type(slot) is not Inline}

    def needs(self, paths: Iterable[str]) -> set[bytes]:
        """Return the hashes of the blobs to `provide` before these paths can be read."""
        wanted: set[str] = set()
        for path in paths:
            field, *rest = path.split(".")
            if field in self.deep:
                wanted.update(_blobs(_at(self.slots[field], rest)))
        self.passing -= wanted
        return {bytes.fromhex(key) for key in wanted if key not in self.loaded}

    def needs_recent(self, path: str, count: int) -> set[bytes]:
        """Return the hashes of the blobs to `provide` next before the last items of a list can be read.

        The number of items in a blob is known only once it is loaded. Call this again until it returns an empty set.
        """
        field, *rest = path.split(".")
        reached = self.windows[path] = set()
        if field not in self.deep:
            return set()
        for segment in _segments(_at(self.slots[field], rest)):
            inside = set(_blobs(segment))
            reached |= inside
            if missing := inside - self.loaded.keys():
                self.passing |= missing
                return {bytes.fromhex(key) for key in missing}
            count -= self._length(segment)
            if count <= 0:
                break
        return set()

    def _length(self, segment: Slot) -> int:
        try:
            return len(_items(self._joined(segment)))
        except KeyError:  # a nested field that is newer than the stored value; the reader handles it
            return 0

    def provide(self, blobs: Mapping[bytes, bytes]) -> None:
        """Pass in the blobs that `needs` asked for."""
        for key, data in blobs.items():
            self.loaded[key.hex()] = data

    def forget(self) -> None:
        """Release the blobs that no slot uses any more, and those that windows have moved past."""
        kept = self.named()
        if self.passing:
            kept -= self.passing.difference(*self.windows.values())
            self.passing &= kept
        self.loaded = {key: data for key, data in self.loaded.items() if key in kept}

    def named(self) -> set[str]:
        """Return the hashes of all blobs that the state uses."""
        named: set[str] = set()
        for field in self.deep:
            named.update(_blobs(self.slots[field]))
        return named

    def read(self, path: str) -> bytes | None:
        """Return the encoded value at a path; None if the field was never written."""
        slot = self.slots.get(path)
        if type(slot) is Inline:
            return bytes(slot.data)
        field, *rest = path.split(".")
        slot = self.slots.get(field)
        if slot is None:
            return None
        target = _at(slot, rest)
        data = self._joined(target)
        if type(target) is Grown and target.act == "merge" and len(data) * 2 < sum(map(_weight, target.segments)):
            # Most of the content was overwritten. Drop it, so that the cost of reading does not grow with the history.
            target.segments[:] = [Inline(msgspec.Raw(data))]
        return data

    def recent(self, path: str, count: int) -> bytes | None:
        """Return the last ``count`` items of the list at a path, as a list; None if the field was never written.

        A stored value that is not a list is returned unchanged.
        """
        field, *rest = path.split(".")
        slot = self.slots.get(field)
        if slot is None:
            return None
        found: list[msgspec.Raw] = []
        for segment in _segments(_at(slot, rest)):
            data = self._joined(segment)
            if not data.startswith(b"["):
                return data
            found += reversed(_items(data)[len(found) - count :])
            if len(found) >= count:
                break
        return b"[" + b",".join(map(bytes, reversed(found))) + b"]"

    def _joined(self, slot: Slot) -> bytes:
        if type(slot) is Inline:
            return bytes(slot.data)
        if type(slot) is Blob:
            return self.loaded[slot.hash]
        if type(slot) is Part:
            around = self._joined(slot.of)
            return around if around == b"null" else bytes(_raw_dict.decode(around)[slot.name])
        if type(slot) is Parts:
            whole = {name: bytes(raw) for name, raw in _raw_dict.decode(self._joined(slot.base)).items()}
            whole.update((name, self._joined(part)) for name, part in slot.over.items())
            return b"{" + b",".join(b'"%b":%b' % (name.encode(), data) for name, data in whole.items()) + b"}"
        assert type(slot) is Grown
        return _join([self._joined(segment) for segment in slot.segments], slot.act)

    def weight(self) -> int:
        """Return the approximate size in bytes of a key frame of this state, once it is sealed."""
        return sum(_weight(slot) for slot in self.slots.values())

    def seal(self) -> Blobs:
        """Move full tails of growing fields into blobs, and return the blobs. Call this before a key frame."""
        blobs: Blobs = []
        for slot in self.slots.values():
            for grown in _growing(slot):
                _seal(grown, blobs)
        return blobs


def _changed(slot: Slot | None, change: Change) -> Slot:
    if change.act == "set" or slot is None:
        return change.value
    if type(slot) is Grown:
        slot.segments.append(change.value)
        return slot
    return Grown(change.act, [slot, change.value])


def _opened(level: dict[str, Slot], field: str, slot: Slot, name: str) -> tuple[dict[str, Slot], str, Slot]:
    """Make ``level[field]`` a `Parts`, so that its part ``name`` can be replaced without touching the rest."""
    if type(slot) is not Parts:
        slot = level[field] = Parts(slot, {})
    if name not in slot.over:
        slot.over[name] = _part(slot.base, name)
    return slot.over, name, slot.over[name]


def _part(base: Slot, name: str) -> Slot:
    """Return a nested field as a slot of its own, if nothing needs fetching.

    Otherwise a key frame would contain the surrounding value once per field.
    """
    if type(base) is Inline and bytes(base.data) != b"null":
        found = _raw_dict.decode(base.data).get(name)
        if found is not None:
            return Inline(found)
    return Part(base, name)


def _at(slot: Slot, names: list[str]) -> Slot:
    for name in names:
        slot = slot.over[name] if type(slot) is Parts and name in slot.over else Part(slot, name)
    return slot


def _blobs(slot: Slot) -> Iterator[str]:
    if type(slot) is Blob:
        yield slot.hash
    elif type(slot) is Part:
        yield from _blobs(slot.of)
    elif type(slot) is Grown:
        for segment in slot.segments:
            yield from _blobs(segment)
    elif type(slot) is Parts:
        yield from _blobs(slot.base)
        for part in slot.over.values():
            yield from _blobs(part)


def _segments(slot: Slot) -> Iterable[Slot]:
    """Return the segments of a list, the newest first."""
    return reversed(slot.segments) if type(slot) is Grown else (slot,)


def _items(data: bytes) -> list[msgspec.Raw]:
    """Return the raw items of an encoded list; empty if the value is not a list."""
    return _raw_list.decode(data) if data.startswith(b"[") else []


def _growing(slot: Slot) -> Iterator[Grown]:
    if type(slot) is Grown:
        yield slot
    elif type(slot) is Parts:
        for part in slot.over.values():
            yield from _growing(part)


def _weight(slot: Slot) -> int:
    if type(slot) is Inline:
        return len(slot.data)
    if type(slot) is Part:
        return _weight(slot.of)
    if type(slot) is Grown:
        # Full segments of the tail will be sealed. Counting them would delay the key frames of a fast-growing list.
        full, rest = divmod(sum(len(part.data) for part in slot.segments if type(part) is Inline), SEGMENT_BYTES)
        return rest + 80 * full + sum(_weight(part) for part in slot.segments if type(part) is not Inline)
    if type(slot) is Parts:
        return _weight(slot.base) + sum(map(_weight, slot.over.values()))
    return 80


def _join(segments: list[bytes], act: Act) -> bytes:
    if act == "append":
        return b"[" + b",".join(data[1:-1] for data in segments if data != b"[]") + b"]"
    whole: dict[str, object] = {}
    for data in segments:
        whole.update(decode(data))
    return encode(whole, "", UNLIMITED)


def _seal(grown: Grown, blobs: Blobs) -> None:
    tail: list[bytes] = []
    while grown.segments and type(segment := grown.segments[-1]) is Inline:
        tail.append(bytes(segment.data))
        grown.segments.pop()
    tail.reverse()
    while tail:
        count, size = 0, 0
        while count < len(tail) and size < SEGMENT_BYTES:
            size += len(tail[count])
            count += 1
        joined = tail[0] if count == 1 else _join(tail[:count], grown.act)
        # Only a rest that does not fill a segment stays inside the key frame.
        grown.segments.append(stored(joined, blobs, 0 if size >= SEGMENT_BYTES else SEGMENT_BYTES))
        del tail[:count]
