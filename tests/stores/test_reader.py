"""Reads that may take long leave the event loop free, see every acknowledged write, and can be cancelled."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from pausepoint import Context, Engine, workflow
from pausepoint.errors import DamagedRecord, StoreClosed, StoreUnavailable
from pausepoint.model.questions import Inquiry
from pausepoint.model.sessions import Filter, Status
from pausepoint.stores.sql import pauses, queues, rows, sessions
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sqlite import SqliteStore, reader, schema
from pausepoint.stores.sqlite.connection import Connection as SqliteConnection
from pausepoint.stores.sqlite.store import INLINE
from tests.stores.kit import LOCKER, new_session, on_loop, opened, process, started, stored, unbound
from tests.support.loop import PATIENCE
from tests.support.sample import sample

FOR_EVER = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
NEVER = 3600.0
"""The interval of the check for changes, which reads on the loop's thread."""

READS: dict[str, Callable[[SqliteStore], Awaitable[Any]]] = {
    "find": lambda store: store.find(Filter()),
    "find by status": lambda store: store.find(Filter(statuses=(Status.WAITING,), sort="updated", limit=5)),
    "find by id": lambda store: store.find(Filter(ids=("s1",))),
    "ids": lambda store: store.ids(Filter()),
    "tally": lambda store: store.tally(Filter()),
    "spending": lambda store: store.spending(Filter(level="root")),
    "waking": lambda store: store.waking(0, 10),
    "find own pauses": lambda store: store.find(Filter(own_pause=True)),
    "questions": lambda store: store.questions(Inquiry()),
    "tally_questions": lambda store: store.tally_questions(Inquiry()),
    "about": lambda store: store.about(),
    "whole": lambda store: store.whole("s1"),
    "many records": lambda store: store.records(1, 1, 1 + INLINE + 1),
    "survey": lambda store: store.survey(0, 100),
    "values": lambda store: store.values(0, 100),
    "weight": lambda store: store.weight("s1"),
    "space": lambda store: store.space(),
    "first_pauses of many": lambda store: store.first_pauses(range(1, pauses.FEW + 2)),
    "expired": lambda store: store.expired(1, 0, 10),
    "removing": lambda store: store.removing(),
    "tombstones": lambda store: store.tombstones(),
    "sweep": lambda store: store.sweep(0, 10, apply=False),
    "descriptions": lambda store: store.descriptions(),
    "descriptions of one": lambda store: store.descriptions("brief"),
}


class ReadsInline(SqliteStore):
    """A broken store: it reads everything on the loop's thread."""

    async def _scan(self, read: Callable[[Connection], Any], *, at_once: bool = False) -> Any:
        with self._reading() as connection:
            return read(connection)


class Watch:
    """Notes the statements of all connections by thread.

    With ``waits``, statements on other threads wait until the loop has ticked.
    """

    def __init__(self, waits: bool = True) -> None:
        self.loop = threading.get_ident()
        self.waits = waits
        self.inline: list[str] = []
        self.elsewhere: list[str] = []
        self.ticks = 0
        self.ticked = threading.Condition()

    def saw(self, _: object, statement: str, __: object) -> bool:
        if threading.get_ident() == self.loop:
            self.inline.append(statement)
        else:
            self.elsewhere.append(statement)
            if self.waits:
                self.wait_for_ticks()
        return True

    def wait_for_ticks(self) -> None:
        with self.ticked:
            enough = self.ticks + 3
            assert self.ticked.wait_for(lambda: self.ticks >= enough, PATIENCE), "the loop stood still"

    async def tick(self) -> None:
        while True:
            with self.ticked:
                self.ticks += 1
                self.ticked.notify_all()
            await asyncio.sleep(0.0005)


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch, waits: bool = True) -> Iterator[Watch]:
    """Watch all connections that are opened from now on, while a task ticks."""
    watch, connect = Watch(waits), schema.connect

    def connected(place: schema.Place, serialized: bool = False) -> Connection:
        connection = connect(place, serialized)
        connection.exec_trace = watch.saw
        return connection

    monkeypatch.setattr(schema, "connect", connected)
    task = asyncio.create_task(watch.tick())
    try:
        yield watch
    finally:
        task.cancel()


async def reads_elsewhere(store: SqliteStore, watch: Watch, read: Callable[[SqliteStore], Awaitable[Any]]) -> None:
    """Assert that a read runs statements, and none of them on the loop's thread."""
    watch.inline.clear()
    watch.elsewhere.clear()
    await read(store)
    assert watch.inline == [], "these statements ran on the loop's thread"
    assert watch.elsewhere, "nothing was read"


@pytest.mark.long
@on_loop
async def test_no_long_read_runs_on_the_loops_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(monkeypatch) as watch:
        async with opened(path, poll=NEVER) as store:
            await started(store)
            for read in READS.values():
                await reads_elsewhere(store, watch, read)
            before = len(watch.elsewhere)
            assert await store.get("nobody", sure=True) is None
            assert any("NOT INDEXED" in statement for statement in watch.elsewhere[before:])
            assert not any("NOT INDEXED" in statement for statement in watch.inline)


