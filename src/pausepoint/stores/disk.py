"""The content of a session's files: stored completely or not at all, and verified by hash.

All access goes through an open folder descriptor, uses generated names, and follows no links. A link planted in a
session's folder can therefore not lead out of it. Content is first written to a temporary file, which gets its final
name once it is on disk.

A file is *in use* while a shared lock is on it. The lock disappears with its process. A file that is neither recorded
nor in use is a leftover of a crash and can be deleted.
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

from pausepoint.errors import FileRefused
from pausepoint.model.ids import shortened

T = TypeVar("T")

PIECE = 2**20
"""How many bytes are read into memory at a time."""

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SEPARATORS = {"/", "\\", "\0"}
_synced: set[tuple[int, int]] = set()
"""The folders, by device and number, whose names this process has synced. A sync is not free, even of nothing."""


def check_name(name: str, hidden: bool = False) -> str:
    """Return ``name`` if it is the name of one entry in a folder. Raises `FileRefused` otherwise.

    With ``hidden``, the name may begin with a dot. This is the last check before a name reaches the disk: names from
    outside are also checked where they enter.

    >>> check_name("../x")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    pausepoint.errors.FileRefused: '../x' is not a plain file name, so it may lead out of its folder. ...
    """
    if not name or set(name) & _SEPARATORS or name in (".", "..") or (name.startswith(".") and not hidden):
        raise FileRefused(
            f"{shortened(name)} is not a plain file name, so it may lead out of its folder. Nothing was read or"
            " written. Restore the record that names it from a backup.",
            session_id="",
        )
    return name


class Folder:
    """The folder for one session's files. It is ``depth`` levels below a trusted root.

    ``mode`` is the permission mode of folders that are created below the root. With ``hidden``, names of files may
    begin with a dot.
    """

    def __init__(self, path: Path, depth: int = 2, mode: int = 0o700, hidden: bool = False) -> None:
        self.path = path
        self.depth = depth
        self.mode = mode
        self.hidden = hidden

    def open(self, create: bool = False) -> int:
        """Return a descriptor of the folder. Without ``create``, a missing folder raises `FileNotFoundError`."""
        names = self.path.parts[len(self.path.parts) - self.depth :]
        root = self.path.parents[self.depth - 1] if self.depth else self.path
        if create:
            make_folder(root)
        found = os.open(root, _FOLDER)  # may be a link, because the owner decides where the root is
        for name in names:
            try:
                inner = _inside(found, name, create, self.mode)
            finally:
                os.close(found)
            found = inner
        return found

    @contextmanager
    def opened(self, create: bool = False) -> Iterator[int]:
        """Open the folder for the duration of a ``with`` block."""
        descriptor = self.open(create)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def reserve(self) -> int | None:
        """Create the folder and reserve it until the returned descriptor is closed. Return None if it is reserved.

        This keeps out other calls of `reserve` only. It ends with its process.
        """
        descriptor = self.open(create=True)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def read(self, name: str) -> BinaryIO:
        """Open a file for reading. The ``name`` of the returned file is its full path."""
        check_name(name, self.hidden)
        with self.opened() as folder:
            descriptor = os.open(name, _OLD, dir_fd=folder)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError(errno.EINVAL, "not a regular file", name)
                return open(self.path / name, "rb", opener=lambda path, flags: descriptor)
            except BaseException:
                os.close(descriptor)
                raise

    def damage(self, name: str, content: str, size: int) -> str:
        """Return what is wrong with a stored file; an empty string if its size and hash are as expected."""
        try:
            file = self.read(name)
        except FileRefused:
            return "has a stored name that may lead out of its folder"
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
        """Delete a stored file permanently. A missing file is not an error."""
        check_name(name, self.hidden)
        with suppress(FileNotFoundError), self.opened() as folder:
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)

    def entries(self) -> list[tuple[str, int]]:
        """Return the names and sizes of the stored files, in the order of their names."""
        with suppress(FileNotFoundError), self.opened() as folder, os.scandir(folder) as found:
            files = [each for each in found if not each.name.startswith(".") and each.is_file(follow_symlinks=False)]
            return sorted((each.name, each.stat(follow_symlinks=False).st_size) for each in files)
        return []

    def strays(self, known: Collection[str]) -> list[Stray]:
        """Return the files that are neither in ``known`` nor in use. Each is locked until it is closed."""
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


class Abandonable:
    """Something that threads work on. The task that waits for them may abandon it; it is closed when they are done."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._busy = self.abandoned = False

    def busily(self, act: Callable[[], T]) -> T:
        """Run a slow operation. Call this in a worker thread; the waiting task may abandon the upload meanwhile."""
        with self._guard:
            if self.abandoned:
                raise InterruptedError("The upload was abandoned.")
            self._busy = True
        try:
            return act()
        finally:
            with self._guard:
                self._busy = False
                self._close_if_abandoned()

    def abandon(self) -> None:
        """Close the upload now, or when a busy thread is done with it, because the thread needs the descriptors."""
        with self._guard:
            self.abandoned = True
            self._close_if_abandoned()

    def _close_if_abandoned(self) -> None:
        if self.abandoned and not self._busy:
            self.close()

    def close(self) -> None:
        """Release everything. This may be called more than once."""
        raise NotImplementedError


