"""Queues, priorities, lanes and limits, as an engine's users see them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, DefinitionError, Engine, Limit, Status, Workflow, step, workflow
from pausepoint.errors import DamagedRecord, LimitReached, PausepointError
from pausepoint.testing import ManualClock
from tests.support.loop import PATIENCE, on_loop


class Load:
    """Counts the sessions that are at work at the same time, and notes the order in which they began."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.order: list[str] = []
        self.open = asyncio.Event()

    async def work(self, name: str) -> str:
        self.now += 1
        self.most = max(self.most, self.now)
        self.order.append(name)
        try:
            await self.open.wait()
            await asyncio.sleep(0)
        finally:
            self.now -= 1
        return name


class Job(BaseModel):
    name: str
    done: str = ""


def jobs(load: Load, **options: Any) -> Workflow[Job]:
    @step(writes="done")
    async def work(name: str) -> str:
        return await load.work(name)

    return Workflow("jobs", state=Job, steps=[work], **options)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


async def ended(*sessions: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        for each in sessions:
            assert (await each.outcome()).status is Status.COMPLETED


@on_loop
async def test_sessions_without_a_slot_wait_and_run_by_priority(tmp_path: Path) -> None:
    load = Load()
    async with Engine(tmp_path / "s.db", workflows=[w := jobs(load, queue="gpu", priority=3)]) as engine:
        await engine.limit(queue="gpu", most=1)
        first = await engine.start(w, name="first")
        others = [await engine.start(w, name=f"{priority}", priority=priority, owner="ann") for priority in (9, -5, 3)]
        info = await engine.session(others[0].id).info()
        assert (info.status, info.queue, info.priority, info.lane) == (Status.READY, "gpu", 9, "ann")
        assert info.waits_for_slot == "queue gpu, 1 of 1 at work"
        assert [(each.name, each.ready, each.at_work) for each in await engine.limits.queues()] == [("gpu", 3, 1)]
        assert (await engine.session(first.id).info()).waits_for_slot is None
        with pytest.raises(LimitReached, match="waits for a free slot of queue gpu, 1 of 1 at work"):
            await engine.session(others[0].id).take_up()
        assert (await engine.session(others[0].id).resume()).id == others[0].id
        assert await engine.take_ready(9) == []
        (limit,) = await engine.limits.list()
        assert (limit.scope, limit.name, limit.most, limit.at_work, limit.counts) == ("queue", "gpu", 1, 1, True)
        load.open.set()
        await ended(first, *others)
        assert load.order == ["first", "-5", "3", "9"]
        assert load.most == 1
        assert await engine.limits.remove(queue="gpu") == 1
        assert not await engine.limits.list()


@on_loop
async def test_a_closed_queue_lets_no_session_get_to_work_until_it_is_opened(tmp_path: Path) -> None:
    load = Load()
    async with Engine(tmp_path / "s.db", workflows=[w := jobs(load, queue="gpu")]) as engine:
        at_work = await engine.start(w, name="at work")
        await engine.limit(queue="gpu", most=0)
        waits = await engine.start(w, name="waits")
        assert (await waits.info()).waits_for_slot == "queue gpu, which is closed"
        with pytest.raises(LimitReached, match="of queue gpu, which is closed"):
            await waits.take_up()
        assert await engine.take_ready(9) == []
        load.open.set()
        await ended(at_work)  # what is at work goes on
        assert load.order == ["at work"]
        await engine.limits.remove(queue="gpu")
        await ended(waits)


@on_loop
async def test_a_workflow_declares_its_limit_and_an_operator_overrides_it(tmp_path: Path) -> None:
    load = Load()
    w = jobs(load, limit=Limit(1, by="owner"))
    async with Engine(tmp_path / "s.db", workflows=[w]) as engine:
        mine = [await engine.start(w, name=f"ann{n}", owner="ann") for n in range(3)]
        await engine.start(w, name="ben", owner="ben")
        await eventually(lambda: load.now == 2)
        found = await engine.session(mine[1].id).info()
        assert found.waits_for_slot == "workflow jobs for this owner, 1 of 1 at work"
        await engine.limit(workflow=w, most=2, by="owner")
        await eventually(lambda: load.now == 3)
        declared, given = sorted(await engine.limits.list(), key=lambda each: each.most or 0)
        assert (declared.declared, declared.counts, given.declared, given.counts) == (True, False, False, True)
        with pytest.raises(ValueError, match=r"It has one by owner\. Pass the same by and per"):
            await engine.limit(workflow="jobs", most=None)
        await engine.limit(workflow="jobs", most=None, by="owner")
        await eventually(lambda: load.now == 4)
        await engine.limits.remove(workflow="jobs")
        late = await engine.start(w, name="late", owner="ann")
        assert (await late.info()).waits_for_slot is not None
        load.open.set()
        await ended(*mine, late)
    async with Engine(tmp_path / "s.db", workflows=[jobs(load)]) as engine:
        assert not await engine.limits.list(), "the code no longer declares it"


@pytest.mark.long
@on_loop
async def test_lanes_take_turns_and_default_to_the_owner(tmp_path: Path) -> None:
    load = Load()
    async with Engine(tmp_path / "s.db") as engine:
        w = jobs(load)
        await engine.limit(queue="default", most=1)
        sessions = [await engine.start(w, name=f"ann{n}", owner="ann") for n in range(25)]
        sessions += [await engine.start(w, name="ben", owner="ben"), await engine.start(w, name="eve", lane="ann")]
        load.open.set()
        await ended(*sessions)
        assert load.order.index("ben") < 20, "ben need not wait until ann's sessions are done"
        assert [(await each.info()).lane for each in sessions[-3:]] == ["ann", "ben", "ann"]


@on_loop
async def test_a_rate_lets_so_many_begin(tmp_path: Path) -> None:
    load = Load()
    load.open.set()
    clock = ManualClock()
    async with Engine(tmp_path / "s.db", clock=clock) as engine:
        w = jobs(load)
        await engine.limit(workflow="jobs", most=1, per=timedelta(minutes=10))
        sessions = [await engine.start(w, name=f"{n}") for n in range(3)]
        assert "1 in 600 s" in str((await sessions[2].info()).waits_for_slot)
        for number, session in enumerate(sessions):
            clock.advance(600 if number else 0)
            await ended(session)
            assert len(load.order) == number + 1


@pytest.mark.parametrize("how", ["limit", "concurrency"])
@on_loop
async def test_a_parent_that_waits_leaves_its_slot_to_its_child(tmp_path: Path, how: str) -> None:
    load = Load()
    load.open.set()

    @workflow
    async def child(name: str) -> str:
        return await load.work(name)

    @workflow(queue="deep", priority=-7)
    async def parent(ctx: Context, name: str) -> str:
        return "".join([await ctx.call(child, name=f"{name}{n}") for n in range(2)])

    async with Engine(tmp_path / "s.db", concurrency=1 if how == "concurrency" else None) as engine:
        if how == "limit":
            await engine.limit(queue="deep", most=1)
        session = await engine.start(parent, name="c", owner="ann")
        await ended(session)
        infos = await engine.sessions(tree=session.id)
        assert {(each.queue, each.priority, each.lane) for each in infos} == {("deep", -7, "ann")}
        assert load.order == ["c0", "c1"]


@on_loop
async def test_the_waker_keeps_to_the_concurrency_of_its_engine(tmp_path: Path) -> None:
    load = Load()

    @workflow
    async def sleeper(ctx: Context, name: str) -> str:
        await ctx.receive()
        return await load.work(name)

    async with Engine(tmp_path / "s.db") as starting:
        ids = [(await starting.start(sleeper, name=f"{n}")).id for n in range(7)]
        await starting.idle()
    async with Engine(tmp_path / "s.db", drives="none", signals=False) as sender:
        for id in ids:
            await sender.session(id).send("go on")
    async with Engine(tmp_path / "s.db", workflows=[sleeper], concurrency=2) as engine:
        await eventually(lambda: load.now == 2)
        for _ in range(3):
            assert await engine.take_ready(9) == []
            assert len(engine.running) <= 2
        load.open.set()
        await ended(*[engine.session(id) for id in ids])
        assert load.most == 2


@on_loop
async def test_an_engine_leaves_the_sessions_of_other_queues_to_others(tmp_path: Path) -> None:
    load = Load()
    load.open.set()
    w = jobs(load)
    async with Engine(tmp_path / "s.db", workflows=[w], queues=["web"]) as web:
        mine = await web.start(w, name="web", queue="web")
        theirs = await web.start(w, name="gpu", queue="gpu")
        await ended(mine)
        assert await web.take_ready(9) == []
        assert (await theirs.info()).status is Status.READY
        async with Engine(tmp_path / "s.db", workflows=[w], queues=["gpu", "other"]):
            await ended(theirs)
    assert load.order == ["web", "gpu"]


@on_loop
async def test_a_step_that_is_kept_in_memory_waits_for_a_slot_too(tmp_path: Path) -> None:
    gate, load = asyncio.Event(), Load()

    @workflow
    async def paused(ctx: Context, name: str) -> str:
        await ctx.do(gate.wait)
        return await ctx.do(load.work, name)

    async with Engine(tmp_path / "s.db") as engine:
        kept = await engine.start(paused, name="kept")
        await engine.session(kept.id).pause()
        gate.set()
        await eventually(lambda: kept.id not in engine.running)
        await engine.limit(workflow="paused", most=1)
        other = await engine.start(paused, name="other")
        await eventually(lambda: load.now == 1)
        await engine.session(kept.id).resume()
        assert load.order == ["other"]
        load.open.set()
        await ended(other, kept)
        assert load.most == 1


@pytest.mark.parametrize("url", ["s.db", ":memory:"])
@on_loop
async def test_a_paused_session_whose_step_stays_in_memory_leaves_its_slot(tmp_path: Path, url: str) -> None:
    began, gate, load = asyncio.Event(), asyncio.Event(), Load()
    load.open.set()

    async def hold() -> None:
        began.set()
        await gate.wait()

    @workflow
    async def paused(ctx: Context, name: str) -> str:
        await ctx.do(hold)
        return await ctx.do(load.work, name)

    async with Engine(url if url == ":memory:" else tmp_path / url) as engine:
        await engine.limit(workflow="paused", most=1)
        kept, other = [await engine.start(paused, name=name) for name in ("kept", "other")]
        await began.wait()
        await engine.session(kept.id).pause()
        gate.set()
        await ended(other)
        assert (await kept.info()).kept_by is not None
        await engine.session(kept.id).resume()
        await ended(kept)
        assert load.order == ["other", "kept"]


@on_loop
async def test_a_failed_session_that_is_resumed_waits_for_a_slot(tmp_path: Path) -> None:
    load = Load()
    broken = True

    @step(writes="done")
    async def work(name: str) -> str:
        if broken and name == "bad":
            raise ValueError("not yet")
        return await load.work(name)

    w = Workflow("jobs", state=Job, steps=[work])
    async with Engine(tmp_path / "s.db") as engine:
        bad = await engine.start(w, name="bad")
        assert (await bad.outcome()).status is Status.FAILED
        await engine.limit(workflow=w, most=1)
        good = await engine.start(w, name="good")
        broken = False
        await engine.session(bad.id).resume()
        assert (await bad.info()).waits_for_slot
        load.open.set()
        await ended(good, bad)
        assert load.order == ["good", "bad"]


@on_loop
async def test_mistakes_are_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    w = jobs(Load())
    with pytest.raises(DefinitionError, match=r"valid name of a queue.*(\n.*)+priority must.*\n.*limit must"):
        jobs(Load(), queue="a,b", priority=2000, limit=5)
    with pytest.raises(ValueError, match="by must be 'owner' or 'lane'"):
        Limit(1, by="tag")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="concurrency must be"):
        Engine(":memory:", concurrency=0)
    async with Engine(tmp_path / "s.db") as engine:
        for given in ({"queue": "a b"}, {"priority": 1.5}, {"priority": 1001}):
            with pytest.raises(ValueError, match=r"queue|priority"):
                await engine.start(w, name="a", **given)
        for limit in (
            {"queue": "a", "workflow": "b", "most": 1}, {"most": 1}, {"queue": "a", "most": -1},
            {"queue": "a", "most": 0, "per": timedelta(1)},
            {"queue": "a", "most": 1, "per": timedelta(0)},
            {"queue": "a", "most": 1, "per": timedelta(1), "by": "owner"},
        ):  # fmt: skip
            with pytest.raises(ValueError, match=r"Name one|most must|per must .* not 0:00:00|Leave out per or by"):
                await engine.limit(**limit)
        with pytest.raises(ValueError, match=r"limit of all sessions at work of queue 'a' to lift\. List the limits"):
            await engine.limit(queue="a", most=None)
        assert not await engine.limits.list()
        assert not await engine.sessions()


