"""The program that the command line belongs to: ``pausepoint`` itself, or a program with its own workflows.

Commands use it to print commands that the person can type as they are.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pausepoint.name import NAME

if TYPE_CHECKING:
    from pausepoint.definition.workflow import Workflow
    from pausepoint.model.views import Outcome


TARGET = f"{NAME}.cli.target"
"""The key in a click context's ``meta`` of the workflow that the TARGET of `run` names."""


STORE = f"{NAME}.cli.store"
"""The key in a click context's ``meta`` of a ``--store`` option given before the command."""


WORDS = f"{NAME}.cli.words"
"""The key in a click context's ``meta`` of the words after the program's name."""


NAMED_STORE = f"{NAME}.cli.named_store"
"""The key in a click context's ``meta`` of the store that the command was given, before or after its name."""


VERBOSE = f"{NAME}.cli.verbose"
"""The key in a click context's ``meta`` of ``--verbose``, an option of a program that prints no steps without it."""


@dataclass(frozen=True)
class Host:
    """A program with commands.

    - ``name``: the prefix of its error messages.
    - ``words``: the command that a person types to call it; ``launch``: the command that starts another process of it.
    - ``workflows``: the program's own workflows, the main one first. Without any, targets name the workflows.
    - ``drives``: the program's own functions drive all its sessions.
    - ``commands``: the commands that the program has beside those of ``pausepoint``.
    - ``quiet``: steps are shown only with ``--verbose``.
    - ``site``: returns what ``serve`` adds to the server, for the options that ``serve`` was given.
    """

    name: str = NAME
    words: tuple[str, ...] = (NAME,)
    launch: tuple[str, ...] = (sys.executable, "-m", NAME)
    store: str | None = None
    workflows: tuple[Workflow[Any], ...] = ()
    result: Callable[[Outcome[Any]], str] | None = None
    drives: bool = False
    step_word: str = "step"
    quiet: bool = False
    commands: frozenset[str] = frozenset()
    site: Callable[[Start, dict[str, Any]], Any] | None = None

    @property
    def workflows_by_name(self) -> dict[str, Workflow[Any]]:
        """The program's own workflows, by name."""
        return {workflow.name: workflow for workflow in self.workflows}


PAUSEPOINT = Host()


@dataclass(frozen=True)
class Start:
    """What the command line knows about a session that is about to start.

    `program` passes it to ``begin`` and ``instead``.

    - ``store``: the store, as `Engine` takes it.
    - ``folder``: the folder that contains the store. The program can keep its own files there.
    - ``owner``, ``session_id``: the values of ``--owner`` and ``--session-id``, or None.
    - ``named_store``: the value of ``--store``, or None.
    """

    store: str
    folder: Path
    owner: str | None = None
    session_id: str | None = None
    named_store: str | None = None

    def command(self, *words: str) -> str:
        """Return a command of this program for the same store, as a person types it.

        >>> Start("x.db", Path("."), named_store="x.db").command("resume", "s1")
        'pausepoint resume s1 --store x.db'
        """
        return command_line(*words, *([] if self.named_store is None else ["--store", self.named_store]))


def host() -> Host:
    """Return the program whose command is running."""
    context = click.get_current_context(silent=True)
    return (context and context.find_object(Host)) or PAUSEPOINT


def command_line(*words: str) -> str:
    """Return a command of this program, as a person types it: for the same store as the running command.

    >>> command_line("ls", "--all")
    'pausepoint ls --all'
    """
    context = click.get_current_context(silent=True)
    any_store = words[:1] == ("init",) or {"--help", "--store"} & {*words}
    named = None if context is None or any_store else context.meta.get(NAMED_STORE)
    return shlex.join([*host().words, *words, *([] if named is None else ["--store", named])])


def command_with(typed: str, instead: str) -> str:
    """Return the running command with another word in place of an argument that was typed."""
    words = list(click.get_current_context().meta.get(WORDS, ()))
    if typed in words[1:]:  # the first word is the command
        words[words.index(typed, 1)] = instead
    return shlex.join([*host().words, *words])


def how_to_start() -> str:
    """Return the sentence that names the command which explains how to start a session.

    >>> how_to_start()
    '`pausepoint run --help` explains how to start a session.'
    """
    words = ["run", "--help"] if host() is PAUSEPOINT else ["--help"]
    return f"`{command_line(*words)}` explains how to start a session."


def started_by() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the command that started this process, and the command that starts another one, both without arguments."""
    given = len(sys.argv) - 1
    words = tuple(sys.orig_argv[: max(len(sys.orig_argv) - given, 0)]) or (NAME,)  # argv may have been replaced
    launch = (sys.executable, *words[1:])
    script = sys.argv[0]
    if words[-1] != script or script.endswith(".py") or not os.access(script, os.X_OK):
        return words, launch
    import shutil

    found = shutil.which(os.path.basename(script))  # an installed script is called by its name if it is on PATH
    return (os.path.basename(script) if found and os.path.samefile(found, script) else script,), launch
