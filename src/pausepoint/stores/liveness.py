"""Find out which engines are alive.

All engines of a store share one file, ``<database>-holds``. Each engine keeps the byte at its own number locked. The
system releases the lock when the process ends, however it ends. A query shows whether another process holds a lock,
without taking it.

On Linux the locks belong to the open file (``F_OFD_SETLK``), so other code of the process may open and close the file.
A forked child shares the open file and would keep the locks, so it closes its descriptor at once, and a program that it
runs does not inherit it. Elsewhere the locks belong to the process, and closing *any* descriptor of the file drops all
of them. Neither kind excludes other engines on the same descriptor. So each process has one descriptor per file. A
registry in this module keeps it, knows the engines of this process, and closes the descriptor with the last one.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import threading
from collections import Counter
from typing import NamedTuple, Protocol

from pausepoint.errors import StoreClosed, StoreUnavailable


class Hold(Protocol):
    """Shows other engines that this one is alive."""

    def take(self, number: int) -> None:
        """Be alive as engine ``number`` from now on."""

    def untake(self) -> None:
        """Give the number back, because the transaction that assigned it failed."""

    def alive(self, number: int) -> bool:
        """Return whether engine ``number`` is alive."""

    def drop(self) -> None:
        """Stop being alive. Calling it again does nothing."""


class _File:
    """The one descriptor of a lock file in this process, and the engines that use it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.users = 0
        self.numbers = Counter[int]()  # how often this process has taken each of them


_guard = threading.Lock()
_files: dict[str, _File] = {}
_inherited: set[str] = set()


def _forget_parent() -> None:
    """Clear the registry in a forked child, because the locks belong to the parent process."""
    global _guard
    _guard = threading.Lock()
    _inherited.update(_files)
    for file in _files.values():
        os.close(file.descriptor)  # an open descriptor would keep the locks of a parent that has died
        file.descriptor = -1
    _files.clear()


os.register_at_fork(after_in_child=_forget_parent)


class FileHold:
    """Shows all processes on this machine that an engine is alive, until `drop`."""

    def __init__(self, database: str) -> None:
        path = _lock_file(database)
        with _guard:
            self._file = _files.get(path) or _files.setdefault(path, _File(path))
            self._file.users += 1
        self._number: int | None = None
        self._pid = os.getpid()
        self._dropped = False

    def take(self, number: int) -> None:
        with _guard:
            try:
                set_lock(self._file.descriptor, number, fcntl.F_WRLCK)
            except (BlockingIOError, PermissionError) as error:
                # A database that crashed gives a number again that it has forgotten.
                raise StoreUnavailable(
                    f"Another process on this machine still uses the engine number {number}, which the database has"
                    " given twice. Try again: the database gives the next number."
                ) from error
            self._file.numbers[number] += 1
            self._number = number

    def untake(self) -> None:
        with _guard:
            self._unlock()

    def _unlock(self) -> None:
        if self._number is None:
            return
        self._file.numbers[self._number] -= 1
        if not self._file.numbers[self._number]:  # a transaction that failed may have given the next one its number
            del self._file.numbers[self._number]
            set_lock(self._file.descriptor, self._number, fcntl.F_UNLCK)
        self._number = None

    def alive(self, number: int) -> bool:
        with _guard:
            return number in self._file.numbers or _locked_elsewhere(self._file.descriptor, number)

    def identity(self) -> tuple[int, int] | None:
        """Return the device and the inode of the lock file. None: it was deleted, so other processes lock another."""
        held = os.fstat(self._file.descriptor)
        try:
            found = os.stat(self._file.path)
        except OSError:
            return None
        return (held.st_dev, held.st_ino) if os.path.samestat(held, found) else None

    def anyone(self) -> bool:
        """Return whether any engine of the store is alive."""
        with _guard:
            return bool(self._file.numbers) or _locked_elsewhere(self._file.descriptor, 0, 0)

    def drop(self) -> None:
        if self._dropped or os.getpid() != self._pid:
            return
        self._dropped = True
        with _guard:
            self._unlock()
            self._file.users -= 1
            if not self._file.users:
                del _files[self._file.path]
                os.close(self._file.descriptor)


class MemoryHold:
    """The hold of a store in memory, which no other engine can see."""

    def __init__(self) -> None:
        self._number: int | None = None

    def take(self, number: int) -> None:
        self._number = number

    def untake(self) -> None:
        self._number = None

    def alive(self, number: int) -> bool:
        return number == self._number

    def drop(self) -> None:
        self._number = None


def _lock_file(database: str) -> str:
    return os.path.realpath(database) + "-holds"


def refuse_inherited(database: str) -> None:
    """Raise `StoreClosed` in a forked child if its parent had the database open.

    SQLite records its file locks per process. After a fork it assumes that it still has the parent's locks, so a
    connection opened in the child would not be protected from other processes.
    """
    if _lock_file(database) in _inherited:
        raise StoreClosed(
            f"{database} was open in the process that this one was forked from, so SQLite cannot open it safely here."
            " Start the process with the 'spawn' or 'forkserver' method, or fork before you open the store."
        )


_SET, _GET = (
    (fcntl.F_OFD_SETLK, fcntl.F_OFD_GETLK) if sys.platform == "linux" else (fcntl.F_SETLK, fcntl.F_GETLK)
)  # fmt: skip


def set_lock(descriptor: int, start: int, kind: int, count: int = 1) -> None:
    """Lock or unlock ``count`` bytes, such as the one of an engine. Raises an `OSError` if someone has locked them."""
    fcntl.fcntl(descriptor, _SET, _FLOCK.pack(kind=kind, whence=os.SEEK_SET, start=start, length=count, pid=0))


def _locked_elsewhere(descriptor: int, number: int, count: int = 1) -> bool:
    """Return whether another process has a lock on ``count`` bytes from ``number``; 0 means up to the end."""
    question = _FLOCK.pack(kind=fcntl.F_WRLCK, whence=os.SEEK_SET, start=number, length=count, pid=0)
    return _FLOCK.kind(fcntl.fcntl(descriptor, _GET, question)) != fcntl.F_UNLCK


class _Flock(NamedTuple):
    """The layout of C's ``struct flock`` on this system: Linux puts the type first, macOS and the BSDs near the end."""

    layout: struct.Struct
    order: tuple[str, ...]

    def pack(self, **fields: int) -> bytes:
        return self.layout.pack(*(fields[name] for name in self.order))

    def kind(self, packed: bytes) -> int:
        kind: int = self.layout.unpack(packed)[self.order.index("kind")]
        return kind


_LINUX = _Flock(struct.Struct("@hhqqi4x"), ("kind", "whence", "start", "length", "pid"))
_BSD = _Flock(struct.Struct("@qqihh"), ("start", "length", "pid", "kind", "whence"))
_FLOCK = _LINUX if sys.platform == "linux" else _BSD