@on_loop
async def test_a_damaged_limit_of_the_code_can_be_removed_and_is_stored_again(tmp_path: Path) -> None:
    load = Load()
    async with Engine(tmp_path / "s.db", workflows=[w := jobs(load, limit=Limit(1))]) as engine:
        assert [each.most for each in await engine.limits.list()] == [1]
        damage = "import apsw, sys; apsw.Connection(sys.argv[1]).execute('UPDATE limits SET most = 99')"
        subprocess.run([sys.executable, "-c", damage, tmp_path / "s.db"], check=True)
        assert (await engine.limits.list()).damaged
        with pytest.raises(DamagedRecord, match="Remove it"):
            await engine.start(w, name="a")
        assert await engine.limits.remove(workflow="jobs") == 1
        assert [(each.most, each.declared) for each in await engine.limits.list()] == [(1, True)]
        assert await engine.limits.queues() == []
        load.open.set()
        assert (await (await engine.start(w, name="a")).outcome()).status is Status.COMPLETED


@on_loop
async def test_a_move_and_an_export_keep_queues_and_limits(tmp_path: Path) -> None:
    w = jobs(Load(), limit=Limit(7))
    async with Engine(tmp_path / "s.db", workflows=[w]) as engine:
        await engine.limit(queue="gpu", most=1)
        await engine.start(w, session_id="one", name="a", queue="gpu", priority=-3, lane="c7", paused=True)
        fork = await engine.session("one").fork(paused=True, owner="ann")
        assert ((await fork.info()).queue, (await fork.info()).lane) == ("gpu", "c7")
        await engine.session("one").export(tmp_path / "one.jsonl")
        await engine.import_session(tmp_path / "one.jsonl", session_id="copy")
        copy = await engine.session("copy").info()
        assert (copy.queue, copy.priority, copy.lane) == ("gpu", -3, "c7")
        await engine.move(tmp_path / "t.db")
        before = await engine.limits.list()
    async with Engine(tmp_path / "t.db", drives="none") as engine:
        assert list(await engine.limits.list()) == list(before)
        moved = await engine.session("one").info()
        assert (moved.queue, moved.priority, moved.lane) == ("gpu", -3, "c7")


