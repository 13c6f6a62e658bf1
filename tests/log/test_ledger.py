"""The ledger of a held session: what it still has to write after a commit that wrote nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

from pausepoint.clock import SystemClock
from pausepoint.log.ledger import Ledger
from pausepoint.model.commits import Commit, Flags
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
    await store.open(lambda keys: None)
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


@on_loop
async def test_a_record_does_not_follow_one_that_may_be_taken_back(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.open(lambda keys: None)
    try:
        await started(store)
        before = await stored(store)
        ledger = Ledger(store, before, SystemClock())
        written = await asyncio.gather(
            ledger.note("told", "before"),
            ledger.note("question.expired", "nobody answered", only_if_waiting=str(uuid4())),
            ledger.note("told", "a fact of another branch"),
            ledger.note("session.paused", "paused", only_if_paused=True),
            ledger.note("told", "another one"),
        )
        assert [*written] == [True, False, True, False, True]
        after = await stored(store)
        assert (after.seq, ledger.seq, ledger.broken) == (before.seq + 3, before.seq + 3, None)
        told = [record.payload for record in await store.records(after.key, before.seq + 1)]
        assert [b"fact" in payload for payload in told] == [False, True, False]
    finally:
        await store.close()
