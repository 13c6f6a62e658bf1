"""The files that ``kill -9`` leaves of a store, and damage in its write-ahead log."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pausepoint.stores.sqlite import schema
from pausepoint.stores.sqlite.wal import Wal


def copy_as_killed(alive: Path, path: Path) -> None:
    """Copy the files of an open store. This is what would be left if its process was killed now."""
    for ending in ("", "-wal", "-shm"):  # in another process: closing a descriptor of these files here drops locks
        subprocess.run(["cp", f"{alive}{ending}", f"{path}{ending}"], check=True)


def log_of(path: Path) -> Wal:
    """Return the log of a store that nobody has open."""
    content = Path(f"{path}-wal").read_bytes()
    return Wal(lambda offset, amount: content[offset : offset + amount], len(content), schema.PAGE_SIZE)


def flip(path: Path, offset: int) -> None:
    """Flip a bit of a file."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def harm(path: Path) -> None:
    """Flip a bit in the middle of a store's log. The index is gone, as after a copy or a power loss."""
    log = log_of(path)
    flip(Path(f"{path}-wal"), log.place(log.live()[0] // 2) + 100)
    Path(f"{path}-shm").unlink()