def test_blocking_code_sets_limits(tmp_path: Path) -> None:
    with Engine(tmp_path / "s.db") as engine:
        engine.limit(queue="gpu", most=4)
        assert [each.name for each in engine.limits.list()] == ["gpu"]
        assert engine.limits.remove(queue="gpu") == 1


@on_loop
async def test_a_slot_that_a_killed_process_leaves_is_found(tmp_path: Path) -> None:
    load, other = Load(), Load()
    w = jobs(load, limit=Limit(1))
    killed = await Engine(tmp_path / "s.db", workflows=[w], drives="asked", signals=False).__aenter__()
    await killed.start(w, name="killed")
    await eventually(lambda: load.order == ["killed"])
    other.open.set()
    async with Engine(tmp_path / "s.db", workflows=[again := jobs(other, limit=Limit(1))]) as engine:
        waiting = await engine.start(again, name="waiting")
        assert (await engine.session(waiting.id).info()).waits_for_slot == "workflow jobs, 1 of 1 at work"
        store: Any = killed.store
        store._hold.drop()  # as if its process were killed: nothing is written
        await ended(waiting)
    load.open.set()
    with suppress(PausepointError):
        await killed.__aexit__(None, None, None)


@on_loop
async def test_a_session_that_cannot_run_here_uses_no_slot_of_others(tmp_path: Path) -> None:
    load = Load()
    async with Engine(tmp_path / "s.db", workflows=[newer := jobs(load, version=2, limit=Limit(1))]) as engine:
        first = await engine.start(newer, name="first")
        await engine.start(newer, name="for newer code")
        await engine.session(first.id).pause(mode="abort", wait=True)
    load.open.set()
    async with Engine(tmp_path / "s.db", workflows=[older := jobs(load, limit=Limit(1))]) as engine:
        await ended(await engine.start(older, name="for this code"))
    assert load.order[-1] == "for this code"


