"""An engine on Postgres whose lease ends stops what it drives, and begins nothing; a twin that goes on is caught."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from pausepoint import Context, Engine, workflow
from pausepoint.clock import SystemClock
from pausepoint.stores.postgres import PostgresStore, engines
from pausepoint.stores.postgres.connection import Connection
from pausepoint.stores.postgres.engines import Enrolled, Lease, OwnEngine, _locks, boot_time
from pausepoint.stores.postgres.place import place_of
from pausepoint.stores.postgres.sql import QUERIES
from pausepoint.testing.suite.base import on_loop, started, stored
from tests.stores.kit import process
from tests.stores.test_postgres_faults import opened
from tests.support.loop import PATIENCE
from tests.support.postgres import schema_of, sql
from tests.support.waits import async_until

LEASE = 0.8
TRIALS = 5

# An engine with a short lease that drives one session. The twin does not look at its lease.
CHILD = """
import asyncio, sys
from pausepoint import Engine
from pausepoint.runtime import requests
from pausepoint.stores.postgres import PostgresStore, engines, watch
from tests.stores.test_postgres_lease import LEASE, errands

url, file, kind = sys.argv[1:]
engines.LEASE, watch.BEAT, requests.LEASE_MARGIN = LEASE, LEASE / 5, LEASE / 4
if kind == "twin":
    PostgresStore.lease_left = lambda self, number: None

async def main():
    store = PostgresStore(url + "&prepare=off", poll=60)  # it hears of other engines with its beats only
    async with Engine(store, workflows=[errands]) as engine:
        await engine.start(errands, session_id="s1", file=file)
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(store.number, flush=True)

