"""One writer per session: who holds it, in one process and across processes, dead or alive."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pausepoint.clock import to_datetime
from pausepoint.errors import AlreadyRunning, StoreUnavailable
from pausepoint.model.sessions import Filter, Status
from pausepoint.stores import liveness as hold
from tests.stores.kit import (
    ENGINE,
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


@on_loop
async def test_a_second_engine_of_the_same_process_is_told_who_holds_the_session(path: Path) -> None:
    async with opened(path) as first, opened(path) as second:
        driver = await started(first)
        with pytest.raises(AlreadyRunning, match=f"process {os.getpid()} on ") as refusal:
            await second.claim("s1")
        assert {first.number: refusal.value.holder} == await second.describe_holders([first.number])
        for way_out in ("engine.session('s1').outcome()", "engine.session('s1').resume(steal=True)"):
            assert way_out in str(refusal.value)
        assert (await stored(second)).status == Status.RUNNING
        await driver.commit(release=True)
        assert (await second.claim("s1")).fence == 2


@on_loop
async def test_an_engine_that_closes_does_not_end_the_others_of_its_process(path: Path) -> None:
    async with opened(path) as first:
        await started(first)
        async with opened(path):
            pass
        with process(ENGINE, path) as other:
            assert other.ask("claim s1") == "AlreadyRunning"


@on_loop
async def test_a_clean_stop_frees_everything_and_counts_no_crash(path: Path) -> None:
    async with opened(path) as first:
        await started(first)
    async with opened(path) as second:
        row = await stored(second)
        assert (row.holder, row.fence, row.seq, row.status) == (None, 1, 1, Status.CREATED)
        assert (await second.claim("s1")).crashes == 0


@pytest.mark.covers("S1.18")
@on_loop
async def test_after_kill_9_the_next_process_takes_over_at_once_and_a_crash_is_counted(path: Path) -> None:
    async with opened(path) as store:
        await (await started(store)).commit(b"done before", release=True)
        with process(ENGINE, path) as other:
            assert other.ask("claim s1") == "done"
            with pytest.raises(AlreadyRunning, match=f"process {other.pid} on "):
                await store.claim("s1")
            assert other.ask("commit") == "done"
            assert other.kill() == -signal.SIGKILL
            assert (await stored(store)).status == Status.READY
            row = await store.claim("s1")
        assert (row.crashes, row.fence) == (1, 3)
        assert await payloads(store, row.key) == [b"{}", b"done before", b"by another process"]
        await Driver(store, row).commit()
        assert (await stored(store)).crashes == 0


@on_loop
async def test_after_kill_9_a_reap_frees_everything_in_several_transactions_and_writes_only_then(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pausepoint.stores.sql.crashes.AT_ONCE", 2)
    async with opened(path) as store:
        keys = []
        with process(ENGINE, path) as other:
            for n in range(5):
                driver = await started(store, f"s{n}")
                await driver.commit(release=True)
                keys.append(driver.key)
                assert other.ask(f"claim s{n}") == "done"
            before = store._writer.commits
            assert (await store.reap(), store._writer.commits) == (frozenset(), before)
            assert other.kill() == -signal.SIGKILL
            assert (await store.reap(), store._writer.commits) == (frozenset(keys), before + 3)
        assert [(await stored(store, f"s{n}")).crashes for n in range(5)] == [1] * 5


@on_loop
async def test_a_process_that_ends_in_order_counts_no_crash(path: Path) -> None:
    async with opened(path) as store:
        await store.create(new_session(claim=False))
        with process(ENGINE, path) as other:
            assert other.ask("claim s1") == "done"
            assert other.finish() == 0
        row = await store.claim("s1")
        assert (row.crashes, row.fence) == (0, 2)


@on_loop
async def test_a_stopped_holder_is_overtaken_and_can_write_nothing(path: Path) -> None:
    async with opened(path) as store:
        await (await started(store)).commit(release=True)
        with process(ENGINE, path) as zombie:
            assert zombie.ask("claim s1") == "done"
            os.kill(zombie.pid, signal.SIGSTOP)
            row = await store.claim("s1", steal=True)
            assert row.crashes == 0
            await Driver(store, row).commit(b"ours")
            os.kill(zombie.pid, signal.SIGCONT)
            assert zombie.ask("commit") == "HoldLost"
        assert await payloads(store, row.key) == [b"{}", b"{}", b"ours"]


@pytest.mark.long
@pytest.mark.covers("S3.88")
@on_loop
async def test_of_two_processes_that_claim_at_once_one_wins(path: Path) -> None:
    async with opened(path) as store:
        await store.create(new_session(claim=False))
        with process(ENGINE, path) as one, process(ENGINE, path) as two:
            one.send("claim s1")
            two.send("claim s1")
            assert sorted([one.line(), two.line()]) == ["AlreadyRunning", "done"]


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="Elsewhere, locks belong to the process. See docs/promises.md.")
@on_loop
async def test_a_program_that_reads_every_file_of_its_folder_keeps_its_sessions(path: Path) -> None:
    """As an agent does that searches its project, or packs it."""
    async with opened(path) as store:
        await started(store)
        assert Path(f"{path}-holds").read_bytes() == b""
        with process(ENGINE, path) as other:
            other.send("claim s1")
            assert other.line() == "AlreadyRunning"


FORKS = """
import asyncio, os, sys, time
from pausepoint.stores.sqlite import SqliteStore
from tests.stores.kit import started

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open(lambda keys: None)
    await started(store)
    child = os.fork()
    if not child:
        time.sleep(1000)
    print("ready", flush=True)
    print(child, flush=True)
    time.sleep(1000)

