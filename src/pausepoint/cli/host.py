"""Whose command line this is: Pausepoint's own, or that of a program that brings its workflows along.

Commands ask here how to call themselves, so that what they tell people to type is what these people have.
"""

from __future__ import annotations

import os
import shlex
import shutil
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
"""Where a click context keeps the workflow that the TARGET of `run` led to."""


STORE = f"{NAME}.cli.store"
"""Where a click context keeps the value of a ``--store`` that was given before the command."""


@dataclass(frozen=True)
class Host:
    """A program with commands.

    ``name`` stands before its refusals, ``words`` are how a person calls it, ``launch`` how it starts another process
    of itself. ``workflows``: those that it brings along, its main one first; without any they are found by target, or
    its own functions drive all its sessions (``drives``).
    """

    name: str = NAME
    words: tuple[str, ...] = (NAME,)
    launch: tuple[str, ...] = (sys.executable, "-m", NAME)
    store: str | None = None
    workflows: tuple[Workflow[Any], ...] = ()
    result: Callable[[Outcome[Any]], str] | None = None
    drives: bool = False
    step_word: str = "step"

    @property
    def brought(self) -> dict[str, Workflow[Any]]:
        """The workflows that it brings along, by name."""
        return {workflow.name: workflow for workflow in self.workflows}


PAUSEPOINT = Host()


@dataclass(frozen=True)
class Start:
    """What the command line knows of a session that is about to start: for ``begin`` and ``instead`` of a `program`.

    ``store`` is what `Engine` takes; ``folder`` is the one that the store lies in, for files of the program's own.
    ``owner`` and ``session_id`` are as they were given; None: nobody said. ``named_store``: what ``--store`` said.
    """

    store: str
    folder: Path
    owner: str | None = None
    session_id: str | None = None
    named_store: str | None = None

    def command(self, *words: str) -> str:
        """A command of this program for the same store, as a person types it.

        >>> Start("x.db", Path("."), named_store="x.db").command("resume", "s1")
        'pausepoint resume s1 --store x.db'
        """
        return spoken(*words, *([] if self.named_store is None else ["--store", self.named_store]))


def host() -> Host:
    """Whose command is running now."""
    context = click.get_current_context(silent=True)
    return (context and context.find_object(Host)) or PAUSEPOINT


def spoken(*words: str) -> str:
    """A command of this program, as a person types it.

    >>> spoken("ls", "--all")
    'pausepoint ls --all'
    """
    return shlex.join([*host().words, *words])


def started_by() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """How a person called this process, and how it starts another one of itself: without its arguments, both."""
    given = len(sys.argv) - 1
    words = tuple(sys.orig_argv[: len(sys.orig_argv) - given])
    launch = (sys.executable, *words[1:])
    script = sys.argv[0]
    if words[-1] != script or script.endswith(".py") or not os.access(script, os.X_OK):
        return words, launch
    found = shutil.which(os.path.basename(script))  # a script of an installed package: its name does, if it is found
    return (os.path.basename(script) if found and os.path.samefile(found, script) else script,), launch