@on_loop
async def test_a_store_that_reads_on_the_loops_thread_is_caught(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(monkeypatch) as watch:
        store = ReadsInline(path, poll=NEVER)
        await store.open(lambda keys: None)
        await started(store)
        for read in READS.values():
            with pytest.raises(AssertionError, match="ran on the loop's thread"):
                await reads_elsewhere(store, watch, read)
        await store.close()


@on_loop
async def test_reads_of_one_session_need_no_other_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step waits for them, so they must not wait behind a listing."""
    with watched(monkeypatch) as watch:
        async with opened(path, poll=NEVER) as store:
            driver = await started(store)
            watch.elsewhere.clear()
            await store.get("s1")
            await store.flags([driver.key])
            await store.records(driver.key, 1)
            await store.first_pauses([driver.key])
            await store.questions(Inquiry(ids=("00000000-0000-0000-0000-000000000000",)))
            assert watch.elsewhere == []


VERBS: dict[str, Callable[[Engine], Awaitable[Any]]] = {
    "sessions": lambda engine: engine.sessions(),
    "by beginning": lambda engine: engine.find("s"),
    "tally": lambda engine: engine.tally(),
    "questions": lambda engine: engine.questions(),
    "health": lambda engine: engine.health(),
    "misfits": lambda engine: engine.misfits(),
    "a page of misfits": lambda engine: engine.misfits(limit=1),
    "engines": lambda engine: engine.engines(),
    "diff": lambda engine: engine.session("s1").diff(1),
    "export": lambda engine: engine.session("s1").export(),
    "gc": lambda engine: engine.gc(),
    "verify": lambda engine: engine.verify(),
}


@on_loop
async def test_no_verb_that_reads_scans_a_table_on_the_loops_thread(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(monkeypatch, waits=False) as watch:
        async with Engine(SqliteStore(path, poll=NEVER), workflows=[sample], signals=False, drives="none") as engine:
            await engine.start(sample, session_id="s1", paused=True, topic="ships")
            watch.inline.clear()
            for verb in VERBS.values():
                await verb(engine)
    connection = SqliteConnection(":memory:")
    schema.create(connection)
    assert watch.inline
    for statement in set(watch.inline):
        lines = connection.execute(f"EXPLAIN QUERY PLAN {statement}", unbound(statement))
        scans = [line for line in lines if str(line[3]).startswith(("SCAN sessions", "SCAN log", "SCAN questions"))]
        assert not scans, statement


@on_loop
async def test_a_session_that_ends_during_a_count_is_counted_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open and ended sessions are counted by two statements."""
    count_ended = sessions._ended

    def after_the_end(connection: Connection, query: Filter) -> Any:
        other = SqliteConnection(str(path))
        other.execute("UPDATE sessions SET ended = 'completed', holder = NULL")
        other.close()
        return count_ended(connection, query)

    async with opened(path) as store:
        await started(store)
        monkeypatch.setattr(sessions, "_ended", after_the_end)
        assert await store.tally(Filter()) == {("brief", Status.RUNNING): 1}
        assert await store.tally(Filter()) == {("brief", Status.COMPLETED): 1}


@on_loop
async def test_a_long_listing_lets_other_threads_run_in_between(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[float] = []
    monkeypatch.setattr(rows, "time", SimpleNamespace(sleep=turns.append))  # other threads sleep, too
    monkeypatch.setattr(rows, "TURN", 2)
    async with opened(path) as store:
        for n in range(5):
            await started(store, f"s{n}")
        turns.clear()
        assert len(await store.find(Filter())) == 5
        assert len(turns) == 2


# cancelling, closing, errors


@contextmanager
def held_up(store: SqliteStore) -> Iterator[tuple[Callable[[Connection], str], threading.Event, threading.Event]]:
    """Give a read that waits, with the events that say that it has begun and that let it end."""
    begun, go_on = threading.Event(), threading.Event()

    def read(connection: Connection) -> str:
        begun.set()
        assert go_on.wait(PATIENCE)
        return str(connection.execute("SELECT 'read'").get)

    try:
        yield read, begun, go_on
    finally:
        go_on.set()


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, PATIENCE)


@on_loop
async def test_a_long_read_does_not_hold_up_a_short_one(path: Path) -> None:
    async with opened(path) as store:
        await started(store)
        with held_up(store) as (read, begun, go_on):
            long = asyncio.create_task(store._scan(read))
            await until(begun)
            assert len(await store.find(Filter())) == 1
            assert not long.done()
            go_on.set()
            assert await long == "read"


@on_loop
async def test_a_read_whose_task_is_cancelled_is_interrupted(path: Path) -> None:
    begun = threading.Event()

    def endless(connection: Connection) -> object:
        begun.set()
        return connection.execute(FOR_EVER).fetchall()

    async with opened(path) as store:
        for at_once in (False, True):
            begun.clear()
            task = asyncio.create_task(store._scan(endless, at_once=at_once))
            await until(begun)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
        await started(store)
        assert len(await store.find(Filter())) == 1, "the next read is not interrupted"
    # Closing waits for the threads, so the statements that never end have been interrupted.


@on_loop
async def test_a_read_that_is_cancelled_while_it_waits_never_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "THREADS", 1)
    ran: list[str] = []
    async with opened(path) as store:
        with held_up(store) as (read, begun, go_on):
            first = asyncio.create_task(store._scan(read))
            await until(begun)
            second = asyncio.create_task(store._scan(lambda connection: ran.append("second")))
            third = asyncio.create_task(store._scan(lambda connection: ran.append("third")))
            await asyncio.sleep(0)
            second.cancel()
            await asyncio.wait([second])
            go_on.set()
            await asyncio.gather(first, third)
    assert ran == ["third"]


