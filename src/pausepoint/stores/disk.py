"""The bytes of a session's files: how they come to lie in its folder, whole or not at all, and how they are proved.

Everything is done through an open folder, by names of our own making, and no link is followed: whoever could plant one
in a session's folder would not lead us out of it. Bytes come into a temporary file first; it gets its name when it is
on disk. A file is *somebody's business* as long as a shared lock is on it, which goes when its process does: what
nobody has recorded and nobody is busy with is left over from a crash and can be cleared.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Self, TypeVar
from uuid import uuid4

T = TypeVar("T")

PIECE = 2**20
"""How many bytes are in memory at a time."""

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Folder:
    """Where the files of one session are: ``depth`` folders below a root that is whose store, or whose folder, it is.

    ``mode`` is what others may do with a folder that is made on the way.
    """

    def __init__(self, path: Path, depth: int = 2, mode: int = 0o700) -> None:
        self.path = path
        self.depth = depth
        self.mode = mode

    def open(self, create: bool = False) -> int:
        """A descriptor of the folder. Raises `FileNotFoundError` if it is not there and need not be."""
        names = self.path.parts[len(self.path.parts) - self.depth :]
        root = self.path.parents[self.depth - 1] if self.depth else self.path
        if create and not root.exists():
            root.mkdir(mode=0o700, exist_ok=True)
            _sync(root.parent)
        found = os.open(root, _FOLDER)  # may be a link: where the store is, is for its owner to say
        for name in names:
            try:
                inner = _inside(found, name, create, self.mode)
            finally:
                os.close(found)
            found = inner
        return found

    @contextmanager
    def opened(self, create: bool = False) -> Iterator[int]:
        """The same, for a moment."""
        descriptor = self.open(create)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self, name: str) -> BinaryIO:
        """A file, for reading; its ``name`` is the whole path."""
        with self.opened() as folder:
            descriptor = os.open(name, _OLD, dir_fd=folder)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError(errno.EINVAL, "it is no plain file", name)
                return open(self.path / name, "rb", opener=lambda path, flags: descriptor)
            except BaseException:
                os.close(descriptor)
                raise

    def damage(self, name: str, content: str, size: int) -> str:
        """What is wrong with a stored file; empty if it has the size and the hash that it should have."""
        try:
            file = self.read(name)
        except OSError as exc:
            missing = isinstance(exc, FileNotFoundError)
            return "is missing" if missing else f"cannot be read ({exc.strerror or exc})"
        with file:
            found = os.fstat(file.fileno()).st_size
            if found != size:
                return f"has {found} bytes instead of {size}"
            digest = sha256()
            while piece := file.read(PIECE):
                digest.update(piece)
        return "" if digest.hexdigest() == content else "does not match its hash"

    def remove(self, name: str) -> None:
        """Delete a stored file for good; one that is not there is no error."""
        with suppress(FileNotFoundError), self.opened() as folder:
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)

    def strays(self, known: Collection[str]) -> list[Stray]:
        """What is in the folder, is not known, and is nobody's business, nor can be until it is let go."""
        try:
            folder = self.open()
        except FileNotFoundError:
            return []
        try:
            names = [name for name in os.listdir(folder) if name not in known]
            found = [_stray(os.dup(folder), name) for name in names]
            return [stray for stray in found if stray is not None]
        finally:
            os.close(folder)


