"""Bulk verbs: resume, pause and cancel all sessions that match a filter."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from pydantic import BaseModel

from pausepoint import Budget, Context, Engine, Status, Workflow, step
from pausepoint.clock import SystemClock
from pausepoint.engine import bulk_run, selection
from pausepoint.errors import CallRefused
from pausepoint.model.bulk import BulkProgress, BulkReport
from pausepoint.model.sessions import Filter
from pausepoint.stores.base import Store
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock
from tests.engine import batch as batches
from tests.engine.batch import World, batch, ran_batch
from tests.engine.guest import AGENT
from tests.support.dictstore import Data, DictStore
from tests.support.loop import on_loop

F, C, P = Status.FAILED, Status.COMPLETED, Status.PAUSED


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(batches, "world", World())
    return batches.world


@pytest.fixture(params=["sqlite", "dict"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return a function that opens the same store again."""
    data = Data()
    if request.param == "dict":
        return lambda clock=None: DictStore(data, clock)
    return lambda clock=None: SqliteStore(tmp_path / "s.db", clock=clock or SystemClock())


class Note(BaseModel):
    text: str = ""


@step(writes="text")
async def listen(ctx: Context) -> str:
    return await ctx.receive(str)


@step(writes="text")
async def nap(ctx: Context) -> str:
    await ctx.sleep(timedelta(hours=1))
    return "slept"


@step(writes="text")
async def call(ctx: Context) -> str:
    return (await ctx.call(listening)).text


@step
async def work_on(text: str) -> None: ...


listening = Workflow("listening", state=Note, steps=[listen])
napping = Workflow("napping", state=Note, steps=[nap])
calling = Workflow("calling", state=Note, steps=[call])


def ids(items: Any) -> list[str]:
    return [item.session_id for item in items]


def reasons(report: BulkReport) -> dict[str, str]:
    return {item.session_id: item.reason for item in report.skipped}


# resume


@pytest.mark.long
@on_loop
async def test_failed_sessions_are_retried_by_one_call_and_those_that_fail_again_are_named(
    store: Any, world: World
) -> None:
    world.broken = set(range(0, 30, 2))
    async with Engine(store()) as engine:
        await ran_batch(engine, 30, tags="night")
        await engine.start(batch, session_id="other", number=0)
        await engine.session("other").outcome()
        world.broken = {4, 8}
        report = await engine.select(status="failed", tag="night").resume(by="ann", jobs=3)
        assert (len(report.done), report.skipped, report.left, report.total) == (13, (), 0, 15)
        assert {item.status for item in report.done} == {C}
        assert [(each.session_id, each.status, each.reason) for each in sorted(report.failed, key=str)] == [
            (f"batch-{n:04}", F, f"ConnectionError in keep: no way to {n}") for n in (4, 8)
        ]
        assert report.statuses == {C: 13, F: 2}
        assert world.ran == dict.fromkeys(range(30), 1) | {0: 2}, "only number 0 belongs to two sessions"
        assert (await engine.session("other").info()).status is F, "it has no such tag"
        resumed = [
            event async for event in engine.session("batch-0002").events() if event.event_type == "session.resumed"
        ]
        assert [event.data["by"] for event in resumed] == ["ann"]
        again = await engine.select(status=[F], workflow="batch").resume()
        assert sorted(ids(again.done + again.failed)) == ["batch-0004", "batch-0008", "other"]


@on_loop
async def test_no_more_sessions_than_jobs_run_at_a_time(store: Any, world: World) -> None:
    @step(writes="kept")
    async def slow(number: int) -> int:
        world.busy += 1
        world.most = max(world.most, world.busy)
        if world.busy == 4:
            together.set()
        await (together.wait() if not world.broken else asyncio.sleep(0))
        world.busy -= 1
        if number in world.broken:
            raise ValueError
        return number

    together = asyncio.Event()
    slowly = Workflow("slowly", state=batches.Item, steps=[slow])
    world.broken = set(range(12))
    async with Engine(store()) as engine:
        await ran_batch(engine, 12, slowly)
        together.clear()
        world.broken, world.most = set(), 0
        seen: list[BulkProgress] = []
        report = await engine.select(failed=True).resume(jobs=4, on_progress=seen.append)
        assert (len(report.done), world.most) == (12, 4)
        assert (seen[0].total, seen[0].item, seen[0].left) == (12, None, 12)
        assert [each.left for each in seen if each.item is not None] == list(range(11, -1, -1))
        assert {each.result for each in seen} == {"done", None}
        assert max(each.running for each in seen) == 4


