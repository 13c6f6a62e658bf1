"""The folder of one session's artifacts: staged files, published files, the bin, and the completion records.

Content is first written completely to ``.pausepoint/staged``. Once the record that names it is committed, a rename
publishes it. So every staged file that the log names still has to be published. A replaced file that the session did
not write goes to ``.pausepoint/bin``. No link inside the folder is followed, and no path leads out of it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path, PurePosixPath
from uuid import uuid4

from pausepoint.definition.artifacts import LARGEST, OWN
from pausepoint.errors import FolderRefused, FolderUnavailable
from pausepoint.model.ids import shortened
from pausepoint.stores.disk import PIECE, Folder, Upload, make_folder, sync_folder

READABLE = 0o644
OPEN = 0o755

_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


_LINKED = (errno.ELOOP, errno.ENOTDIR)
_BY_PERSON = (*_LINKED, errno.EACCES, errno.EPERM, errno.ENXIO)
"""Errors that a person causes at a single file. All others are trouble of the disk."""

_FULL = ("cannot be written: the disk is full", "Free some space")
_LINK = ("cannot be reached without following a link", "Put a regular file or folder there")
_DENIED = ("cannot be used", "Check the permissions and the disk")
_TROUBLE = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.ELOOP: _LINK,
    errno.ENOTDIR: _LINK,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: _DENIED,
    errno.ENOENT: ("is missing", "Put the folder back"),
}
"""What each error number means, and what to do about it."""


def digest_of(data: bytes) -> str:
    """Return the hash that identifies content."""
    return sha256(data).hexdigest()


class ArtifactFolder:
    """The files of one folder, without knowledge of their meaning."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        """Create the folder durably, with the engine's own folder inside it."""
        with self._edge():
            if not self.path.is_dir():
                make_folder(self.path, OPEN)
            elif not (self.path / OWN).exists():
                with suppress(PermissionError):  # a person may have created it just now, without syncing its name
                    sync_folder(self.path.parent)
        with self._edge(OWN), self._mine("staged", create=True), self._mine("bin", create=True):
            pass

    def _own(self, name: str) -> Folder:
        return Folder(self.path / OWN / name, 2)

    @contextmanager
    def _mine(self, name: str, create: bool = False) -> Iterator[int]:
        with self._at(f"{OWN}/{name}", self._own(name), create) as folder:
            yield folder

    def _around(self, path: str) -> tuple[Folder, str]:
        """Return the folder of a file and its name in that folder. Raises `FolderRefused` if the path leads out."""
        parts = path.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise FolderRefused(
                f"The path {shortened(path)} leads out of folder {self.path}. Nothing was read or written. Correct the"
                " record or the call that names it.",
                path=path,
            )
        return Folder(self.path.joinpath(*parts[:-1]), len(parts) - 1, OPEN), parts[-1]

    # staging and publishing

    def stage(self, path: str, data: bytes) -> str:
        """Write the content of a file to the staging folder, and return its hash."""
        digest = digest_of(data)
        self._write(self._own("staged"), mark(path, digest), data, path)
        return digest

    def staged(self) -> set[str]:
        """Return the names of all staged files (see `mark`)."""
        with self._edge(f"{OWN}/staged"), suppress(FileNotFoundError), self._mine("staged") as folder:
            return set(os.listdir(folder))
        return set()

    def publish(self, path: str, digest: str, ours: Iterable[str]) -> str:
        """Move a staged file to its path. Return the bin path of the file it replaces; empty if there is none.

        A replaced file with one of the hashes in ``ours`` does not go to the bin.
        """
        around, name = self._around(path)
        with self._edge(path), self._mine("staged") as staged, self._at(path, around, create=True) as folder:
            moved = "" if self._is_ours(folder, name, path, {digest, *ours}) else self._to_bin(folder, name)
            with suppress(FileNotFoundError):  # another process published it first
                os.rename(mark(path, digest), name, src_dir_fd=staged, dst_dir_fd=folder)
            os.fsync(folder)
            os.fsync(staged)
        return moved

    def clear(self, wanted: Iterable[str]) -> None:
        """Delete staged files that were never recorded, and leftovers of interrupted writes."""
        with self._edge(f"{OWN}/staged"):
            for stray in self._own("staged").strays({*wanted}):  # files in use by another process are skipped
                try:
                    stray.remove()
                finally:
                    stray.close()

    def retire(self, path: str, ours: Iterable[str]) -> str:
        """Move a file that is no longer an artifact to the bin, if its hash is in ``ours``. Return its bin path."""
        around, name = self._around(path)
        with self._edge(path), suppress(FileNotFoundError), self._at(path, around) as folder:
            os.stat(name, dir_fd=folder, follow_symlinks=False)
            return self._to_bin(folder, name) if self._is_ours(folder, name, path, {*ours}) else ""
        return ""

    def _to_bin(self, folder: int, name: str) -> str:
        binned = f"{uuid4().hex[:12]}-{name}"
        with self._mine("bin", create=True) as bin_:
            os.rename(name, binned, src_dir_fd=folder, dst_dir_fd=bin_)
            os.fsync(bin_)
        os.fsync(folder)
        return f"{OWN}/bin/{binned}"

    def _is_ours(self, folder: int, name: str, path: str, ours: set[str]) -> bool:
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return True
        if not stat.S_ISREG(found.st_mode):
            return False  # a link or a folder that a person put there; it goes to the bin
        try:
            return digest_of(self.read(path) or b"") in ours
        except FolderUnavailable:
            raise
        except FolderRefused:
            return False  # not readable, or too large

    # reading

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if it is absent. Raises `FolderRefused` if it is not a regular file."""
        around, name = self._around(path)
        try:
            with self._at(path, around) as folder:
                descriptor = os.open(name, _READ_FLAGS, dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as exc:
            raise self._refused(path, exc) from exc
        try:
            with self._edge(path):
                found = os.fstat(descriptor)
                if stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST:
                    return self._whole(descriptor, path)
        finally:
            os.close(descriptor)
        many = f"has {found.st_size} bytes, but the limit for an artifact is {LARGEST}"
        wrong = many if stat.S_ISREG(found.st_mode) else "is not a regular file"
        raise FolderRefused(f"{self.path / path} {wrong}. Move it away and try again.", path=path)

    def _whole(self, descriptor: int, path: str) -> bytes:
        """Read an open file to its end. A program that keeps appending to it must not fill the memory."""
        pieces, size = list[bytes](), 0
        while piece := os.read(descriptor, PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > LARGEST:
                raise FolderRefused(
                    f"{self.path / path} grew while it was read, beyond the limit of {LARGEST} bytes for an artifact."
                    " Stop the program that writes it, move the file away and try again.",
                    path=path,
                )
        return b"".join(pieces)

    def absent(self, path: str) -> bool:
        """Return whether nothing exists at the path, of any kind."""
        around, name = self._around(path)
        try:
            with self._edge(path), suppress(FileNotFoundError), self._at(path, around) as folder:
                os.stat(name, dir_fd=folder, follow_symlinks=False)
                return False
        except FolderUnavailable:
            raise
        except FolderRefused:
            return False
        return True

    def check(self, path: str) -> None:
        """Check that a file can be written at the path. Raises `FolderRefused` if a folder on the path is a link."""
        around, _ = self._around(path)
        with self._edge(path), suppress(FileNotFoundError), self._at(path, around):
            pass

    def names(self, pattern: str) -> list[str]:
        """Return the files that match a path with one ``*`` in its last name."""
        around, last = self._around(pattern)
        head, _, tail = last.partition("*")
        found: list[str] = []
        with self._edge(pattern), suppress(FileNotFoundError), self._at(pattern, around) as folder:
            found = os.listdir(folder)
        fits = re.compile(f"(?!\\.){re.escape(head)}.+{re.escape(tail)}", re.DOTALL)
        return sorted(str(PurePosixPath(pattern).parent / name) for name in found if fits.fullmatch(name))

    @contextmanager
    def _at(self, path: str, around: Folder, create: bool = False) -> Iterator[int]:
        try:
            folder = around.open(create)
        except FileNotFoundError:
            raise
        except OSError as exc:
            raise self._refused(path, exc) from exc
        try:
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _edge(self, path: str = "") -> Iterator[None]:
        """Raise errors of the disk as `FolderRefused`, with the path."""
        try:
            yield
        except OSError as exc:
            raise self._refused(path, exc) from exc

    def _refused(self, path: str, error: OSError) -> FolderRefused:
        code = error.errno or errno.EIO
        why, what = _TROUBLE.get(code, ("cannot be used", "Check the disk and the system log"))
        problem = f"{self.path / path} {why} ({error.strerror or error})"
        kind = FolderRefused if code in _BY_PERSON else FolderUnavailable
        again = "" if code in _LINKED else ", then try again"
        return kind(
            f"{problem}. {what}{again}.", path=path or str(self.path), errno=code, problem=problem, way_out=what
        )

    # the engine's notes

    def note(self, name: str, data: bytes) -> None:
        """Write one of the engine's own files atomically."""
        self._write(self._of_note(name), name.rpartition("/")[2], data, f"{OWN}/{name}")

    def notes(self) -> dict[str, bytes]:
        """Return all notes of the engine, by name."""
        found: dict[str, bytes] = {}
        for folder, prefix in ((Folder(self.path / OWN, 1), ""), (self._own("done"), "done/")):
            where = f"{OWN}/{prefix}"
            with self._edge(where), suppress(FileNotFoundError), self._at(where, folder) as descriptor:
                for name in os.listdir(descriptor):
                    if name.endswith(".json"):
                        found[prefix + name] = self.read(f"{OWN}/{prefix}{name}") or b""
        return found

    def claim(self, decide: Callable[[bytes | None], bytes | None]) -> None:
        """Write ``session.json`` with the bytes that ``decide`` returns for the present content; None writes nothing.

        A lock makes sure that only one process decides at a time.
        """
        with self._edge(OWN), self._at(OWN, Folder(self.path / OWN, 1), create=True) as folder:
            fcntl.flock(folder, fcntl.LOCK_EX)  # released when the folder is closed
            data = decide(self.read(f"{OWN}/session.json"))
            if data is not None:
                self.note("session.json", data)

    def forget(self, name: str) -> None:
        """Delete one of the engine's notes."""
        with self._edge(f"{OWN}/{name}"):
            self._of_note(name).remove(name.rpartition("/")[2])

    def _of_note(self, name: str) -> Folder:
        return self._own("done") if "/" in name else Folder(self.path / OWN, 1)

    def keep_edit(self, data: bytes) -> None:
        """Keep the exact bytes of an accepted edit, so that they can be restored."""
        digest = digest_of(data)
        self._write(self._own("edits"), digest, data, kept_as(digest))

    def kept_edit(self, digest: str) -> bytes | None:
        """Return the bytes of an accepted edit by their hash; None if they are missing or damaged."""
        data = self.read(kept_as(digest))
        return data if data is not None and digest_of(data) == digest else None

    def _write(self, folder: Folder, name: str, data: bytes, path: str) -> None:
        """Write a file atomically. ``path`` names it in errors."""
        with self._edge(path), Upload(folder, READABLE) as upload:
            upload.write(data)
            upload.finish()
            upload.publish(name, replace=True)


def kept_as(digest: str) -> str:
    """Return the path in the folder where the bytes of an accepted edit are kept."""
    return f"{OWN}/edits/{digest}"


def mark(path: str, digest: str) -> str:
    """Return the name of a staged file, made from its hash and its target path.

    >>> mark("a.md", "0" * 64)[-13:]
    '-fecccc975324'
    """
    return f"{digest}-{digest_of(path.encode())[:12]}"
