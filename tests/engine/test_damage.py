"""A damaged session does not hide others. It can be paused and removed, and the error describes the damage."""

from __future__ import annotations

import asyncio
import logging
import re
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.clock import SystemClock
from pausepoint.errors import AlreadyRunning, DamagedRecord, UnknownSession, VerbRefused
from pausepoint.testing import ManualClock
from tests.support.loop import on_loop


class Work(BaseModel):
    n: int = 0


@step(writes="n")
async def doze(ctx: Context) -> int:
    await ctx.sleep(60)
    return 1


@step(writes="n")
async def toil(n: int, ctx: Context) -> int:
    while True:
        await ctx.safe_point()
        await asyncio.sleep(0.005)


@step(writes="n")
async def delegate(ctx: Context) -> int:
    return (await ctx.call(sleepy)).n


sleepy = Workflow("sleepy", state=Work, steps=[doze])
busy = Workflow("busy", state=Work, steps=[toil])
boss = Workflow("boss", state=Work, steps=[delegate])

ROW = "UPDATE sessions SET owner = 'eve' WHERE session_id = '{}'"
TYPE = "UPDATE sessions SET visit = 'x' WHERE session_id = '{}'"
STAND = "UPDATE sessions SET step = 'nowhere' WHERE session_id = '{}'"


