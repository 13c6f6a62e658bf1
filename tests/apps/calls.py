"""Calls of the applications: in this process, in a forked process, or in a new Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

from tests.cli.kit import Done, run
from tests.support.forkserver import Forks
from tests.support.held import Driven


class Called:
    """The output and the exit code of a command that ran in this process."""

    def __init__(self, main: click.Command, capsys: pytest.CaptureFixture[str], *args: str | Path) -> None:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(arg) for arg in args])
        self.code = end.value.code
        self.out, self.err = capsys.readouterr()

    @property
    def document(self) -> Any:
        """The document that ``--json`` prints. Fails if anything else was printed."""
        return json.loads(self.out)

    @property
    def last_document(self) -> Any:
        """The last document, behind the progress lines that a command prints in this process."""
        return json.loads(self.out[self.out.index("{\n") :])


Call = Callable[..., Called]


def calling(main: click.Command) -> Any:
    """Make a fixture that calls a program in an empty folder."""

    @pytest.fixture
    def call(here: Path, capsys: pytest.CaptureFixture[str]) -> Call:
        return partial(Called, main, capsys)

    return call


class Forked(Driven):
    """A program in a forked process that has imported everything, in its own folder."""

    def __init__(self, app: str, folder: Path, forks: Forks) -> None:
        self.job = f"tests.apps.{app}_watched:job"
        super().__init__(folder, forks)
        self.options = []

    def __call__(self, *args: str) -> Done:
        child = self.begin(*args)
        return Done(child.wait(), *self.outputs(child))


def ran(app: str, cwd: Path, *args: str | Path, **env: str) -> Done:
    """Run ``python -m pausepoint.apps.APP ARGS`` in a new Python."""
    return run(*args, cwd=cwd, env=env, program=("-m", f"pausepoint.apps.{app}"), new=True)
