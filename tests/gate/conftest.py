"""The project of a test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gate.kit import Project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project whose agents may run their calls without a server."""
    made = Project(tmp_path / "p")
    yield made
    shutil.rmtree(made.socket.parent, ignore_errors=True)


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Project]:
    """A project whose agents may not."""
    made = Project(tmp_path / "closed", on_loss="closed")
    yield made
    shutil.rmtree(made.socket.parent, ignore_errors=True)
