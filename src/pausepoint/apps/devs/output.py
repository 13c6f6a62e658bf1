"""The output of a task, in a file of limited size: the first part, a line about what was left out, and the last part.

Positions in the output count all bytes that a task has printed, also those that were left out. So a reader that follows
the file continues at the right place after the file was made shorter.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

LIMIT = 10_000_000
"""The default for ``output_limit``, in bytes."""

LEAST = 1_000
"""The smallest limit."""

_LINE = "\n--- {:>15} bytes of output are left out here ---\n"
_MARK = len(_LINE.format(0))
_LEFT_OUT = re.compile(rb"\n--- +(\d+) bytes of output are left out here ---\n")
_PIECE = 1 << 20
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


def size_of(given: str) -> int:
    """Return a number of bytes.

    >>> size_of("10 MB"), size_of("64 KiB"), size_of("1.5GB")
    (10000000, 65536, 1500000000)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", given)
    if found is None or found[2].lower() not in _UNITS:
        raise ValueError(f"{given!r} is not a size; write a number of bytes, or for example '10 MB'")
    return int(float(found[1]) * _UNITS[found[2].lower()])


class Output:
    """Writes the output of a task. The file never becomes larger than ``limit`` plus one write."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self.limit = limit
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._size = self._file.tell()

    @property
    def is_full(self) -> bool:
        """Whether `shorten` must be called before the next write."""
        return self._size > self.limit

    def write(self, data: bytes) -> None:
        """Append to the file. On a full disk, the output is lost; the command continues."""
        with suppress(OSError):
            self._size += self._file.write(data) or 0

    def shorten(self) -> None:
        """Leave out the middle of the file. Followers see the old file or the new one, never a part."""
        part = self.path.with_name(f".{self.path.name}.part")
        try:
            self._shorten(part)
        except OSError:
            part.unlink(missing_ok=True)

    def _shorten(self, part: Path) -> None:
        with self.path.open("rb") as old, part.open("wb", buffering=0) as new:
            layout = _Layout(old.fileno(), self.limit)
            _copy(old.fileno(), new, 0, layout.head)
            begin = _line_from(old.fileno(), layout.size - self.limit * 3 // 8, self.limit // 16)
            new.write(_LINE.format(layout.logical(begin) - layout.head).encode())
            _copy(old.fileno(), new, begin, layout.size)
        os.replace(part, self.path)
        self.close()
        self._file = self.path.open("ab", buffering=0)
        self._size = self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _Layout:
    """Where the parts of an output file are: the first part, and the number of bytes that are left out after it."""

    def __init__(self, file: int, limit: int) -> None:
        self.size = os.fstat(file).st_size
        self.head = limit // 4
        found = _LEFT_OUT.fullmatch(os.pread(file, _MARK, self.head))
        self.left_out = 0 if found is None else int(found[1])

    def logical(self, place: int) -> int:
        """Return the position in the output for a place in the file."""
        if not self.left_out or place <= self.head:
            return place
        return max(place - _MARK, self.head) + self.left_out

    def place(self, position: int) -> int:
        """Return the place in the file for a position in the output."""
        if not self.left_out or position < self.head:
            return position
        return max(position - self.left_out, self.head) + _MARK


def _copy(file: int, to: FileIO, begin: int, end: int) -> None:
    while begin < end and (piece := os.pread(file, min(_PIECE, end - begin), begin)):
        begin += to.write(piece) or 0


def _line_from(file: int, place: int, near: int) -> int:
    """Return where the next line begins, if that is near."""
    return place + os.pread(file, near, place).find(b"\n") + 1


class Reader:
    """Reads the output of a task from a position on, while it is written."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self.limit = limit
        self.position = 0

    def read(self, most: int = _PIECE) -> bytes:
        """Return the output since the last call, at most ``most`` bytes at once; nothing if there is no more yet."""
        try:
            file = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            layout = _Layout(file, self.limit)
            return self._read(file, layout, most)
        finally:
            os.close(file)

    def _read(self, file: int, layout: _Layout, most: int) -> bytes:
        end = layout.head + layout.left_out
        if layout.left_out and self.position < layout.head:
            data = os.pread(file, min(most, layout.head - self.position), self.position)
        elif layout.left_out and self.position < end:
            data, self.position = _LINE.format(end - self.position).encode(), end
            return data
        else:
            data = os.pread(file, most, layout.place(self.position))
        self.position += len(data)
        return data

    def skip_to_last(self, lines: int) -> None:
        """Continue with the last lines."""
        try:
            file = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            layout = _Layout(file, self.limit)
            self.position = layout.logical(_last_lines(file, layout.size, lines))
        finally:
            os.close(file)


def _last_lines(file: int, size: int, lines: int) -> int:
    """Return the place in a file at which its last lines begin."""
    if not lines:
        return size
    end, wanted = size, lines
    if size and os.pread(file, 1, size - 1) != b"\n":
        wanted -= 1  # the last line is not complete
    while end > 0:
        begin = max(end - _PIECE, 0)
        piece = os.pread(file, end - begin, begin)
        at = len(piece)
        while (at := piece.rfind(b"\n", 0, at)) >= 0:
            if wanted == 0:
                return begin + at + 1
            wanted -= 1
        end = begin
    return 0


def last_line(path: Path) -> str:
    """Return the last line of an output that is not empty, for a display. The line before a command does not count."""
    try:
        with path.open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - 1000, 0))
            lines: Sequence[str] = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return "" if last.startswith("--- ") else last
