"""Every store passes the public suite: SQLite on a file and in memory, and a store that shares no code with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from pausepoint.stores.base import Store
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock
from pausepoint.testing.suite import SharedStoreSuite, StoreSuite
from pausepoint.testing.suite.base import Place, on_loop
from tests.stores.damaged_questions import DAMAGE, reap_beside_a_damaged_question
from tests.support.dictstore import Data, DictStore

# The acceptance criteria in docs/acceptance.md that the suite proves. The package does not refer to that page.
COVERS = {
    "test_a_commit_that_does_not_fit_writes_nothing": ("S3.88",),
    "test_of_two_simultaneous_commits_one_takes_effect": ("S3.88",),
    "test_updated_at_rises_with_writes_and_never_falls": ("S1.14", "S3.9"),
    "test_an_unknown_session_is_refused_by_name": ("S1.49",),
    "test_a_second_pause_changes_nothing": ("S1.50",),
    "test_a_commit_does_not_erase_a_pause_that_came_meanwhile": ("S1.21",),
}
for name, numbers in COVERS.items():
    pytest.mark.covers(*numbers)(getattr(StoreSuite, name))


class OnSqlite:
    """Damages data in a SQLite store."""

    def damage_record(self, store: Store, key: int, seq: int) -> None:
        _execute(store, "UPDATE log SET payload = x'7b7c' WHERE session = ? AND seq = ?", key, seq)

    def damage_signal(self, store: Store, key: int, n: int) -> None:
        _execute(store, "UPDATE signals SET payload = x'7b7c' WHERE session = ? AND n = ?", key, n)

    def damage_blob(self, store: Store, hash: bytes) -> None:
        _execute(store, "UPDATE blobs SET data = x'00' WHERE hash = ?", hash)

    def lose_engine(self, store: Store) -> None:
        _execute(store, "UPDATE sessions SET holder = 999 WHERE holder = ?", store.number)


def _execute(store: Store, statement: str, *values: object) -> None:
    assert isinstance(store, SqliteStore)
    store._writer.inline.connection.execute(statement, values)


class TestSqliteOnAFile(OnSqlite, SharedStoreSuite):
    @on_loop
    async def test_a_damaged_question_does_not_keep_what_an_engine_left(self, place: Place) -> None:
        await reap_beside_a_damaged_question(place, lambda store: _execute(store, DAMAGE), self.lose_engine)

    def make_store(self, folder: Path, clock: ManualClock) -> Store:
        return SqliteStore(folder / "store.db", clock=clock, synchronous="OFF", poll=0.01)


class TestSqliteInMemory(OnSqlite, StoreSuite):
    def make_store(self, folder: Path, clock: ManualClock) -> Store:
        return SqliteStore(":memory:", clock=clock)


class TestDictionaries(SharedStoreSuite):
    @pytest.fixture(autouse=True)
    def data(self) -> None:
        self.kept = Data()

    def make_store(self, folder: Path, clock: ManualClock) -> Store:
        return DictStore(self.kept, clock)

    def damage_record(self, store: Store, key: int, seq: int) -> None:
        records = self.kept.sessions[key].records
        records[seq - 1] = replace(records[seq - 1], payload=b"{|")

    def damage_signal(self, store: Store, key: int, n: int) -> None:
        signals = self.kept.sessions[key].signals
        signals[n - 1] = replace(signals[n - 1], payload=b"{|")

    def damage_blob(self, store: Store, hash: bytes) -> None:
        self.kept.large[hash] = b"changed"

    def lose_engine(self, store: Store) -> None:
        self.kept.engines.pop(store.number)
