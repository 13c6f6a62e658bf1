"""A project whose agents, user and sockets are in folders of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


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
