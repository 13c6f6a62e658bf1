"""The Postgres store through lost connections, lost leases and killed processes; and twins with a fault."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from pausepoint import Context, Engine, workflow
from pausepoint.errors import HoldLost, StoreError, StoreUnavailable
from pausepoint.model.sessions import Status
from pausepoint.stores.postgres import PostgresStore, commits, engines, locks
from pausepoint.stores.postgres.connection import Connection
from pausepoint.stores.postgres.errors import translated
from pausepoint.stores.postgres.place import place_of
from pausepoint.stores.postgres.schema import Use
from pausepoint.stores.postgres.sql import migrations, schema
from pausepoint.stores.sql import remembered, signals
from tests.stores import test_postgres
from tests.stores.kit import new_session, process, started, stored
from tests.stores.kit import on_loop as in_loop
from tests.stores.test_concurrency import check, patience_in
from tests.support.dictstore import Data
from tests.support.loop import PATIENCE
from tests.support.postgres import schema_of, sql
from tests.support.waits import async_until

TRIALS = 10

PATIENT = Use(idle=PATIENCE)
"""For a writer that a test stops inside a transaction. The server would end it after 8 seconds."""


@pytest.fixture
def url() -> Iterator[str]:
    with schema_of() as url:
        yield url


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, poll=0.02)
    await store.open(lambda keys: None)
    try:
        yield store
    finally:
        await store.close()


@workflow
async def shout(ctx: Context, text: str) -> str:
    await ctx.sleep(0.01)
    return text.upper()


@pytest.mark.long
@in_loop
async def test_an_engine_drives_a_session_on_postgres(url: str) -> None:
    async with Engine(url, workflows=[shout]) as engine:
        outcome = await (await engine.start(shout, text="octopus")).outcome()
        assert outcome.result == "OCTOPUS"
        assert (await engine.verify()).ok
    async with Engine(url, workflows=[shout], create=False) as engine:
        assert [row.status for row in await engine.sessions()] == [Status.COMPLETED]


# a replica that lacks the last writes


@asynccontextmanager
async def in_operation(url: str) -> AsyncIterator[asyncio.Event]:
    """Drive a session whose operation waits for the event."""
    running, gate = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        running.set()
        await gate.wait()

    @workflow
    async def held(ctx: Context) -> None:
        await ctx.do(wait)

    async with Engine(url, workflows=[held], drives="asked") as engine:
        await engine.start(held, session_id="s1")
        await running.wait()
        yield gate


@in_loop
async def test_a_session_whose_store_lost_records_does_not_stay_with_its_engine(url: str) -> None:
    async with in_operation(url) as gate:
        sql(url, "UPDATE sessions SET seq = seq - 1")
        gate.set()

        async def free() -> bool:
            return sql(url, "SELECT holder FROM sessions") == [(None,)]

        await async_until(free)


@in_loop
async def test_a_deadlock_is_tried_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(url) as store:
        await started(store)
        original, calls = signals.send, []

        def victim(*args: Any) -> Any:
            calls.append(args)
            if len(calls) == 1:
                raise psycopg.errors.DeadlockDetected
            return original(*args)

        monkeypatch.setattr(signals, "send", victim)
        await store.send("s1", None, 1, b"{}")
        assert len(calls) == 2


# leases

ENGINE = """
import asyncio, sys
from pausepoint.stores.postgres import PostgresStore
from tests.stores.kit import Driver, new_session

async def main():
    store = PostgresStore(sys.argv[1])
    await store.open(lambda keys: None)
    await store.create(new_session("s1"))
    print("ready", flush=True)
    sys.stdin.readline()