def damaged(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA writable_schema = ON")  # a broken disk does not check types either
    connection.execute("UPDATE sqlite_schema SET sql = replace(sql, ') STRICT', ')') WHERE name = 'sessions'")
    connection.close()
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_schema SET sql = sql || ' STRICT' WHERE name = 'sessions'")
    connection.close()


def made(path: Path, clock: ManualClock | None = None) -> Engine:
    return Engine(path, workflows=[sleepy, busy, boss], clock=clock or SystemClock())


async def parked(path: Path, *session_ids: str) -> None:
    async with made(path, ManualClock()) as engine:
        for session_id in session_ids:
            await engine.start(sleepy, session_id=session_id)
            await engine._service.driver.runs[session_id].finished()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.mark.parametrize("damage", [ROW, STAND, TYPE], ids=["given", "moved", "type"])
@on_loop
async def test_everything_is_stopped_in_spite_of_a_damaged_session(path: Path, damage: str) -> None:
    await parked(path, "d1", "d2", "d3")
    damaged(path, damage.format("d2"))
    async with made(path, ManualClock()) as engine:
        found = await engine.pause_all(by="ann", reason="stop")
        assert sorted(info.session_id for info in found) == ["d1", "d3"]
        assert {info.status for info in found} == {Status.PAUSED}
        assert [error.fields["session_id"] for error in found.damaged] == ["d2"]
    look = "SELECT pause_requested FROM workflow_states WHERE session_id = 'd2'"
    assert apsw.Connection(str(path)).execute(look).get == 1


@on_loop
async def test_a_damaged_session_that_runs_is_stopped_too_and_says_who_asked(path: Path) -> None:
    async with made(path) as engine:
        await engine.start(busy, session_id="d1")
        run = engine._service.driver.runs["d1"]
        damaged(path, ROW.format("d1"))
        found = await engine.pause_all(by="ann", reason="stop")
        assert found == []
        assert len(found.damaged) == 1
        await run.finished()
        last = (await engine.store.records(1, 1))[-1]
        assert b"paused by ann: stop" in last.payload


@on_loop
async def test_a_damaged_session_that_is_named_is_stopped_before_its_damage_is_raised(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with made(path) as engine:
        await engine.start(busy, session_id="d1")
        run = engine._service.driver.runs["d1"]
        damaged(path, ROW.format("d1"))
        with caplog.at_level(logging.ERROR, "pausepoint"), pytest.raises(DamagedRecord, match="'d1'"):
            await engine.session("d1").pause(by="ann")
        assert "was asked to pause but is damaged" in caplog.text
        await run.finished()
        with pytest.raises(DamagedRecord):
            await engine.session("d1").resume()
        with pytest.raises(UnknownSession):
            await engine.session("d2").pause()


@on_loop
async def test_lists_of_sessions_name_the_damaged_ones_apart(path: Path) -> None:
    await parked(path, "d1", "d2")
    damaged(path, ROW.format("d1"))
    async with made(path, ManualClock()) as engine:
        for found in (await engine.sessions(), await engine.sessions(status="sleeping", limit=5)):
            assert [info.session_id for info in found] == ["d2"]
            assert [error.fields["session_id"] for error in found.damaged] == ["d1"]
        misfits = await engine.misfits()
        assert misfits == []
        assert len(misfits.damaged) == 1
        with pytest.raises(DamagedRecord):
            await engine.session("d1").info()


@on_loop
async def test_a_tree_is_cancelled_and_resumed_in_spite_of_a_damaged_child(path: Path) -> None:
    clock = ManualClock()
    async with made(path, clock) as engine:
        for session_id in ("p1", "p2"):
            await engine.start(boss, session_id=session_id)
        while len(await engine.sessions(status="sleeping")) < 2:
            await asyncio.sleep(0.001)
        [child] = await engine.session("p1").children()
        damaged(path, ROW.format(child.session_id))
        assert await engine.session("p1").cancel() is Status.CANCELLED
        assert len((await engine.session("p1").children()).damaged) == 1
        look = "SELECT cancel_requested FROM workflow_states WHERE session_id = ?"
        assert apsw.Connection(str(path)).execute(look, (child.session_id,)).get == 1
        [child] = await engine.session("p2").children()
        damaged(path, ROW.format(child.session_id))
        await engine.session("p2").pause()
        await engine.session("p2").resume()
        outcome = await engine.session("p2").outcome()
        assert outcome.failure is not None
        assert outcome.failure.type == "DamagedRecord"


@on_loop
async def test_a_damaged_session_can_be_removed_by_hand_and_never_expires(path: Path) -> None:
    await parked(path, "d1", "d2")
    files = Path(f"{path}.sessions")
    for session_id in ("d1", "d2"):
        (files / session_id).mkdir(parents=True)
    damaged(path, ROW.format("d1"))
    damaged(path, "UPDATE sessions SET keep_for = 0")
    async with made(path, ManualClock()) as engine:
        assert sorted((await engine.gc(apply=True, now=datetime(2100, 1, 1, tzinfo=UTC))).kept) == ["d1", "d2"]
        stone = await engine.session("d1").remove(by="ann", reason="damaged")
        assert (stone.session_id, stone.status, stone.by) == ("d1", "damaged", "ann")
        assert sorted(each.name for each in files.iterdir()) == ["d2"]
        with pytest.raises(UnknownSession):
            await engine.session("d1").info()
        await engine.session("d2").remove()
        report = await engine.verify()
        assert report.ok, report.problems
        assert report.tombstones == 2


@on_loop
async def test_a_damaged_session_that_is_driven_or_belongs_to_another_is_not_removed(path: Path) -> None:
    async with made(path, ManualClock()) as engine:
        await engine.start(busy, session_id="d1")
        damaged(path, ROW.format("d1"))
        with pytest.raises(AlreadyRunning, match="'d1' is driven by process"):
            await engine.session("d1").remove()
        await engine.start(boss, session_id="p1")
        while not (children := await engine.session("p1").children()):
            await asyncio.sleep(0.001)
        [child] = children
        while (await engine.session(child.session_id).info()).status is not Status.SLEEPING:
            await asyncio.sleep(0.001)
        damaged(path, ROW.format(child.session_id))
        with pytest.raises(VerbRefused, match="was called by session 'p1'"):
            await engine.session(child.session_id).remove()
        while (await engine.session("p1").info()).holder is not None:
            await asyncio.sleep(0.001)
        stone = await engine.session("p1").remove()
        assert stone.session_id == "p1"
        assert {each.status for each in await engine.tombstones()} == {"damaged", "waiting"}


@on_loop
async def test_a_session_whose_very_id_is_damaged_takes_no_other_one_s_files_along(path: Path) -> None:
    async with made(path, ManualClock()) as engine:
        await engine.start(boss, session_id="p1")
        while not (children := await engine.session("p1").children()):
            await asyncio.sleep(0.001)
    data = path.read_bytes()
    in_row = re.search(re.escape(children[0].session_id.encode()) + rb"[^a-z]{0,9}sleepy", data, re.DOTALL)
    assert in_row is not None
    path.write_bytes(data[: in_row.start()] + b"q" + data[in_row.start() + 1 :])  # the index still has the original id
    other = Path(f"{path}.sessions") / f"q{children[0].session_id[1:]}"
    other.mkdir(parents=True)
    async with made(path, ManualClock()) as engine:
        assert [error.fields["session_id"] for error in (await engine.sessions()).damaged] == [other.name]
        with pytest.raises(DamagedRecord):
            await engine.session("p1").remove()
    assert other.exists()


@on_loop
async def test_a_damaged_log_does_not_keep_other_sessions_from_waking(path: Path) -> None:
    clock = ManualClock()
    async with made(path, clock) as engine:
        for session_id in ("d1", "d2"):
            await engine.start(sleepy, session_id=session_id)
            await engine._service.driver.runs[session_id].finished()
    damaged(path, "UPDATE log SET payload = x'7b7d' WHERE session = 1 AND seq = 1")
    clock.advance(61)
    async with made(path, clock) as engine:
        assert (await engine.session("d2").outcome()).status is Status.COMPLETED
        with pytest.raises(DamagedRecord, match="record 1 "):
            await engine.session("d1").state()
