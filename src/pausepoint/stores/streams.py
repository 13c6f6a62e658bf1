"""The live stream of a session: a bounded ring of records in a file of its own, without locks and without fsync.

One process writes, any number read. The file is written with ``pwrite`` and read with ``pread``: on a full disk, a
write into a memory map would kill the process.

**Layout.** A header, then `CAPACITY` bytes. Offsets count all bytes ever written; the place of an offset is the offset
modulo the capacity. The header has the offsets of the oldest record (``tail``) and of the next one (``head``), and the
number of the last record (``last``).

**Order of writes.** Before old records are overwritten, the header says that they are gone. A record is one write. The
header may leave out the last records: a record that is whole and contains the offset at which it is found follows the
one before. A process that is killed in between leaves a ring that can be read.

**Owner.** A store that was deleted leaves its rings behind, and the next store in its place uses the same numbers for
its sessions. So the header has a mark of the session. The ring of another session is not read, and is replaced.

**Takeover.** A run with a higher fence copies the ring into a new file and renames it over the old one. A process that
lost the session and does not know it yet writes into the old file, which no longer has a name.

Everything read is checked: the header and each record have a checksum, and a record contains its own offset.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Literal, NamedTuple
from zlib import crc32

from pausepoint.model.streams import Gap, Restarted, StreamChunk, StreamItem, source_of
from pausepoint.stores.places import Medium, MemoryMedium, Place

CAPACITY = 256 * 1024
"""The bytes of records that a ring holds."""

LARGEST = 32 * 1024
"""The most bytes of text in one record."""

CHECK_EVERY = 0.05
"""Seconds between two checks of a writer that its file still has its name."""

_MAGIC = 0x52535050
_START = struct.Struct("<II")
_FIELDS = struct.Struct("<QQQQQQQQ")
_HEADER = struct.Struct("<IIQQQQQQQQ")  # magic, checksum, then the fields of `Header`
_RECORD = struct.Struct("<IIQQQIIHHHH")  # length of the body, checksum, then: offset, number, run, attempt, visit, …
_REST = struct.Struct("<QQQIIHHHH")  # … type, and the lengths of the names of step, operation and kind
_PIECE = 2 * LARGEST
_AT_ONCE = 256
"""How many records one read returns, so that it takes a few milliseconds at most on the loop that drives sessions."""

_SOURCES = 1024
"""How many sources a reader remembers."""

Type = Literal[0, 1, 2]
TEXT: Type = 0
BYTES: Type = 1
RESTART: Type = 2


class Header(NamedTuple):
    """The state of a ring. ``owner`` is the `mark` of the session whose ring it is, ``born`` is random and tells rings
    apart, and everything before ``settled`` is final.
    """

    owner: int
    born: int
    capacity: int
    tail: int = 0
    head: int = 0
    last: int = 0
    fence: int = 0
    settled: int = 0

    def to_bytes(self) -> bytes:
        rest = _FIELDS.pack(*self)
        return _START.pack(_MAGIC, crc32(rest)) + rest


class Entry(NamedTuple):
    """One record."""

    type: int
    n: int
    run: int
    attempt: int
    visit: int
    step: str
    operation: str
    kind: str
    data: bytes
    size: int = 0

    @property
    def source(self) -> str:
        return source_of(self.step, self.visit, self.operation)

    @property
    def voided(self) -> tuple[str, ...]:
        """The sources that a record of type `RESTART` declares void."""
        return tuple(_text(self.data).split("\0"))

    def item(self) -> StreamItem:
        """Return the record as followers see it."""
        if self.type == RESTART:
            return Restarted(self.n, self.voided)
        data = self.data if self.type == BYTES else _text(self.data)
        return StreamChunk(self.n, data, self.kind, self.step, self.visit, self.operation, self.run, self.attempt)


class Origin(NamedTuple):
    """What the chunks of one source have in common, encoded once."""

    type: int
    attempt: int
    visit: int
    names: bytes
    lengths: tuple[int, int, int]


def origin_of(entry: Entry) -> Origin:
    """Return the origin of a record."""
    names = entry.step.encode(), entry.operation.encode(), entry.kind.encode()
    lengths = len(names[0]), len(names[1]), len(names[2])
    return Origin(entry.type, entry.attempt & 0xFFFFFFFF, entry.visit & 0xFFFFFFFF, b"".join(names), lengths)


class Writer:
    """Writes the ring of one run. Nothing here raises for a disk that cannot be written: the chunk is dropped."""

    def __init__(self, place: Place, fence: int) -> None:
        self.place = place
        self.fence = fence
        self.overtaken: bool = False
        self._medium: Medium | None = None
        self._header = Header(place.owner, 0, CAPACITY)  # as it was written last
        self._head = 0
        self._last = 0
        self._lost = 0
        self._checked = 0.0

    def write(self, origin: Origin, data: bytes) -> bool:
        """Append a record and return whether it was written. This is called for every token, so it does little."""
        now = time.monotonic()
        medium = self._medium if now - self._checked < CHECK_EVERY else self._current(now)
        if medium is None:
            self._lost += not self.overtaken
            return False
        head, number = self._head, self._last + self._lost + 1
        body = origin.names + data
        rest = _REST.pack(head, number, self.fence, origin.attempt, origin.visit, origin.type, *origin.lengths)
        record = _START.pack(len(body), crc32(body, crc32(rest))) + rest + body
        try:
            if head + len(record) - self._header.tail > CAPACITY:
                self._evict(medium, len(record))
            at = head % CAPACITY
            if at + len(record) <= CAPACITY:
                medium.write(record, _HEADER.size + at)
            else:
                medium.write(record[CAPACITY - at :], _HEADER.size)
                medium.write(record[: CAPACITY - at], _HEADER.size + at)
            self._head, self._last, self._lost = head + len(record), number, 0
            if self._head - self._header.head > CAPACITY // 8:
                self._publish(medium)
        except OSError:
            self._lost += self._head == head  # followers see a gap
        return self._head != head

    def settle(self) -> None:
        """Note that everything written so far is final, or was declared void."""
        if self._medium is not None and self._header.settled != self._head:
            with suppress(OSError):
                self._publish(self._medium, settled=self._head)

    def close(self) -> None:
        """Release the file."""
        if self._medium is not None:
            self._medium.close()
            self._medium = None

    def _publish(self, medium: Medium, **changes: int) -> None:
        header = self._header._replace(head=self._head, last=self._last, **changes)
        medium.write(header.to_bytes(), 0)
        self._header = header

    def _current(self, now: float) -> Medium | None:
        """Return the ring, if it is still ours: it may have been deleted or replaced."""
        self._checked = now
        if self._medium is None or self.place.find(self._medium) is not self._medium:
            self._take_over()
        return self._medium

    def _take_over(self) -> None:
        former, self._medium = self._medium, None
        found = self.place.find(None)
        try:
            header = None if found is None else read_header(found, self.place.owner)
            self.overtaken = header is not None and header.fence > self.fence
            if not self.overtaken:
                self._copy(found, header)
        except OSError:
            pass  # it is tried again soon
        finally:
            for medium in (former, found):
                if medium is not None:
                    medium.close()

    def _copy(self, found: Medium | None, header: Header | None) -> None:
        """Continue in a new file, with the content of the one that was found."""
        content = b""
        if found is None or header is None or header.capacity != CAPACITY:
            born = int.from_bytes(os.urandom(8), "little")
            header = Header(self.place.owner, born, CAPACITY, last=self._last)
        else:
            content = found.read(CAPACITY, _HEADER.size)
            for entry in entries(MemoryMedium(bytes(_HEADER.size) + content), header, header.head):
                header = header._replace(head=header.head + entry.size, last=entry.n)
        header = header._replace(fence=self.fence)
        self._medium = self.place.replace(header.to_bytes() + content)
        self._header, self._head, self._last = header, header.head, header.last

    def _evict(self, medium: Medium, room: int) -> None:
        """Give up the oldest eighth, and tell readers before it is overwritten."""
        tail = self._header.tail
        enough = self._head + room - CAPACITY + CAPACITY // 8
        raw = _span(medium, self._header, tail, min(self._head - tail, enough - tail + _PIECE))
        start = tail
        while tail < min(enough, self._head):
            size = _size(raw, tail - start, tail)
            tail = tail + size if size else self._head  # damaged: give up everything
        self._publish(medium, tail=tail)


class Reader:
    """Reads a ring from a number on, while it is written.

    ``after`` is the number of the last item that the follower has seen. With None, only later items are returned.
    """

    def __init__(self, place: Place, after: int | None) -> None:
        self.place = place
        self.more: bool = False  # whether the last read left something to read now
        self._medium: Medium | None = None
        self._born = 0
        self._at = 0
        self._next: int | None = None if after is None else after + 1
        self._runs: dict[str, tuple[int, int]] = {}
        header = self._look()
        if header is not None:
            self._adopt(header, skip=after is None)

    def read(self) -> list[StreamItem]:
        """Return the next items, a limited number at a time. See `more`."""
        self.more = False
        header = self._look()
        if header is None or self._medium is None:
            return []
        if header.born != self._born:
            self._next = None if self._born else self._next  # a new ring has numbers of its own
            self._adopt(header, skip=False)
        self._at = max(self._at, header.tail)  # the numbers tell how much was lost
        if header.head <= self._at and not _size(_span(self._medium, header, self._at, _RECORD.size), 0, self._at):
            return []  # the usual case of a look without news
        raw = _span(self._medium, header, self._at, _PIECE)
        items: list[StreamItem] = []
        done = count = 0
        while count < _AT_ONCE and (entry := _parsed(raw, done, self._at + done)) is not None:
            done, count = done + entry.size, count + 1
            items += self._items(entry)
        self._at += done
        self.more = count == _AT_ONCE or (bool(done) if len(raw) == _PIECE else self._at < header.head)
        return items if done or self._at >= header.head else self._skip_damage(header)

    def close(self) -> None:
        if self._medium is not None:
            self._medium.close()
            self._medium = None

    def _look(self) -> Header | None:
        found = self.place.find(self._medium)
        if found is not self._medium:
            self.close()
            self._medium = found
        return None if found is None else read_header(found, self.place.owner)

    def _adopt(self, header: Header, skip: bool) -> None:
        """Begin to read a ring that this reader has not seen before."""
        self._born, self._runs = header.born, {}
        head, last = header.head, header.last
        for entry in () if self._medium is None else entries(self._medium, header, head):
            head, last = head + entry.size, entry.n
        self._at = head if skip else header.tail
        if skip:
            self._next = last + 1
        elif self._next is not None and self._next > last + 1:
            self._next = None  # the follower's number is that of a ring that was deleted

    def _items(self, entry: Entry) -> list[StreamItem]:
        items: list[StreamItem] = []
        seen = self._next is not None and entry.n < self._next
        if not seen:
            if self._next is not None and entry.n > self._next:
                items.append(Gap(entry.n - 1, entry.n - self._next))
            self._next = entry.n + 1
        if entry.type == RESTART:
            for source in entry.voided:
                self._runs.pop(source, None)
        elif not self._is_current(entry):
            return items
        elif self._began_again(entry) and not seen:
            items.append(Restarted(entry.n, (entry.source,)))
        if not seen:
            items.append(entry.item())
        return items

    def _is_current(self, entry: Entry) -> bool:
        """Return whether a chunk is not of an older run than those of its source that came before."""
        return (entry.run, entry.attempt) >= self._runs.get(entry.source, (0, 0))

    def _began_again(self, entry: Entry) -> bool:
        """Return whether a source sends in a new run, although no record said so: it may have been overwritten."""
        source, run = entry.source, (entry.run, entry.attempt)
        before = self._runs.pop(source, run)
        self._runs[source] = run
        if len(self._runs) > _SOURCES:
            del self._runs[next(iter(self._runs))]
        return run > before

    def _skip_damage(self, header: Header) -> list[StreamItem]:
        """Move past a record that cannot be read: it was overwritten meanwhile, or a power loss damaged it."""
        now = self._look()
        if now is not None and now.born == header.born and now.tail > self._at:
            self._at = now.tail
            return []
        lost = 0 if self._next is None else header.last - self._next + 1
        self._at, self._next, self.more = header.head, header.last + 1, False
        return [Gap(header.last, lost)] if lost > 0 else []


def mark(session_id: str, created_at: int) -> int:
    """Return a number that tells a session apart from those of other stores.

    >>> mark("octopus", 1) == mark("octopus", 1), mark("octopus", 1) == mark("octopus", 2)
    (True, False)
    """
    return int.from_bytes(sha256(f"{created_at} {session_id}".encode()).digest()[:8], "little")


def read_header(medium: Medium, owner: int) -> Header | None:
    """Return the header of a ring; None if it is damaged, or of another session. A read during a write is repeated."""
    for _ in range(4):
        with suppress(OSError):
            raw = medium.read(_HEADER.size, 0)
            if len(raw) == _HEADER.size:
                magic, checksum, *rest = _HEADER.unpack(raw)
                if magic == _MAGIC and crc32(raw[8:]) == checksum:
                    return Header(*rest) if rest[0] == owner else None
    return None


def unsettled(place: Place) -> dict[str, Entry]:
    """Return, by source, a record of each source whose chunks an earlier run left without saying what they are."""
    medium = place.find(None)
    if medium is None:
        return {}
    try:
        return _unsettled(medium, place.owner)
    finally:
        medium.close()


def _unsettled(medium: Medium, owner: int) -> dict[str, Entry]:
    header = read_header(medium, owner)
    found: dict[str, Entry] = {}
    for entry in () if header is None else entries(medium, header, max(header.tail, header.settled)):
        if entry.type == RESTART:
            for source in entry.voided:
                found.pop(source, None)
        else:
            found[entry.source] = entry
    return found


def entries(medium: Medium, header: Header, offset: int) -> Iterator[Entry]:
    """Yield the records from an offset on, as far as they are whole. The header may not include the last ones yet."""
    raw = _span(medium, header, offset, header.capacity - (offset - header.tail))
    at = 0
    while (entry := _parsed(raw, at, offset + at)) is not None:
        yield entry
        at += entry.size


def _span(medium: Medium, header: Header, offset: int, size: int) -> bytes:
    """Return the bytes from an offset on; fewer if the disk fails."""
    at = offset % header.capacity
    room = header.capacity - at
    try:
        raw = medium.read(min(size, room), _HEADER.size + at) if size > 0 else b""
        return raw + medium.read(size - room, _HEADER.size) if size > room else raw
    except OSError:
        return b""


def _size(raw: bytes, position: int, offset: int) -> int:
    """Return the size of the record at a position; 0 if there is none."""
    if position + _RECORD.size > len(raw):
        return 0
    length, _, own, *_ = _RECORD.unpack_from(raw, position)
    return _RECORD.size + int(length) if own == offset else 0


def _parsed(raw: bytes, position: int, offset: int) -> Entry | None:
    """Return the record at a position; None if it is not complete or not whole."""
    size = _size(raw, position, offset)
    if not size or position + size > len(raw):
        return None
    _, checksum, _, n, run, attempt, visit, type_, step, operation, kind = _RECORD.unpack_from(raw, position)
    body = raw[position + _RECORD.size : position + size]
    if crc32(body, crc32(raw[position + 8 : position + _RECORD.size])) != checksum:
        return None
    two, three = step + operation, step + operation + kind
    names = _text(body[:step]), _text(body[step:two]), _text(body[two:three])
    return Entry(type_, n, run, attempt, visit, *names, body[three:], size)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
