"""What the tests of the applications share: a folder to be in, a language model, the built package, their processes."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.support.children import ROOT
from tests.support.forkserver import Forks, ForkServer
from tests.support.modelserver import ModelServer, model_in_use


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, for commands that are called in this process."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PAUSEPOINT_")]:
        monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A language model that the applications find by their settings."""
    with model_in_use(monkeypatch) as found:
        yield found


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as somebody gets it: out of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """The fork server of each application: started when it is first needed, and then there for all of its tests."""
    with ExitStack() as stack:
        yield cache(lambda module: stack.enter_context(ForkServer(module)))
