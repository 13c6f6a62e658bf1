"""What children spend in Postgres: it locks no ancestor, every read adds it, and it is folded into the row."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from pausepoint.model.sessions import Filter
from pausepoint.stores.postgres import PostgresStore, charges, locks
from pausepoint.testing.suite.base import Driver, new_session, on_loop, stored
from tests.stores.test_postgres_faults import opened
from tests.support.loop import PATIENCE
from tests.support.postgres import schema_of, sql


@pytest.fixture
def url() -> Iterator[str]:
    with schema_of() as url:
        yield url


async def family(store: PostgresStore) -> tuple[Driver, int]:
    """Create a session with a child. Return the driver of the child, and the key of the parent."""
    parent = await store.create(new_session("parent", budget_usd=100))
    assert parent is not None
    child = await store.create(new_session("child", parent=parent.key))
    assert child is not None
    return Driver(store, child), parent.key


@pytest.mark.long
@pytest.mark.parametrize("twin", [False, True], ids=["sound", "twin that locks the ancestors"])
@on_loop
async def test_a_child_that_spends_does_not_wait_for_its_parent(
    url: str, monkeypatch: pytest.MonkeyPatch, twin: bool
) -> None:
    async with opened(url) as store:
        driver, parent = await family(store)
        if twin:
            monkeypatch.setattr(locks, "of_commit", lambda commit: locks.lines(commit.key))
        server, _, schema = url.partition("schema=")
        with psycopg.connect(server.rstrip("&?"), options=f"-c search_path={schema}") as other:
            other.execute("SELECT 1 FROM sessions WHERE key = %s FOR UPDATE", (parent,))
            spending = asyncio.ensure_future(driver.commit(parent=parent, spend_usd=7))
            done, _ = await asyncio.wait([spending], timeout=1 if twin else PATIENCE)
            assert bool(done) is not twin
        await spending
        assert (await stored(store, "parent")).spent_usd == 7


@pytest.mark.long
@on_loop
async def test_folded_or_not_every_read_counts_what_descendants_spent(url: str) -> None:
    async with opened(url) as store:
        driver, parent = await family(store)
        other = await store.create(new_session("other"))
        assert other is not None
        await Driver(store, other).commit(spend_usd=8)
        for usd in (4, 5):
            await driver.commit(parent=parent, spend_usd=usd, spend_tokens=2, spend_operations=1)

        async def seen() -> list[object]:
            row = await stored(store, "parent")
            first = await store.find(Filter(sort="spent", limit=1))
            assert first.next is not None
            rest = await store.find(Filter(sort="spent", limit=5, after=first.next))
            return [
                (row.spent_usd, row.spent_tokens, row.spent_operations), await store.purses(driver.key),
                [each.session_id for each in (*first, *rest)], await store.spending(Filter()),
                sql(url, "SELECT spent_usd * 1000000 FROM workflow_states WHERE session_id = 'parent'"),
            ]  # fmt: skip

        before = await seen()
        assert before[0] == (9, 4, 2)
        assert before[2] == ["child", "parent", "other"]
        assert before[3] == {"brief": 26}
        assert sql(url, "SELECT count(*) FROM charges") == [(2,)]
        sql(url, "INSERT INTO charges VALUES (999, 1, 1, 1)")  # of a session that is gone
        await store._writer.do(lambda connection: connection.execute(connection.queries["fold_charges"], (100,)))
        assert sql(url, "SELECT count(*) FROM charges") == [(0,)]
        assert await seen() == before


@on_loop
async def test_an_engine_folds_charges_with_its_beat(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pausepoint.stores.postgres.watch.BEAT", 0.05)
    async with opened(url) as store:
        driver, parent = await family(store)
        await driver.commit(parent=parent, spend_usd=7)
        async with asyncio.timeout(PATIENCE):
            while sql(url, "SELECT count(*) FROM charges") != [(0,)]:
                await asyncio.sleep(0.02)
        assert sql(url, "SELECT spent_usd FROM sessions WHERE session_id = 'parent'") == [(7,)]


@on_loop
async def test_a_sum_that_no_column_can_hold_is_cut_off(url: str) -> None:
    async with opened(url) as store:
        _, parent = await family(store)
        for _ in range(9):
            sql(url, "INSERT INTO charges (session, usd, tokens, operations) VALUES (%s, 2::bigint ^ 60, 0, 0)", parent)
        assert (await stored(store, "parent")).spent_usd == 2**63 - 1
        await store._writer.do(charges.fold)
        assert sql(url, "SELECT count(*) FROM charges") == [(0,)]
        assert (await stored(store, "parent")).spent_usd == 2**63 - 1
