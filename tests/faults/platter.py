"""A disk with a page cache that drops failed writes: the bytes on the disk can differ from the bytes that are read.

When a sync fails, the kernel marks the pages as clean. They can be read until the power fails, but they are not on the
disk, and a second sync reports success.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw

from tests.faults.vfs import Act, Perform, Touch

Files = dict[str, bytes]  # by the ending of the file name


class Platter:
    """Fails the first sync at or after touch ``index``. The exact touch varies, because runs may differ by a write."""

    def __init__(self, base: bytes, index: int) -> None:
        self.index = index
        self.fired = 0
        self._disk: dict[str, bytearray] = {"": bytearray(base)}
        self._cache: dict[str, list[Callable[[bytearray], None]]] = {}

    def __call__(self, touch: Touch, perform: Perform) -> None:
        waiting = self._cache.setdefault(touch.file, [])
        if touch.kind == "sync" and touch.index >= self.index and not self.fired:
            self.fired += 1
            waiting.clear()
            error = apsw.IOError("sync failed (by order of the test)")
            error.extendedresult = apsw.SQLITE_IOERR_FSYNC  # type: ignore[attr-defined]  # read by apsw, missing in its stubs
            raise error
        perform()
        if touch.kind == "sync":
            content = self._disk.setdefault(touch.file, bytearray())
            for change in waiting:
                change(content)
            waiting.clear()
        elif touch.kind == "delete":
            self._disk.pop(touch.file, None)
            waiting.clear()
        else:
            waiting.append(_change(touch))

    def left(self) -> Files:
        """Return the files on the disk."""
        return {ending: bytes(content) for ending, content in self._disk.items()}


def _change(touch: Touch) -> Callable[[bytearray], None]:
    def write(content: bytearray) -> None:
        content.extend(bytes(max(0, touch.offset - len(content))))
        content[touch.offset : touch.offset + len(touch.data)] = touch.data

    def truncate(content: bytearray) -> None:
        del content[touch.offset :]

    return write if touch.kind == "write" else truncate


def asking_again(act: Act) -> Act:
    """Repeat a failed sync and trust the second result. This is broken on purpose."""

    def again(touch: Touch, perform: Perform) -> None:
        try:
            act(touch, perform)
        except apsw.IOError:
            act(Touch(0, touch.kind, touch.file), perform)

    return again


def build(files: Files, path: Path) -> None:
    for ending, content in files.items():
        Path(f"{path}{ending}").write_bytes(content)
