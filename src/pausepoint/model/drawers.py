"""Drawers: named streams of bytes and versioned values that programs keep in the store, beside the sessions.

The checksums here detect damage. They say nothing about who wrote a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from zlib import crc32

import msgspec
from msgspec.structs import replace

from pausepoint.errors import DrawerRefused
from pausepoint.model.ids import check_session_id, shortened

LONGEST_KEY = 1000
"""The most bytes of the name of a stream or the key of a value, in UTF-8."""

LARGEST = 2**26
"""The most bytes that one call may store."""

LARGEST_NOTE = 2**20
"""The most bytes of a stream's note."""

MOST = 10_000
"""The most entries or values that one call may name."""

LATEST = 253_402_300_799_999_999
"""The last time, in microseconds: the end of the year 9999. A drawer cannot have given out more versions either."""

_LONGEST = 2**62
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_LAST = chr(0x10FFFF)
_UNSTORABLE = re.compile(f"[\0\ud800-\udfff{_LAST}]")
_packed = msgspec.msgpack.Encoder().encode

Fold = Callable[[bytes | None, int], bytes | None]
"""Returns the next note of a stream, from the present note and the time of the change in milliseconds."""


class DrawerId(msgspec.Struct, frozen=True):
    """The name of a drawer, and the id of the session that it belongs to; None if it is the store's own."""

    name: str
    session_id: str | None = None

    def __str__(self) -> str:
        return repr(self.name) + ("" if self.session_id is None else f" of session {self.session_id!r}")


class DrawerValue(msgspec.Struct, frozen=True):
    """A value in a drawer. No two values that a drawer ever stores under one key have the same ``version``."""

    data: bytes
    version: int


class DrawerStream(msgspec.Struct, frozen=True):
    """Facts about a stream. ``n`` is the number of its entries.

    ``changed`` is when it changed, in milliseconds since 1970. No two changes in a drawer have the same one, and a
    later change has a larger one.
    """

    stream: str
    n: int
    changed: int
    note: bytes | None = None


class DrawerInfo(msgspec.Struct, frozen=True):
    """Facts about a drawer. ``bytes`` is the size of its entries, notes and values."""

    name: str
    session_id: str | None
    streams: int
    values: int
    bytes: int


class Change(msgspec.Struct, frozen=True):
    """A change of one value: ``data`` becomes its content, or None removes it.

    ``if_version`` is the version that it must have now; 0 means that there must be none. With ``only_new``, a value
    that exists stays as it is.
    """

    key: str
    data: bytes | None
    if_version: int | None = None
    only_new: bool = False


class Range(msgspec.Struct, frozen=True):
    """The keys with ``after < key < before`` that begin with ``prefix``: the first or the last ``limit`` of them."""

    prefix: str = ""
    after: str = ""
    before: str | None = None
    limit: int | None = None
    last: bool = False

    @property
    def since(self) -> str:
        """The first key that may be in the range. Keys have no NUL, so the next key after ``a`` is ``a\\x01``."""
        return max(self.prefix, self.after + "\x01") if self.after else self.prefix

    @property
    def until(self) -> str:
        """The first key after the range."""
        end = after_prefix(self.prefix)
        return end if self.before is None else min(end, self.before)

    def contains(self, key: str) -> bool:
        """Return whether a key is in the range, whatever the limit is."""
        return self.after < key and self.prefix <= key < self.until


class StoredStream(msgspec.Struct, frozen=True):
    """A stream with its entries, for a copy of its drawer."""

    stream: str
    changed: int
    note: bytes | None
    entries: list[bytes]


class StoredValue(msgspec.Struct, frozen=True):
    """A value with its key, for a copy of its drawer. ``changed`` is in microseconds."""

    key: str
    version: int
    changed: int
    data: bytes


