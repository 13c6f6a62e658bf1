"""How a call of an application ends: its exit code, and Ctrl+C or SIGTERM before its work is done."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

DONE, FAILED, PERSON, NOT_FOUND, CONFLICT, DECISION, INTERRUPTED, TERMINATED = 0, 1, 3, 4, 5, 6, 130, 143
"""The exit codes of the command ``pausepoint``."""

Ending = tuple[int, dict[str, Any] | None]
"""The exit code, and the document for ``--json``."""


def ended(work: Callable[[], Ending], early: Callable[[str, int], Ending]) -> Ending:
    """Return how the work ends. If a signal stops it, ``early`` gets the word for that and the exit code."""
    try:
        return work()
    except (KeyboardInterrupt, click.Abort):
        return early("Interrupted", INTERRUPTED)
    except SystemExit as end:
        if end.code != TERMINATED:
            raise
        return early("Terminated", TERMINATED)


def at_terminal() -> bool:
    """Return whether input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()