class Upload(Abandonable):
    """A file that is being added to a folder. Call `begin`, `write`, `finish` and `publish` in this order.

    Always call `close` (or `abandon`) at the end. ``mode`` is the permission mode of the finished file.
    """

    def __init__(self, folder: Folder, mode: int = 0o400) -> None:
        super().__init__()
        self.size = 0
        self._mode = mode
        self._digest = sha256()
        self._where = folder
        self._folder = self._file = -1
        self._part = ""

    def begin(self) -> Self:
        """Create the temporary file, and the folder if it does not exist."""
        self._folder = self._where.open(create=True)
        while True:
            self._part = f".{uuid4().hex}.part"
            self._file = os.open(self._part, _NEW, 0o600, dir_fd=self._folder)
            fcntl.flock(self._file, fcntl.LOCK_SH)
            if os.fstat(self._file).st_nlink:
                return self
            os.close(self._file)  # a cleanup deleted it before it was locked

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def sha256(self) -> str:
        """Return the hash of the bytes written so far."""
        return self._digest.hexdigest()

    def write(self, piece: bytes | bytearray | memoryview) -> None:
        """Append bytes."""
        view = memoryview(piece).cast("B")
        self._digest.update(view)
        self.size += len(view)
        while view:
            view = view[os.write(self._file, view) :]

    def finish(self) -> None:
        """Set the file's final permissions and sync it to disk."""
        os.fchmod(self._file, self._mode)
        os.fsync(self._file)

    def publish(self, name: str, replace: bool = False) -> bool:
        """Give the file its final name. Return False if the name is taken and ``replace`` is false."""
        check_name(name, self._where.hidden)
        if not replace:
            try:
                # Reserve the name first, so that two uploads cannot both get it.
                os.close(os.open(name, _NEW, 0o400, dir_fd=self._folder))
            except FileExistsError:
                return False
        os.rename(self._part, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._part = ""
        os.fsync(self._folder)
        return True

    def take_over(self, name: str) -> None:
        """Give the file its final name, also if a leftover has it. A clean-up that deletes the leftover ends first."""
        check_name(name, self._where.hidden)
        with _in_use(self._folder, name):
            self.publish(name, replace=True)

    def close(self) -> None:
        """Release the lock and the descriptors. A file that was not published is deleted."""
        file, folder, self._file, self._folder = self._file, self._folder, -1, -1
        try:
            if file >= 0 and self._part:
                with suppress(FileNotFoundError):
                    os.unlink(self._part, dir_fd=folder)
        finally:  # also if the disk refuses to delete it
            for descriptor in (file, folder):
                if descriptor >= 0:
                    os.close(descriptor)


class Stray:
    """A leftover file in a session's folder, locked until `close`."""

    def __init__(self, folder: int, name: str, lock: int | None, size: int) -> None:
        self.name = name
        self.size = size
        self._folder = folder
        self._lock = lock

    def remove(self) -> None:
        """Delete the file, unless an upload took over its name before the file was locked."""
        with suppress(FileNotFoundError):
            if self._lock is None or os.path.samestat(os.fstat(self._lock), self._found()):
                os.unlink(self.name, dir_fd=self._folder)

    def _found(self) -> os.stat_result:
        return os.stat(self.name, dir_fd=self._folder, follow_symlinks=False)

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
        os.close(self._folder)


def share(source: Folder, target: Folder, names: Collection[str], locks: list[int]) -> None:
    """Link or copy files into another session's folder. Add the locks on them to ``locks``, as open descriptors.

    Where the file system allows it, both sessions share the same bytes, because stored files never change. Missing
    files are skipped; opening them or verifying the other session reports the damage.
    """
    for name in names:
        with suppress(FileNotFoundError):
            locks.append(_shared(source, target, name))


def _shared(source: Folder, target: Folder, name: str) -> int:
    check_name(name)
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
    except OSError:  # another device, too many links, or a file system without links
        return False
    return True


def _copy(file: BinaryIO, target: Folder, name: str) -> None:
    with Upload(target) as upload:
        while piece := file.read(PIECE):
            upload.write(piece)
        upload.finish()
        upload.take_over(name)  # it reserves no name: a rename that fails would leave an empty file under it


@contextmanager
def _in_use(folder: int, name: str) -> Iterator[None]:
    """Keep clean-ups away from a file, if there is one. Waits for a clean-up that has locked it."""
    try:
        lock = os.open(name, _OLD, dir_fd=folder)
    except OSError:  # missing, or not a regular file: no clean-up locks it
        yield
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield
    finally:
        os.close(lock)


def _inside(folder: int, name: str, create: bool, mode: int) -> int:
    """Open a subfolder by name. A link does not count as a folder."""
    check_name(name, hidden=True)
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=folder)
            os.fsync(folder)
    found = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    if create:
        facts = os.fstat(found)
        if (facts.st_dev, facts.st_ino) not in _synced:
            os.fsync(folder)  # a process that was killed may have created it just before its own sync
            _synced.add((facts.st_dev, facts.st_ino))
    return found