asyncio.run(main())
"""


def run_errand(file: str, n: int) -> int:
    with open(file, "a") as out:
        out.write(f"{n} {os.getpid()} {time.monotonic()}\n")
    return n


@workflow
async def errands(ctx: Context, file: str) -> int:
    for n in range(5):
        await ctx.do(run_errand, file, n)
        await asyncio.sleep(0.15)  # the step's own code, in which the process is stopped
    return n


@pytest.fixture
def url() -> Iterator[str]:
    with schema_of() as url:
        yield url


async def begun_after_a_stop(url: str, file: Path, kind: str) -> list[int]:
    """Stop a child between two operations until this process has finished its session.

    Return the operations that the child began afterwards. None of them was in flight.
    """
    with process(CHILD, url, file, kind) as child:
        number = child.ask("number")
        async with asyncio.timeout(PATIENCE):
            while sql(url, "SELECT seq FROM sessions") < [(3,)]:  # some operations are remembered
                await asyncio.sleep(0.01)
        os.kill(child.pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(PATIENCE), Engine(url, workflows=[errands]) as engine:
                while not await engine.take_ready():
                    await asyncio.sleep(0.05)
                assert (await engine.session("s1").outcome()).result == 4
        finally:
            continued = time.monotonic()
            os.kill(child.pid, signal.SIGCONT)
        async with asyncio.timeout(PATIENCE):
            while child.ask("number") == number:  # until it is another engine
                await asyncio.sleep(0.05)
        assert child.finish() == 0
    done = [line.split() for line in file.read_text().splitlines()]
    assert {int(n) for n, *_ in done} == set(range(5))
    return [int(n) for n, pid, at in done if int(pid) == child.pid and float(at) > continued]


@pytest.mark.long
@on_loop
async def test_an_engine_that_was_stopped_for_longer_than_its_lease_begins_no_operation(
    url: str, tmp_path: Path
) -> None:
    assert await begun_after_a_stop(url, tmp_path / "effects", "whole") == []


@pytest.mark.long
@on_loop
async def test_a_twin_that_does_not_look_at_its_lease_begins_what_another_engine_has_done(tmp_path: Path) -> None:
    for n in range(TRIALS):
        with schema_of() as url:
            if await begun_after_a_stop(url, tmp_path / str(n), "twin"):
                return
    pytest.fail("the twin began no operation of the session that another engine had finished")


def end_lease(store: PostgresStore) -> None:
    """Let the lease of an engine end by its own clock."""
    store._engine._lease = store._engine._lease._replace(until=0.0)


@pytest.mark.long
@on_loop
async def test_a_lone_engine_continues_its_sessions_under_its_next_lease(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pausepoint.stores.postgres.watch.BEAT", 0.05)
    store = PostgresStore(url, poll=0.02)
    async with Engine(store, workflows=[errands]) as engine:
        session = await engine.start(errands, file=str(tmp_path / "effects"))
        before = store.number
        sql(url, "UPDATE engines SET lease_until = clock_timestamp() - interval '1 second'")
        end_lease(store)
        outcome = await session.outcome()
        assert outcome.result == 4
        assert store.number != before
        assert (await engine.verify()).ok


@on_loop
async def test_a_lone_engine_asks_again_if_its_first_attempt_to_get_a_lease_fails(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pausepoint.stores.postgres.watch.BEAT", 0.05)
    original = OwnEngine.begin_again
    failures: list[int] = []

    def fails_once(self: OwnEngine, connection: Any, number: int) -> Enrolled | None:
        enrolled = original(self, connection, number)
        if not failures:
            failures.append(number)
            raise psycopg.InternalError  # one that the writer does not repeat
        return enrolled

    monkeypatch.setattr(OwnEngine, "begin_again", fails_once)
    async with Engine(store := PostgresStore(url, poll=0.02), workflows=[errands]):
        before = store.number
        end_lease(store)
        async with asyncio.timeout(PATIENCE):
            while store.number == before:
                await asyncio.sleep(0.02)
        hold = store._engine._hold
        assert failures == [before]
        assert hold is None or hold._file.users == 1  # the hold of the attempt that failed is dropped


@on_loop
async def test_a_step_does_not_begin_if_the_lease_ends_between_the_look_at_it_and_the_step(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pausepoint.stores.postgres.watch.BEAT", 0.05)
    store = PostgresStore(url, poll=0.02)
    visits: list[int] = []
    ran: list[int] = []

    async def on_step(session_id: str, step: str, visit: int) -> None:
        visits.append(store.number)
        if len(visits) == 1:
            sql(url, "UPDATE engines SET lease_until = clock_timestamp() - interval '1 second'")
            end_lease(store)

    @workflow
    async def note() -> None:
        ran.append(store.number)

    async with Engine(store, workflows=[note], on_step=on_step) as engine:
        await engine.start(note)
        async with asyncio.timeout(PATIENCE):
            while not ran:
                await asyncio.sleep(0.02)
    assert visits[0] not in ran


class Answers:
    """A connection whose next transaction does this."""

    queries = QUERIES

    def __init__(self, transact: Callable[[], list[Any]]) -> None:
        self._transact = transact

    def transact(self, *statements: Any) -> list[list[Any]]:
        return [self._transact()]


def test_a_beat_that_is_not_committed_does_not_extend_the_lease() -> None:
    engine = OwnEngine(SystemClock(), "store")
    engine._lease = lease = Lease(3, boot_time() + 5)

    def lost() -> list[Any]:
        raise psycopg.OperationalError

    with pytest.raises(psycopg.OperationalError):
        engine.beat(cast("Any", Answers(lost)))
    assert engine._lease == lease
    assert engine.beat(cast("Any", Answers(lambda: [(1,)]))) is None
    assert engine.lease_left(3) > 5


def test_a_lease_that_has_ended_is_not_renewed_whatever_the_database_says() -> None:
    engine = OwnEngine(SystemClock(), "store")
    engine._lease = lease = Lease(3, boot_time() - 1)
    assert engine.beat(cast("Any", Answers(lambda: [(1,)]))) == 3
    assert engine._lease == lease


def test_a_lease_counts_from_before_its_beat_was_sent() -> None:
    engine = OwnEngine(SystemClock(), "store")
    engine._lease = Lease(3, boot_time() + 5)
    answered: list[float] = []

    def late() -> list[Any]:
        time.sleep(0.2)
        answered.append(boot_time())
        return [(1,)]

    assert engine.beat(cast("Any", Answers(late))) is None
    assert engine._lease.until <= answered[0] - 0.2 + engines.LEASE


@pytest.mark.parametrize("kept", [False, True])
def test_a_beat_concerns_only_the_number_that_it_was_for(kept: bool) -> None:
    engine = OwnEngine(SystemClock(), "store")
    engine._lease, fresh = Lease(3, boot_time() + 5), Lease(4, boot_time() + 2)

    def become() -> list[Any]:
        engine.become(Enrolled(fresh, None, ""))
        return [(1,)] if kept else []

    assert engine.beat(cast("Any", Answers(become))) == (None if kept else 3)
    assert engine._lease == fresh


# the reap


@on_loop
async def test_a_reap_does_not_wait_for_a_row_that_a_transaction_has_locked(url: str) -> None:
    place = place_of(url)
    async with opened(url) as store:
        gone = "INSERT INTO engines (pid, host, boot, started_at, workflows, lease_until) VALUES (1, 'h', 'b', 0, '[]',"
        ((first,), (second,)) = sql(
            url, f"{gone} clock_timestamp() - interval '1 minute'), (1, 'h', 'b', 0, '[]', clock_timestamp() +"
            " interval '1 hour') RETURNING id",
        )  # fmt: skip
        with psycopg.connect(place.url, autocommit=True) as frozen:
            frozen.execute(f"SET search_path TO {place.schema}")
            frozen.execute("BEGIN")
            frozen.execute("SELECT 1 FROM engines WHERE id = %s FOR UPDATE", (first,))
            await store.reap()
            capped = "SELECT lease_until < clock_timestamp() + interval '11 seconds' FROM engines WHERE id = %s"
            assert sql(url, capped, second) == [(True,)]  # as after a clock that was set back
            assert sql(url, "SELECT state <> 'dead' FROM engines WHERE id = %s", first) == [(True,)]
        await store.reap()
        assert sql(url, "SELECT state FROM engines WHERE id = %s", first) == [("dead",)]


GONE = (
    "WITH gone AS (INSERT INTO engines (pid, host, boot, started_at, workflows, lease_until) VALUES (1, 'h', 'b', 0,"
    " '[]', clock_timestamp() - interval '1 minute') RETURNING id)"
    " UPDATE sessions SET holder = (SELECT id FROM gone)"
)


@on_loop
async def test_a_reap_frees_many_sessions_in_several_transactions_and_writes_only_if_an_engine_died(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pausepoint.stores.postgres.crashes.AT_ONCE", 2)
    marks = "SELECT mark FROM engines WHERE id = %s"
    async with opened(url) as store:
        keys = {(await started(store, f"s{n}")).key for n in range(5)}
        before = sql(url, marks, store.number)
        assert await store.reap() == frozenset()
        assert sql(url, marks, store.number) == before
        sql(url, GONE)
        assert await store.reap() == keys
        assert sql(url, marks, store.number) != before


@pytest.mark.long
@on_loop
async def test_a_cancelled_session_whose_relative_is_locked_is_freed_and_left_to_the_next_engine(url: str) -> None:
    place = place_of(url)
    async with opened(url) as store:
        parent = await started(store)
        child = await started(store, "child", parent=parent.key)
        await store.cancel("s1", "ann", "enough", 9500)
        sql(url, f"{GONE} WHERE session_id = 'child'")
        with psycopg.connect(place.url, autocommit=True) as other:
            other.execute(f"SET search_path TO {place.schema}")
            other.execute("BEGIN")
            other.execute("SELECT 1 FROM sessions WHERE session_id = 's1' FOR UPDATE")
            assert await store.reap() == {child.key}  # at once, although the parent is locked
        assert [(row.ended, row.holder) for row in [await stored(store, "child")]] == [(None, None)]
        async with opened(url) as second:
            assert (await stored(second, "child")).ended == "cancelled"


def idle_limit(connection: Connection) -> Any:
    return connection.execute("SELECT current_setting('idle_in_transaction_session_timeout')").get


@pytest.mark.parametrize("prepare", ["on", "off"])
@on_loop
async def test_the_server_ends_a_transaction_that_its_engine_left_open_before_others_lose_their_leases(
    url: str, prepare: str
) -> None:
    async with opened(f"{url}&prepare={prepare}") as store:
        assert await store._writer.do(idle_limit) == "8s"
        assert await store._reader.do(idle_limit) == "1min"


@on_loop
async def test_an_engine_whose_lock_file_was_replaced_uses_none(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    async with opened(url) as store:
        hold, before = store._engine._hold, store._engine._place
        assert hold is not None
        file = Path(hold._file.path)
        file.rename(file.with_suffix(".old"))
        file.touch()
        alone, place = _locks(store._engine._store)
        assert alone is None
        assert place != before
        assert hold._file.users == 1


@pytest.mark.long
@on_loop
async def test_the_watch_reports_an_outage_once_and_other_errors_with_their_traceback(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(url) as store:
        watch, errors = store._watch, [psycopg.OperationalError("gone")] * 3 + [ZeroDivisionError("odd")] * 2
        assert watch is not None
        original, failed = watch._look, 0

        def look() -> None:
            nonlocal failed
            failed += 1
            if failed <= 5:
                if failed == 4:
                    watch._fails = False  # it had worked in between
                raise errors[failed - 1]
            original()

        monkeypatch.setattr(watch, "_look", look)

        async def over() -> bool:
            return failed > 6

        await async_until(over)
    said = [record for record in caplog.records if "the watch" in record.message]
    assert ["gone" in record.message for record in said] == [True, False]
    assert said[1].exc_info is not None


@on_loop
async def test_a_notification_names_the_sessions_that_have_changed(url: str) -> None:
    heard: asyncio.Queue[frozenset[int] | None] = asyncio.Queue()
    store = PostgresStore(url, poll=60)
    await store.open(heard.put_nowait)
    try:
        async with opened(url) as other:
            driver = await started(other)
            async with asyncio.timeout(PATIENCE):
                while True:  # until only notifications are left
                    await other.send("s1", "ann", 9500, b"{}")
                    if await heard.get() == frozenset({driver.key}):
                        break
                await driver.commit(release=True)
                while await heard.get() != frozenset({driver.key}):
                    pass
                await other.lift("ann", 9500)  # not about one session
                while await heard.get() is not None:
                    pass
    finally:
        await store.close()
