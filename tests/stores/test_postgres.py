"""The Postgres store passes the public suites."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pausepoint.stores.base import Store
from pausepoint.stores.postgres import PostgresStore
from pausepoint.testing import ManualClock
from pausepoint.testing.suite import ConcurrencySuite, SharedStoreSuite
from pausepoint.testing.suite.base import Place, on_loop
from pausepoint.testing.suite.changes import ChangeTests
from pausepoint.testing.suite.commits import CommitTests
from pausepoint.testing.suite.concurrency import Arena
from pausepoint.testing.suite.standing_pause import StopTests
from tests.stores.damaged_questions import DAMAGE, reap_beside_a_damaged_question
from tests.support.dictstore import Data
from tests.support.dictstore.reference import DictReference
from tests.support.postgres import schema_of, sql


class OnPostgres:
    """Damages data in a Postgres store."""

    options = ""

    @pytest.fixture(autouse=True)
    def database(self) -> Iterator[None]:
        with schema_of() as self.url:
            yield

    def make_store(self, folder: Path, clock: ManualClock) -> Store:
        return PostgresStore(f"{self.url}{self.options}&files={folder}/files", clock=clock, poll=0.02)

    def damage_record(self, store: Store, key: int, seq: int) -> None:
        sql(self.url, "UPDATE log SET payload = '\\x7b7c' WHERE session = %s AND seq = %s", key, seq)

    def damage_signal(self, store: Store, key: int, n: int) -> None:
        sql(self.url, "UPDATE signals SET payload = '\\x7b7c' WHERE session = %s AND n = %s", key, n)

    def damage_blob(self, store: Store, hash: bytes) -> None:
        sql(self.url, "UPDATE blobs SET data = '\\x00' WHERE hash = %s", hash)

    def lose_engine(self, store: Store) -> None:
        sql(
            self.url, "WITH gone AS (INSERT INTO engines (pid, host, boot, started_at, workflows, lease_until) VALUES"
            " (1, 'h', 'b', 0, '[]', clock_timestamp() - interval '1 minute') RETURNING id)"
            " UPDATE sessions SET holder = (SELECT id FROM gone) WHERE holder = %s", store.number,
        )  # fmt: skip


@pytest.mark.long
class TestPostgres(OnPostgres, SharedStoreSuite):
    @on_loop
    async def test_a_damaged_question_does_not_keep_what_an_engine_left(self, place: Place) -> None:
        await reap_beside_a_damaged_question(place, lambda _: sql(self.url, DAMAGE), self.lose_engine)


class TestPostgresBehindAPooler(OnPostgres, CommitTests, StopTests, ChangeTests):
    """Without prepared statements, notifications and settings of a connection."""

    options = "&prepare=off"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """Two engines for all tests. New ones take a sixth of a second, and the server plans their statements again."""
    suite = TestPostgresAtTheSameTime()
    suite.kept = Data()
    with (
        schema_of() as suite.url,
        suite.arena_in(Place(suite.make_store, tmp_path_factory.mktemp("arena"))) as arena,
    ):
        yield arena


@pytest.mark.long
class TestPostgresAtTheSameTime(OnPostgres, DictReference, ConcurrencySuite):
    interleavings = 1

    @pytest.fixture
    def arena(self, opened: Arena) -> Arena:
        return opened

    def watch(self, store: Store, reached: Callable[[], None]) -> None:
        assert isinstance(store, PostgresStore)
        store.reached = reached

    @pytest.mark.parametrize("verb", ["answer", "send"])
    def test_mail_at_the_same_time_as_a_pause_of_everything(self, arena: Arena, verb: str) -> None:
        """They return a row that says whether everything is paused. Without a lock, one in ten showed a wrong one."""
        with arena:
            for seed in range(60):
                assert not (wrong := arena.trial(("pause_everything", verb), 0, seed, "driven").wrong), wrong
