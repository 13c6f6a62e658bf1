"""Read a write-ahead log (WAL) as SQLite's recovery does, and tell damage from the traces of a power loss.

SQLite takes the first frame that does not fit for the end of the log. That is right for a commit that a power loss cut
off. If a byte of an older commit has changed, the same rule drops every later commit without a word. The difference
shows behind the bad frame:

- A frame is *proved* if it has the log's salt and its checksum continues the one stored in the frame before it.
- A *stretch* is an unbroken run of proved frames behind the bad one. Frames of lost transactions may remain behind
  newer commits, but each transaction starts at the end of the log, so they never continue each other. A stretch with
  two commits was written after the bad frame was synced.
- The bad frame itself may be marked as the end of a commit. If the next commit continues it, it was synced too.
- If the header is refused, all frames are in question. After a power loss at a restart of the log they are all in the
  database already, so a page that differs was lost.
- The WAL index (``-shm``) counts the frames that were synced. It outlives a killed process.

This holds only for logs that were synced with every commit. The format is described at https://sqlite.org/walformat.html.
"""

from __future__ import annotations

import array
import struct
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

HEADER = 32
INDEX = 96  # bytes of the index that `index_of` needs: two copies of its header
SECTOR = 512
_FRAME = 24
_MAGIC = 0x377F0682
_MASK = 0xFFFFFFFF
_HEADER_FIELDS = struct.Struct(">4I8s2I")
_FRAME_FIELDS = struct.Struct(">2I8s2I")
_INDEX_FIELDS = struct.Struct("=16xI12x8s2I")
_BIG_ENDIAN = sys.byteorder == "big"

Read = Callable[[int, int], bytes]
"""Returns ``amount`` bytes from ``offset``."""

Sum = tuple[int, int]


class Damage(NamedTuple):
    """Acknowledged commits that SQLite will not read. They begin at ``frame``; 0 if the header is refused.

    ``commits`` is how many are known to be lost; 0 if they cannot be counted.
    """

    frame: int
    commits: int


class Frame(NamedTuple):
    """The header of a frame. ``commit`` is the size of the database after a commit; 0 inside a transaction."""

    page: int
    commit: int
    salt: bytes
    sum: Sum


class Index(NamedTuple):
    """The last synced frame according to the WAL index, and the salt of the log that it belongs to."""

    frames: int
    salt: bytes


def checksum(data: bytes, big_endian: bool, start: Sum = (0, 0)) -> Sum:
    """Return SQLite's running checksum over ``data``.

    >>> checksum(bytes([1, 0, 0, 0, 2, 0, 0, 0]), big_endian=False)
    (1, 3)
    """
    words = array.array("I", data)
    if big_endian != _BIG_ENDIAN:
        words.byteswap()
    first, second = start
    pairs = iter(words)
    for a, b in zip(pairs, pairs, strict=True):
        first = (first + a + second) & _MASK
        second = (second + b + first) & _MASK
    return first, second


