"""Removal by hand and by expiry, tombstones, sweeping, and freed space."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.engine.retention import CleanUp
from pausepoint.errors import AlreadyRunning, StoreUnavailable, UnknownSession, VerbRefused
from pausepoint.stores.folders import FolderFiles, session_folder
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock
from tests.engine.case import DAY, LARGE, SECRET, Case, bytes_of, case, closed_case
from tests.support.loop import on_loop
from tests.support.pipeline import Gate

# removal


@pytest.mark.covers("S3.91", "S3.94")
@on_loop
async def test_a_session_that_is_removed_leaves_its_tombstone_and_nothing_else(tmp_path: Path) -> None:
    path, clock = tmp_path / "store.db", ManualClock()
    async with Engine(path, workflows=[case], clock=clock) as engine:
        session = await closed_case(engine, owner="ann")
        records = (await engine.store.get("c1")).seq  # type: ignore[union-attr]
        clock.advance(60)
        stone = await session.remove(by="bob", reason="the case is closed")
        assert (stone.status, stone.records, stone.by, stone.reason) == (
            "completed",
            records,
            "bob",
            "the case is closed",
        )
        with pytest.raises(UnknownSession):
            await session.state()
        assert await engine.sessions() == []
        assert await engine.tombstones() == [stone]
        [event] = [event async for event in engine.session("c1").events()]
        assert (event.event_type, event.agent_name, event.created_at) == ("session.removed", "bob", clock.now())
        assert event.data["records"] == records
        assert [event async for event in engine.session("c1").events(after=event.cursor)] == []
        assert (await engine.verify()).ok
    async with Engine(path, workflows=[case]) as engine:  # the tombstone outlives the record and the process
        assert [event.summary async for event in engine.session("c1").events()] == [
            "removed by bob: the case is closed"
        ]


@on_loop
async def test_a_removed_id_can_be_started_again() -> None:
    async with Engine(":memory:") as engine:
        await (await closed_case(engine)).remove()
        session = await closed_case(engine, name="Ada")
        assert (await session.state()).letter == "Dear Ada, about Ada"
        assert "session.removed" not in [event.event_type async for event in session.events()]
        await session.remove()
        assert len(await engine.tombstones("c1")) == 2
        assert await engine.tombstones("c2") == []


@on_loop
async def test_a_removal_that_was_interrupted_is_completed_by_another_call() -> None:
    async with Engine(":memory:") as engine:
        await closed_case(engine)
        await engine.store.remove("c1", "ann", "closed", engine.clock.now())  # as if the process had been killed
        with pytest.raises(UnknownSession):
            await engine.session("c2").remove()
        assert await engine.tombstones() == []
        stone = await engine.session("c1").remove(by="bob", reason="again")
        assert (stone.by, stone.reason) == ("ann", "closed")
        assert await engine.tombstones() == [stone]
        with pytest.raises(UnknownSession):
            await engine.session("c1").remove()


@pytest.mark.covers("S3.96")
@on_loop
async def test_a_session_that_is_driven_is_not_removed_under_its_feet() -> None:
    gate = Gate()

    @step(writes="score")
    async def wait() -> int:
        await gate.hold()
        return 1

    slow = Workflow("slow", state=Case, steps=[wait])
    clock = ManualClock()
    async with Engine(":memory:", workflows=[slow], clock=clock, keep_for=DAY) as engine:
        session = await engine.start(slow, session_id="s1", name="x")
        await gate.reached.wait()
        with pytest.raises(AlreadyRunning, match=r"driven by .*Pause or cancel it first"):
            await session.remove()
        clock.jump(timedelta(days=400))
        report = await engine.gc(apply=True)
        assert report.expired == []
        gate.opened.set()
        assert (await session.outcome()).state.score == 1
        await session.remove()


@on_loop
async def test_whoever_follows_the_events_hears_of_the_removal() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(case, session_id="c1", name="x", paused=True)
        heard = []
        async for event in engine.session("c1").events(follow=True):
            heard.append(event.event_type)
            if event.event_type == "pause.requested":
                await session.remove(by="ann")
        assert heard == ["session.created", "pause.requested", "session.removed"]


@on_loop
async def test_files_go_before_the_record_and_what_hinders_them_is_said(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Engine(path) as engine:
        for session_id in ("c1", "c2"):
            await closed_case(engine, session_id)
        folder, other = (session_folder(Path(f"{path}.sessions"), id) for id in ("c1", "c2"))
        for each in (folder, other):
            (each / "deep").mkdir(parents=True)
            (each / "deep" / "report.txt").write_text("report")
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "precious.txt").write_text("precious")
        (folder / "link").symlink_to(outside)
        await engine.session("c1").remove()
        assert not folder.exists()
        assert (outside / "precious.txt").exists()
        assert (other / "deep" / "report.txt").exists()
        _cannot_delete(engine.store, other)
        with pytest.raises(StoreUnavailable, match=r"cannot be deleted .*engine.gc\(apply=True\)"):
            await engine.session("c2").remove()
        with pytest.raises(UnknownSession, match="is being removed"):
            await engine.session("c2").info()
        with pytest.raises(UnknownSession, match="is being removed"):
            await engine.start(case, session_id="c2", name="x")
        report = await engine.gc(apply=True)
        assert list(report.kept) == ["c2"]
        del engine.store.files_of
        assert (await engine.gc()).completed == ["c2"]
        assert (await engine.gc(apply=True)).completed == ["c2"]
        assert [stone.session_id for stone in await engine.tombstones()] == ["c1", "c2"]
        assert not other.exists()


def _cannot_delete(store: Any, folder: Path) -> None:
    """Make the folder undeletable: a file cannot be deleted as a folder."""
    store.files_of = lambda session_id: FolderFiles(folder / "deep", "report.txt")


@on_loop
async def test_only_a_removed_session_has_a_last_event(tmp_path: Path) -> None:
    async with Engine(tmp_path / "store.db", clock=ManualClock()) as engine:
        with pytest.raises(UnknownSession, match="no session 'nobody'"):
            _ = [event async for event in engine.session("nobody").events()]
        await (await closed_case(engine)).remove()
        await closed_case(engine)
        await engine.store.remove("c1", None, "", 1)  # begins the removal without completing it
        with pytest.raises(UnknownSession, match="is being removed"):
            _ = [event async for event in engine.session("c1").events()]


# expiry


@pytest.mark.covers("S3.90", "S3.92")
@on_loop
async def test_a_session_stays_until_its_configured_expiry_has_passed(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Engine(tmp_path / "store.db", clock=clock, keep_for=7 * DAY) as engine:
        await closed_case(engine, "week")
        await closed_case(engine, "day", keep_for=DAY)
        await closed_case(engine, "ever", keep_for=timedelta.max)
        clock.jump(DAY - timedelta(seconds=1))
        assert (await engine.gc(apply=True)).expired == []
        clock.jump(timedelta(seconds=1))
        dry = await engine.gc()
        assert (dry.expired, dry.applied) == (["day"], False)
        assert len(await engine.sessions()) == 3
        assert (await engine.gc(apply=True)).expired == ["day"]
        assert (await engine.gc(now=clock.time + 400 * DAY)).expired == ["week"]
        clock.jump(6 * DAY)
        assert (await engine.gc(apply=True)).expired == ["week"]
        assert [info.session_id for info in await engine.sessions()] == ["ever"]
        assert [(stone.session_id, stone.reason) for stone in await engine.tombstones()] == [
            ("day", "expired"),
            ("week", "expired"),
        ]


@on_loop
async def test_time_is_counted_from_the_last_update_and_from_when_a_sleeper_wakes() -> None:
    @step(writes="score")
    async def doze(ctx: Context) -> int:
        await ctx.sleep(10 * DAY)
        return 1

    sleepy = Workflow("sleepy", state=Case, steps=[doze])
    clock = ManualClock()
    async with Engine(":memory:", workflows=[sleepy], clock=clock, keep_for=DAY) as engine:
        session = await engine.start(sleepy, session_id="s1", name="x")
        await engine._service.driver.runs["s1"].finished()
        assert await session.status() is Status.SLEEPING
        paused = await engine.start(case, session_id="p1", name="x", paused=True)
        assert (await engine.gc(now=clock.time + 2 * DAY)).expired == ["p1"]
        clock.jump(0.9 * DAY)
        await paused.resume()
        await paused.outcome()
        assert (await engine.gc(now=clock.time + 0.9 * DAY)).expired == []
        assert sorted((await engine.gc(now=clock.time + 11 * DAY)).expired) == ["p1", "s1"]


def test_a_negative_time_is_refused() -> None:
    with pytest.raises(ValueError, match="keep_for cannot be negative"):
        Engine(":memory:", keep_for=-DAY)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ("UPDATE sessions SET owner = 'eve'", "do not match their checksum"),
        ("DELETE FROM log WHERE seq = (SELECT max(seq) FROM log)", "the end of its log is missing"),
        ("UPDATE sessions SET updated_at = 0", ""),
    ],
    ids=["facts", "end of the log", "time"],
)
@on_loop
async def test_a_damaged_session_does_not_expire(tmp_path: Path, damage: str, why: str) -> None:
    path, clock = tmp_path / "store.db", ManualClock()
    async with Engine(path, clock=clock, keep_for=DAY) as engine:
        await closed_case(engine)
    connection = apsw.Connection(str(path))
    connection.execute(damage)
    connection.close()
    async with Engine(path, clock=clock) as engine:
        later = clock.time + (2 * DAY if why else 0.5 * DAY)
        report = await engine.gc(apply=True, now=later)
        assert report.expired == []
        assert [(session_id, why in text) for session_id, text in report.kept.items()] == (
            [("c1", True)] if why else []
        )
        assert not (await engine.verify()).ok


# sweeping and space


@on_loop
async def test_many_expired_sessions_share_transactions_and_a_dry_run_weighs_them_together(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    async with Engine(store, workflows=[case], keep_for=timedelta(0)) as engine:
        ids = [f"c{n:02}" for n in range(60)]
        for session_id in ids:
            await engine.start(case, session_id=session_id, paused=True, name="Ada")
        dry = await engine.gc()
        assert dry.expired == ids
        assert dry.expired_bytes > 60 * 100
        before = store._writer.commits
        done = await engine.gc(apply=True)
        assert done.expired == ids
        assert await engine.sessions() == []
        assert [stone.session_id for stone in await engine.tombstones()] == ids
        assert store._writer.commits - before < 60, "one for each session would be twice as many and more"
        assert (await engine.verify()).ok


@on_loop
async def test_large_values_are_swept_when_nothing_names_them_and_the_file_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Engine(path) as engine:
        for n in range(3):
            await closed_case(engine, f"c{n}", name=LARGE + str(n % 2))  # c0 and c2 share their values
        full = path.stat().st_size + (tmp_path / "store.db-wal").stat().st_size
        await engine.session("c0").remove()
        dry = await engine.gc()
        assert (dry.values, dry.given_back) == (0, 0)
        await engine.session("c1").remove()
        dry = await engine.gc()
        assert dry.values > 0
        assert dry.value_bytes > len(LARGE)
        assert dry.free_bytes > 0
        seen: list[int] = []
        report = await engine.gc(apply=True, on_progress=lambda so_far: seen.append(so_far.given_back))
        assert (report.values, report.value_bytes, report.folded) == (dry.values, dry.value_bytes, True)
        assert report.given_back > dry.value_bytes
        assert len(seen) > 2
        assert path.stat().st_size < full / 2
        assert (tmp_path / "store.db-wal").stat().st_size == 0
        assert (await engine.session("c2").verify()).ok
        assert (await engine.session("c2").state()).name == LARGE + "0"
        again = await engine.gc(apply=True)
        assert again == CleanUp(applied=True, folded=True)


@on_loop
async def test_nothing_of_a_removed_session_can_be_read_in_the_files(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Engine(path) as engine:
        for n in range(5):
            await closed_case(engine, f"c{n}", name=LARGE if n == 2 else f"{SECRET}-{n}")
        assert SECRET.encode() in bytes_of(path)
        for n in range(5):
            await engine.session(f"c{n}").remove()
        await engine.gc(apply=True)
        assert SECRET.encode() not in bytes_of(path)


# trees


@on_loop
async def test_children_are_removed_with_their_root_and_never_alone() -> None:
    @step(writes="score")
    async def delegate(name: str, ctx: Context) -> int:
        return int((await ctx.call(case, name=name)).score)

    parent = Workflow("parent", state=Case, steps=[delegate])
    async with Engine(":memory:", workflows=[case, parent]) as engine:
        session = await engine.start(parent, session_id="root", name="Ada")
        assert (await session.outcome()).status is Status.COMPLETED
        [child] = await engine.session("root").children()
        with pytest.raises(VerbRefused, match="'root' and cannot be removed alone"):
            await engine.session(child.session_id).remove()
        await engine.session("root").remove(by="ann", reason="done")
        assert await engine.sessions() == []
        assert [stone.session_id for stone in await engine.tombstones()] == [child.session_id, "root"]
        assert (await engine.verify()).ok


@on_loop
async def test_a_memory_store_can_be_cleaned_too() -> None:
    async with Engine(":memory:") as engine:
        await closed_case(engine, name=LARGE)
        assert engine.store.files_of("c1") is None
        await engine.session("c1").remove()
        assert (await engine.gc(apply=True)).values > 0
        assert isinstance(engine.store, SqliteStore)
        assert os.path.basename(engine.store.path) == ":memory:"
