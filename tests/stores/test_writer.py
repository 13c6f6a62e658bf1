"""Where commits run, which transactions they share, and how they react to disk errors and other writers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from pausepoint.errors import DamagedRecord, HoldLost, StoreReadOnly, StoreUnavailable, VerbRefused
from pausepoint.model.commits import Flags
from pausepoint.model.sessions import Filter, SessionRow
from pausepoint.stores.sqlite import SqliteStore, schema, writer
from tests.stores.kit import (
    LOCKER,
    Driver,
    new_session,
    on_loop,
    opened,
    operator,
    outside,
    payloads,
    process,
    started,
    stored,
)
from tests.support.loop import PATIENCE


class Counts:
    """Counts the transactions of the two writing connections from now on."""

    def __init__(self, store: SqliteStore) -> None:
        self.inline = self.threaded = 0
        store._writer.inline.connection.set_commit_hook(self._inline)
        store._writer.threaded.connection.set_commit_hook(self._threaded)

    def _inline(self) -> bool:
        self.inline += 1
        return False

    def _threaded(self) -> bool:
        self.threaded += 1
        return False


# where commits run


@on_loop
async def test_a_lone_session_commits_inline(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "CHEAP", 10.0)  # no matter how slow this disk is
    async with opened(path) as store:
        driver, counts = await started(store), Counts(store)
        for _ in range(10):
            await driver.commit()
            await asyncio.sleep(0)
        assert (counts.inline, counts.threaded) == (10, 0)


@pytest.mark.long
@on_loop
async def test_a_session_that_never_yields_leaves_the_loop_its_turn(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "TICK", 0.0)
    async with opened(path) as store:
        driver, ticks = await started(store), 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(tick())
        for _ in range(100):
            await driver.commit()
        task.cancel()
        assert ticks >= 50


@on_loop
async def test_what_many_sessions_bring_in_one_tick_is_one_transaction(path: Path) -> None:
    async with opened(path) as store:
        drivers = [await started(store, f"s{n}") for n in range(50)]
        counts = Counts(store)
        results = await asyncio.gather(*(driver.commit() for driver in drivers))
        assert all(isinstance(result, Flags) for result in results)
        assert (counts.inline, counts.threaded) == (0, 1)


@on_loop
async def test_several_commits_of_one_session_share_a_transaction(path: Path) -> None:
    async with opened(path) as store:
        await started(store, "other")
        driver = await started(store)
        counts = Counts(store)
        await asyncio.gather(*(store.commit(driver.next(b"%d" % n)) for n in range(10)))
        assert counts.threaded == 1
        assert await payloads(store, driver.key) == [b"{}", *(b"%d" % n for n in range(10))]


@on_loop
async def test_commits_and_other_verbs_keep_their_order(path: Path) -> None:
    async with opened(path) as store:
        await started(store, "other")
        driver = await started(store)
        before, _, after = await asyncio.gather(
            driver.commit(), store.pause(Filter(session_id="s1"), operator()), driver.commit()
        )
        assert isinstance(before, Flags)
        assert isinstance(after, Flags)
        assert (before.pause_requested, after.pause_requested) == (False, True)
        [signal] = await store.signals(driver.key, 0)
        assert signal.after == 2


@on_loop
async def test_a_slow_disk_moves_commits_to_the_thread_and_a_quick_one_brings_them_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as store:
        driver, counts = await started(store), Counts(store)
        store._writer._cost = 60.0
        await driver.commit()
        assert (counts.inline, counts.threaded) == (0, 1)
        monkeypatch.setattr(writer, "CHEAP", 600.0)
        await driver.commit()
        assert counts.inline == 1
        assert store._writer._cost < 60.0


@pytest.mark.long
@on_loop
async def test_the_log_that_sqlite_writes_ahead_does_not_grow_without_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHEAP", 10.0)
    async with opened(path, synchronous="OFF") as store:
        driver = await started(store)
        for _ in range(2000):
            await driver.commit(b"x" * 2000)
        pages = Path(f"{path}-wal").stat().st_size / (schema.PAGE_SIZE + 24)
        assert pages < 2 * schema.WAL_PAGES
        assert len(await store.records(driver.key, 1)) == 2001


# isolation


@on_loop
async def test_a_commit_that_does_not_fit_leaves_its_batch_alone(path: Path) -> None:
    async with opened(path) as store:
        drivers = [await started(store, f"s{n}") for n in range(5)]
        drivers[2].fence = 7
        counts = Counts(store)
        results = await asyncio.gather(*(driver.commit(b"x") for driver in drivers), return_exceptions=True)
        assert [type(result) for result in results] == [Flags, Flags, HoldLost, Flags, Flags]
        assert counts.threaded == 1
        assert [row.seq for row in reversed(await store.find(Filter()))] == [2, 2, 1, 2, 2]
        assert await payloads(store, drivers[2].key) == [b"{}"]


@on_loop
async def test_an_old_fence_and_the_new_one_in_one_batch_are_told_apart(path: Path) -> None:
    async with opened(path) as store:
        await started(store, "other")
        old = await started(store)
        new = Driver(store, await store.claim("s1", steal=True))
        results = await asyncio.gather(old.commit(b"old"), new.commit(b"new"), return_exceptions=True)
        assert [type(result) for result in results] == [HoldLost, Flags]
        assert await payloads(store, new.key) == [b"{}", b"new"]


@pytest.mark.covers("S1.19")
@on_loop
async def test_only_the_culprit_gets_the_error_that_breaks_a_batch(path: Path) -> None:
    async with opened(path) as store:
        drivers = [await started(store, f"s{n}") for n in range(3)]
        taken = operator()
        await drivers[0].commit(open_pauses=(taken,))
        results = await asyncio.gather(
            drivers[0].commit(), drivers[1].commit(open_pauses=(taken,)), drivers[2].commit(), return_exceptions=True
        )
        assert [type(result) for result in results] == [Flags, StoreUnavailable, Flags]
        assert isinstance(results[1], StoreUnavailable)
        assert isinstance(results[1].__cause__, apsw.ConstraintError)
        assert [row.seq for row in reversed(await store.find(Filter()))] == [3, 1, 2]


@on_loop
async def test_what_cannot_be_bound_is_the_culprits_own_error(path: Path) -> None:
    async with opened(path) as store:
        drivers = [await started(store, f"s{n}") for n in range(2)]
        results = await asyncio.gather(drivers[0].commit(spend_usd=2**70), drivers[1].commit(), return_exceptions=True)
        assert [type(result) for result in results] == [OverflowError, Flags]
        assert (await stored(store, "s0")).seq == 1


@on_loop
async def test_a_waiter_that_gave_up_does_not_disturb_the_rest(path: Path) -> None:
    async with opened(path) as store:
        drivers = [await started(store, f"s{n}") for n in range(3)]
        tasks = [asyncio.ensure_future(driver.commit()) for driver in drivers]
        await asyncio.sleep(0)
        tasks[1].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [Flags, asyncio.CancelledError, Flags]


# a foreign writer


@pytest.mark.long
@on_loop
async def test_a_foreign_writer_does_not_block_the_loop(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "LOCK_PATIENCE", PATIENCE)
    async with opened(path) as store:
        driver = await started(store)
        with process(LOCKER, path) as locker:
            task = asyncio.ensure_future(driver.commit())
            turns = []
            for _ in range(30):
                before = time.perf_counter()
                await asyncio.sleep(0.01)
                turns.append(time.perf_counter() - before)
                await stored(store)  # reads still work
            assert not task.done()
            assert (
                min(turns) < 0.2
            )  # the commit does not wait for the lock on the loop, not even for a part of its time
            locker.send()
            assert isinstance(await task, Flags)


@pytest.mark.long
@on_loop
async def test_a_lock_that_is_never_given_up_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "LOCK_PATIENCE", 0.05)
    async with opened(path) as store:
        driver = await started(store)
        with process(LOCKER, path) as locker:
            for verb in (driver.commit(), store.claim("s1"), store.pause(Filter(), operator())):
                with pytest.raises(StoreUnavailable, match=r"locked.*open write transaction"):
                    await verb
            locker.send()
            locker.child.wait()
        assert (await stored(store)).seq == 1
        assert not (await stored(store)).pause_requested


# trouble with the disk


@pytest.mark.covers("S1.19")
@pytest.mark.parametrize("sessions", [1, 2])
@on_loop
async def test_a_full_disk_is_reported_reads_work_and_it_recovers(path: Path, sessions: int) -> None:
    async with opened(path) as store:
        drivers = [await started(store, f"s{n}") for n in range(sessions)]
        limit(store, 1)
        results = await asyncio.gather(*(driver.commit(b"x" * 50_000) for driver in drivers), return_exceptions=True)
        assert [type(result) for result in results] == [StoreReadOnly] * sessions
        assert "the disk is full" in str(results[0])
        assert "Nothing was written" in str(results[0])
        assert [row.seq for row in await store.find(Filter())] == [1] * sessions
        limit(store, 2**30)
        again = [
            Driver(store, await claimed(store, f"s{n}")) for n in range(sessions)
        ]  # a refused commit costs the hold
        await asyncio.gather(*(driver.commit(b"x" * 50_000) for driver in again))
        assert [row.seq for row in await store.find(Filter())] == [2] * sessions


def limit(store: SqliteStore, pages: int) -> None:
    """Limit the size of the database. SQLite keeps existing pages, so 1 means: no new pages."""
    for transactions in (store._writer.inline, store._writer.threaded):
        transactions.connection.pragma("max_page_count", pages)


@pytest.mark.parametrize("sessions", [1, 3])
@on_loop
async def test_a_commit_that_took_effect_is_done_whatever_sqlite_reported(path: Path, sessions: int) -> None:
    async with opened(path) as store:
        drivers = [await started(store, f"s{n}") for n in range(sessions)]
        complained = complain_after_commit(store)
        results = await asyncio.gather(*(driver.commit(b"kept") for driver in drivers))
        assert complained == [1]
        assert all(isinstance(result, Flags) for result in results)
        assert [row.seq for row in await store.find(Filter())] == [2] * sessions
        await asyncio.gather(*(driver.commit() for driver in drivers))  # on a new connection


@on_loop
async def test_a_verb_that_took_effect_is_done_whatever_sqlite_reported(path: Path) -> None:
    async with opened(path) as store:
        await store.create(new_session(claim=False))
        complained = complain_after_commit(store)
        row = await store.claim("s1")
        assert complained == [1]
        assert row.fence == 1
        assert await Driver(store, row).commit()


def complain_after_commit(store: SqliteStore) -> list[int]:
    """Make COMMIT fail after it is durable. SQLite calls the hook then and reports its result as COMMIT's result."""
    complained: list[int] = []

    def hook(connection: apsw.Connection, name: str, pages: int) -> int:
        complained.append(1)
        return apsw.SQLITE_IOERR

    for transactions in (store._writer.inline, store._writer.threaded):
        transactions.connection.set_wal_hook(hook)
    return complained


