"""The refusal on Windows, where the store's locks and synced folders do not exist. Imported there only."""

from __future__ import annotations

import sys
from typing import NoReturn

WINDOWS = (
    "Pausepoint does not run on Windows, because its store needs the file locks and synced folders of Linux or macOS."
    " Install WSL2 with 'wsl --install', then install Pausepoint and run your program inside it."
)


def refuse() -> NoReturn:
    """End the command line with one sentence; raise ``ImportError`` in every other program."""
    if _is_command_line():
        sys.exit(f"pausepoint: {WINDOWS}")
    raise ImportError(WINDOWS, name="pausepoint")


def _is_command_line() -> bool:
    """Return whether this process is ``pausepoint``, or ``python -m`` with a module of ours."""
    program = sys.argv[0].replace("\\", "/").rpartition("/")[2].lower() if sys.argv else ""
    words = sys.orig_argv
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
    return program in ("pausepoint", "pausepoint.exe") or module.partition(".")[0] == "pausepoint"
