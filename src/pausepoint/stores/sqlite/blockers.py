"""Find the process that keeps a database locked, for the error that says so.

Linux lists the locks of a process in ``/proc/PID/fdinfo``, for the processes of the same user. Elsewhere no process is
named. The search takes some milliseconds, and is only for errors.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pausepoint.model.marks import marked_line

_BLOCKING = (
    ("-shm", 120, 120),  # the lock of the one writer of the WAL
    ("-shm", 122, 122),  # of a process that recovers the WAL
    ("", 0x40000000, 0x400001FF),  # of a process that excludes all others from the database
)
"""SQLite's locks that keep others from writing: the file, beside the database, and the bytes in it."""

_LOCK = re.compile(r"^lock:\s+\d+:\s+(?:POSIX|OFDLCK)\s+\S+\s+WRITE\s+\S+\s+\S+\s+(\d+)\s+(\d+|EOF)$", re.MULTILINE)

_UNKNOWN = (
    "Find the process with an open write transaction, such as a suspended program or a database browser, and resume or"
    " close it"
)

_LONGEST = 80
"""The most characters of a command."""

_Ranges = list[tuple[int, int]]


class Blocker(NamedTuple):
    """The process that keeps a database locked. ``state`` is as the kernel names it: T is suspended."""

    pid: int
    command: str
    state: str

    @property
    def way_out(self) -> str:
        """What it does, and what to do about it."""
        name = f"Process {self.pid} ({self.command})"
        end = f"end it with `kill -9 {self.pid}` (nothing that was acknowledged is lost)"
        if self.pid == os.getpid():
            return "This process itself has an open write transaction on another connection. End that transaction"
        if self.state == "T":
            return (
                f"{name} has been suspended in the middle of a write and keeps the store locked. Resume it with"
                f" `kill -CONT {self.pid}`, or {end}"
            )
        if self.state == "t":
            return f"A debugger holds {name} in the middle of a write. Continue it there, or {end}"
        return f"{name} has an open write transaction. Let it finish, or close it"


def way_out(path: str) -> str:
    """Say which process keeps the database locked, and what to do about it."""
    blocker = find(path)
    return _UNKNOWN if blocker is None else blocker.way_out


def find(path: str) -> Blocker | None:
    """Return the process that keeps the database locked; None if it cannot be seen from here."""
    files: dict[tuple[int, int], _Ranges] = {}
    for suffix, first, last in _BLOCKING:
        with suppress(OSError):
            file = os.stat(path + suffix)
            files.setdefault((file.st_dev, file.st_ino), []).append((first, last))
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit() and _blocks(Path("/proc", name), files):
                with suppress(OSError):  # it has just ended
                    return _described(int(name))
    return None


def _blocks(process: Path, files: dict[tuple[int, int], _Ranges]) -> bool:
    with suppress(OSError):  # it has just ended, or belongs to another user
        for descriptor in os.listdir(process / "fd"):
            with suppress(OSError):
                file = os.stat(process / "fd" / descriptor)
                ranges = files.get((file.st_dev, file.st_ino), [])
                if ranges and _is_locked((process / "fdinfo" / descriptor).read_text(), ranges):
                    return True
    return False


def _is_locked(fdinfo: str, ranges: _Ranges) -> bool:
    """Return whether one of these ranges is locked for writing.

    The process that has the file open has the lock: for a lock of an open file, the line names no process.
    """
    locks = [(int(first), None if last == "EOF" else int(last)) for first, last in _LOCK.findall(fdinfo)]
    return any(first <= until and (last is None or last >= since) for since, until in ranges for first, last in locks)


def _described(pid: int) -> Blocker:
    process = Path("/proc", str(pid))
    name, _, facts = (process / "stat").read_text(errors="replace").rpartition(")")
    words = (process / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").replace("\0", " ")
    command = marked_line(words or name.partition("(")[2])
    return Blocker(pid, command if len(command) <= _LONGEST else f"{command[:_LONGEST]}…", facts.split()[0])
