"""Where an agent works: the branch of its folder, and its terminal."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def branch_of(folder: str) -> str:
    """Return the branch of the repository that a folder is in, or the commit; empty without a repository."""
    here = Path(folder)
    for each in (here, *here.parents) if folder else ():
        with suppress(OSError, UnicodeDecodeError):
            place = each / ".git"
            if place.is_file():  # a worktree or a submodule: the file names the folder
                place = each / place.read_text(encoding="utf-8").partition("gitdir: ")[2].strip()
            head = (place / "HEAD").read_text(encoding="utf-8").strip()
            return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else head[:12]
    return ""


def terminal_of(pid: int) -> str:
    """Return the terminal of a process, such as ``pts/3``; empty if it has none, or there is no ``/proc``."""
    with suppress(OSError):
        place = os.readlink(f"/proc/{pid}/fd/0")
        if place.startswith(("/dev/pts/", "/dev/tty")):
            return place.removeprefix("/dev/")
    return ""
