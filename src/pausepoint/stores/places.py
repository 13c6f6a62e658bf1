"""Where the rings of live streams are: files in a folder next to the store, or the memory of this process."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

KEEP = 3600.0
"""Seconds after which a ring that nothing was written to is deleted."""

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Medium(Protocol):
    """The bytes of one ring."""

    def read(self, size: int, at: int) -> bytes:
        """Return up to ``size`` bytes."""

    def write(self, data: bytes, at: int) -> None:
        """Write all bytes, or raise `OSError`."""

    def close(self) -> None:
        """Release the medium."""


class Place(Protocol):
    """Where the ring of one session is. ``owner`` is the mark of the session."""

    owner: int

    def find(self, known: Medium | None) -> Medium | None:
        """Return the present ring, which is ``known`` if it was not replaced; None if there is none."""

    def replace(self, content: bytes) -> Medium:
        """Put a ring with this content into the place, at once and whole. Raises `OSError`."""

    def remove(self) -> None:
        """Delete the ring. Raises `OSError`; a missing ring is not an error."""


class MemoryMedium:
    """A ring in the memory of this process."""

    def __init__(self, content: bytes) -> None:
        self.content = bytearray(content)

    def read(self, size: int, at: int) -> bytes:
        return bytes(self.content[at : at + size])

    def write(self, data: bytes, at: int) -> None:
        missing = at + len(data) - len(self.content)
        if missing > 0:
            self.content.extend(bytes(missing))
        self.content[at : at + len(data)] = data

    def close(self) -> None:
        """Do nothing: the place keeps the content for readers."""


class MemoryPlace:
    """The place of a ring for a store without files. Only this process can follow it."""

    owner = 0  # every store in memory has rings of its own

    def __init__(self) -> None:
        self.medium: MemoryMedium | None = None

    def find(self, known: Medium | None) -> Medium | None:
        return self.medium

    def replace(self, content: bytes) -> Medium:
        self.medium = MemoryMedium(content)
        return self.medium

    def remove(self) -> None:
        self.medium = None


class FileMedium:
    """A ring in a file."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        found = os.fstat(descriptor)
        self.identity = found.st_dev, found.st_ino

    def read(self, size: int, at: int) -> bytes:
        return os.pread(self.descriptor, size, at)

    def write(self, data: bytes, at: int) -> None:
        if os.pwrite(self.descriptor, data, at) != len(data):  # the disk is nearly full
            raise OSError("the file was not written completely")

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class FilePlace:
    """The place of a ring file in the folder of all rings. ``part`` is the name of a file that will replace it."""

    def __init__(self, folder: StreamFolder, key: int, owner: int) -> None:
        self.folder: StreamFolder = folder
        self.owner: int = owner
        self.path: Path = folder.path / f"{key}.ring"
        self.part: str = f"{key}.part"

    def find(self, known: Medium | None) -> Medium | None:
        try:
            found = os.stat(self.path, follow_symlinks=False)
            if isinstance(known, FileMedium) and known.identity == (found.st_dev, found.st_ino):
                return known
            if not stat.S_ISREG(found.st_mode):
                return None
            return FileMedium(os.open(self.path, _OLD))
        except OSError:
            return None

    def replace(self, content: bytes) -> Medium:
        # If two processes do this at once, one of them may put the other's file into place, or find its own one gone.
        # Both notice it at their next check, and the higher fence gets the ring.
        with self.folder.opened(create=True) as folder:
            _unlink(self.part, folder)  # a killed process left it
            medium = FileMedium(os.open(self.part, _NEW, 0o600, dir_fd=folder))
            try:
                os.fchmod(medium.descriptor, self.folder.mode())
                medium.write(content, 0)
                os.rename(self.part, self.path.name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                medium.close()
                with suppress(OSError):
                    _unlink(self.part, folder)
                raise
        return medium

    def remove(self) -> None:
        with suppress(FileNotFoundError), self.folder.opened() as folder:
            _unlink(self.path.name, folder)
            _unlink(self.part, folder)


class StreamFolder:
    """The folder of a store's rings. They get the permissions of the file ``like``, the store itself."""

    def __init__(self, path: Path, like: Path) -> None:
        self.path: Path = path
        self.like: Path = like

    def place(self, key: int, owner: int = 0) -> FilePlace:
        """Return the place of a session's ring. The name is made from the session's number in the store."""
        return FilePlace(self, int(key), owner)

    def mode(self) -> int:
        """Return the permissions of a ring."""
        return stat.S_IMODE(os.stat(self.like).st_mode) & 0o666

    @contextmanager
    def opened(self, create: bool = False) -> Iterator[int]:
        """Yield a descriptor of the folder. A link in its place is not followed."""
        if create:
            with suppress(FileExistsError):
                mode = self.mode()
                os.mkdir(self.path, 0o700)
                os.chmod(self.path, mode | (mode & 0o444) >> 2)  # users who may read the files may list them
        descriptor = os.open(self.path, _FOLDER)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def keys(self) -> list[int]:
        """Return the keys of the sessions that have a ring, or what a killed process left of one."""
        with suppress(OSError), self.opened() as folder:
            names = [name.rpartition(".")[0] for name in os.listdir(folder) if name.endswith((".ring", ".part"))]
            return sorted({int(name) for name in names if name.isascii() and name.isdecimal()})
        return []

    def tidy(self, keep: float = KEEP) -> None:
        """Delete the rings that nothing was written to for ``keep`` seconds, and what killed processes left."""
        before = time.time() - keep
        with suppress(OSError), self.opened() as folder:
            for name in os.listdir(folder):
                if name.endswith((".ring", ".part")):
                    with suppress(OSError):
                        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime < before:
                            os.unlink(name, dir_fd=folder)


def _unlink(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
