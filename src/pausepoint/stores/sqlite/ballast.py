"""Reserved space for a full disk: a file next to the database that is shortened step by step when space runs out.

Deleting data needs space before it frees any, and so does an operator's request to stop everything. The file has no
content; only its size matters. While it is shorter than it should be, every process treats the disk as full.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

SIZE = 2**20  # bytes; enough to checkpoint a WAL of the usual length (200 pages)
SLICE = 128 * 2**10  # bytes; a pause needs about 40,000, and other programs would use up whatever more is freed

_NO_ALLOCATION = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)  # the file system cannot preallocate


class Ballast:
    """The reserve of one database: ``size`` bytes, or none if ``size`` is 0. A problem with it is never an error."""

    def __init__(self, database: str, size: int) -> None:
        self.path = os.path.realpath(database) + "-ballast"
        self.size = size

    def make(self) -> bool:
        """Bring the reserve to its full size. Return False, and take no space, if the disk has no room for it."""
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
            with suppress(OSError):  # a file that is too short would signal a full disk to other processes
                os.unlink(self.path)
        return made

    def give(self) -> bool:
        """Free one slice of the reserve. Return False if nothing remains."""
        length = self._length()
        if not self.size or length <= 0:
            return False
        try:
            os.truncate(self.path, max(0, length - SLICE))
        except OSError:
            return False
        return True

    def short(self) -> bool:
        """Return whether some process used part of the reserve and it has not been refilled since."""
        return 0 <= self._length() < self.size

    def kept(self) -> int | None:
        """Return the size of the reserve in bytes; None if the file does not exist."""
        return length if (length := self._length()) >= 0 else None

    def _length(self) -> int:
        """Return the size of the file; -1 if it does not exist."""
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
    """Allocate real blocks, because a sparse file would reserve nothing."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, start, length)
        except OSError as exc:
            if exc.errno not in _NO_ALLOCATION:
                raise
        else:
            return
    while length > 0:  # random bytes, because a file system could compress anything else
        written = os.pwrite(descriptor, os.urandom(min(length, SLICE)), start)
        start, length = start + written, length - written