class FailingDisk(apsw.VFS):
    """The system's VFS, which fails on request."""

    def __init__(self) -> None:
        self.name = "failing-disk"
        self.error: type[apsw.Error] | None = None
        self.at: tuple[str, ...] = ()
        self.fired = 0
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        self.passing("open")
        return _File(self, name, flags)

    def fail(self, error: type[apsw.Error], *at: str) -> None:
        self.at, self.error = at, error

    def heal(self) -> None:
        self.error = None

    def passing(self, at: str) -> None:
        if self.error is not None and at in self.at:
            self.fired += 1
            raise self.error(f"simulated at {at}")


class _File(apsw.VFSFile):
    def __init__(self, disk: FailingDisk, name: Any, flags: list[int]) -> None:
        self.disk = disk
        super().__init__("", name, flags)

    def xSync(self, flags: int) -> None:
        self.disk.passing("sync")
        super().xSync(flags)

    def xWrite(self, data: Any, offset: int) -> None:
        self.disk.passing("write")
        super().xWrite(data, offset)


@pytest.fixture
def disk() -> Iterator[FailingDisk]:
    disk = FailingDisk()
    yield disk
    disk.unregister()


@pytest.mark.covers("S1.19")
@pytest.mark.parametrize("sessions", [1, 3])
@pytest.mark.parametrize(
    ("at", "error", "hint"),
    [
        ("sync", apsw.IOError, "the disk reported an error"),
        ("write", apsw.IOError, "the disk reported an error"),
        ("write", apsw.FullError, "the disk is full"),
    ],
)
@on_loop
async def test_a_failing_disk_is_reported_and_nothing_is_written(
    path: Path, disk: FailingDisk, at: str, error: type[apsw.Error], hint: str, sessions: int
) -> None:
    async with opened(path, vfs=disk.name) as store:
        drivers = [await started(store, f"s{n}") for n in range(sessions)]
        used = {store._writer.inline.connection, store._writer.threaded.connection}
        disk.fail(error, at)
        results = await asyncio.gather(*(driver.commit(b"lost") for driver in drivers), return_exceptions=True)
        assert disk.fired
        assert [type(result) for result in results] == [StoreReadOnly] * sessions
        assert hint in str(results[0])
        assert isinstance(results[0], StoreReadOnly)
        assert isinstance(results[0].__cause__, error)
        assert [row.seq for row in await store.find(Filter())] == [1] * sessions
        disk.heal()
        assert {store._writer.inline.connection, store._writer.threaded.connection} != used
        again = [
            Driver(store, await claimed(store, f"s{n}")) for n in range(sessions)
        ]  # a refused commit costs the hold
        await asyncio.gather(*(driver.commit(b"kept") for driver in again))
        for driver in again:
            assert await payloads(store, driver.key) == [b"{}", b"kept"]
    rows = await asyncio.to_thread(outside, path, "PRAGMA integrity_check")
    assert rows == [["ok"]]


