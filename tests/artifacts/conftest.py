"""What the tests of artifacts share."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.artifacts.pipeline import Desk, calls


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A session that has completed."""
    desk = Desk(tmp_path)
    asyncio.run(desk.run())
    calls.taken()
    return desk
