"""The folded lines of parked sessions, as bytes in memory, so that a wake need not read and fold the log again.

A line is found only under the number and the digest of the session's last record. Whatever changes the log, in any
process, changes both, and the log is read instead. Bytes, not objects: their size is known exactly, and nothing that a
former drive still holds can change them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import NamedTuple

import msgspec

from pausepoint.log.replay import Line, OperationBody, WaitBody
from pausepoint.log.state import Slot, State
from pausepoint.model.sessions import SessionRow

FEW = 8
"""A line with fewer records since its key frame is not kept: reading them costs as little."""

LARGEST = 2**20
"""The most bytes of one line."""

MOST = 16 * 2**20
"""The most bytes of all lines of an engine. The line that was parked first is dropped first."""

LONGEST = 600.0
"""The number of seconds after which a line is dropped. Another process may have redacted or removed the session."""


class _Kept(msgspec.Struct, array_like=True, gc=False):
    """All facts of a line and of its state."""

    slots: dict[str, Slot]
    passing: set[str]
    attempts: int
    base: int
    bytes_since_key: int
    effects: set[str]
    held_by_guard: bool
    left_behind: tuple[tuple[int, int], ...]
    noticed: set[str]
    opened: int
    operations: dict[str, OperationBody]
    outline: tuple[str, ...]
    records_since_key: int
    spans: list[tuple[int, int]]
    spent: int
    step: str | None
    took: int
    touched: bool
    tries: int
    usd: int
    version: int
    visits: dict[str, int]
    waits: dict[str, WaitBody]
    worked: int


_FACTS = _Kept.__struct_fields__[2:]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Kept).decode


def to_bytes(line: Line) -> bytes:
    """Return a line as bytes. It must have no artifacts, no work on chunks of files, and no assumed fields."""
    return _encode(_Kept(line.state.slots, line.state.passing, *[getattr(line, name) for name in _FACTS]))


def from_bytes(data: bytes) -> Line:
    """Return the line that `to_bytes` was called with."""
    kept, line = _decode(data), Line()
    line.state = State(kept.slots)
    line.state.passing = kept.passing
    for name in _FACTS:
        setattr(line, name, getattr(kept, name))
    return line


class _Entry(NamedTuple):
    seq: int
    digest: bytes
    data: bytes
    until: float


class ParkedLines:
    """The lines of the sessions that one engine has parked, by the key of the session."""

    def __init__(self) -> None:
        self.size = 0
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def keep(self, key: int, seq: int, digest: bytes, line: Line) -> None:
        """Keep the line of a session that has just been parked, if a wake is cheaper with it."""
        self.drop(key)
        if line.records_since_key < FEW or line.bytes_since_key > LARGEST:
            return
        if line.trail is not None or line.chunked or line.state.assumed:
            return
        data = to_bytes(line)
        if len(data) > LARGEST:
            return
        loop = asyncio.get_running_loop()
        self._entries[key] = _Entry(seq, digest, data, loop.time() + LONGEST)
        self.size += len(data)
        while self.size > MOST:
            self.drop(next(iter(self._entries)))
        if self._sweep is None:
            self._sweep = loop.call_later(LONGEST, self._drop_old, loop)

    def find(self, row: SessionRow) -> Line | None:
        """Return the line of a session, unless its log has changed since."""
        entry = self._entries.get(row.key)
        if entry is None or entry.seq != row.seq or entry.digest != row.digest:
            return None
        return from_bytes(entry.data)

    def drop(self, key: int) -> None:
        """Drop the line of a session, if there is one."""
        if (entry := self._entries.pop(key, None)) is not None:
            self.size -= len(entry.data)

    def clear(self) -> None:
        """Drop all lines."""
        self._entries.clear()
        self.size = 0
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _drop_old(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep = None
        for key, entry in list(self._entries.items()):
            if entry.until > loop.time():
                self._sweep = loop.call_at(entry.until, self._drop_old, loop)
                return
            self.drop(key)