@on_loop
async def test_what_a_resume_does_not_concern_is_skipped_with_the_reason(store: Any, world: World) -> None:
    clock = ManualClock()
    wanted: list[Workflow[Any]] = [batch, listening, napping, AGENT]
    async with Engine(store(clock), workflows=wanted, clock=clock) as engine:
        world.broken = {0}
        await ran_batch(engine, 2, tags="x")
        for workflow in (listening, napping):
            await (await engine.start(workflow, session_id=workflow.name, tags="x")).info()
        await engine.session("listening").outcome()
        while (await engine.session("napping").info()).status is not Status.SLEEPING:
            await asyncio.sleep(0.001)
        await engine.start(listening, session_id="gone", tags="x")
        await engine.session("gone").cancel()
        with pytest.raises(KeyError):
            async with engine.visit(AGENT, session_id="guest", tags="x"):
                raise KeyError
        await engine.start(listening, session_id="stopped", tags="x", paused=True)
        before = {info.session_id: info.seq for info in await engine.sessions()}
        dry = await engine.select(tag="x").resume(dry_run=True)
        assert (dry.dry_run, sorted(ids(dry.done))) == (True, ["batch-0000", "stopped"])
        wakes = (await engine.session("napping").info()).wakes_at
        assert reasons(dry) == {
            "listening": "It waits for a message.",
            "napping": f"It sleeps until {wakes:%Y-%m-%d %H:%M:%S} UTC.",
            "guest": "It is a guest. Its own program continues it.",
        }
        assert {info.session_id: info.seq for info in await engine.sessions()} == before, "a dry run changes nothing"
        world.broken = set()
        report = await engine.select(tag="x").resume()
        assert sorted(ids(report.done)) == ["batch-0000", "stopped"]
        assert reasons(report) == reasons(dry)
        assert {item.session_id: item.status for item in report.done} == {"batch-0000": C, "stopped": Status.WAITING}
        ended = await engine.select(tag="x", status=["completed", "cancelled"]).resume()
        assert set(reasons(ended).values()) == {"It has completed.", "It was cancelled."}
        assert len(ended.skipped) == 3
        awake = await engine.select(status="sleeping").resume(wake=True)
        assert [(item.session_id, item.status) for item in awake.done] == [("napping", C)]


@on_loop
async def test_a_paused_guest_gets_its_pause_withdrawn(store: Any) -> None:
    async with Engine(store(), workflows=[AGENT]) as engine:
        async with engine.visit(AGENT, session_id="guest", tags="x"):
            paused = await engine.select(tag="x").pause()
            assert ids(paused.done) == ["guest"]
            report = await engine.select(tag="x", status=("paused", "pausing")).resume()
            assert (ids(report.done), report.failed) == (["guest"], ())
        assert (await engine.session("guest").info()).status is C


@on_loop
async def test_a_child_is_left_to_its_parent_if_both_match(store: Any) -> None:
    async with Engine(store(), workflows=[calling, listening]) as engine:
        session = await engine.start(calling, session_id="top", tags="x")
        await session.outcome()
        [child] = await session.children()
        await engine.start(listening, session_id="alone", tags="y")
        await engine.session("alone").outcome()
        dry = await engine.select(tag="x").pause(dry_run=True)
        assert (ids(dry.done), dry.total) == (["top"], 1)
        report = await engine.select(tag="x").pause(reason="lunch")
        assert (ids(report.done), report.total) == (["top"], 1)
        assert (await engine.session(child.session_id).info()).status is P
        [pause] = await engine.session(child.session_id).pauses()
        assert pause.reason == "lunch"
        resumed = await engine.select(status="paused").resume()
        assert (ids(resumed.done), resumed.total) == (["top"], 1)
        assert (await engine.session(child.session_id).info()).status is Status.WAITING
        ended = await engine.select(workflow="listening").cancel()
        assert sorted(ids(ended.done)) == sorted([child.session_id, "alone"]), "its parent does not match"
        assert {item.status for item in ended.done} == {Status.CANCELLED}