asyncio.run(main())
"""


@pytest.mark.long
@in_loop
async def test_the_sessions_of_a_killed_process_on_this_machine_are_free_at_once(url: str) -> None:
    async with opened(url) as store:
        with process(ENGINE, url) as other:
            assert (await stored(store)).live
            other.kill()
            assert not (await stored(store)).live
            row = await store.claim("s1")
        assert (row.holder, row.crashes) == (store.number, 1)


@in_loop
async def test_an_engine_that_lost_its_lease_becomes_another_one_and_counts_no_crash(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pausepoint.stores.postgres.watch.BEAT", 0.05)
    async with opened(url) as store:
        driver = await started(store)
        before = store.number
        store._watch._beat_at = 0  # type: ignore[union-attr]
        sql(url, "UPDATE engines SET lease_until = clock_timestamp() - interval '1 second'")

        async def renewed() -> bool:
            return store.number != before

        await async_until(renewed)
        with pytest.raises(HoldLost):
            await driver.commit()
        row = await store.claim("s1")
        assert (row.holder, row.crashes, row.seq) == (store.number, 0, 1)


@in_loop
async def test_a_write_that_needs_a_lease_waits_for_the_next_one(url: str) -> None:
    async with opened(url) as store:
        before = store.number
        sql(url, "UPDATE engines SET lease_until = clock_timestamp() - interval '1 second'")
        await started(store)
        assert store.number != before
        assert (await stored(store)).holder == store.number


@in_loop
async def test_a_lease_that_ended_frees_the_sessions_of_an_engine_elsewhere(url: str) -> None:
    async with opened(url) as mine, opened(url) as other:
        driver = await started(other)
        # Another machine: no lock byte can be seen, and the lease alone counts.
        await other._watch.stop()  # type: ignore[union-attr]
        moved = "UPDATE engines SET boot = 'elsewhere', lease_until = clock_timestamp() + interval '10 s' WHERE id = %s"
        sql(url, moved, other.number)
        assert (await stored(mine)).live
        sql(url, "UPDATE engines SET lease_until = clock_timestamp() WHERE id = %s", other.number)
        (row,) = await mine.take(2_000_000, ["brief"], 5)
        assert (row.session_id, row.holder, row.crashes) == ("s1", mine.number, 1)
        with pytest.raises(HoldLost):
            await driver.commit()


@in_loop
async def test_after_an_outage_an_engine_spares_those_that_could_not_renew_their_leases(url: str) -> None:
    async with opened(url) as mine, opened(url) as other:
        await started(other)
        await other._watch.stop()  # type: ignore[union-attr]
        sql(url, "UPDATE engines SET boot = 'elsewhere' WHERE id = %s", other.number)
        ended = "UPDATE engines SET lease_until = clock_timestamp() - %s * interval '1 second' WHERE id = %s"
        sql(url, ended, 15, other.number)
        sql(url, "SELECT pg_terminate_backend(%s)", mine._writer._link.connection.raw.info.backend_pid)
        await mine.create(new_session("s2"))
        assert await mine.take(2_000_000, ["brief"], 5) == []
        assert (await stored(mine)).live
        sql(url, ended, 45, other.number)
        (row,) = await mine.take(2_000_000, ["brief"], 5)
        assert (row.session_id, row.crashes) == ("s1", 1)


class Clock:
    """A time that passes while a thread sleeps, and not while it waits for a processor."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@in_loop
async def test_a_write_that_waited_for_others_does_not_wait_again_for_the_server(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url) as store:
        await started(store)
        connects: list[Any] = []
        clock, sending = Clock(), threading.Event()

        def refused(place: Any, use: Any) -> Any:
            assert sending.wait(PATIENCE)
            connects.append(place)
            raise psycopg.OperationalError("connection refused")

        with monkeypatch.context() as patch:
            patch.setattr("pausepoint.stores.postgres.writer.PATIENCE", 0.5)
            patch.setattr("pausepoint.stores.postgres.writer.time", clock)
            patch.setattr("pausepoint.stores.postgres.schema.connect", refused)
            await store._watch.stop()  # type: ignore[union-attr]
            store._writer._link.drop()
            sent = [asyncio.ensure_future(store.send("s1", None, 1, b"{}")) for _ in range(20)]
            await asyncio.sleep(0)  # all of them wait for the writer
            sending.set()
            for each in sent:
                with pytest.raises(StoreUnavailable, match="connection refused"):
                    await each
            assert 2 <= len(connects) < 20  # the first has tried for all; a beat of the engine may try, too
        assert await store.signals((await stored(store)).key, 0) == []


@in_loop
async def test_a_commit_that_cannot_be_written_does_not_fail_the_others_of_its_batch(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url) as store:
        drivers = [await started(store, f"s{n}") for n in range(4)]
        original, sizes = commits.move_all, []

        def move_all(connection: Any, engine: Any, moves: Any) -> Any:
            sizes.append(len(moves))
            if any(commit.key == drivers[1].key for commit in moves):
                connection.execute("SELECT 1 / 0").fetchall()
            return original(connection, engine, moves)

        monkeypatch.setattr(commits, "move_all", move_all)
        answers = await asyncio.gather(*(each.commit(plain=True) for each in drivers), return_exceptions=True)
        assert [isinstance(each, StoreUnavailable) for each in answers] == [False, True, False, False]
        assert max(sizes) > 1
        assert [(await stored(store, f"s{n}")).seq for n in range(4)] == [2, 1, 2, 2]


