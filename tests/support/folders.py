"""Folders for tests that write much and must not wait for a disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def fast_folder() -> str | None:
    """Return a folder in which a sync is free. A killed process loses nothing that the kernel has, on any disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a new folder, in memory if possible, and delete it afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="pausepoint-", dir=fast_folder()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