def index_of(content: bytes) -> Index | None:
    """Return what the beginning of a WAL index says; None if it is incomplete or being written."""
    header = content[: INDEX // 2]
    if len(content) < INDEX or header != content[INDEX // 2 : INDEX]:
        return None
    frames, salt, *stored = _INDEX_FIELDS.unpack(header)
    return Index(frames, salt) if checksum(header[:40], _BIG_ENDIAN) == tuple(stored) else None


class Wal:
    """The frames of a log of ``size`` bytes, numbered from 1. ``page_size`` is used if the header is refused."""

    def __init__(self, read: Read, size: int, page_size: int) -> None:
        self._read = read
        self.page_size = page_size
        # A refused header does not say which byte order was used. SQLite uses the machine's.
        self._big_endian = _BIG_ENDIAN
        self.salt = b""
        self._sum: Sum = (0, 0)
        self.header_fits = size >= HEADER and self._read_header()
        self._step = _FRAME + self.page_size
        self.count = max(0, size - HEADER) // self._step

    def _read_header(self) -> bool:
        data = self._read(0, HEADER)
        magic, _, page_size, _, self.salt, *stored = _HEADER_FIELDS.unpack(data)
        big_endian = bool(magic & 1)
        self._sum = (stored[0], stored[1])
        if magic & ~1 != _MAGIC or checksum(data[:24], big_endian) != self._sum:
            return False
        self.page_size, self._big_endian = page_size, big_endian
        return True

    def place(self, number: int) -> int:
        return HEADER + (number - 1) * self._step

    def frame(self, number: int) -> Frame:
        page, commit, salt, first, second = _FRAME_FIELDS.unpack(self._read(self.place(number), _FRAME))
        return Frame(page, commit, salt, (first, second))

    def page(self, number: int) -> bytes:
        return self._read(self.place(number) + _FRAME, self.page_size)

    def proves(self, number: int, salt: bytes) -> bool:
        """Return whether the frame has the salt and continues the frame before it, as that is stored."""
        frame = self.frame(number)
        if frame.salt != salt or not frame.page:
            return False
        before = self._sum if number == 1 else self.frame(number - 1).sum
        data = self._read(self.place(number), self._step)
        head = checksum(data[:8], self._big_endian, before)
        return checksum(data[_FRAME:], self._big_endian, head) == frame.sum

    def live(self, last: int = 0) -> tuple[int, int]:
        """Return the end of the last commit, and the first frame that does not fit (``count + 1``: none).

        Starts behind ``last``, the end of a commit that SQLite has already proved.
        """
        number = last + 1
        while number <= self.count and self.proves(number, self.salt):
            last = number if self.frame(number).commit else last
            number += 1
        return last, number

    def stretches(self, bad: int) -> Iterator[tuple[int, int]]:
        """Yield each stretch behind frame ``bad``: its first frame, and the frame after its last one."""
        start = bad + 1
        for number in range(bad + 1, self.count + 1):
            if not self.proves(number, self.salt):
                if number > start:
                    yield start, number
                start = number + 1
        if start <= self.count:
            yield start, self.count + 1

    def commits(self, start: int, end: int) -> int:
        """Count the commits that end from frame ``start`` to before ``end``. A padded commit counts once."""
        found = 0
        for number in range(start, end):
            if self.frame(number).commit and not (number > start and self._repeats(number)):
                found += 1
        return found

    def _repeats(self, number: int) -> bool:
        same = self.frame(number)[:3] == self.frame(number - 1)[:3]
        return same and self.page(number) == self.page(number - 1)

    def ends_commit(self, number: int) -> bool:
        """Return whether a frame is marked as the end of a commit of this log."""
        if number > self.count or self.place(number) % SECTOR > SECTOR - _FRAME:
            return False  # the mark, the salt and the checksum are in two sectors, which may be of different age
        frame = self.frame(number)
        return frame.commit > 0 and frame.page > 0 and frame.salt == self.salt


def find_damage(
    wal: Wal, database: Read, last: int | None = None, index: Index | None = None, padded: bool = False
) -> Damage | None:
    """Return the damage of a log; None if it is whole, or torn as a power loss leaves it.

    ``database`` reads the database file. ``last`` is the last frame that SQLite has read; None if it is not known.
    ``padded`` means that SQLite repeats the last frame of a commit up to the end of a sector. The end of the last
    repeat is not synced, although the index counts it.
    """
    if not wal.count:
        return None
    if not wal.header_fits:
        return Damage(0, 0) if _differs(wal, database) else None
    last, bad = wal.live(last or 0)
    commits = {start: wal.commits(start, end) for start, end in wal.stretches(bad)}
    most = max(commits.values(), default=0)
    if most > 1:
        return Damage(last + 1, most)
    if padded:
        return None
    # Without the commit behind it, a header that a full disk cut in two would look the same.
    if wal.ends_commit(bad) and commits.get(bad + 1):
        return Damage(last + 1, 2)
    if index is not None and index.salt == wal.salt and index.frames > last:
        return Damage(last + 1, 0)
    return None


def _differs(wal: Wal, database: Read) -> bool:
    """Return whether the frames behind a refused header have a page that is not in the database.

    Frame 1 is taken as it is, because the checksum that it continues is in the header.
    """
    salt, pages, pending, size = wal.frame(1).salt, {}, {}, 0
    for number in range(1, wal.count + 1):
        if number > 1 and not wal.proves(number, salt):
            break
        frame = wal.frame(number)
        pending[frame.page] = number
        if frame.commit:
            pages.update(pending)
            pending, size = {}, frame.commit
    for page, number in pages.items():
        if page <= size and wal.page(number) != database((page - 1) * wal.page_size, wal.page_size):
            return True
    return False