@in_loop
async def test_a_clock_that_differs_from_the_servers_is_reported(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = time.time
    monkeypatch.setattr("pausepoint.stores.postgres.watch.time.time", lambda: real() - 7200)
    async with opened(url) as store:
        about = await store.about()
        assert about.server is not None
        assert about.server.startswith("Postgres ")
        assert about.latency_ms is not None
        assert about.latency_ms > 0
        assert about.clock_skew_us is not None
        assert abs(about.clock_skew_us / 1e6 - 7200) < PATIENCE

        async def warned() -> bool:
            return "ahead of that of this machine" in caplog.text

        await async_until(warned)


def test_the_migrations_lead_to_todays_schema() -> None:
    (first,) = migrations()
    assert schema().endswith(first.text)


# the view


@in_loop
async def test_a_person_pauses_and_resumes_in_sql(url: str) -> None:
    async with opened(url) as store:
        driver = await started(store)
        assert sql(url, "SELECT session_id, status, pause_requested FROM workflow_states") == [("s1", "running", False)]
        assert sql(url, "UPDATE workflow_states SET pause_requested = true RETURNING session_id") == [("s1",)]
        flags = await driver.commit(plain=True)
        assert flags is not None
        assert flags.pause_requested
        assert [pause.id for pause in await store.pauses(driver.key)] == ["flag"]
        sql(url, "DELETE FROM pause_requests")
        flags = await driver.commit(plain=True)
        assert flags is not None
        assert not flags.pause_requested
        with pytest.raises(psycopg.errors.RaiseException, match="no session with this id"):
            sql(url, "INSERT INTO pause_requests (session_id) VALUES ('s2')")
        for wrong in ("pause_requested = 2", "pause_mode = 'later'"):
            with pytest.raises(psycopg.errors.CheckViolation, match="Session s1: pause_requested is 0 or 1"):
                sql(url, f"UPDATE sessions SET {wrong}")
        await driver.commit(ended="completed", release=True)
        assert sql(url, "UPDATE workflow_states SET pause_requested = true RETURNING session_id") == []


@pytest.mark.long
@in_loop
async def test_an_engine_notices_a_pause_in_sql_before_the_next_commit(url: str) -> None:
    noticed = 0

    def changed(keys: frozenset[int] | None) -> None:
        nonlocal noticed
        noticed += 1

    store = PostgresStore(f"{url}&prepare=off", poll=0.02)  # no notifications
    await store.open(changed)
    try:
        await started(store)

        async def quiet() -> bool:
            before = noticed
            await asyncio.sleep(0.2)
            return noticed == before

        await async_until(quiet)
        before = noticed
        sql(url, "UPDATE workflow_states SET pause_requested = true")

        async def told() -> bool:
            return noticed > before

        await async_until(told)
    finally:
        await store.close()


@in_loop
async def test_an_engine_that_takes_a_request_over_sees_that_it_took_effect_at_this_moment(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pausepoint.stores.postgres.writer.WRITES", PATIENT)
    async with opened(url) as late, opened(url) as other:
        await started(late)
        await late.remember("key", b"digest", None, 2**52)
        await late._watch.stop()  # type: ignore[union-attr]
        sql(url, "UPDATE engines SET state = 'dead' WHERE id = %s", late.number)
        has_read, may_write = threading.Event(), threading.Event()
        original = remembered._write

        def slow(connection: Any, kept: Any) -> Any:
            if kept.took_effect:
                has_read.set()
                assert may_write.wait(PATIENCE)
            return original(connection, kept)

        monkeypatch.setattr(remembered, "_write", slow)

        async def carry_out() -> None:
            with late.once("key"):
                await late.send("s1", None, 1, b"{}")

        sending = asyncio.ensure_future(carry_out())

        async def read() -> bool:
            return has_read.is_set() or sending.done()

        await async_until(read)
        taking = asyncio.ensure_future(other.remember("key", b"digest", None, 2**52))

        async def decided() -> bool:
            return taking.done() or bool(sql(url, "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))

        await async_until(decided)
        may_write.set()
        await sending
        assert (await taking).took_effect


# URLs and errors


@pytest.mark.parametrize(
    "url",
    ["postgresql://ada:se?cret@db/work", "postgresql://ada:12?34@db/work", "postgresql://ada:se%cret@db/work",
     "postgresql://ada:se@cret@db/work", "postgresql://ada:se/cret@db/work", "postgresql://ada:se#cret@db/work"],
)  # fmt: skip
def test_a_password_that_is_not_encoded_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(StoreError, match="percent-encoding") as refused:
        place_of(url)
    assert not re.search("cret|34", str(refused.value))


def test_a_password_reaches_the_driver_and_is_never_shown() -> None:
    encoded = place_of("postgresql://ada:s%3Fe%25c%40ret@db/work?connect_timeout=3&options=-c%20work_mem%3D8MB")
    assert conninfo_to_dict(encoded.url)["password"] == "s?e%c@ret"
    assert encoded.shown == "postgresql://ada@db/work?schema=pausepoint"
    asked = place_of("postgresql://ada@db/work?password=s%3Fe%25c%40ret")
    assert conninfo_to_dict(asked.url)["password"] == "s?e%c@ret"
    assert "ret" not in asked.shown


@in_loop
async def test_settings_in_the_url_win(url: str) -> None:
    async with opened(f"{url}&application_name=mine&connect_timeout=7&options=-c%20work_mem%3D8MB") as store:
        (row,) = await store._reader.do(
            lambda connection: connection.execute(
                "SELECT current_setting('application_name'), current_setting('work_mem'),"
                " current_setting('idle_in_transaction_session_timeout')"
            ).fetchall()
        )
        assert row == ("mine", "8MB", "1min")
        await started(store)


def test_errors_say_what_to_do(url: str) -> None:
    missing = url.replace("/postgres?", "/nowhere?")
    assert missing != url
    with pytest.raises(StoreUnavailable, match="Create the database first"):
        asyncio.run(PostgresStore(missing).open(lambda keys: None))
    said: dict[psycopg.Error, str] = {
        psycopg.OperationalError('FATAL: password authentication failed for user "ada"'): "the password",
        psycopg.errors.InsufficientPrivilege("permission denied for schema public"): "CREATE SCHEMA",
        psycopg.errors.DiskFull("could not extend file: No space left on device"): "Free some space",
        psycopg.errors.DuplicatePreparedStatement('prepared statement "_pg3_0" already exists'): "prepare=off",
        psycopg.errors.InvalidSqlStatementName('prepared statement "_pg3_0" does not exist'): "prepare=off",
    }
    for words in ('too many connections for database "work"', "FATAL: sorry, too many clients already"):
        said[psycopg.OperationalError(words)] = "max_connections"
    said[psycopg.OperationalError('FATAL: permission denied for database "work"')] = "GRANT CONNECT"
    for error, words in said.items():
        assert words in str(translated(error, "postgresql://db/work"))
        assert "Create the database" not in str(translated(error, "postgresql://db/work"))
    lost = psycopg.OperationalError("the connection was cut")
    assert "may have taken effect" in str(translated(lost, "postgresql://db/work", writes=True))
    assert "may have taken effect" not in str(translated(lost, "postgresql://db/work"))


@in_loop
async def test_a_copy_of_the_database_has_a_lock_file_of_its_own(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(url) as store:
        here = store._engine._place
        original = engines._locks
        # A restored copy has the same uuid, in a database with another number or on a server with another port.
        monkeypatch.setattr(engines, "_locks", lambda name: original(name.rpartition("-")[0] + "-5433"))
        async with opened(url) as copy:
            assert copy._engine._place != here


# twins


def forget_locks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(locks, "keys", lambda connection, found: None)
    patch.setattr(locks, "one_of", lambda session_id: lambda connection: None)


def forget_the_gate(patch: pytest.MonkeyPatch) -> None:
    original = Connection.begin
    patch.setattr(Connection, "begin", lambda self, *, reads=False, gate=None: original(self, reads=reads))


def forget_leases(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engines.OwnEngine, "_living", lambda self, connection: set())


def forget_the_lock_of_schedules(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(locks, "schedules", lambda connection: None)


TWINS = {
    forget_locks: "take_up", forget_the_gate: "pause_everything", forget_leases: "take_up",
    forget_the_lock_of_schedules: "fire",
}  # fmt: skip


def folder(path: Path, n: int) -> Path:
    made = path / str(n)
    made.mkdir()
    return made


@pytest.mark.long
@pytest.mark.parametrize("forget", TWINS, ids=lambda forget: forget.__name__)
def test_each_fault_is_found(forget: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = test_postgres.TestPostgresAtTheSameTime()
    suite.interleavings = 3
    found = ""
    for n in range(TRIALS):
        with schema_of() as suite.url, monkeypatch.context() as patch, patience_in(n):
            forget(patch)
            suite.kept = Data()
            try:
                check(suite, folder(tmp_path, n), TWINS[forget])
            except AssertionError as exc:
                found = str(exc)
                break
    assert "no serial order explains it" in found


@in_loop
async def test_a_default_of_the_server_does_not_change_how_transactions_are_isolated(url: str) -> None:
    other = "options=-c%20default_transaction_isolation%3Dserializable"
    async with opened(f"{url}&{other}") as store:
        assert (
            await store._writer.do(lambda found: found.execute("SHOW default_transaction_isolation").get)
            == "serializable"
        )
        assert await store._writer.do(lambda found: found.execute("SHOW transaction_isolation").get) == "read committed"