@on_loop
async def test_a_resume_that_changes_more_than_the_pause_says_that_it_waits_for_a_slot(tmp_path: Path) -> None:
    load = Load()

    @workflow(queue="gpu")
    async def sleeper(ctx: Context) -> None:
        await ctx.sleep(3600)

    async with Engine(tmp_path / "s.db", workflows=[w := jobs(load, queue="gpu"), sleeper]) as engine:
        await engine.limit(queue="gpu", most=1)
        asleep = await engine.start(sleeper)
        while (await asleep.info()).status is not Status.SLEEPING:
            await asyncio.sleep(0.01)
        busy = await engine.start(w, name="busy")
        with pytest.raises(LimitReached):
            await engine.session(asleep.id).resume(wake=True)
        load.open.set()
        await ended(busy)


@on_loop
async def test_setting_a_rate_again_keeps_what_was_used(tmp_path: Path) -> None:
    load = Load()
    load.open.set()
    async with Engine(tmp_path / "s.db", workflows=[w := jobs(load)]) as engine:
        for n in range(3):
            await engine.limit(workflow=w, most=1, per=timedelta(minutes=1))
            await engine.start(w, name=str(n))
        assert [info.status for info in await engine.sessions()].count(Status.READY) == 2


@on_loop
async def test_an_engine_that_only_looks_on_forgets_no_limit(tmp_path: Path) -> None:
    load = Load()
    async with Engine(tmp_path / "s.db", workflows=[jobs(load, limit=Limit(1))]) as engine:
        assert len(await engine.limits.list()) == 1
    async with Engine(tmp_path / "s.db", workflows=[jobs(load)], drives="none", signals=False) as engine:
        assert len(await engine.limits.list()) == 1
    async with Engine(tmp_path / "s.db", workflows=[jobs(load)]) as engine:
        assert len(await engine.limits.list()) == 0
