"""The round trips of verbs in Postgres, counted on the way to the server, and what a verb in one round trip decides."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from benchmarks.fleet import Proxy
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.postgres import PostgresStore, crashes, engines, shortcuts
from pausepoint.stores.sql import queues
from pausepoint.stores.sql.limits import Room
from pausepoint.stores.sql.queues import Wanted
from tests.stores.kit import Driver, new_session, on_loop, stored
from tests.support.postgres import schema_of, server, sql


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(engines, "LEASE", 3600.0)  # `alone` does not renew it
    for module in (crashes, engines, shortcuts):
        monkeypatch.setattr(module, "LONGEST", 3600.0)
    with schema_of() as url:
        yield url


@asynccontextmanager
async def alone(url: str) -> AsyncIterator[PostgresStore]:
    """Open a store that says nothing on its own."""
    store = PostgresStore(url, poll=3600)
    await store.open(lambda keys: None)
    assert store._watch is not None
    await store._watch.stop()
    await store.get("none")  # the reader is connected now
    try:
        yield store
    finally:
        await store.close()


@pytest.mark.long
@on_loop
async def test_create_take_and_a_take_that_finds_nothing_are_one_round_trip_each(url: str, tmp_path: Path) -> None:
    with psycopg.connect(server()) as raw, closing(Proxy(str(tmp_path), raw)) as proxy:
        async with alone(f"{proxy.url}&schema={url.partition('schema=')[2]}") as store:

            async def trips(verb: Awaitable[Any]) -> tuple[int, Any]:
                before = proxy.trips
                answer = await verb
                return proxy.trips - before, answer

            for n in range(7):  # the fifth time, a statement is prepared
                count, row = await trips(store.create(new_session(f"s{n}", owner=f"o{n % 2}", tags=("a", "b"))))
                assert (count, row.holder, row.tags) == (1, store.number, ("a", "b"))
                count, other = await trips(store.create(new_session(f"t{n}", claim=False, due=True)))
                assert (count, other.holder, other.wakes_at) == (1, None, 0)
                assert await trips(store.create(new_session(f"t{n}"))) == (1, None)
                await store.release(row.key, row.fence)
                count, taken = await trips(store.take(2_000_000, ["brief"], 5))
                assert (count, {each.session_id for each in taken}) == (1, {f"s{n}", f"t{n}"})
                assert await trips(store.take(2_000_000, ["brief"], 5)) == (1, [])
                count, _ = await trips(store.claim("s0", steal=True))
                assert count > 1, "the counter does not count"


async def expected(store: PostgresStore, wanted: Wanted) -> list[str]:
    """Return what the verb of all databases would take."""

    def look(connection: Any) -> list[SessionRow]:
        present = store._engine.present
        return queues.ready(connection, present, wanted, Room(connection, present, wanted.now))

    return [row.session_id for row in await store._scan(look)]


@pytest.mark.long
@pytest.mark.parametrize("window", [3, 500])
@on_loop
async def test_one_statement_takes_the_sessions_that_step_by_step_decisions_would_take(
    url: str, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(shortcuts, "WINDOW", window)
    monkeypatch.setattr(queues, "WINDOW", window)
    chance = random.Random(f"take {window}")
    at_once = 0
    async with alone(url) as store:
        for n in range(60):
            facts = {
                "workflow": chance.choice(["brief", "memo"]), "queue": chance.choice(["default", "gpu"]),
                "priority": chance.choice([-1, 0, 0, 0]), "lane": chance.choice([None, None, "", "a", "b"]),
            }  # fmt: skip
            row = await store.create(new_session(f"s{n}", **facts))
            assert row is not None
            if n % 10:  # the others stay at work
                await Driver(store, row).commit(release=True, wakes_at=chance.choice([None, 5, 6, 7, 9000]))
        left = {row.key: row.seq for row in [await stored(store, f"s{n}") for n in (1, 2)]}
        while True:
            only = chance.choice([None, ["gpu"], ["gpu", "default"]])
            wanted = Wanted(chance.randrange(100, 9999), ["brief", "memo"], chance.randrange(1, 4), only, left)
            should = await expected(store, wanted)
            taken = await store._writer.do_at_once(shortcuts.Pickup(wanted))
            if isinstance(taken, shortcuts.Unusual):
                assert window == 3
                taken = await store.take(*wanted[:3], queues=wanted.queues, skip=wanted.skip)
            else:
                at_once += 1
            assert [row.session_id for row in taken] == should
            assert taken == [await store.get(row.session_id) for row in taken]
            if not taken and only is None and wanted.now > 9000:
                break
    assert at_once > 10


@on_loop
async def test_a_damaged_session_is_left_as_it_was_and_keeps_nothing_behind_it_from_being_taken(url: str) -> None:
    async with alone(url) as store:
        for name in ("bad", "good"):
            await store.create(new_session(name, claim=False, due=True))
        sql(url, "UPDATE sessions SET visit = 7 WHERE session_id = 'bad'")
        damaged = sql(url, "SELECT * FROM sessions WHERE session_id = 'bad'")
        assert [row.session_id for row in await store.take(2000, ["brief"], 1)] == ["good"]
        assert sql(url, "SELECT * FROM sessions WHERE session_id = 'bad'") == damaged
        mark = sql(url, "SELECT mark FROM engines")
        assert await store.take(2000, ["brief"], 1) == []
        assert sql(url, "SELECT mark FROM engines") == mark  # nothing was written