asyncio.run(main())
"""


@pytest.mark.long
@on_loop
async def test_a_forked_child_does_not_keep_the_sessions_of_a_process_that_died(path: Path) -> None:
    with process(FORKS, path) as parent:
        child = int(parent.line())
        try:
            parent.child.kill()
            parent.child.wait(PATIENCE)
            os.kill(child, 0)  # it lives
            async with opened(path) as store:
                assert (await store.claim("s1")).crashes == 1
        finally:
            os.kill(child, signal.SIGKILL)


@on_loop
async def test_the_lock_file_is_for_its_owner_only_and_its_bytes_are_free_after_closing(path: Path) -> None:
    async with opened(path) as store:
        assert Path(f"{path}-holds").stat().st_mode & 0o777 == 0o600
        assert hold._files[f"{path}-holds"].numbers == {store.number: 1}
    assert f"{path}-holds" not in hold._files
    with open(f"{path}-holds", "r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_two_names_of_one_file_share_one_descriptor(tmp_path: Path) -> None:
    real, alias = tmp_path / "real.db", tmp_path / "alias.db"
    alias.symlink_to(real)
    one, two = hold.FileHold(str(real)), hold.FileHold(str(alias))
    one.take(1)
    two.take(2)
    assert one.alive(2)
    assert two.alive(1)
    one.drop()
    one.drop()
    assert not two.alive(1)
    assert two.alive(2)
    two.drop()


@pytest.mark.long
@on_loop
async def test_a_number_that_another_process_has_is_refused(path: Path) -> None:
    async with opened(path):  # it creates the store
        pass
    with process(ENGINE, path) as other:
        other.ask("claim s1")
        mine = hold.FileHold(str(path))
        try:
            number = next(each for each in range(1, 9) if mine.alive(each))
            with pytest.raises(StoreUnavailable, match=f"still uses the engine number {number}, .* Try again"):
                mine.take(number)
            mine.take(number + 1)
        finally:
            mine.drop()


def test_struct_flock_reads_back_on_both_systems() -> None:
    for layout in (hold._LINUX, hold._BSD):
        packed = layout.pack(kind=fcntl.F_WRLCK, whence=0, start=7, length=1, pid=0)
        assert layout.kind(packed) == fcntl.F_WRLCK
        assert len(packed) in (24, 32)


@on_loop
async def test_a_holder_is_described_for_a_person(path: Path) -> None:
    class Noon:
        def now(self) -> int:
            return 1_700_000_000_000_000

    async with opened(path, clock=Noon()) as store:
        await started(store)
        text = (await store.describe_holders([store.number]))[store.number]
        assert text.startswith(f"process {os.getpid()} on ")
        assert to_datetime(1_700_000_000_000_000).isoformat() in text
        assert "gone" in (await store.describe_holders([999]))[999]


@pytest.mark.long
@on_loop
async def test_dead_engines_are_forgotten_unless_they_still_hold_a_session(path: Path) -> None:
    async with opened(path) as store:
        await store.create(new_session("held", claim=False))
        with process(ENGINE, path) as holder, process(ENGINE, path) as idle:
            assert holder.ask("claim held") == "done"
            holder.kill()
            idle.kill()
        async with opened(path) as later:
            rows = await asyncio.to_thread(outside, path, "SELECT pid FROM engines")
            assert sorted(pid for (pid,) in rows) == sorted([os.getpid(), os.getpid(), holder.pid])
            number = (await stored(later, "held")).holder or 0
            assert f"process {holder.pid}" in (await later.describe_holders([number]))[number]


FORKER = """
import asyncio, os, signal, sys
from pausepoint.errors import StoreClosed
from pausepoint.stores.sqlite import SqliteStore
from tests.stores.kit import started, stored

async def refused(awaitable):
    try:
        await awaitable
    except StoreClosed as exc:
        return str(exc)
    return "not refused"

