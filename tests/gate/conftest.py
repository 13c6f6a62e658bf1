"""The projects of the tests, each with agents, a user and a socket of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gate.claude import HOW, Agents, Api, find, serving
from tests.gate.kit import Project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project whose agents may run their calls without a server."""
    made = Project(tmp_path / "p")
    yield made
    made.close()


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Project]:
    """A project whose agents may not."""
    made = Project(tmp_path / "closed", on_loss="closed")
    yield made
    made.close()


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a project. Sockets need a short path, so they are not below it."""
    for name in ("PAUSEPOINT_GATE", "PAUSEPOINT_GATE_TOKEN", "PAUSEPOINT_GATE_ON_LOSS", "PAUSEPOINT_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "user" / ".claude"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "user" / ".codex"))
    (tmp_path / "project").mkdir()
    with tempfile.TemporaryDirectory(prefix="pp", dir="/tmp") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        yield tmp_path / "project"


@pytest.fixture
def api() -> Iterator[Api]:
    """The model server of Claude Code. Where that is not installed, the test is skipped."""
    if find() is None:
        pytest.skip(HOW)
    with serving() as api:
        yield api
        assert api.outside == [], "nothing may leave the machine"


@pytest.fixture
def agents(api: Api, project: Project, tmp_path: Path) -> Iterator[Agents]:
    """Claude Code in the project."""
    agents = Agents(api, project.folder, tmp_path / "home")
    yield agents
    agents.end()
