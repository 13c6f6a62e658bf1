"""The command line: thin commands over the public verbs of `pausepoint.engine.engine`.

Nothing is imported that a command does not use: the table of commands is text until one of
them is called.
"""

from __future__ import annotations

from pausepoint.name import NAME


def main() -> None:
    """The entry point ``pausepoint``."""
    from pausepoint.cli.app import app
    from pausepoint.cli.exits import guarded

    guarded(lambda **how: app(prog_name=NAME, **how))