class StoredDrawer(msgspec.Struct, frozen=True):
    """A drawer with everything in it. ``changed`` and ``version`` are the last ones that it gave out."""

    name: str
    changed: int = 0
    version: int = 0
    keep_for: int | None = None
    streams: list[StoredStream] = []
    values: list[StoredValue] = []

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it."""
        return not self.streams and not self.values

    def after(self, changed: int, version: int) -> StoredDrawer:
        """Return this drawer as one that has given out these, too."""
        return replace(self, changed=max(changed, self.changed), version=max(version, self.version))


def check_drawer(name: Any, session_id: Any = None) -> DrawerId:
    """Return the id of a drawer. Raises `DrawerRefused` or `InvalidSessionId`.

    >>> check_drawer("claude")
    DrawerId(name='claude', session_id=None)
    >>> check_drawer("../x")
    Traceback (most recent call last):
    ...
    pausepoint.errors.DrawerRefused: '../x' is not the name of a drawer. Use 1 to 64 of a-z, 0-9, _ and -, ...
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise DrawerRefused(
            f"{shortened(name)} is not the name of a drawer. Use 1 to 64 of a-z, 0-9, _ and -, and begin with a letter"
            " or a digit."
        )
    return DrawerId(name, None if session_id is None else check_session_id(session_id))


def check_key(key: Any, what: str = "key") -> str:
    """Return the name of a stream or the key of a value. Raises `DrawerRefused`.

    >>> check_key("thread-7/state")
    'thread-7/state'
    >>> check_key("")
    Traceback (most recent call last):
    ...
    pausepoint.errors.DrawerRefused: '' cannot be a key in a drawer. Use 1 to 1000 bytes of text without NUL.
    """
    if isinstance(key, str) and key and _is_text(key):
        return key
    raise _refused(key, what)


def check_prefix(prefix: Any) -> str:
    """Return a prefix of keys, which may be empty. Raises `DrawerRefused`."""
    if isinstance(prefix, str) and _is_text(prefix):
        return prefix
    raise _refused(prefix, "prefix")


def _is_text(text: str) -> bool:
    return len(text) <= LONGEST_KEY and _UNSTORABLE.search(text) is None and len(text.encode()) <= LONGEST_KEY


def _refused(text: Any, what: str) -> DrawerRefused:
    least = 0 if what == "prefix" else 1
    use = f"Use {least} to {LONGEST_KEY} bytes of text without NUL"
    if isinstance(text, str) and (found := _UNSTORABLE.search(text)) is not None and found[0] != "\0":
        use += f" and without U+{ord(found[0]):04X}, which not every store can hold"
    return DrawerRefused(f"{shortened(text)} cannot be a {what} in a drawer. {use}.")


def check_data(data: Sequence[Any], what: str) -> None:
    """Check the bytes that a call stores. Raises `TypeError` or `DrawerRefused`.

    >>> check_data([b"one", "two"], "Entry")
    Traceback (most recent call last):
    ...
    TypeError: Entry 2 must be bytes, not str: 'two'.
    """
    for number, each in enumerate(data, 1):
        if type(each) is not bytes:
            raise TypeError(f"{what} {number} must be bytes, not {type(each).__name__}: {each!r:.60}.")
    if len(data) > MOST:
        raise DrawerRefused(
            f"A drawer takes {MOST} entries or values in one call, not {len(data)}. Make several calls."
        )
    if (size := sum(map(len, data))) > LARGEST:
        raise DrawerRefused(
            f"A drawer takes {LARGEST >> 20} MiB in one call, and this one has {size} bytes. Store large contents as"
            " files of a session, or in several parts."
        )


def check_note(note: Any) -> bytes | None:
    """Return the note that a fold has made. Raises `TypeError` or `DrawerRefused`."""
    if note is None:
        return None
    if type(note) is not bytes:
        raise TypeError(f"note= must return bytes or None, not {type(note).__name__}: {note!r:.60}.")
    if len(note) > LARGEST_NOTE:
        raise DrawerRefused(
            f"The note of a stream has {len(note)} bytes, and may have {LARGEST_NOTE >> 20} MiB. Keep the rest in"
            " entries."
        )
    return note


