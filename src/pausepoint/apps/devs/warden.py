"""End leftover commands if the process that runs them is killed. The warden is a process of its own and outlives it.

The warden reads the process groups of the commands from its standard input (``+123``, ``-123``). The process that runs
the commands has the other end of the pipe, so the warden notices when that process ends for any reason, and ends the
remaining groups. Until then it holds a lock. The warden of the next process waits for the lock, so a command never
starts while processes of its last attempt are alive. The warden uses only the standard library. Its command line is
``python -I -S warden.py LOCK GRACE``.
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
    """Return whether a process group has no living process."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # macOS refuses it for a group of zombies
        return True
    return os.path.isdir("/proc/self") and not any(map(group.__eq__, _living_groups()))


def _living_groups() -> Iterator[int]:
    """Yield the group of each process except zombies, which remain in many containers because nothing reaps them."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, _, group = file.read().rpartition(b")")[2].split()[:3]
            except OSError:
                continue  # the process has ended meanwhile
            if state not in (b"Z", b"X"):
                yield int(group)


def end(groups: set[int], grace: float) -> None:
    """End process groups with SIGTERM, and with SIGKILL after ``grace`` seconds."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 2.0)):
        left = {group for group in groups if not gone(group)}
        for group in left:
            try:
                os.killpg(group, number)
                os.killpg(group, signal.SIGCONT)  # a stopped process does not handle SIGTERM
            except (ProcessLookupError, PermissionError):
                continue
        until = time.monotonic() + patience
        while left and time.monotonic() < until:
            left = {group for group in left if not gone(group)}
            time.sleep(TICK)


def take(path: str) -> int:
    """Wait for the lock and return it. Print ``busy`` if another process has it, then ``ready``."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.write(1, b"busy\n")
        fcntl.flock(file, fcntl.LOCK_EX)
    os.write(1, b"ready\n")
    return file


def main(path: str, grace: float) -> None:
    """Track process groups until the other end of the pipe is closed, then end them."""
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