def _stray(folder: int, name: str) -> Stray | None:
    try:
        facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(facts.st_mode):
            raise BlockingIOError  # never delete folders
        if not stat.S_ISREG(facts.st_mode):
            return Stray(folder, name, None, 0)
        lock = os.open(name, _OLD, dir_fd=folder)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise
        return Stray(folder, name, lock, facts.st_size)
    except OSError:  # in use, or deleted in the meantime
        os.close(folder)
        return None


def make_folder(folder: Path, mode: int = 0o700) -> None:
    """Create a folder and its missing parents, and sync the name of each, so that all survive a power loss."""
    if folder.exists():
        return
    if not folder.parent.exists():
        make_folder(folder.parent, mode)
    else:
        # A process that was killed here may have created the parent without syncing its name.
        with suppress(PermissionError):
            sync_folder(folder.parent.parent)
    try:
        new_folder(folder, mode)
    except FileExistsError:
        if not folder.is_dir():
            raise
        sync_folder(folder.parent)  # another process created it first, and may be killed before it syncs


def new_folder(folder: Path, mode: int = 0o700) -> None:
    """Create a folder durably. Raises `FileExistsError` if it exists."""
    os.mkdir(folder, mode)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk. A new name in it survives a power loss only then."""
    descriptor = os.open(folder, _FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