@on_loop
async def test_one_session_that_cannot_be_resumed_does_not_stop_the_others(tmp_path: Path, world: World) -> None:
    world.broken = {0, 1, 2}
    stranger = Workflow("stranger", state=batches.Item, steps=[batches.keep])
    async with Engine(tmp_path / "s.db") as engine:
        await ran_batch(engine, 3)
        await ran_batch(engine, 1, stranger)
    connection = apsw.Connection(str(tmp_path / "s.db"))
    connection.execute("UPDATE sessions SET visit = visit + 1 WHERE session_id = 'batch-0001'")
    connection.close()
    world.broken = set()
    async with Engine(tmp_path / "s.db", workflows=[batch]) as engine:
        report = await engine.select(status="failed").resume()
        assert sorted(ids(report.done)) == ["batch-0000", "batch-0002"]
        told = {str(item.session_id): item.reason for item in report.failed}
        assert sorted(told) == ["batch-0001", "stranger-0000"]
        assert "'stranger', which is not registered with this engine" in told["stranger-0000"]
        assert "batch-0001" in told["batch-0001"]
        assert repr(report) == "BulkReport('resume', done=2, skipped=0, failed=2, left=0)"
        assert "not registered" in report._repr_html_()


@on_loop
async def test_a_session_that_someone_changed_meanwhile_is_left_alone(store: Any, world: World) -> None:
    world.broken = {0, 1, 2, 3}
    async with Engine(store()) as engine:
        await ran_batch(engine, 4)
        world.broken = set()

        def meddle(progress: BulkProgress) -> None:
            if progress.item is None:
                for n in (2, 3):
                    tasks.append(asyncio.ensure_future(engine.session(f"batch-000{n}").pause(reason="not this one")))

        tasks: list[asyncio.Future[Any]] = []
        report = await engine.select(status="failed").resume(jobs=1, on_progress=meddle)
        assert ids(report.done) == ["batch-0000", "batch-0001"]
        await asyncio.gather(*tasks)
        assert reasons(report) == dict.fromkeys(["batch-0002", "batch-0003"], bulk_run.CHANGED)
        assert (await engine.session("batch-0003").info()).status is P, "nothing un-pauses it"


@on_loop
async def test_a_new_budget_is_for_each_session(store: Any, world: World) -> None:
    world.broken = {0, 1}
    async with Engine(store()) as engine:
        await ran_batch(engine, 2)
        world.broken = set()
        await engine.select(status="failed").resume(budget=Budget(usd=2))
        assert {info.budget_usd for info in await engine.sessions()} == {2}


@on_loop
async def test_a_caller_who_gives_up_leaves_the_rest_as_it_was(store: Any, world: World) -> None:
    gate, began = asyncio.Event(), asyncio.Event()

    @step(writes="kept")
    async def slow(number: int) -> int:
        if world.broken:
            raise ValueError
        began.set()
        await gate.wait()
        return number

    slowly = Workflow("slowly", state=batches.Item, steps=[slow])
    world.broken = {0}
    async with Engine(store()) as engine:
        await ran_batch(engine, 5, slowly)
        world.broken = set()
        work = asyncio.ensure_future(engine.select(status="failed").resume(jobs=2))
        await began.wait()
        while len(engine.running) < 2:
            await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        gate.set()
        await engine.idle()
        statuses = [info.status for info in await engine.sessions(reverse=True)]
        assert statuses == [C, C, F, F, F], "what was resumed runs to its end"


@on_loop
async def test_an_engine_that_is_closed_meanwhile_reports_what_is_left(store: Any, world: World) -> None:
    world.broken = set(range(6))
    reports: list[BulkReport] = []
    async with Engine(store()) as engine:
        await ran_batch(engine, 6)
        world.broken = set()
        closing: list[asyncio.Future[None]] = []

        def close(progress: BulkProgress) -> None:
            if progress.done == 2:
                closing.append(asyncio.ensure_future(engine.close()))

        reports.append(await engine.select(status="failed").resume(jobs=1, on_progress=close))
        await asyncio.gather(*closing)
    assert 2 <= len(reports[0].done) < 6
    assert reports[0].left == 6 - len(reports[0].done)
    async with Engine(store(), workflows=[batch]) as engine:
        rest = await engine.select(status=("failed", "ready")).resume()
        assert len(rest.done) == reports[0].left
        assert set(world.ran.values()) == {1}