@on_loop
async def test_closing_finishes_the_reads_that_run_and_refuses_others(path: Path) -> None:
    before = threading.enumerate()
    async with opened(path) as store:
        with held_up(store) as (read, begun, go_on):
            task = asyncio.create_task(store._scan(read))
            await until(begun)
            own = [each for each in threading.enumerate() if each not in before and "reader" in each.name]
            closing = asyncio.create_task(store.close())
            while store._state != "closing":
                await asyncio.sleep(0)
            with pytest.raises(StoreClosed):
                await store.find(Filter())
            assert not closing.done()
            go_on.set()
            assert await task == "read"
            await closing
    for thread in own:
        thread.join(PATIENCE)
    assert own
    assert not [thread for thread in own if thread.is_alive()]


@on_loop
async def test_a_store_that_only_drives_has_no_reader_thread(path: Path) -> None:
    before = threading.enumerate()
    async with opened(path) as store:
        await (await started(store)).commit(release=True)
        await stored(store)
        assert not [each for each in threading.enumerate() if each not in before and "reader" in each.name]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (apsw.CorruptError("malformed"), DamagedRecord),
        (apsw.IOError("disk I/O error"), StoreUnavailable),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "damaged"), DamagedRecord),
    ],
)
@on_loop
async def test_errors_are_translated_and_the_next_read_works(
    path: Path, error: Exception, kind: type[Exception]
) -> None:
    def fail(connection: Connection) -> None:
        raise error

    async with opened(path) as store:
        for at_once in (False, True):
            with pytest.raises(kind) as caught:
                await store._scan(fail, at_once=at_once)
            assert caught.value.__cause__ is error
            assert await store.find(Filter()) == []


@on_loop
async def test_a_connection_that_cannot_be_opened_is_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(path) as store:

        def refuse(*_: object, **__: object) -> Connection:
            raise apsw.CantOpenError("unable to open database file")

        with monkeypatch.context() as broken:
            broken.setattr(schema, "connect", refuse)
            with pytest.raises(StoreUnavailable, match="cannot be opened"):
                await store.find(Filter())
        assert await store.find(Filter()) == []


@on_loop
async def test_a_busy_writer_does_not_hold_up_a_listing(path: Path) -> None:
    async with opened(path) as store:
        await started(store)
        with process(LOCKER, path) as locker:
            assert len(await store.find(Filter())) == 1
            locker.send()


@on_loop
async def test_a_damaged_session_does_not_hide_the_others(path: Path) -> None:
    async with opened(path) as store:
        await started(store, "good")
        await started(store, "bad")
        other = SqliteConnection(str(path))
        other.execute("UPDATE sessions SET version = 7 WHERE session_id = 'bad'")
        other.close()
        found = await store.find(Filter())
        assert [row.session_id for row in found] == ["good"]
        assert [damage.fields["session_id"] for damage in found.damaged] == ["bad"]


FIRST_READS = """
import asyncio, sys
sys.setswitchinterval(1e-6)  # makes it likely that one thread is interrupted by the other
from pausepoint import Engine
async def main():
    async with Engine(sys.argv[1], drives="none", signals=False) as engine:
        await asyncio.gather(*[engine.questions() for _ in range(4)], *[engine.sessions() for _ in range(2)])
asyncio.run(main())
"""


@pytest.mark.long
@on_loop
async def test_the_first_reads_of_a_process_may_happen_at_the_same_time(tmp_path: Path) -> None:
    """In new processes, because a type is described once in each."""

    @workflow
    async def asks(ctx: Context) -> str:
        return await ctx.ask("Which?", str)

    async with Engine(tmp_path / "store.db", workflows=[asks]) as engine:
        for n in range(5):
            await (await engine.start(asks, session_id=f"s{n}")).outcome()
    command = [sys.executable, "-c", FIRST_READS, str(tmp_path / "store.db")]
    for _ in range(12):
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr


@on_loop
async def test_a_session_whose_removal_begins_while_due_ones_are_looked_for_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = queues._free

    def late(connection: Connection, *args: Any) -> dict[int, Any]:
        other = apsw.Connection(str(tmp_path / "p.db"))
        other.execute("UPDATE sessions SET removing = 1")
        other.close()
        return free(connection, *args)

    async with opened(tmp_path / "p.db") as store:
        await store.create(new_session(claim=False))
        monkeypatch.setattr(queues, "_free", late)
        assert await store.take(1, ["brief"], 1) == []