async def child(store, driver):
    verbs = [await refused(verb) for verb in (store.get("s1"), driver.commit(), store.claim("s1"))]
    await store.close()  # is not the child's to close
    opening = await refused(SqliteStore(store.path).open(lambda keys: None))
    ok = all("opened by another process" in text for text in verbs) and "forked" in opening
    print(*verbs, opening, file=sys.stderr) if not ok else None
    return 0 if ok else 1

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open(lambda keys: None)
    driver = await started(store)
    pid = os.fork()
    if not pid:
        signal.alarm(10)  # what is not refused may hang in SQLite's inherited locks
        asyncio._set_running_loop(None)
        status = 1
        try:
            status = asyncio.run(child(store, driver))
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    await driver.commit(b"the parent goes on")
    print((await stored(store)).status)
    await store.close()

asyncio.run(main())
"""


@pytest.mark.long
def test_a_forked_child_is_refused_and_takes_nothing_from_its_parent(path: Path) -> None:
    with process("print('ready', flush=True)\n" + FORKER, path) as parent:
        assert parent.line() == "running"
        assert parent.child.wait() == 0


@pytest.mark.long
@pytest.mark.covers("S1.20")
@on_loop
async def test_pause_requested_set_by_hand_changes_nothing_else(path: Path) -> None:
    async with opened(path) as store:
        driver = await started(store, owner="ann", tags=("x",))
        await driver.commit(progress=(1, 2))
        everything = "SELECT * FROM sessions", "SELECT * FROM log", "SELECT * FROM pauses", "SELECT * FROM signals"
        before = [await asyncio.to_thread(outside, path, query) for query in everything]
        row = await stored(store)
        change = "UPDATE workflow_states SET pause_requested = 1 WHERE session_id = 's1'"
        await asyncio.to_thread(outside, path, change)
        flagged = await stored(store)
        assert flagged.pause_requested
        assert {name for name in row.__struct_fields__ if getattr(row, name) != getattr(flagged, name)} == {
            "pause_requested", "own_pause",
        }  # fmt: skip
        back = "UPDATE workflow_states SET pause_requested = 0 WHERE session_id = 's1'"
        await asyncio.to_thread(outside, path, back)
        assert [await asyncio.to_thread(outside, path, query) for query in everything] == before


@pytest.mark.long
@pytest.mark.covers("S1.21")
@on_loop
async def test_a_pause_set_by_hand_from_another_process_survives_a_commit(path: Path) -> None:
    async with opened(path) as store:
        driver = await started(store)
        ahead = driver.next()
        await asyncio.to_thread(outside, path, "UPDATE sessions SET pause_requested = 1")
        flags = await store.commit(ahead)
        assert flags is not None
        assert flags.pause_requested
        [pause] = await store.pauses(driver.key)
        assert (pause.id, pause.kind, pause.by) == ("flag", "operator", None)
        assert pause.reason == "pause_requested was set in the database"
        assert (await stored(store)).pause_requested


@pytest.mark.long
@on_loop
async def test_a_pause_taken_back_by_hand_closes_the_operators_pauses(path: Path) -> None:
    async with opened(path) as store:
        driver = await started(store)
        await store.pause(Filter(), operator(mode="abort"))
        await asyncio.to_thread(outside, path, "UPDATE workflow_states SET pause_requested = 0")
        row = await stored(store)
        assert (row.pause_requested, row.pause_mode, row.open_pauses) == (False, "finish", 0)
        [closed] = await store.pauses(driver.key, open_only=False)
        assert closed.closed_at is not None
        assert closed.closed_at > 1_600_000_000_000_000


@pytest.mark.long
@on_loop
async def test_a_pause_set_by_hand_leaves_completed_and_cancelled_sessions_alone(path: Path) -> None:
    look = "SELECT session_id, pause_requested FROM workflow_states"
    async with opened(path) as store:
        await started(store, "running")
        for ended in ("completed", "failed", "cancelled"):
            await (await started(store, ended)).commit(release=True, ended=ended)
        shown = await asyncio.to_thread(outside, path, "UPDATE workflow_states SET pause_requested = 1", look)
        by_hand = dict(shown)
        assert by_hand == {"running": 1, "failed": 1, "completed": 0, "cancelled": 0}
        await asyncio.to_thread(outside, path, "UPDATE workflow_states SET pause_requested = 0")
        by_verb = {row.session_id: row.pause_requested for row in await store.pause(Filter(), operator())}
        assert by_verb == by_hand


@pytest.mark.long
@on_loop
async def test_a_pause_set_by_hand_returns_what_it_paused(path: Path) -> None:
    change = "UPDATE workflow_states SET pause_requested = 1 WHERE session_id = '{}' RETURNING session_id"
    async with opened(path) as store:
        await started(store, "running")
        await (await started(store, "over")).commit(release=True, ended="completed")
        found = {
            name: await asyncio.to_thread(outside, path, change.format(name)) for name in ("running", "over", "nobody")
        }
        assert found == {"running": [["running"]], "over": [], "nobody": []}
        every = "UPDATE workflow_states SET pause_requested = 1 RETURNING session_id"
        assert await asyncio.to_thread(outside, path, every) == [["running"]]
        assert {row.session_id: row.pause_requested for row in await store.find(Filter())} == {
            "running": True, "over": False,
        }  # fmt: skip


@pytest.mark.long
@on_loop
async def test_a_pause_that_is_inserted_by_hand_raises_if_there_is_nothing_to_pause(path: Path) -> None:
    change = "INSERT INTO pause_requests (session_id) VALUES ('{}')"
    look = "SELECT session_id, status FROM pause_requests"
    async with opened(path) as store:
        await started(store, "running")
        for ended in ("completed", "cancelled", "failed"):
            await (await started(store, ended)).commit(release=True, ended=ended)
        for name, message in {"nobody": "no session with this id", "completed": "ended", "cancelled": "ended"}.items():
            with pytest.raises(subprocess.CalledProcessError) as refused:
                await asyncio.to_thread(outside, path, change.format(name))
            assert message in refused.value.stderr
        await asyncio.to_thread(outside, path, change.format("failed"))
        shown = await asyncio.to_thread(outside, path, change.format("running"), look)
        assert sorted(shown) == [["failed", "paused"], ["running", "pausing"]]
        shown = await asyncio.to_thread(outside, path, "DELETE FROM pause_requests WHERE session_id = 'running'", look)
        assert shown == [["failed", "paused"]]
        assert {row.session_id for row in await store.find(Filter()) if row.pause_requested} == {"failed"}


@on_loop
async def test_a_pause_can_be_taken_back_by_hand_after_the_end(path: Path) -> None:
    async with opened(path) as store:
        await (await started(store)).commit(release=True, ended="completed")
        await asyncio.to_thread(outside, path, "UPDATE sessions SET pause_requested = 1")  # bypasses the view
        assert (await stored(store)).pause_requested
        await asyncio.to_thread(outside, path, "UPDATE workflow_states SET pause_requested = 0")
        assert not (await stored(store)).pause_requested


@on_loop
async def test_only_the_pause_flag_of_the_view_can_be_set(path: Path) -> None:
    async with opened(path) as store:
        await started(store)
        for change in ("UPDATE workflow_states SET status = 'completed'", "UPDATE sessions SET pause_requested = 2"):
            with pytest.raises(subprocess.CalledProcessError):
                await asyncio.to_thread(outside, path, change)


@pytest.mark.covers("S3.8", "S3.9")
@on_loop
async def test_the_view_shows_iso_times_and_the_status(path: Path) -> None:
    look = "SELECT created_at, updated_at, status, current_step, pause_requested FROM workflow_states"
    created = 1_700_000_000_000_001
    async with opened(path) as store:
        driver = await started(store, created_at=created)
        [shown] = await asyncio.to_thread(outside, path, look)
        assert shown == ["2023-11-14T22:13:20.000001+00:00"] * 2 + ["running", "first", 0]
        await driver.commit(updated_at=created + 1_500_000, release=True)
        [shown] = await asyncio.to_thread(outside, path, look)
        assert shown == [
            to_datetime(created).isoformat(), to_datetime(created + 1_500_000).isoformat(), "ready", "second", 0,
        ]  # fmt: skip


@on_loop
async def test_the_view_agrees_with_the_derived_status(path: Path) -> None:
    async with opened(path) as store:
        await store.create(new_session("created", claim=False))
        await store.create(new_session("paused", claim=False, pause=operator()))
        await started(store, "running")
        await store.create(new_session("pausing", pause=operator()))
        await (await started(store, "ready")).commit(release=True)
        for ended in ("completed", "failed", "cancelled"):
            await (await started(store, ended)).commit(release=True, ended=ended)
        derived = {row.session_id: row.status.value for row in await store.find(Filter())}
        shown = await asyncio.to_thread(outside, path, "SELECT session_id, status FROM workflow_states")
        assert dict(shown) == derived == {name: name for name in derived}


@on_loop
async def test_changes_by_others_are_noticed(path: Path) -> None:
    noticed = asyncio.Event()
    async with opened(path, lambda keys: noticed.set(), poll=0.01) as store:
        await started(store)
        await asyncio.sleep(0.05)
        noticed.clear()
        await asyncio.to_thread(outside, path, "UPDATE sessions SET pause_requested = 1")
        await noticed.wait()
        assert (await stored(store)).pause_requested


def test_an_interpreter_that_ends_without_closing_does_not_hang(path: Path) -> None:
    with process(ENGINE, path) as other:
        other.send("exit")
        assert other.child.wait(timeout=PATIENCE) == 0