# for another engine


@on_loop
async def test_failed_and_interrupted_sessions_are_handed_to_any_open_engine(store: Any, world: World) -> None:
    world.broken = {0, 1, 2}
    async with Engine(store()) as engine:
        await ran_batch(engine, 3)
        await engine.start(batch, session_id="paused", number=3, paused=True)
    world.broken = set()
    async with Engine(store(), workflows=[batch]) as worker, Engine(store(), drives="none") as front:
        with pytest.raises(CallRefused, match="resume"):
            await front.select(workflow="batch").resume()
        report = await front.select(workflow="batch").resume(here=False, by="ann")
        assert (len(report.done), report.failed, report.unattended) == (4, (), ())
        while (await front.tally()).get(("batch", C)) != 4:
            await asyncio.sleep(0.01)
        assert set(world.ran.values()) == {1}
        asked = [
            event async for event in worker.session("batch-0001").events() if event.event_type == "resume.requested"
        ]
        assert [event.agent_name for event in asked] == ["ann"]


@on_loop
async def test_nothing_open_to_take_them_is_said(store: Any, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "PICK_UP", 0.05)
    world.broken = {0, 1}
    async with Engine(store()) as engine:
        await ran_batch(engine, 2)
        session = await engine.start(batch, session_id="broke", number=1, budget=Budget(operations=0))
        assert (await session.outcome()).status is P
        (first,) = await session.pauses()
    async with Engine(store(), drives="none") as front:
        report = await front.select(workflow="batch").resume(here=False)
        assert report.unattended == ("batch",)
        assert {item.session_id: item.status for item in report.done} == dict.fromkeys(
            ["batch-0000", "batch-0001", "broke"], Status.READY
        )
        assert not report.failed
        assert (await front.session("batch-0000").info()).failure is not None, "it is known until the session moves on"
    world.broken = set()
    async with Engine(store(), workflows=[batch]) as engine:
        while (await engine.tally()) != {("batch", C): 2, ("batch", P): 1}:
            await asyncio.sleep(0.01)
        (again,) = await engine.session("broke").pauses()
        assert (again.kind, again.id != first.id) == ("budget", True)
        assert (await engine.select(ids=["broke"]).resume(budget=Budget(operations=9), here=False)).done
        while (await engine.tally()) != {("batch", C): 3}:
            await asyncio.sleep(0.01)


# pause and cancel


@on_loop
async def test_a_bulk_pause_leaves_failed_sessions_alone_and_waits_for_the_rest(store: Any, world: World) -> None:
    world.broken = {0}
    async with Engine(store()) as engine:
        await ran_batch(engine, 2, owner="ann")
        await engine.start(listening, session_id="talk", owner="ann")
        await engine.session("talk").outcome()
        gate, began = asyncio.Event(), asyncio.Event()

        @step(writes="text")
        async def work() -> str:
            began.set()
            await gate.wait()
            return "worked"

        await engine.start(Workflow("working", state=Note, steps=[work, work_on]), session_id="work", owner="ann")
        await began.wait()
        pausing = asyncio.ensure_future(engine.select(owner="ann").pause(wait=True))
        while (await engine.session("work").info()).status is not Status.PAUSING:
            await asyncio.sleep(0)
        gate.set()
        report = await pausing
        assert {item.session_id for item in report.done} == {"talk", "work"}
        assert (await engine.session("work").info()).status is P, "the call has waited for its step"
        skipped = {"batch-0000": "It has failed, so it does not run."}
        assert reasons(report) == skipped
        again = await engine.select(owner="ann", status=("failed", "waiting")).pause()
        assert (again.done, reasons(again)) == ((), skipped)
        assert (await engine.session("batch-0000").info()).status is F


