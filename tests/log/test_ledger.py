"""The ledger of a held session: what it still has to write after a commit that wrote nothing."""

from __future__ import annotations

from uuid import uuid4

from pausepoint.clock import SystemClock
from pausepoint.log.ledger import Ledger
from pausepoint.model.sessions import Commit, Flags
from pausepoint.stores.sqlite import SqliteStore
from tests.stores.kit import on_loop, started, stored


@on_loop
async def test_a_commit_that_writes_nothing_leaves_the_rest_for_the_next_one() -> None:
    commits: list[Commit] = []

    class Noting(SqliteStore):
        async def commit(self, commit: Commit) -> Flags | None:
            commits.append(commit)
            return await super().commit(commit)

    store = Noting(":memory:")
    await store.open(lambda: None)
    try:
        await started(store)
        ledger = Ledger(store, await stored(store), SystemClock())
        ledger.thaws = True  # a pause was withdrawn, so the timers were not frozen
        ledger.effect("e1", "told", "a fact", {}, "")
        assert not await ledger.note("question.expired", "nobody answered", only_if_waiting=str(uuid4()))
        assert await ledger.note("told", "another fact")
    finally:
        await store.close()
    assert [commit.thaw for commit in commits] == [True, True]
    assert b"a fact" in commits[1].records[0].payload
