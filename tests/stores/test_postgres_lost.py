"""A write to Postgres whose connection is lost, before or after its COMMIT, has one effect."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pausepoint.errors import LimitReached, StoreError
from pausepoint.model.drawers import Change, DrawerId
from pausepoint.stores.postgres import locks
from pausepoint.stores.postgres.connection import Connection
from pausepoint.stores.postgres.place import place_of
from pausepoint.stores.postgres.sql import QUERIES
from pausepoint.testing.suite.base import new_session
from tests.stores.kit import on_loop as in_loop
from tests.stores.kit import started, stored
from tests.stores.test_postgres_faults import opened
from tests.support.loop import PATIENCE
from tests.support.postgres import schema_of, sql


@pytest.fixture
def url() -> Iterator[str]:
    with schema_of() as url:
        yield url


def cut(monkeypatch: pytest.MonkeyPatch, method: str, match: str, after: bool) -> list[str]:
    """Make one call of a method lose the connection, before or after it has its effect. Return the calls."""
    calls: list[str] = []
    original = getattr(Connection, method)

    def faulty(self: Connection, *args: Any, **options: Any) -> Any:
        concerns = not args or match in args[0]
        calls.extend([match] if concerns else [])
        if concerns and len(calls) == 1:
            if after:
                original(self, *args, **options)
            self.raw.close()
            raise psycopg.OperationalError("the connection was cut")
        return original(self, *args, **options)

    monkeypatch.setattr(Connection, method, faulty)
    return calls


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@in_loop
async def test_a_commit_whose_answer_is_lost_is_written_once(
    url: str, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    async with opened(url) as store:
        driver = await started(store)
        with monkeypatch.context() as patch:
            calls = cut(patch, "transact_one", QUERIES["move"], after)
            flags = await driver.commit(b"once", plain=True)
        assert flags is not None
        assert len(calls) == (1 if after else 2)
        await driver.commit(plain=True)
        assert [record.payload for record in await store.records(driver.key, 1)] == [b"{}", b"once", b"{}"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@in_loop
async def test_a_verb_whose_answer_is_lost_has_one_effect(
    url: str, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    async with opened(url) as store:
        driver = await started(store)
        with monkeypatch.context() as patch:
            writes = store._writer._link.connection
            cut_commits(patch, writes, after)
            row = await store.send("s1", None, 1, b"{}")
        assert row.mail
        assert len(await store.signals(driver.key, 0)) == 1


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("drawer", [DrawerId("lg"), DrawerId("lg", "s1")], ids=["own", "of a session"])
@in_loop
async def test_a_write_to_a_drawer_whose_answer_is_lost_has_one_effect(
    url: str, monkeypatch: pytest.MonkeyPatch, after: bool, drawer: DrawerId
) -> None:
    async with opened(url) as store:
        await started(store)
        for n in (1, 2):  # the drawer is new, or not
            with monkeypatch.context() as patch:
                cut_commits(patch, store._writer._link.connection, after)
                assert await store.drawer_append(drawer, "s", [b"%d" % n], None) == n
            with monkeypatch.context() as patch:
                cut_commits(patch, store._writer._link.connection, after)
                assert await store.drawer_put(drawer, [Change("k", b"", if_version=n - 1)]) == [n]
        assert await store.drawer_read(drawer, "s") == [b"1", b"2"]
        assert await store.drawer_damage(drawer.session_id) == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@in_loop
async def test_a_session_is_created_and_taken_once_although_the_answer_is_lost(
    url: str, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    async with opened(url) as store:
        with monkeypatch.context() as patch:
            calls = cut(patch, "transact", QUERIES["known_plan"], after)
            row = await store.create(new_session("s1"))
        assert len(calls) == (1 if after else 2)
        assert row is not None
        assert row == await store.get("s1")
        assert (row.holder, row.fence) == (store.number, 1)
        await store.release(row.key, row.fence)
        with monkeypatch.context() as patch:
            calls = cut(patch, "transact", QUERIES["known_plan"], after)
            taken = await store.take(2, ["brief"], 5)
        assert len(calls) == (1 if after else 2)
        assert taken == [await stored(store)]
        assert (taken[0].holder, taken[0].fence) == (store.number, 2)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@in_loop
async def test_an_error_that_comes_with_writes_is_raised_when_they_are_committed(
    url: str, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    async with opened(url) as store:
        await started(store)

        def verb(connection: Any) -> Any:
            connection.execute("UPDATE sessions SET crashes = crashes + 1")
            return LimitReached("no slot is free")

        with monkeypatch.context() as patch:
            cut_commits(patch, store._writer._link.connection, after)
            with pytest.raises(LimitReached):
                await store._writer.do(verb)
        assert (await stored(store)).crashes == 1


def cut_commits(patch: pytest.MonkeyPatch, connection: Connection, after: bool) -> None:
    """Lose the connection at the next COMMIT of the writer."""
    original = Connection.commit

    def faulty(self: Connection, *last: Any) -> None:
        if self is connection:
            if after:
                original(self, *last)
            self.raw.close()
            raise psycopg.OperationalError("the connection was cut")
        original(self, *last)

    patch.setattr(Connection, "commit", faulty)


LOCKS = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(sys.argv[2]))"


@pytest.mark.long
@in_loop
async def test_an_engine_that_gets_the_number_of_a_lost_attempt_stays_alive_for_other_processes(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A server that crashes also forgets that it gave a number to a transaction, and gives it to the next one.
    original, lost = Connection.commit, list[int]()

    def faulty(self: Connection, *last: Any) -> None:
        if not lost:
            sequence = "pg_get_serial_sequence('engines', 'id')"
            lost.append(sql(url, f"SELECT nextval({sequence}) - 1")[0][0])
            self.raw.close()
            sql(url, f"ALTER TABLE engines ALTER COLUMN id RESTART WITH {lost[0]}")
            raise psycopg.OperationalError("the server crashed")
        original(self, *last)

    monkeypatch.setattr(Connection, "commit", faulty)
    async with opened(url) as store:
        hold = store._engine._hold
        assert hold is not None
        assert lost == [store.number]
        words = [sys.executable, "-c", LOCKS, hold._file.path, str(store.number)]
        assert "BlockingIOError" in subprocess.run(words, capture_output=True, text=True).stderr


@in_loop
async def test_a_verb_whose_lost_transaction_is_still_ending_does_not_run_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(url)
    async with opened(url) as store:
        await started(store)
        writes, original = store._writer._link.connection, Connection.commit
        calls: list[Connection] = []
        with psycopg.connect(place.url, autocommit=True) as ending:
            ending.execute(f"SET search_path TO {place.schema}")
            blocks = "SELECT 1 FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"

            def end(mark: str, number: int) -> None:
                last = time.monotonic() + PATIENCE
                while not sql(url, blocks, ending.info.backend_pid) and time.monotonic() < last:
                    time.sleep(0.02)
                ending.execute("UPDATE engines SET mark = %s WHERE id = %s", (mark, number))
                ending.execute("COMMIT")

            def faulty(self: Connection, *last: Any) -> None:
                if self is writes:
                    self.raw.close()
                    ending.execute("BEGIN")
                    ending.execute("SELECT 1 FROM sessions FOR UPDATE")
                    mark, _, _, number, _ = last[0][1]
                    threading.Thread(target=end, args=(mark, number)).start()
                    raise psycopg.OperationalError("the connection was cut")
                original(self, *last)

            monkeypatch.setattr(Connection, "commit", faulty)
            await store._writer.do(calls.append, lock=locks.one_of("s1"))
        assert len(calls) == 1


@in_loop
async def test_a_step_is_written_after_a_rollback(url: str) -> None:
    async with opened(url) as store:
        driver = await started(store)
        for _ in range(7):  # the driver prepares what is executed often
            await store._writer.do(lambda found: found.execute("SELECT 1").get)
        await driver.commit(plain=True)
        with pytest.raises(StoreError, match="DivisionByZero"):
            await store._writer.do(lambda found: found.execute("SELECT 1 / 0").get)
        names = await store._writer.do(lambda found: list(found.execute("SELECT name FROM pg_prepared_statements")))
        assert names == [], "the driver dropped them"
        await driver.commit(plain=True)
        assert (await stored(store)).seq == 3


@pytest.mark.long
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("silent", [False, True], ids=["by the server", "without a word"])
@in_loop
async def test_a_server_that_ends_all_connections_is_reached_again(url: str, plain: bool, silent: bool) -> None:
    async with opened(url) as store:
        driver = await started(store)
        await stored(store)  # so that both are connected
        for link in (store._writer._link, store._reader._link):
            raw = link.connection.raw
            if silent:
                with socket.socket(fileno=os.dup(raw.fileno())) as wire:
                    wire.shutdown(socket.SHUT_RDWR)
            else:
                sql(url, "SELECT pg_terminate_backend(%s)", raw.info.backend_pid)
        assert await driver.commit(plain=plain) is not None
        assert (await stored(store)).seq == 2


@in_loop
async def test_a_take_that_the_server_begins_after_it_was_repeated_takes_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its statements were in the server's buffer when the connection was lost."""
    late: list[Any] = []
    original = Connection.transact

    def faulty(self: Connection, *statements: Any, **options: Any) -> Any:
        if not late:
            late.extend(statements)
            self.raw.close()
            raise psycopg.OperationalError("the connection was cut")
        return original(self, *statements, **options)

    async with opened(url) as store:
        for id in ("s1", "s2"):
            driver = await started(store, id)
            await store.release(driver.key, driver.fence)
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "transact", faulty)
            assert [row.session_id for row in await store.take(2, ["brief"], 1)] == ["s1"]

        def come_late(connection: Any) -> None:
            for statement in late:
                connection.execute(*statement).fetchall()

        with pytest.raises(StoreError):
            await store._writer.do(come_late)
        assert [(await stored(store, id)).holder for id in ("s1", "s2")] == [store.number, None]
        assert [row.session_id for row in await store.take(2, ["brief"], 1)] == ["s2"]
