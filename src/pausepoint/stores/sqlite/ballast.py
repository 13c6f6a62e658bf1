"""Space that is kept for a full disk: a file beside the database that is given up bit by bit when there is no more.

Deleting needs space before it frees any, and so does a person's "stop everything now". The file carries no data, only
its size means something: while it is shorter than it should be, the disk is full, for every process that looks.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

SIZE = 2**20  # bytes; a WAL of the usual length (200 pages) can be folded with it
SLICE = 128 * 2**10  # bytes; a pause takes some 40,000, and others on this disk are waiting to take the rest

_NO_ALLOCATION = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)  # a file system that only knows writing


class Ballast:
    """The reserve of one database, ``size`` bytes; 0: none. Trouble with it is never an error, it is just not there."""

    def __init__(self, database: str, size: int) -> None:
        self.path = os.path.realpath(database) + "-ballast"
        self.size = size

    def make(self) -> bool:
        """Have it whole. False, with nothing taken, if there is no room for it."""
        if not self.size or self._length() >= self.size:
            return True
        try:
            descriptor, fresh = self._open()
        except OSError:
            return False
        try:
            made = _extend(descriptor, self.size)
        finally:
            os.close(descriptor)
        if fresh and not made:
            with suppress(OSError):  # a file that is too short would tell others that the disk is full
                os.unlink(self.path)
        return made

    def give(self) -> bool:
        """Give up some of it. False if there is nothing left to give."""
        length = self._length()
        if not self.size or length <= 0:
            return False
        try:
            os.truncate(self.path, max(0, length - SLICE))
        except OSError:
            return False
        return True

    def short(self) -> bool:
        """Whether somebody had to take from it, and it could not be made whole since."""
        return 0 <= self._length() < self.size

    def kept(self) -> int | None:
        """How many bytes there are; None if there is no such file."""
        return length if (length := self._length()) >= 0 else None

    def _length(self) -> int:
        """-1 if there is none."""
        try:
            return os.stat(self.path, follow_symlinks=False).st_size
        except OSError:
            return -1

    def _open(self) -> tuple[int, bool]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(self.path, flags | os.O_EXCL, 0o600), True
        except FileExistsError:
            return os.open(self.path, flags, 0o600), False


def _extend(descriptor: int, size: int) -> bool:
    length = os.fstat(descriptor).st_size
    try:
        _allocate(descriptor, length, size - length)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, length)
        return False
    return True


def _allocate(descriptor: int, start: int, length: int) -> None:
    """Take real blocks; a file with a hole in it would keep nothing."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, start, length)
        except OSError as exc:
            if exc.errno not in _NO_ALLOCATION:
                raise
        else:
            return
    while length > 0:  # what a file system could compress away would keep nothing either
        written = os.pwrite(descriptor, os.urandom(min(length, SLICE)), start)
        start, length = start + written, length - written