@on_loop
async def test_a_bulk_pause_stores_the_pause_of_a_damaged_session(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db") as engine:
        for name in ("a", "b"):
            await (await engine.start(listening, session_id=name, owner="ann")).outcome()
        connection = apsw.Connection(str(tmp_path / "s.db"))
        connection.execute("UPDATE sessions SET visit = visit + 1 WHERE session_id = 'a'")
        report = await engine.select(owner="ann").pause()
        assert (ids(report.done), ids(report.failed)) == (["b"], ["a"])
        assert report.failed[0].reason.startswith("It is damaged, but the pause is stored. ")
        asked = connection.execute("SELECT session_id, pause_requested FROM sessions ORDER BY 1").fetchall()
        assert asked == [("a", 1), ("b", 1)]
        connection.close()


@on_loop
async def test_sessions_are_chosen_by_the_time_of_their_last_update(store: Any) -> None:
    clock = ManualClock()
    async with Engine(store(clock), clock=clock) as engine:
        began = clock.now()
        for name in ("old", "middle", "new"):
            await (await engine.start(listening, session_id=name)).outcome()
            clock.advance(3600)
        assert ids(await engine.sessions(since=timedelta(hours=1.5))) == ["new"]
        assert ids(await engine.sessions(until=timedelta(hours=2.5))) == ["old"]
        middle = datetime.fromtimestamp(began / 1e6, UTC) + timedelta(minutes=59)
        later = middle + timedelta(minutes=2)
        assert sum((await engine.tally(since=middle, until=later)).values()) == 1
        assert ids((await engine.select(since=middle, until=later).cancel()).done) == ["middle"]
        with pytest.raises(ValueError, match="since must be a datetime with a time zone, or a timedelta"):
            await engine.sessions(since=datetime(2026, 1, 1))


@on_loop
async def test_verbs_say_what_they_need(store: Any) -> None:
    async with Engine(store()) as engine:
        anything: Any = engine
        for filters, said in (
            ({}, "which sessions to select. Pass at least one of ids="),
            ({"status": []}, "status names no status"),
            ({"status": "fialed"}, r"'fialed' is not a status\. Did you mean 'failed'"),
        ):
            with pytest.raises(ValueError, match=said):
                anything.select(**filters)
        for verb in ("resume", "pause", "cancel"):
            report = await getattr(engine.select(tag="nobody"), verb)()
            assert (report.total, report.verb) == (0, verb)
        tagged: Any = engine.select(tag="x")
        assert repr(tagged) == "Selection(tag='x')"
        for wrong, said in (
            ({"jobs": 0}, "jobs must be"),
            ({"code": "yes"}, "code must be"),
            ({"here": False, "wake": True}, "here=False only closes pauses"),
        ):
            with pytest.raises(ValueError, match=said):
                await tagged.resume(**wrong)
        with pytest.raises(ValueError, match="pause_after names a step of session 'one'"):
            await anything.session("one").resume(pause_after=timedelta(1))


@on_loop
async def test_a_selection_is_what_matches_when_its_verb_is_called(store: Any, world: World) -> None:
    async with Engine(store(), workflows=[batch]) as engine:
        paused = engine.select(status="paused", workflow="batch")
        assert (await paused.resume()).total == 0
        session = await engine.start(batch, session_id="late", number=1, paused=True)
        assert ids((await paused.resume()).done) == ["late"]
        assert (await session.outcome()).status is C


async def named(found: Any) -> list[str]:
    return ids(await found)


@on_loop
async def test_facts_are_read_in_pages(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_run, "PAGE", 4)
    async with Engine(store()) as engine:
        for n in range(10):
            await engine.start(listening, session_id=f"s{n}", tags="x", paused=True)
        sizes: list[int] = []
        find = type(engine.store).find

        async def counted(self: Store, query: Filter) -> Any:
            found = await find(self, query)
            sizes.append(len(found))
            return found

        monkeypatch.setattr(type(engine.store), "find", counted)
        monkeypatch.setattr(DictStore, "ids", lambda self, query: named(find(self, query)))
        assert len((await engine.select(tag="x").pause(dry_run=True)).done) == 10
        assert len((await engine.select(tag="x").pause()).done) == 10
        assert sizes == [4, 4, 2] * 2
        sizes.clear()
        assert len((await engine.select(tag="x").cancel()).done) == 10
        assert max(sizes) == 1


def test_a_blocking_engine_has_them_too(world: World) -> None:
    world.broken = {0, 1}
    with Engine(":memory:") as engine:
        for n in range(2):
            engine.start(batch, number=n).outcome()
        world.broken = set()
        report: BulkReport = engine.select(status="failed").resume()
        assert report.statuses == {C: 2}
        assert engine.select(workflow="batch").cancel().total == 0
