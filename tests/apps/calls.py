"""Programs as their tests call them: in this process, as a fork of one that has them ready, or started from nothing."""

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
    """What a command said and how it ended, in this process."""

    def __init__(self, main: click.Command, capsys: pytest.CaptureFixture[str], *args: str | Path) -> None:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(arg) for arg in args])
        self.code = end.value.code
        self.out, self.err = capsys.readouterr()

    @property
    def document(self) -> Any:
        """What ``--json`` shows, and nothing else."""
        return json.loads(self.out)

    @property
    def last_document(self) -> Any:
        """The same behind what was told on the way: only a process of its own keeps its stdout free for it."""
        return json.loads(self.out[self.out.index("{\n") :])


Call = Callable[..., Called]


def calling(main: click.Command) -> Any:
    """A fixture that calls a program with given arguments in a folder of its own."""

    @pytest.fixture
    def call(here: Path, capsys: pytest.CaptureFixture[str]) -> Call:
        return partial(Called, main, capsys)

    return call


class Forked(Driven):
    """A program as a process of its own, in a folder of its own, which need not import anything."""

    def __init__(self, app: str, folder: Path, forks: Forks) -> None:
        self.job = f"tests.apps.{app}_watched:job"
        super().__init__(folder, forks)
        self.options = []

    def __call__(self, *args: str) -> Done:
        child = self.begin(*args)
        return Done(child.wait(), *self.outputs(child))


def ran(app: str, cwd: Path, *args: str | Path, **env: str) -> Done:
    """``python -m pausepoint.apps.APP ARGS``, a process that imports everything itself."""
    return run(*args, cwd=cwd, env=env, program=("-m", f"pausepoint.apps.{app}"))
