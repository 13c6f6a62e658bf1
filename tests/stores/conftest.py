"""What every store test may ask for."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store of the test's own can be."""
    return tmp_path / "store.db"
