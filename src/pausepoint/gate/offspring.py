"""The processes that an agent has started: the commands of its tools, in the foreground and in the background."""

from __future__ import annotations

import os

from pausepoint.gate.hooks import HOOK
from pausepoint.gate.warden import Process, look

SHOWN = 200
"""The most characters of a command."""


def offspring(pid: int) -> list[str]:
    """Return the commands that a process has started and that still run, without the hooks of the gate.

    A shell that only waits for its command is left out. Empty where there is no ``/proc``.
    """
    children: dict[int, list[Process]] = {}
    for each in _living():
        children.setdefault(each.parent, []).append(each)
    found, queue = list[str](), list(children.get(pid, ()))
    for each in queue:
        line = _command(each.pid)
        if HOOK in line:
            continue
        below = children.get(each.pid, ())
        queue.extend(below)
        if line and not below:
            found.append(f"{line} (process {each.pid})")
    return found


def _living() -> list[Process]:
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    return [found for name in names if (found := look(int(name))) is not None and found.state not in (b"Z", b"X")]


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(4096).replace(b"\0", b" ").decode("utf-8", "replace").strip()[:SHOWN]
    except OSError:
        return ""
