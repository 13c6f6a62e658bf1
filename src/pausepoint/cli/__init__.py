"""The command line: thin commands over the engine's public methods.

A command's modules are imported when the command is called, so that ``--help`` and completion are fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pausepoint.lazy import exported
from pausepoint.name import NAME

if TYPE_CHECKING:
    from pausepoint.cli.host import Start, command_line

_HOMES = {"Start": "host", "command_line": "host"}

__all__ = ["Start", "command_line", "main"]

__getattr__, __dir__ = exported(__name__, _HOMES)


def main() -> None:
    """Run the command ``pausepoint``."""
    from pausepoint.cli.app import app
    from pausepoint.cli.exits import guarded

    guarded(lambda **how: app(prog_name=NAME, **how))
