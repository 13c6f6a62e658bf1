"""A drawer: durable streams of bytes and versioned values in the store, beside the sessions. Provisional."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pausepoint.errors import DrawerRefused
from pausepoint.model.drawers import (
    MOST,
    Change,
    DrawerId,
    DrawerStream,
    DrawerValue,
    Fold,
    Range,
    check_data,
    check_key,
    check_prefix,
)
from pausepoint.model.views import Listing
from pausepoint.stores.base import Store


class Drawer:
    """A drawer of the store or of a session. `Engine.drawer` and `Context.drawer` return one.

    It holds *streams*, to which entries are appended, and *values*, which are replaced under a version. Each call is
    one transaction: when it returns, its effect is on disk; when it raises, nothing was stored. Names of streams and
    keys of values are text of 1 to 1,000 bytes. One call stores at most 64 MiB.
    """

    def __init__(self, id: DrawerId, store: Store, check_open: Callable[[], None], keep_for: int | None) -> None:
        self._id = id
        self._store = store
        self._check_open = check_open
        self._keep_for = keep_for

    def __repr__(self) -> str:
        return f"Drawer({self._id})"

    @property
    def name(self) -> str:
        """The name of the drawer."""
        return self._id.name

    @property
    def session_id(self) -> str | None:
        """The id of the session that the drawer belongs to; None if it is the store's own."""
        return self._id.session_id

    # streams

    async def append(self, stream: str, entries: Sequence[bytes], *, note: Fold | None = None) -> int:
        """Append entries to a stream, which need not exist, and return the number of the last one.

        Entries are numbered from 1. Without entries, the stream exists afterwards, and its ``changed`` is new.

        ``note`` is a function that makes the stream's note: it gets the present note (None at first) and the time of
        this change in milliseconds, and returns the next one, at most 1 MiB. It runs in the transaction, in a thread of
        the store, perhaps more than once, so it must be quick and have no other effect.
        """
        self._check_open()
        found = _listed(entries)
        check_data(found, "Entry")
        return await self._store.drawer_append(self._id, check_key(stream, "stream"), found, note, self._keep_for)

    async def read(self, stream: str, after: int = 0, last: int | None = None) -> list[bytes] | None:
        """Return the entries of a stream, in order; None if there is no such stream.

        - ``after``: only entries after this number.
        - ``last``: only the last ones, this many.
        """
        self._check_open()
        _check_count(after, "after")
        if last is not None:
            _check_count(last, "last")
        return await self._store.drawer_read(self._id, check_key(stream, "stream"), after, last)

    async def streams(self, prefix: str = "") -> Listing[DrawerStream]:
        """Return facts about the streams whose names begin with a prefix, ordered by name.

        ``changed`` rises with every change in the drawer, so sorting by it gives the order of the last changes.
        ``damaged`` are the errors of streams whose facts cannot be read.
        """
        self._check_open()
        found = await self._store.drawer_streams(self._id, check_prefix(prefix))
        return Listing(found, found.damaged)

    async def pop(self, stream: str) -> bytes | None:
        """Remove the last entry of a stream, and return it; None if there is none. Its number is used again."""
        self._check_open()
        return await self._store.drawer_pop(self._id, check_key(stream, "stream"))

    async def drop(self, *streams: str) -> int:
        """Delete streams with their entries and notes, in one transaction. Return how many there were."""
        self._check_open()
        return await self._store.drawer_drop(self._id, _checked(streams, "stream"))

    # values

    async def put(self, key: str, data: bytes, *, if_version: int | None = None) -> int:
        """Store a value under a key, and return its version.

        With ``if_version``, the value must have this version now; 0 means that there must be none. Otherwise this
        raises `VersionConflict`, which has both versions, and stores nothing. No version of a key is used twice, even
        if the value is removed meanwhile.
        """
        versions = await self.put_all({key: data}, if_version={} if if_version is None else {key: if_version})
        return versions[key]

    async def get(self, key: str) -> DrawerValue | None:
        """Return a value: its ``data`` and its ``version``; None if there is none."""
        return (await self.get_all([key])).get(key)

    async def put_all(
        self, values: Mapping[str, bytes], *, new: Mapping[str, bytes] | None = None, remove: Iterable[str] = (),
        if_version: Mapping[str, int] | None = None,
    ) -> dict[str, int]:  # fmt: skip
        """Store several values in one transaction, and return the versions of all keys; 0 if there is no value.

        - ``new``: values that are stored only under keys that have none. Those that exist stay as they are.
        - ``remove``: keys whose values are deleted.
        - ``if_version``: the versions that some of the keys must have now, as in `put`.

        No key may be named twice in ``values``, ``new`` and ``remove``.
        """
        self._check_open()
        new, expected, gone = new or {}, if_version or {}, [remove] if isinstance(remove, str) else list(remove)
        check_data([*values.values(), *new.values()], "Value")
        changes = [Change(check_key(key), data, _version(expected.get(key))) for key, data in values.items()]
        changes += [Change(check_key(key), data, _version(expected.get(key)), True) for key, data in new.items()]
        changes += [Change(check_key(key), None, _version(expected.get(key))) for key in gone]
        keys = [each.key for each in changes]
        _check_keys(keys, expected)
        if not changes:
            return {}
        return dict(zip(keys, await self._store.drawer_put(self._id, changes, self._keep_for), strict=True))

    async def get_all(self, keys: Iterable[str]) -> dict[str, DrawerValue]:
        """Return several values as of one moment, by key. Keys without a value are left out."""
        self._check_open()
        return await self._store.drawer_get(self._id, _checked(keys, "key"))

    async def values(
        self, prefix: str = "", *, after: str = "", before: str | None = None, first: int | None = None,
        last: int | None = None,
    ) -> dict[str, DrawerValue]:  # fmt: skip
        """Return the values whose keys begin with a prefix, as of one moment, ordered by key.

        ``after`` and ``before`` further select the keys between two others, which need not exist. ``first`` or
        ``last`` select this many of them. Keys are compared by their characters' code points.
        """
        self._check_open()
        if first is not None and last is not None:
            raise ValueError("values() takes first= or last=, not both.")
        limit = first if last is None else last
        if limit is not None:
            _check_count(limit, "first" if last is None else "last")
        until = None if before is None else check_prefix(before)
        keys = Range(check_prefix(prefix), check_prefix(after), until, limit, last is not None)
        return await self._store.drawer_find(self._id, keys)

    async def keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with a prefix, as of one moment, in order. No value is read."""
        self._check_open()
        return await self._store.drawer_keys(self._id, check_prefix(prefix))

    async def clear(self, prefix: str = "") -> int:
        """Delete all values whose keys begin with a prefix, in one transaction. Return how many there were."""
        self._check_open()
        return await self._store.drawer_clear(self._id, check_prefix(prefix))


def _listed(entries: Any) -> list[Any]:
    """Return a sequence as a list. Text and bytes are sequences, too, but not of entries."""
    return [entries] if isinstance(entries, str | bytes | None) else list(entries)


def _check_count(number: Any, what: str) -> None:
    if type(number) is not int or number < 0:
        raise ValueError(f"{what} must be a whole number of 0 or more, not {number!r:.60}.")


def _version(version: Any) -> int | None:
    if version is not None:
        _check_count(version, "if_version")
    return None if version is None else int(version)


def _checked(keys: Iterable[str], what: str) -> list[str]:
    found = list(dict.fromkeys(check_key(each, what) for each in ([keys] if isinstance(keys, str) else keys)))
    if len(found) > MOST:
        raise DrawerRefused(f"A call names {len(found)} keys or streams, and may name {MOST}. Make several calls.")
    return found


def _check_keys(keys: Sequence[str], expected: Mapping[str, int]) -> None:
    if len(keys) > MOST:
        raise DrawerRefused(f"A call changes {len(keys)} values, and may change {MOST}. Make several calls.")
    if len(set(keys)) != len(keys):
        ((twice, _),) = Counter(keys).most_common(1)
        raise ValueError(f"The key {twice!r:.80} is named twice. Name each key once in values, new and remove.")
    if unknown := expected.keys() - set(keys):
        raise ValueError(f"if_version names {min(unknown)!r:.80}, which the call does not change. Leave it out.")