def folded(fold: Fold, old: bytes | None, now: int) -> bytes | None:
    """Return the note that a fold makes of the present one. Raises what it raises, and what `check_note` raises.

    A fold runs in a transaction that other calls may share. So an exception that would end more than its own call
    becomes a `RuntimeError`: a future does not accept `StopIteration`, and those that are no `Exception` end threads.
    """
    try:
        note = fold(old, now)
    except BaseException as exc:
        if isinstance(exc, Exception) and not isinstance(exc, StopIteration):
            raise
        raise RuntimeError(f"note= raised {type(exc).__name__}: {exc}. Nothing was stored.") from exc
    return check_note(note)


def check_drawers(drawers: Sequence[StoredDrawer]) -> None:
    """Check drawers that were read from a file: names, keys, and numbers that fit together. Raises `DrawerRefused`."""
    _check_once([check_drawer(drawer.name).name for drawer in drawers], "drawer")
    for drawer in drawers:
        _check_once([check_key(each.stream, "stream") for each in drawer.streams], "stream")
        _check_once([check_key(each.key) for each in drawer.values], "key")
        for note in [each.note for each in drawer.streams]:
            check_note(note)
        if not _fits_together(drawer):
            raise DrawerRefused(f"The numbers in drawer {drawer.name!r} do not fit together. Export it again.")


def _fits_together(drawer: StoredDrawer) -> bool:
    """Return whether a drawer can have given out these times and versions. Version 0 means no value."""
    return (
        0 <= drawer.changed <= LATEST // 1000
        and 0 <= drawer.version <= LATEST
        and 0 <= (drawer.keep_for or 0) <= _LONGEST
        and all(0 <= each.changed <= drawer.changed for each in drawer.streams)
        and all(1 <= each.version <= drawer.version and 0 <= each.changed <= LATEST for each in drawer.values)
    )


def _check_once(names: Sequence[str], what: str) -> None:
    if len(set(names)) != len(names):
        raise DrawerRefused(f"A {what} is named twice in the drawers. Export them again.")


def after_prefix(prefix: str) -> str:
    """Return the smallest text that is larger than all keys with this prefix.

    >>> after_prefix("a/"), after_prefix("a\\ud7ff"), after_prefix("") == chr(0x10FFFF)
    ('a0', 'a\\ue000', True)
    """
    if not prefix:
        return _LAST
    following = ord(prefix[-1]) + 1
    return prefix[:-1] + chr(0xE000 if following == 0xD800 else following)


def next_changed(last: int, now: int) -> int:
    """Return the time of a change in milliseconds: the present, or later if a change has that time already."""
    return max(now // 1000, last + 1)


# checksums


def drawer_sum(name: str, changed: int, version: int, keep_for: int | None) -> int:
    """Return the checksum of a drawer's facts."""
    return crc32(_packed((name, changed, version, keep_for)))


def chain(name: str, stream: str, entries: Iterable[bytes] = (), after: tuple[int, int] | None = None) -> list[int]:
    """Return the checksums of entries, each with those before it.

    ``after`` are the number and the checksum of the entry before the first one. Without entries, the list is empty;
    `chain_start` is the checksum before entry 1.
    """
    n, last = (0, chain_start(name, stream)) if after is None else after
    found = []
    for each in entries:
        n += 1
        last = crc32(each, crc32(b"%d|%d|" % (last, n)))
        found.append(last)
    return found


def chain_start(name: str, stream: str) -> int:
    """Return the checksum before the first entry of a stream."""
    return crc32(_packed((name, stream)))


def stream_sum(name: str, info: DrawerStream, last: int) -> int:
    """Return the checksum of the facts about a stream. ``last`` is that of its last entry."""
    return crc32(_packed((name, info.stream, info.n, info.changed, info.note, last)))


def value_sum(name: str, key: str, version: int, changed: int, data: bytes) -> int:
    """Return the checksum of a value."""
    return crc32(data, crc32(_packed((name, key, version, changed, len(data)))))
