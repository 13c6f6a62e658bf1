"""A SQLite VFS in Python that counts every durable touch of a database's files and can break each one.

A *touch* is one write, sync, truncation or deletion of the database, its WAL or its journal. Reads, locks and the
shared-memory index use the system's own VFS. One callable, the *act*, decides what happens at a touch: `Recorder`
performs and records it, `Kill` ends the process there, and `Fail` makes the disk full or broken from there on.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any, Literal, Protocol

import apsw
import msgspec

Kind = Literal["write", "sync", "truncate", "delete"]
Variant = Literal["before", "1%", "50%", "99%", "after"]
Trouble = Literal["full", "io"]

TEARS: dict[Variant, float] = {"1%": 0.01, "50%": 0.5, "99%": 0.99}


class Touch(msgspec.Struct, frozen=True, tag=True):
    """One durable act on one file, numbered from 1 across all files.

    ``file`` is the ending of its name: "", "-wal" or "-journal".
    """

    index: int
    kind: Kind
    file: str
    offset: int = 0  # the offset of a write, or the new size for a truncation
    data: bytes = b""

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Return the moments at which a process can die here."""
        return ("before", *TEARS, "after") if len(self.data) > 1 else ("before", "after")


class Perform(Protocol):
    """Performs the intercepted act."""

    def __call__(self, length: int | None = None, /) -> None:
        """Perform the act. Of a write, perform only the first ``length`` bytes."""


Act = Callable[[Touch, Perform], None]


class FaultVFS(apsw.VFS):
    """A VFS that is registered under ``name`` while the object exists."""

    def __init__(self, name: str, act: Act) -> None:
        self.act = act
        self.count = 0
        self._turn = threading.RLock()  # serializes touches, so that they have one order
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        if name is None:  # a temporary file, which does not have to survive
            return apsw.VFSFile("", name, flags)
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.touch("delete", ending(filename), lambda length=None: super(FaultVFS, self).xDelete(filename, syncdir))

    def touch(self, kind: Kind, file: str, perform: Perform, offset: int = 0, data: bytes = b"") -> None:
        with self._turn:
            self.count += 1
            self.act(Touch(self.count, kind, file, offset, data), perform)


class _File(apsw.VFSFile):
    def __init__(self, vfs: FaultVFS, name: str | apsw.URIFilename, flags: list[int]) -> None:
        self._vfs = vfs
        self._ending = ending(name if isinstance(name, str) else name.filename())
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:
        content = bytes(data)

        def perform(length: int | None = None, /) -> None:
            super(_File, self).xWrite(content[:length], offset)

        self._vfs.touch("write", self._ending, perform, offset, content)

    def xSync(self, flags: int) -> None:
        self._vfs.touch("sync", self._ending, lambda length=None: super(_File, self).xSync(flags))

    def xTruncate(self, newsize: int) -> None:
        self._vfs.touch("truncate", self._ending, lambda length=None: super(_File, self).xTruncate(newsize), newsize)


def ending(path: str) -> str:
    """Return the ending that distinguishes a side file from its database.

    >>> ending("store.db-wal"), ending("store.db")
    ('-wal', '')
    """
    return next((end for end in ("-wal", "-journal") if path.endswith(end)), "")


class Recorder:
    """Performs and records everything, in order. Other entries, such as acknowledgements, can be added."""

    def __init__(self) -> None:
        self.trace: list[Any] = []

    def __call__(self, touch: Touch, perform: Perform) -> None:
        perform()
        self.trace.append(touch)


class Kill:
    """Ends the process at touch ``index``, like ``kill -9``. ``announce`` is called just before."""

    def __init__(self, index: int, variant: Variant, announce: Callable[[Touch], None]) -> None:
        self.index = index
        self.variant = variant
        self.announce = announce

    def __call__(self, touch: Touch, perform: Perform) -> None:
        if touch.index != self.index:
            perform()
            return
        if self.variant in TEARS:
            perform(torn_length(len(touch.data), TEARS[self.variant]))
        elif self.variant == "after":
            perform()
        self.announce(touch)
        os.kill(os.getpid(), signal.SIGKILL)


def torn_length(length: int, part: float) -> int:
    """Return the length of a torn write: more than nothing, but not everything."""
    return min(max(1, int(length * part)), length - 1)


class Fail:
    """Makes the disk full (writes fail halfway) or broken from touch ``index`` on; once, or until `heal`."""

    def __init__(self, index: int, trouble: Trouble, once: bool) -> None:
        self.index = index
        self.trouble = trouble
        self.once = once
        self.fired = 0
        self.healed = False

    def heal(self) -> None:
        self.healed = True

    def __call__(self, touch: Touch, perform: Perform) -> None:
        due = touch.index == self.index if self.once else touch.index >= self.index
        if self.healed or not due or (self.trouble == "full" and touch.kind != "write"):
            perform()
            return
        self.fired += 1
        if self.trouble == "full":
            perform(torn_length(len(touch.data), 0.5))
            raise apsw.FullError("the disk is full (by order of the test)")
        raise broken(touch.kind)


def broken(kind: Kind) -> apsw.IOError:
    """Return the error that SQLite gets from a disk that does not respond."""
    error = apsw.IOError(f"{kind} failed (by order of the test)")
    error.extendedresult = _IO_RESULTS[kind]  # type: ignore[attr-defined]  # read by apsw, missing in its stubs
    return error


_IO_RESULTS: dict[Kind, int] = {
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "delete": apsw.SQLITE_IOERR_DELETE,
}