async def claimed(store: SqliteStore, session_id: str) -> SessionRow:
    """Claim a session as soon as the store has noticed that its disk is well again."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await store.claim(session_id)
            except StoreReadOnly:
                await asyncio.sleep(0.01)


@on_loop
async def test_verbs_on_a_failing_disk_are_reported(path: Path, disk: FailingDisk) -> None:
    async with opened(path, vfs=disk.name) as store:
        await started(store)
        disk.fail(apsw.IOError, "sync")
        with pytest.raises(StoreUnavailable, match="the disk reported an error"):
            await store.pause(Filter(), operator())
        assert not (await stored(store)).pause_requested
        disk.heal()
        [row] = await store.pause(Filter(), operator())
        assert row.pause_requested


@pytest.mark.parametrize("sessions", [1, 3])
@on_loop
async def test_a_commit_whose_fate_cannot_be_read_is_not_tried_again(
    path: Path, disk: FailingDisk, sessions: int
) -> None:
    async with opened(path, vfs=disk.name) as store:
        drivers = [await started(store, f"s{n}") for n in range(sessions)]
        complain_after_commit(store)  # the commit took effect, but SQLite reports an error
        disk.fail(apsw.CantOpenError, "open")
        results = await asyncio.gather(*(driver.commit(b"once") for driver in drivers), return_exceptions=True)
        assert [type(result) for result in results] == [StoreReadOnly] * sessions
        assert "it is not known whether the commit was written" in str(results[0])
        disk.heal()
        for driver in drivers:
            assert await payloads(store, driver.key) == [b"{}", b"once"]
        again = [Driver(store, await store.claim(f"s{n}")) for n in range(sessions)]
        await asyncio.gather(*(driver.commit() for driver in again))


@on_loop
async def test_a_damaged_file_is_reported_as_such(path: Path) -> None:
    async with opened(path) as store:
        driver = await started(store)
        for _ in range(50):
            await driver.commit(b"x" * 2000)
    data = bytearray(path.read_bytes())
    data[schema.PAGE_SIZE :] = b"\x5a" * (len(data) - schema.PAGE_SIZE)  # everything except the schema
    path.write_bytes(data)
    with pytest.raises(DamagedRecord, match="Restore it from a backup"):
        async with opened(path) as store:
            await store.get("s0")


@on_loop
async def test_what_was_submitted_is_answered_even_if_closing_is_cut_short(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.open(lambda keys: None)
    gate = threading.Event()
    first = asyncio.ensure_future(store._writer.do(lambda connection: gate.wait(PATIENCE)))
    await asyncio.sleep(0.02)  # the first call runs; later ones must wait
    second = asyncio.ensure_future(store.pause(Filter(), operator()))
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0.02)
    closing.cancel()
    await asyncio.sleep(0.02)
    gate.set()
    done, found = await asyncio.gather(first, second)
    assert done
    assert found == []
    with pytest.raises(asyncio.CancelledError):
        await closing


@pytest.mark.parametrize("others", [0, 3])
@on_loop
async def test_a_refusal_leaves_nothing_behind_even_after_it_wrote(path: Path, others: int) -> None:
    def writes_then_refuses(connection: apsw.Connection) -> None:
        connection.execute("UPDATE sessions SET owner = 'nobody'")
        raise VerbRefused("too late", session_id="s1", status="ready")

    async with opened(path) as store:
        await started(store)
        refused = asyncio.ensure_future(store._writer.do(writes_then_refuses))
        sent = [asyncio.ensure_future(store.send("s1", "ann", n, b"{}")) for n in range(others)]
        with pytest.raises(VerbRefused, match="too late"):
            await refused
        await asyncio.gather(*sent)
        row = await stored(store)
        assert row.owner is None
        assert len(await store.signals(row.key, 0)) == others
