"""Copies of contents on this machine, so that a file of a bucket that is opened often is fetched once.

A process has a folder for its copies, and locks a file in it. If it is killed, the folder stays until the next process
of the same user copies something: that one deletes all folders that no process has locked.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO
from weakref import WeakSet

from pausepoint.name import NAME

LARGEST = 2**30
"""The number of bytes that the copies have together. Copies that are open, and the newest, stay in any case."""

_FOLDER, _LOCK = f"{NAME}-copies-", "lock"


class _Copy:
    def __init__(self, version: str, path: Path) -> None:
        self.version, self.path = version, path
        self._readers: WeakSet[BinaryIO] = WeakSet()

    def open(self) -> BinaryIO:
        file = self.path.open("rb")
        self._readers.add(file)
        return file

    @property
    def is_open(self) -> bool:
        return any(not each.closed for each in self._readers)


class Copies:
    """Verified copies. The least recently used are deleted when all have more than `LARGEST` bytes, all on `close`."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._held: int | None = None
        self._known: OrderedDict[str, _Copy] = OrderedDict()
        self._lock = threading.Lock()
        self._fetching: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def open(self, path: str, version: str, ending: str, fetch: Callable[[Path], None]) -> BinaryIO:
        """Open the copy of an object. If there is none of this ``version``, ``fetch`` writes one first."""
        with self._lock:
            fetching = self._fetching[path]
        with fetching:
            with self._lock:
                known = self._known.get(path)
                if known is not None and known.version == version:
                    with suppress(FileNotFoundError):  # the temporary folder was cleaned
                        self._known.move_to_end(path)
                        return known.open()
                self._drop(path)
                copy = _Copy(version, self._new(path, version, ending))
            try:
                fetch(copy.path)
                copy.path.chmod(0o400)
                file = copy.open()
            except BaseException:
                copy.path.unlink(missing_ok=True)
                raise
            with self._lock:
                self._known[path] = copy
                self._shrink()
            return file

    def _new(self, path: str, version: str, ending: str) -> Path:
        if self._folder is None or not self._folder.is_dir():
            self._release()
            _clear()
            self._folder, self._held = _locked_folder()
        return self._folder / f"{sha256(f'{path} {version}'.encode()).hexdigest()[:32]}.{ending}"

    def _shrink(self) -> None:
        total = sum(each.path.stat().st_size for each in self._known.values() if each.path.exists())
        for path in list(self._known)[:-1]:
            if total > LARGEST and not self._known[path].is_open:
                total -= self._drop(path)

    def _drop(self, path: str) -> int:
        copy = self._known.pop(path, None)
        if copy is None or not copy.path.exists():
            return 0
        size = copy.path.stat().st_size
        copy.path.unlink(missing_ok=True)
        return size

    def forget(self, path: str) -> None:
        """Delete the copy of an object, or those of all objects below a path that ends with a slash."""
        with self._lock:
            for each in [each for each in self._known if each == path or (path[-1] == "/" and each.startswith(path))]:
                self._drop(each)

    def close(self) -> None:
        """Delete all copies."""
        with self._lock:
            self._known.clear()
            folder, self._folder = self._folder, None
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            self._release()

    def _release(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _locked_folder() -> tuple[Path, int]:
    """Create a folder. Its lock file gets its name when it is locked, so nothing finds it unlocked before."""
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
    made = folder / "unlocked"
    held = os.open(made, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    made.rename(folder / _LOCK)
    return folder, held


def _clear() -> None:
    """Delete the folders of processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        with suppress(OSError):
            if folder.lstat().st_uid == os.getuid() and _is_unlocked(folder / _LOCK):
                shutil.rmtree(folder, ignore_errors=True)


def _is_unlocked(path: Path) -> bool:
    lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