class Upload:
    """A file on its way into a folder. Begun, written, finished and published in this order; closed in any case.

    ``mode`` is what may be done with it from then on.
    """

    def __init__(self, folder: Folder, mode: int = 0o400) -> None:
        self.size = 0
        self._mode = mode
        self._digest = sha256()
        self._where = folder
        self._folder = self._file = -1
        self._part = ""
        self._guard = threading.Lock()
        self._busy = self.abandoned = False

    def begin(self) -> Self:
        """Make the temporary file, and the folder if it is not there."""
        self._folder = self._where.open(create=True)
        while True:
            self._part = f".{uuid4().hex}.part"
            self._file = os.open(self._part, _NEW, 0o600, dir_fd=self._folder)
            fcntl.flock(self._file, fcntl.LOCK_SH)
            if os.fstat(self._file).st_nlink:
                return self
            os.close(self._file)  # somebody cleared it before it was locked

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def sha256(self) -> str:
        """The hash of what was written so far."""
        return self._digest.hexdigest()

    def write(self, piece: bytes | bytearray | memoryview) -> None:
        """Add some bytes."""
        view = memoryview(piece).cast("B")
        self._digest.update(view)
        self.size += len(view)
        while view:
            view = view[os.write(self._file, view) :]

    def finish(self) -> None:
        """All is there: have it on disk, and let nobody write to it any more who should not."""
        os.fchmod(self._file, self._mode)
        os.fsync(self._file)

    def publish(self, name: str, replace: bool = False) -> bool:
        """Give it its name, for good. False if that is taken, unless what has it is to be replaced."""
        if not replace:
            try:
                # The name is taken first, so that two files cannot both get it.
                os.close(os.open(name, _NEW, 0o400, dir_fd=self._folder))
            except FileExistsError:
                return False
        os.rename(self._part, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._part = ""
        os.fsync(self._folder)
        return True

    def busily(self, act: Callable[[], T]) -> T:
        """Do something that takes its time, in a thread. Whoever waits for it may go away meanwhile."""
        with self._guard:
            if self.abandoned:
                raise InterruptedError("nobody waits for it any more")
            self._busy = True
        try:
            return act()
        finally:
            with self._guard:
                self._busy = False
                self._close_if_abandoned()

    def abandon(self) -> None:
        """Close it, now or as soon as the thread that is busy with it is done: it must not lose its descriptors."""
        with self._guard:
            self.abandoned = True
            self._close_if_abandoned()

    def _close_if_abandoned(self) -> None:
        if self.abandoned and not self._busy:
            self.close()

    def close(self) -> None:
        """No longer anybody's business. What was not published is gone."""
        if self._file >= 0:
            if self._part:
                with suppress(FileNotFoundError):
                    os.unlink(self._part, dir_fd=self._folder)
            os.close(self._file)
        if self._folder >= 0:
            os.close(self._folder)
        self._file = self._folder = -1


class Stray:
    """Something in a folder that is nobody's file."""

    def __init__(self, folder: int, name: str, lock: int | None, size: int) -> None:
        self.name = name
        self.size = size
        self._folder = folder
        self._lock = lock

    def remove(self) -> None:
        """Delete it."""
        with suppress(FileNotFoundError):
            os.unlink(self.name, dir_fd=self._folder)

    def close(self) -> None:
        """Let it go."""
        if self._lock is not None:
            os.close(self._lock)
        os.close(self._folder)


def shared(source: Folder, target: Folder, names: Collection[str]) -> list[int]:
    """Have files of one session in another's folder too; the locks on them come back, as open descriptors.

    The bytes are the same ones where the file system allows that: nobody may change them. What is missing is left out:
    whoever proves the other session, or opens the file, is told.
    """
    locks: list[int] = []
    try:
        for name in names:
            with suppress(FileNotFoundError):
                locks.append(_shared(source, target, name))
    except BaseException:
        for lock in locks:
            os.close(lock)
        raise
    return locks


def _shared(source: Folder, target: Folder, name: str) -> int:
    with source.opened() as origin, target.opened(create=True) as folder:
        if not _link(origin, folder, name):
            with source.read(name) as file:
                _copy(file, target, name)
        os.fsync(folder)
        lock = os.open(name, _OLD, dir_fd=folder)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def _link(source: int, target: int, name: str) -> bool:
    try:
        os.link(name, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except FileExistsError:
        return True
    except FileNotFoundError:
        raise
    except OSError:  # another device, too many links, or a file system that has none
        return False
    return True


def _copy(file: BinaryIO, target: Folder, name: str) -> None:
    with Upload(target) as upload:
        while piece := file.read(PIECE):
            upload.write(piece)
        upload.finish()
        upload.publish(name)


def _inside(folder: int, name: str, create: bool, mode: int) -> int:
    """A folder in a folder, by its name. A link is no folder."""
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=folder)
            os.fsync(folder)
    return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)


def _stray(folder: int, name: str) -> Stray | None:
    try:
        facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(facts.st_mode):
            raise BlockingIOError  # not ours to judge
        if not stat.S_ISREG(facts.st_mode):
            return Stray(folder, name, None, 0)
        lock = os.open(name, _OLD, dir_fd=folder)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise
        return Stray(folder, name, lock, facts.st_size)
    except OSError:  # somebody's business, or gone meanwhile
        os.close(folder)
        return None


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, _FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
