"""A process that outlives the one which runs the commands, and ends what that leaves behind when it is killed.

It is told the process groups of the commands over its standard input (``+123``, ``-123``). The other end of that pipe
is held by the process that runs them, so its end is noticed however it comes; then the groups that are left are ended.
Until that is done it holds a lock, which the warden of the next process waits for: no command runs beside its own
remains. A program of its own, with nothing but the standard library: ``python -I -S warden.py LOCK GRACE``.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator

TICK = 0.02


def gone(group: int) -> bool:
    """Whether nothing is left of a process group that could do anything."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # macOS refuses it for a group of zombies
        return True
    return os.path.isdir("/proc/self") and not any(map(group.__eq__, _living_groups()))


def _living_groups() -> Iterator[int]:
    """The group of each process that is no zombie. Those stay where nobody asks for them, as in many containers."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, _, group = file.read().rpartition(b")")[2].split()[:3]
            except OSError:
                continue  # it has ended meanwhile
            if state not in (b"Z", b"X"):
                yield int(group)


def end(groups: set[int], grace: float) -> None:
    """End process groups: politely, and after so many seconds by force."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 2.0)):
        left = {group for group in groups if not gone(group)}
        for group in left:
            try:
                os.killpg(group, number)
                os.killpg(group, signal.SIGCONT)  # a stopped process would not hear the other one
            except (ProcessLookupError, PermissionError):
                continue
        until = time.monotonic() + patience
        while left and time.monotonic() < until:
            left = {group for group in left if not gone(group)}
            time.sleep(TICK)


def take(path: str) -> int:
    """The lock, as soon as it is free; says so, and before that if it is not."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.write(1, b"busy\n")
        fcntl.flock(file, fcntl.LOCK_EX)
    os.write(1, b"ready\n")
    return file


def main(path: str, grace: float) -> None:
    """Until the other end of the pipe is closed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    lock = take(path)
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    end(groups, grace)
    os.close(lock)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
