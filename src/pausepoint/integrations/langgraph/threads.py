"""Threads of graphs in a drawer: checkpoints, the values of channels, and the writes of tasks, as bytes under keys.

    c/THREAD/NS/ID              a checkpoint
    v/THREAD/NS/CHANNEL/VERSION a version of a channel's value
    w/THREAD/NS/ID/TASK/…       writes of a task that follows a checkpoint
    r/RUN/THREAD/NS/ID          a checkpoint of a run, if the metadata of the checkpoint names one

Each change is one transaction, and each read sees finished changes only: values are stored with the checkpoint that
names them, and never change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import RESUME

from pausepoint.integrations.langgraph.values import StoredValue, Versions, known, packed, unpacked

if TYPE_CHECKING:
    from pausepoint.model.drawers import DrawerValue

Data = tuple[str, bytes]
"""A serialized value: its type and its bytes."""

LONGEST = 200
"""The most bytes of a name in a key. A longer one is replaced by its hash."""

HASHED = "%~"
"""The beginning of a hash in a key."""

TASK_ID = ":"
"""What a namespace has only if it belongs to one task. A subgraph that keeps its state between tasks has none."""

PAGE = 100
"""The number of checkpoints that are read at a time."""

BATCH = 500
"""The number of keys that are copied or removed at a time."""

BYTES = 2**23
"""The bytes that are copied at a time, unless one value is larger."""

_encode = msgspec.msgpack.Encoder().encode


class Drawer(Protocol):
    """The verbs of a drawer that threads need."""

    async def put_all(
        self, values: Mapping[str, bytes], *, new: Mapping[str, bytes] | None = None, remove: Iterable[str] = ()
    ) -> dict[str, int]: ...
    async def get_all(self, keys: Iterable[str]) -> dict[str, DrawerValue]: ...
    async def values(
        self, prefix: str = "", *, after: str = "", before: str | None = None, first: int | None = None,
        last: int | None = None,
    ) -> dict[str, DrawerValue]: ...  # fmt: skip
    async def keys(self, prefix: str = "") -> list[str]: ...
    async def clear(self, prefix: str = "") -> int: ...


class Place(NamedTuple):
    """A thread and a namespace in it; that of the graph itself is empty, and subgraphs have their own."""

    thread: str
    ns: str = ""

    @property
    def path(self) -> str:
        """The place as a part of keys."""
        return f"{part(self.thread)}/{part(self.ns)}/"


class StoredCheckpoint(msgspec.Struct, frozen=True, array_like=True):
    """A checkpoint without the values of its channels. ``versions`` names them, ``walks`` the delta channels.

    ``nodes`` are the nodes that led to it, if the graph is a workflow.
    """

    thread: str
    ns: str
    id: str
    parent: str | None
    body: Data
    metadata: Data
    versions: dict[str, str | int | float]
    run: str = ""
    walks: list[str] = []
    nodes: list[str] = []

    @property
    def place(self) -> Place:
        """The thread and the namespace of the checkpoint."""
        return Place(self.thread, self.ns)


class StoredWrites(msgspec.Struct, frozen=True, array_like=True):
    """Writes of a task: for each its index, its channel and its value. ``stamp`` identifies special writes."""

    task: str
    path: str
    writes: list[tuple[int, str, Data]]
    stamp: str = ""


class Write(NamedTuple):
    """One write of a task. The ``stamp`` of a special write differs for each time that it was stored.

    A write that was stored later has a higher ``version``.
    """

    task: str
    path: str
    position: int
    channel: str
    data: Data
    stamp: str
    version: int


class _Line(NamedTuple):
    """A checkpoint in a list: its id, and the key that notes its run, if it has one."""

    id: str
    run: str


class _Listing(NamedTuple):
    """The checkpoints of a namespace, the newest first."""

    latest: StoredCheckpoint
    lines: list[_Line]


class Found(NamedTuple):
    """A checkpoint as it was read: its record, the values of its channels, and the writes that follow it."""

    checkpoint: StoredCheckpoint
    values: dict[str, Data]
    writes: list[Write]


_checkpoint = msgspec.msgpack.Decoder(StoredCheckpoint).decode
_value = msgspec.msgpack.Decoder(StoredValue).decode
_writes = msgspec.msgpack.Decoder(StoredWrites).decode


def part(name: object) -> str:
    """Return a name as a part of a key.

    >>> part("customer/7"), part("100%"), len(part("x" * 300)), len(part("猫" * 100))
    ('customer%2F7', '100%25', 66, 66)
    """
    text = str(name)
    found = text.replace("%", "%25").replace("/", "%2F")
    if not found.isprintable() or len(found.encode()) > LONGEST:
        return HASHED + sha256(text.encode(errors="surrogatepass")).hexdigest()
    return found


class Threads:
    """The threads in a drawer. ``stored`` counts the bytes that were stored."""

    def __init__(self, drawer: Drawer) -> None:
        self.stored = 0
        self._drawer = drawer
        self._versions = Versions()

    # writing

    async def put(self, checkpoint: StoredCheckpoint, values: Mapping[str, Data]) -> None:
        """Store a checkpoint, and the new ``values`` of channels under the versions that the checkpoint names."""
        place = checkpoint.place
        last = self._versions.of(place.path)
        new: dict[str, bytes] = {}
        facts = dict(last)
        for channel, (type, data) in values.items():
            version, before = checkpoint.versions[channel], last.get(channel)
            if before is not None and before.version == version:
                continue  # stored already, and an addition to itself could never be read
            stored, fact = packed(type, data, version, before)
            new[_value_key(place, channel, version)] = _encode(stored)
            if fact is None:
                facts.pop(channel, None)
            else:
                facts[channel] = fact
        rows = {_checkpoint_key(place, checkpoint.id): _encode(checkpoint)}
        if checkpoint.run:
            rows[_run_key(checkpoint)] = b""
        await self._put(rows, new)
        last.update(facts)
        for channel in last.keys() - facts.keys():
            del last[channel]

    async def put_writes(
        self, place: Place, id: str, task: str, path: str, writes: list[tuple[int, str, Data]]
    ) -> None:  # fmt: skip
        """Store writes of a task. Regular ones stay as they were stored first; special ones are replaced."""
        prefix = f"w/{place.path}{part(id)}/{part(task)}/"
        regular = [each for each in writes if each[0] >= 0]
        stamp = token_hex(4)
        special = {
            f"{prefix}{each[0]}": _encode(StoredWrites(task, path, [each], stamp)) for each in writes if each[0] < 0
        }
        new = {f"{prefix}{len(regular)}": _encode(StoredWrites(task, path, regular))} if regular else {}
        if special or new:
            await self._put(special, new)

    async def _put(self, rows: Mapping[str, bytes], new: Mapping[str, bytes]) -> None:
        await self._drawer.put_all(rows, new=new)
        self.stored += sum(len(data) for each in (rows, new) for data in each.values())

    # reading

    async def get(self, place: Place, id: str | None = None) -> Found | None:
        """Return a checkpoint, by default the latest; None if there is none."""
        if id is None:
            rows = await self._drawer.values(f"c/{place.path}", last=1)
        else:
            rows = await self._drawer.get_all([_checkpoint_key(place, id)])
        for row in rows.values():
            return await self._with_values(_checkpoint(row.data), learn=True)
        self._versions.forget(place.path)
        return None

    async def head(self, place: Place) -> StoredCheckpoint | None:
        """Return the latest checkpoint without values."""
        rows = await self._drawer.values(f"c/{place.path}", last=1)
        return next((_checkpoint(row.data) for row in rows.values()), None)

    async def writes(self, place: Place, id: str) -> list[Write]:
        """Return the writes that follow a checkpoint, in the order in which LangGraph applies them."""
        rows = await self._drawer.values(f"w/{place.path}{part(id)}/")
        found: dict[tuple[str, int], Write] = {}
        for row in sorted(rows.values(), key=lambda row: row.version):
            stored = _writes(row.data)
            for index, channel, data in stored.writes:
                write = Write(stored.task, stored.path, index, channel, data, stored.stamp, row.version)
                if index < 0 or (stored.task, index) not in found:
                    found[stored.task, index] = write
        return sorted(found.values(), key=lambda each: (each.path, each.task, each.position))

    async def resumed(self, thread: str, namespaces: Iterable[str]) -> int:
        """Return the version of the last answer that a task in these namespaces, or inside them, has got; 0 if none.

        A namespace that is too long for a key has a hash instead, so all of those are searched.
        """
        begin = f"w/{part(thread)}/"
        prefixes = {f"{begin}{part(each)}{end}" for each in namespaces for end in "/|"} | {begin + HASHED}
        found = [row for prefix in prefixes for row in (await self._drawer.values(prefix)).values()]
        return max(
            (row.version for row in found if any(each[1] == RESUME for each in _writes(row.data).writes)), default=0
        )

    async def checkpoints(
        self, place: Place | None = None, thread: str | None = None, before: str | None = None
    ) -> AsyncIterator[list[StoredCheckpoint]]:
        """Yield checkpoints without values in pages, the newest of each namespace first."""
        prefix = "c/" + (place.path if place else "" if thread is None else f"{part(thread)}/")
        until = None if place is None or before is None else _checkpoint_key(place, before)
        while rows := await self._drawer.values(prefix, before=until, last=PAGE):
            yield [_checkpoint(row.data) for row in reversed(rows.values())]
            if len(rows) < PAGE:
                return
            until = next(iter(rows))

    async def complete(self, checkpoint: StoredCheckpoint) -> Found:
        """Return a checkpoint with its values and writes."""
        return await self._with_values(checkpoint, learn=False)

    async def _with_values(self, checkpoint: StoredCheckpoint, learn: bool) -> Found:
        place = checkpoint.place
        keys = {_value_key(place, name, version): name for name, version in checkpoint.versions.items()}
        rows, writes = await asyncio.gather(self._drawer.get_all(keys), self.writes(place, checkpoint.id))
        facts = self._versions.of(place.path) if learn else {}
        facts.clear()
        values: dict[str, Data] = {}
        for key, row in rows.items():
            channel, stored = keys[key], _value(row.data)
            version = checkpoint.versions[channel]
            data = unpacked(stored, await self._chain(place, channel, version, stored))
            if data is None:
                raise LookupError(
                    f"Thread {checkpoint.thread!r}: the value of channel {channel!r} in checkpoint {checkpoint.id} was"
                    " added to an earlier version, which is missing. Delete the thread, or restore a backup."
                )
            values[channel] = (stored.type, data)
            if learn and (fact := known(stored, version, data)) is not None:
                facts[channel] = fact
        return Found(checkpoint, values, writes)

    async def _chain(self, place: Place, channel: str, version: object, stored: StoredValue) -> dict[str, StoredValue]:
        """Return the versions that a stored value was added to, and perhaps others."""
        if not stored.before:
            return {}
        key = _value_key(place, channel, stored.root)
        prefix = key[: len(key) - len(stored.root)]
        rows = await self._drawer.values(prefix, after=key[:-1], before=_value_key(place, channel, version))
        return {each.removeprefix(prefix): _value(row.data) for each, row in rows.items()}

    # removing and copying

    async def remove_thread(self, thread: str) -> None:
        """Delete a thread."""
        self._versions.forget(f"{part(thread)}/")
        runs = [_run_key(each) async for page in self.checkpoints(thread=thread) for each in page if each.run]
        for kind in "cwv":  # checkpoints first, so that none is found without its values
            await self._drawer.clear(f"{kind}/{part(thread)}/")
        await self._remove(runs)

    async def remove_run(self, run: str) -> None:
        """Delete the checkpoints of a run with the writes that follow them. Values stay: others may need them."""
        prefix = f"r/{part(run)}/"
        while rows := await self._drawer.values(prefix, first=BATCH):
            paths = [key.removeprefix(prefix) for key in rows]
            await self._remove([f"c/{path}" for path in paths])
            for path in paths:
                await self._drawer.clear(f"w/{path}/")
            await self._remove(list(rows))

    async def copy(self, source: str, target: str) -> None:
        """Copy everything of a thread to another one, its checkpoints last."""
        self._versions.forget(f"{part(target)}/")
        for kind in "vw":
            prefix, after = f"{kind}/{part(source)}/", ""
            while rows := await self._drawer.values(prefix, after=after, first=BATCH):
                beginning = f"{kind}/{part(target)}/"
                moved = {beginning + key.removeprefix(prefix): row.data for key, row in rows.items()}
                for batch in _batches(moved):
                    await self._drawer.put_all(batch)
                after = max(rows)
        async for page in self.checkpoints(thread=source):
            copies = [msgspec.structs.replace(each, thread=target) for each in page]
            stored = {_checkpoint_key(each.place, each.id): _encode(each) for each in copies}
            await self._drawer.put_all(stored | {_run_key(each): b"" for each in copies if each.run})

    async def prune(self, thread: str) -> None:
        """Delete all checkpoints of a thread but the latest of each namespace, and what only they need."""
        self._versions.forget(f"{part(thread)}/")
        for place, found in (await self._listed(thread)).items():
            await self._prune(place, found)

    async def trim(self, place: Place) -> int:
        """Delete what no run needs that continues after the latest checkpoint of ``place``, a namespace of a graph.

        All its tasks have ended, so the namespaces of their subgraphs are deleted, too. The answers in a subgraph stay
        until the task of the whole graph has ended (see `resumed`). Return the bytes of the values that are kept.
        """
        size = 0
        for other, found in (await self._listed(place.thread)).items():
            if not place.ns and TASK_ID in other.ns:
                await self._drop(other, found)
            elif not place.ns or other == place:
                size += await self._prune(other, found, answers=bool(place.ns))
        return size

    async def _listed(self, thread: str) -> dict[Place, _Listing]:
        """Return the checkpoints of a thread by namespace, as far as deleting them needs it."""
        found: dict[Place, _Listing] = {}
        async for page in self.checkpoints(thread=thread):
            for each in page:
                listing = found.setdefault(each.place, _Listing(each, []))
                listing.lines.append(_Line(each.id, _run_key(each) if each.run else ""))
        return found

    async def _prune(self, place: Place, found: _Listing, answers: bool = False) -> int:
        kept, needed, size = await self._needed(found.latest)
        facts = self._versions.of(place.path)
        for channel in [each for each in facts if _value_key(place, each, facts[each].version) not in needed]:
            del facts[channel]  # nothing may be added to what is deleted
        gone = [each for each in found.lines if each.id not in kept]
        checkpoints = [_checkpoint_key(place, each.id) for each in gone]
        values = [key for key in await self._drawer.keys(f"v/{place.path}") if key not in needed]
        writes = await self._writes(place, kept, answers)
        # The checkpoints first: if there are many, they are deleted before what they need.
        await self._remove([*checkpoints, *writes, *values, *(each.run for each in gone if each.run)])
        return size

    async def _drop(self, place: Place, found: _Listing) -> None:
        """Delete a namespace, its checkpoints last: without them, what is left of it would not be found again."""
        self._versions.forget(place.path)
        for kind in "vw":
            await self._drawer.clear(f"{kind}/{place.path}")
        await self._remove([each.run for each in found.lines if each.run])
        await self._drawer.clear(f"c/{place.path}")

    async def _needed(self, latest: StoredCheckpoint) -> tuple[set[str], set[str], int]:
        """Return the checkpoints that a checkpoint needs, the keys of all their values, and the bytes of these.

        A delta channel is rebuilt from the writes of earlier checkpoints, so these stay as far as it needs them.
        """
        place, each, walks = latest.place, latest, set(latest.walks)
        kept: set[str] = set()
        keys: set[str] = set()
        size = 0
        while True:
            kept.add(each.id)
            wanted = {_value_key(place, name, version): name for name, version in each.versions.items()}
            while wanted := {key: name for key, name in wanted.items() if key not in keys}:
                rows = await self._drawer.get_all(wanted)
                stored = {key: _value(row.data) for key, row in rows.items()}
                keys |= stored.keys()
                size += sum(len(value.data) for value in stored.values())
                links = [(wanted[key], value.before) for key, value in stored.items() if value.before]
                wanted = {_value_key(place, name, before): name for name, before in links}
            walks -= {name for name in walks if _value_key(place, name, each.versions.get(name)) in keys}
            found = await self._drawer.get_all([_checkpoint_key(place, each.parent)]) if walks and each.parent else {}
            if not found:
                return kept, keys, size
            (each,) = (_checkpoint(row.data) for row in found.values())

    async def _writes(self, place: Place, kept: Collection[str], answers: bool) -> list[str]:
        """Return the keys of the writes that follow other checkpoints, without those of ``answers``."""
        prefix = f"w/{place.path}"
        ids, answer = {part(each) for each in kept}, f"/{WRITES_IDX_MAP[RESUME]}"
        return [
            key
            for key in await self._drawer.keys(prefix)
            if key.removeprefix(prefix).partition("/")[0] not in ids and not (answers and key.endswith(answer))
        ]

    async def _remove(self, keys: list[str]) -> None:
        for start in range(0, len(keys), BATCH):
            await self._drawer.put_all({}, remove=keys[start : start + BATCH])


def _batches(values: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """Yield values in parts of at most ``BYTES`` each. A larger value is a part of its own."""
    batch: dict[str, bytes] = {}
    size = 0
    for key, data in values.items():
        if batch and size + len(data) > BYTES:
            yield batch
            batch, size = {}, 0
        batch[key] = data
        size += len(data)
    yield batch


def _checkpoint_key(place: Place, id: str) -> str:
    return f"c/{place.path}{part(id)}"


def _value_key(place: Place, channel: str, version: object) -> str:
    return f"v/{place.path}{part(channel)}/{part(version)}"


def _run_key(checkpoint: StoredCheckpoint) -> str:
    return f"r/{part(checkpoint.run)}/{checkpoint.place.path}{part(checkpoint.id)}"
