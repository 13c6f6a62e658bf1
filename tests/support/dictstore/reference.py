"""The store in dictionaries as the reference of a suite with two engines: it takes less time than SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from pausepoint.stores.base import Store
from pausepoint.testing import ManualClock
from tests.support.dictstore import Data, DictStore


class DictReference:
    """Put it before `ConcurrencySuite`."""

    @pytest.fixture(autouse=True)
    def data(self) -> None:
        self.kept = Data()

    def make_reference(self, folder: Path, clock: ManualClock) -> Store:
        return DictStore(self.kept, clock)
