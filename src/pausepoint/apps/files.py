"""Write files so that a reader, or a crash, never meets half of one."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def put(path: Path, content: bytes, *, private: bool) -> None:
    """Replace a file atomically: a reader sees the old content or the new content. ``private``: only for its owner."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
