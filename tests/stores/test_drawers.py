"""Writes to drawers in Postgres that meet a removal or a fork of their session, and errors that no future accepts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from pausepoint.errors import UnknownSession
from pausepoint.model.drawers import DrawerId
from pausepoint.stores.postgres import PostgresStore
from pausepoint.stores.postgres.sql import QUERIES
from pausepoint.stores.sqlite import SqliteStore
from tests.stores import kit
from tests.stores.kit import new_session, started
from tests.stores.kit import on_loop as in_loop
from tests.stores.test_postgres_faults import PATIENT, opened
from tests.support.loop import PATIENCE
from tests.support.postgres import schema_of, sql

BLOCKS = "SELECT 1 FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
IS_BLOCKED = "SELECT 1 WHERE cardinality(pg_blocking_pids(%s)) > 0"


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr("pausepoint.stores.postgres.writer.WRITES", PATIENT)
    with schema_of() as url:
        yield url


async def met(url: str, store: PostgresStore, other: PostgresStore) -> list[str]:
    """Remove a session while a write to its drawer has begun. Return what is wrong afterwards."""
    driver = await started(store)
    await driver.commit(release=True)
    inside, go = threading.Event(), threading.Event()

    def fold(old: bytes | None, now: int) -> bytes | None:
        inside.set()
        assert go.wait(PATIENCE)
        return None

    async def remove() -> None:
        await other.remove("s1", None, "", 1)
        while await other.strip(driver.key, 100) is None:
            pass

    writing = asyncio.create_task(store.drawer_append(DrawerId("lg", "s1"), "s", [b"1"], fold))
    assert await asyncio.to_thread(inside.wait, PATIENCE)
    removing = asyncio.create_task(remove())
    writer = store._engine.backend
    while not removing.done() and not await asyncio.to_thread(sql, url, BLOCKS, writer):
        await asyncio.sleep(0.01)
    go.set()
    assert await writing == 1
    await removing
    return await store.check()


@pytest.mark.long
@in_loop
async def test_a_session_is_not_removed_under_a_write_to_its_drawer(url: str) -> None:
    async with opened(url) as store, opened(url) as other:
        assert await met(url, store, other) == []


@in_loop
async def test_a_store_that_does_not_lock_the_session_is_found(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(QUERIES, "lock_drawer_session", QUERIES["drawer_session"])
    async with opened(url) as store, opened(url) as other:
        assert any("in the drawers belongs to no" in each for each in await met(url, store, other))


async def blocked(url: str, store: PostgresStore, task: asyncio.Task[Any] | None = None) -> None:
    """Wait until the writer of a store waits for a lock, or a task is done."""
    async with asyncio.timeout(PATIENCE):
        while not (task is not None and task.done()):
            if await asyncio.to_thread(sql, url, IS_BLOCKED, store._engine.backend):
                return
            await asyncio.sleep(0.01)


async def forked(url: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Fork a session while another engine creates a drawer of it, and writes to it. Return what the fork suffers.

    The fork waits twice: for a write to another drawer, and between the copies of streams and of their entries.
    """
    wait = " AND (SELECT pg_advisory_xact_lock(4711)::text) = ''"
    monkeypatch.setitem(QUERIES, "copy_streams", QUERIES["copy_streams"] + wait)
    inside, go = threading.Event(), threading.Event()

    def fold(old: bytes | None, now: int) -> bytes | None:
        inside.set()
        assert go.wait(PATIENCE)
        return None

    async with opened(url) as store, opened(url) as other, opened(url) as third:
        driver = await started(store)
        await driver.commit(release=True)
        known, new = DrawerId("a", "s1"), DrawerId("z", "s1")
        await store.drawer_append(known, "s", [b"1"], None)
        await other.drawer_append(DrawerId("a"), "s", [b"1"], None)
        writing = asyncio.create_task(third.drawer_append(known, "s", [b"2"], fold))
        assert await asyncio.to_thread(inside.wait, PATIENCE)
        with psycopg.connect(url.partition("schema=")[0].rstrip("&?")) as holder:
            holder.execute("SELECT pg_advisory_lock(4711)")
            fork = asyncio.create_task(store.create(new_session("s2", drawers_of=driver.key)))
            await blocked(url, store)
            first = asyncio.create_task(other.drawer_append(new, "t", [b"one"], None))
            await blocked(url, other, first)
            go.set()
            await writing
            await blocked(url, store)
            second = asyncio.create_task(other.drawer_append(new, "t", [b"two"], None))
            await blocked(url, other, second)
            assert not fork.done()
        assert await fork is not None
        assert [await first, await second] == [1, 2]
        return await store.drawer_damage("s2")


@in_loop
async def test_a_fork_has_whole_drawers_although_one_is_created_meanwhile(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await forked(url, monkeypatch) == []


@in_loop
async def test_a_write_that_does_not_lock_the_drawers_of_its_session_is_found(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "current_schema() || ' drawer ' || session || ' ' || name"
    each = "SELECT session, name FROM drawers WHERE session = ?::text::bigint"  # those that exist when the fork begins
    lock = f"SELECT pg_advisory_xact_lock(hashtextextended({name}, 0)) FROM ({each})"
    monkeypatch.setitem(QUERIES, "share_drawers", "SELECT ?::text")
    monkeypatch.setitem(QUERIES, "lock_drawers", f"{lock} AS these")
    assert any("entry 2 of stream 't'" in each for each in await forked(url, monkeypatch))


@in_loop
async def test_a_session_that_appears_after_the_lock_gets_no_drawer(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(url) as store:
        await started(store)
        monkeypatch.setitem(QUERIES, "lock_drawer_session", QUERIES["lock_drawer_session"] + " SKIP LOCKED LIMIT 0")
        with pytest.raises(UnknownSession):
            await store.drawer_append(DrawerId("lg", "s1"), "s", [b"1"], None)
        assert await store.drawers("s1") == []


@asynccontextmanager
async def opened_in(where: str) -> AsyncIterator[SqliteStore | PostgresStore]:
    async with opened(where) if where.startswith("postgresql") else kit.opened(where) as store:
        yield store


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@in_loop
async def test_a_long_stream_that_has_expired_is_deleted_in_portions(tmp_path: Any, url: str, database: str) -> None:
    async with opened_in(url if database == "postgres" else str(tmp_path / "store.db")) as store:
        for drawer in ("lg", "other"):
            await store.drawer_append(DrawerId(drawer), "long", [b"x"] * 25, None, 0)
        assert await store.expire_drawers(2**61, 10) == 2
        portions = []
        while count := await store.delete_discarded(10):
            portions.append(count)
        assert portions == [10] * 5 + [2, 1], "entries, then the streams, then the drawer of what was discarded"
        assert await store.expire_drawers(2**61, 10) == 0


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@in_loop
async def test_an_error_that_no_future_accepts_is_delivered(tmp_path: Any, url: str, database: str) -> None:
    def stop(connection: Any) -> None:
        raise StopIteration("over")

    async with opened_in(url if database == "postgres" else str(tmp_path / "store.db")) as store:
        with pytest.raises(RuntimeError, match="raised StopIteration: over"):
            await asyncio.wait_for(store._do(stop), PATIENCE)
        assert await store.drawer_append(DrawerId("lg"), "s", [b"1"], None) == 1
