"""The folder of one session's artifacts: staged, published, set aside, and a copy of the records beside them.

Content is written whole into ``.pausepoint/staged`` before anything refers to it, and gets its name by a rename once the
record that names it is committed: what is staged under a path's mark is what still has to be published there. What is
replaced and was not ours goes to ``.pausepoint/bin``. No link inside the folder is followed, and no path leads out of it.
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
from pausepoint.errors import FolderRefused
from pausepoint.stores.disk import PIECE, Folder, Upload

READABLE = 0o644
OPEN = 0o755

_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def digest_of(data: bytes) -> str:
    """What content is known by."""
    return sha256(data).hexdigest()


class ArtifactFolder:
    """One folder. Nothing here knows what a file means."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        """Have the folder there, with a name in its own folder that is on disk."""
        if not self.path.is_dir():
            self.path.mkdir(mode=OPEN, parents=True, exist_ok=True)
        with self._mine("staged", create=True), self._mine("bin", create=True):
            pass

    def _own(self, name: str) -> Folder:
        return Folder(self.path / OWN / name, 2)

    @contextmanager
    def _mine(self, name: str, create: bool = False) -> Iterator[int]:
        with self._at(f"{OWN}/{name}", self._own(name), create) as folder:
            yield folder

    def _around(self, path: str) -> tuple[Folder, str]:
        """The folder that a file is in, and the name that it has there."""
        parts = PurePosixPath(path).parts
        return Folder(self.path.joinpath(*parts[:-1]), len(parts) - 1, OPEN), parts[-1]

    # staging and publishing

    def stage(self, path: str, data: bytes) -> str:
        """Have the content of a file on disk, before anything says that it is there; its hash comes back."""
        digest = digest_of(data)
        self._write(self._own("staged"), mark(path, digest), data)
        return digest

    def staged(self) -> set[str]:
        """The marks of what is staged."""
        with suppress(FileNotFoundError), self._mine("staged") as folder:
            return set(os.listdir(folder))
        return set()

    def publish(self, path: str, digest: str, ours: Iterable[str]) -> str:
        """Give staged content its name. What is replaced goes to the bin, unless it is ``ours``: its name there."""
        around, name = self._around(path)
        with self._mine("staged") as staged, self._at(path, around, create=True) as folder:
            moved = "" if self._is_ours(folder, name, path, {digest, *ours}) else self._to_bin(folder, name)
            with suppress(FileNotFoundError):  # somebody else who drives the session was quicker
                os.rename(mark(path, digest), name, src_dir_fd=staged, dst_dir_fd=folder)
            os.fsync(folder)
            os.fsync(staged)
        return moved

    def clear(self, wanted: Iterable[str]) -> None:
        """Delete what was staged and never came to be recorded, and what a write that was cut off has left."""
        for stray in self._own("staged").strays({*wanted}):  # what another process is busy with stays
            stray.remove()
            stray.close()

    def retire(self, path: str, ours: Iterable[str]) -> str:
        """Put a file that is no artifact any more into the bin, if it is still one of ``ours``: its name there."""
        around, name = self._around(path)
        with suppress(FileNotFoundError), self._at(path, around) as folder:
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
            return False  # a link, or a folder: whoever put it there gets it back from the bin
        try:
            return digest_of(self.read(path) or b"") in ours
        except FolderRefused:
            return False  # nobody may read it, or it is too large to be ours

    # looking

    def read(self, path: str) -> bytes | None:
        """The content of a file; None if it is not there. `FolderRefused` if it is no plain file of this folder."""
        around, name = self._around(path)
        try:
            with self._at(path, around) as folder:
                descriptor = os.open(name, _OLD, dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as exc:
            raise self._refused(path, exc) from exc
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
            os.close(descriptor)
            many = f"has {found.st_size} bytes, and an artifact has {LARGEST} at most"
            wrong = many if stat.S_ISREG(found.st_mode) else "is no plain file"
            raise FolderRefused(f"{self.path / path} {wrong}; move it away, then try again", path=path)
        with open(descriptor, "rb") as file:
            return b"".join(iter(lambda: file.read(PIECE), b""))

    def absent(self, path: str) -> bool:
        """Whether there is nothing by that name, of whatever kind."""
        around, name = self._around(path)
        try:
            with self._at(path, around) as folder:
                os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return True
        except FolderRefused:
            return False
        return False

    def check(self, path: str) -> None:
        """Whether a file can be put there. `FolderRefused` if a link is on the way."""
        around, _ = self._around(path)
        with suppress(FileNotFoundError), self._at(path, around):
            pass

    def names(self, pattern: str) -> list[str]:
        """The files that a path with one * in its last name stands for."""
        around, last = self._around(pattern)
        head, _, tail = last.partition("*")
        try:
            with self._at(pattern, around) as folder:
                found = os.listdir(folder)
        except FileNotFoundError:
            return []
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

    def _refused(self, path: str, error: OSError) -> FolderRefused:
        linked = error.errno in (errno.ELOOP, errno.ENOTDIR)
        why = "cannot be reached without following a link" if linked else "cannot be used"
        what = "put a plain file or folder there" if linked else "see to that, then try again"
        return FolderRefused(f"{self.path / path} {why} ({error.strerror}); {what}", path=path)

    # our own notes

    def note(self, name: str, data: bytes) -> None:
        """Write one of our own files, whole or not at all."""
        self._write(self._of_note(name), name.rpartition("/")[2], data)

    def notes(self) -> dict[str, bytes]:
        """All of them, by name."""
        found: dict[str, bytes] = {}
        for folder, prefix in ((Folder(self.path / OWN, 1), ""), (self._own("done"), "done/")):
            with suppress(FileNotFoundError), self._at(f"{OWN}/{prefix}", folder) as descriptor:
                for name in os.listdir(descriptor):
                    if name.endswith(".json"):
                        found[prefix + name] = self.read(f"{OWN}/{prefix}{name}") or b""
        return found

    def claim(self, decide: Callable[[bytes | None], bytes | None]) -> None:
        """Write whose folder it is, if ``decide`` has something to write, told what is there. One at a time."""
        with self._at(OWN, Folder(self.path / OWN, 1), create=True) as folder:
            fcntl.flock(folder, fcntl.LOCK_EX)  # until it is closed
            data = decide(self.read(f"{OWN}/session.json"))
            if data is not None:
                self.note("session.json", data)

    def forget(self, name: str) -> None:
        """Delete one of our own files."""
        self._of_note(name).remove(name.rpartition("/")[2])

    def _of_note(self, name: str) -> Folder:
        return self._own("done") if "/" in name else Folder(self.path / OWN, 1)

    def keep(self, data: bytes) -> None:
        """Have bytes that a person wrote, and that we have taken in, for when they are to be restored."""
        self._write(self._own("edits"), digest_of(data), data)

    def kept(self, digest: str) -> bytes | None:
        """Such bytes, by their hash."""
        data = self.read(f"{OWN}/edits/{digest}")
        return data if data is not None and digest_of(data) == digest else None

    def _write(self, folder: Folder, name: str, data: bytes) -> None:
        with Upload(folder, READABLE) as upload:
            upload.write(data)
            upload.finish()
            upload.publish(name, replace=True)


def mark(path: str, digest: str) -> str:
    """What content is called while it is staged: by its hash, and by the path that it is for.

    >>> mark("a.md", "0" * 64)[-13:]
    '-fecccc975324'
    """
    return f"{digest}-{digest_of(path.encode())[:12]}"
