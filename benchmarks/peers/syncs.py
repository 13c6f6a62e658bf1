"""Count what reaches the disk: the fsyncs of a step, and whether one of them ends before the next step begins.

strace writes all fsyncs and the marks that every contender makes at the beginning of a step, with the processes that it
starts (a server, too). Nothing is taken from a documentation.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import Entry
from benchmarks.peers.measure import start

STEPS = 100
CALLS = "fsync,fdatasync,sync_file_range,msync,syncfs,sync,faccessat,access,faccessat2"
_SYNC = re.compile(r"\b(?:fsync|fdatasync|msync|syncfs|sync)\b.*= 0$|<\.\.\. (?:fsync|fdatasync|msync|syncfs) resumed>")


def counted(entry: Entry, folder: Path, limit: float) -> dict[str, Any]:
    """Return the fsyncs per step of a lone session, and the share of steps that were on disk before the next began."""
    tool = shutil.which("strace")
    if tool is None:
        return {"failed": "strace was not found; install it with your package manager"}
    with tempfile.TemporaryDirectory(dir=folder) as name:
        trace = Path(name, "trace")
        job = {
            "work": "lone", "folder": f"{name}/data", "size": {"steps": STEPS}, "limit": limit, "traced": True,
        }  # fmt: skip
        found = start(entry, job, [tool, "-f", "-qq", "-o", str(trace), "-e", f"trace={CALLS}"])
        if "count" not in found:
            return found
        return read(trace.read_text("utf-8", "replace"))


def read(trace: str) -> dict[str, Any]:
    """Read a trace.

    >>> read('1 faccessat(AT_FDCWD, "/step-begins/0", F_OK) = -1\\n2 fdatasync(7) = 0\\n'
    ...      '1 faccessat(AT_FDCWD, "/step-begins/1", F_OK) = -1\\n'
    ...      '1 faccessat(AT_FDCWD, "/step-begins/2", F_OK) = -1\\n')
    {'per_step': 0.5, 'on_disk': 0.5}
    """
    between: list[int] = []
    for line in trace.splitlines():
        if "/step-begins/" in line:
            between.append(0)
        elif between and _SYNC.search(line):
            between[-1] += 1
    if len(between) < 2:
        return {"failed": "the trace has no steps"}
    steps = between[:-1]  # what follows the last step belongs to the end of the session
    return {"per_step": sum(steps) / len(steps), "on_disk": sum(count > 0 for count in steps) / len(steps)}
