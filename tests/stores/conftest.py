"""Fixtures of the store tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a new store for the test."""
    return tmp_path / "store.db"
