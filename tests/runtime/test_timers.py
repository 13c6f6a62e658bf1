"""Durable timers: a sleeping session is only a row, and resumes on its own when its time comes."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Engine, Session, Status, Workflow, route, step
from pausepoint.clock import LONGEST_NAP
from pausepoint.name import NAME
from pausepoint.testing import ManualClock, every_crash_point
from tests.support.children import child
from tests.support.loop import PATIENCE, on_loop
from tests.support.status import settled
from tests.support.threads import started_threads

HOUR = 3600.0


class Nap(BaseModel):
    seconds: float = HOUR
    slept: bool = False
    woken: str = ""


class Naps:
    """A workflow that works, sleeps, and works again. ``calls`` lists what ran."""

    def __init__(self) -> None:
        self.calls: list[str] = []

        @step(writes="slept")
        async def nap(seconds: float, ctx: Context) -> bool:
            self.calls.append("top")
            await ctx.do(self.note, "before")
            await ctx.sleep(seconds)
            await ctx.do(self.note, "after")
            return True

        @step(writes="woken")
        async def wake(slept: bool) -> str:
            return "fresh" if slept else "tired"

        self.workflow = Workflow("nap", state=Nap, steps=[nap, wake])

    def note(self, what: str) -> str:
        self.calls.append(what)
        return what


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_a_sleeping_session_is_parked_and_goes_on_where_it_slept_when_the_time_has_come() -> None:
    naps, clock = Naps(), ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(naps.workflow)
        await settled(session, Status.SLEEPING)
        info = await session.info()
        assert (info.step, info.holder) == ("nap", None)
        assert info.wakes_at == clock.time + timedelta(hours=1)
        assert not engine._service.driver.runs
        clock.advance(HOUR - 1)
        await asyncio.sleep(0.02)
        assert await session.status() is Status.SLEEPING
        clock.advance(1)
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.woken) == (Status.COMPLETED, "fresh")
        assert naps.calls == ["top", "before", "top", "after"]


@on_loop
async def test_outcome_waits_for_a_session_that_sleeps() -> None:
    naps, clock = Naps(), ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(naps.workflow)
        waiting = asyncio.create_task(session.outcome())
        await settled(session, Status.SLEEPING)
        assert not waiting.done()
        clock.advance(HOUR)
        assert (await waiting).status is Status.COMPLETED


@pytest.mark.no_always_replay("counts the runs of the step's body")
@pytest.mark.parametrize("clock_moves", [0.0, HOUR, 2 * HOUR])
@on_loop
async def test_the_time_is_counted_from_the_first_time_over_restarts(clock_moves: float, tmp_path: Path) -> None:
    naps, clock = Naps(), ManualClock()
    async with Engine(tmp_path / "h.db", clock=clock) as engine:
        session = await engine.start(naps.workflow, session_id="s")
        await settled(session, Status.SLEEPING)
    clock.advance(clock_moves)
    async with Engine(tmp_path / "h.db", clock=clock, workflows=[naps.workflow]) as engine:
        session = engine.session("s")
        clock.advance(max(0.0, HOUR - clock_moves))
        assert (await session.outcome()).state.woken == "fresh"
    assert naps.calls == ["top", "before", "top", "after"]


@on_loop
async def test_any_engine_that_knows_the_workflow_picks_it_up_and_others_leave_it(tmp_path: Path) -> None:
    naps, clock = Naps(), ManualClock()
    async with Engine(tmp_path / "h.db", clock=clock) as stranger:
        async with Engine(tmp_path / "h.db", clock=clock) as first:
            session = await first.start(naps.workflow, session_id="s")
            await settled(session, Status.SLEEPING)
        clock.advance(HOUR)
        await asyncio.sleep(0.1)
        assert (await stranger.session("s").info()).status is Status.READY
        async with Engine(tmp_path / "h.db", clock=clock, workflows=[naps.workflow]) as friend:
            assert (await friend.session("s").outcome()).status is Status.COMPLETED


@on_loop
async def test_two_engines_run_a_due_session_once(tmp_path: Path) -> None:
    naps, clock = Naps(), ManualClock()
    async with (
        Engine(tmp_path / "h.db", clock=clock, workflows=[naps.workflow]) as one,
        Engine(tmp_path / "h.db", clock=clock, workflows=[naps.workflow]) as two,
    ):
        sessions = [await one.start(naps.workflow, seconds=float(n)) for n in range(1, 21)]
        for session in sessions:
            await settled(session, Status.SLEEPING)
        clock.advance(20)
        for session in sessions:
            assert (await two.session(session.id).outcome()).status is Status.COMPLETED
    assert naps.calls.count("before") == naps.calls.count("after") == 20


@on_loop
async def test_until_waits_for_a_moment_and_not_at_all_for_one_that_has_passed() -> None:
    clock = ManualClock()
    moment = clock.time + timedelta(days=1)

    class Day(BaseModel):
        moments: list[datetime]
        done: int = 0

    @step(writes="done")
    async def wait(moments: list[datetime], ctx: Context) -> int:
        for each in moments:
            await ctx.until(each)
        return len(moments)

    workflow = Workflow("day", state=Day, steps=[wait])
    async with Engine(":memory:", clock=clock) as engine:
        past = await engine.start(workflow, moments=[clock.time - timedelta(days=1), clock.time])
        assert (await past.outcome()).state.done == 2
        session = await engine.start(workflow, moments=[moment])
        await settled(session, Status.SLEEPING)
        assert (await session.info()).wakes_at == moment
        clock.advance(86400)
        assert (await session.outcome()).state.done == 1


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), True, "soon", timedelta(seconds=-1)])
@on_loop
async def test_a_duration_that_is_none_is_refused_in_the_step(bad: Any) -> None:
    @step
    async def nap(ctx: Context) -> None:
        await ctx.sleep(bad)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("nap", state=Nap, steps=[nap]))
        outcome = await session.outcome()
        assert outcome.failure is not None
        assert "'nap': sleep takes seconds or a timedelta, 0 or more" in outcome.failure.message


@on_loop
async def test_until_refuses_a_time_without_a_zone() -> None:
    @step
    async def wait(ctx: Context) -> None:
        await ctx.until(datetime(2030, 1, 1))

    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(Workflow("w", state=Nap, steps=[wait]))).outcome()
        assert outcome.failure is not None
        assert "has no time zone" in outcome.failure.message


# pause, resume, cancel


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_timers_run_on_while_a_session_is_paused() -> None:
    naps, clock = Naps(), ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(naps.workflow)
        await settled(session, Status.SLEEPING)
        assert (await session.pause())[0].status is Status.PAUSED
        clock.advance(2 * HOUR)
        await asyncio.sleep(0.02)
        assert await session.status() is Status.PAUSED
        assert naps.calls == ["top", "before"]
        await session.resume()
        assert (await session.outcome()).status is Status.COMPLETED


@pytest.mark.no_always_replay("is left between the making of a coroutine and its first turn")
@on_loop
async def test_frozen_timers_are_late_by_the_pause_and_a_moment_is_not() -> None:
    clock = ManualClock()
    deadline = clock.time + timedelta(hours=1)

    class Two(BaseModel):
        order: list[str] = []

    @step(writes="order")
    async def both(ctx: Context) -> list[str]:
        order: list[str] = []

        async def one(name: str, wait: Any) -> None:
            await wait
            order.append(name)

        await asyncio.gather(one("slept", ctx.sleep(HOUR / 2)), one("moment", ctx.until(deadline)))
        return order

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("two", state=Two, steps=[both]))
        await settled(session, Status.SLEEPING)
        begin = clock.time
        clock.advance(60)
        await session.pause(freeze=True)
        clock.advance(10 * 60)
        await session.resume()
        await settled(session, Status.SLEEPING)
        assert (await session.info()).wakes_at == begin + timedelta(minutes=40)
        clock.advance(29 * 60)
        while (await session.info()).wakes_at != deadline:
            await asyncio.sleep(0.001)
        clock.advance(20 * 60)
        outcome = await session.outcome()
        assert outcome.state.order == ["slept", "moment"]


@on_loop
async def test_a_frozen_hour_takes_an_hour_besides_the_pause() -> None:
    naps, clock = Naps(), ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(naps.workflow)
        await settled(session, Status.SLEEPING)
        clock.advance(HOUR / 2)
        await session.pause(freeze=True)
        clock.advance(10 * HOUR)
        await session.resume()
        await settled(session, Status.SLEEPING)
        assert (await session.info()).wakes_at == clock.time + timedelta(hours=0.5)
        clock.advance(HOUR / 2)
        assert (await session.outcome()).status is Status.COMPLETED


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_resume_leaves_a_sleeping_session_asleep_unless_told_to_wake_it() -> None:
    naps, clock = Naps(), ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(naps.workflow)
        await settled(session, Status.SLEEPING)
        await session.resume()
        await asyncio.sleep(0.02)
        assert await session.status() is Status.SLEEPING
        assert naps.calls == ["top", "before"]
        await session.resume(wake=True)
        assert (await session.outcome()).status is Status.COMPLETED
        assert naps.calls == ["top", "before", "top", "after"]


@on_loop
async def test_a_session_that_was_woken_by_hand_and_killed_does_not_sleep_again(tmp_path: Path) -> None:
    naps, clock = Naps(), ManualClock()
    async with Engine(tmp_path / "h.db", clock=clock) as engine:
        session = await engine.start(naps.workflow, session_id="s")
        await settled(session, Status.SLEEPING)
        await session.resume(wake=True)
        await session.pause(mode="abort")
        await session.outcome()
    async with Engine(tmp_path / "h.db", clock=clock, workflows=[naps.workflow]) as engine:
        session = await engine.session("s").resume()
        assert (await session.outcome()).status is Status.COMPLETED


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_a_sleeping_session_can_be_cancelled() -> None:
    naps, clock = Naps(), ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(naps.workflow)
        await settled(session, Status.SLEEPING)
        assert await session.cancel() is Status.CANCELLED
        clock.advance(2 * HOUR)
        await asyncio.sleep(0.02)
        assert (await session.outcome()).status is Status.CANCELLED
        assert naps.calls == ["top", "before"]


@on_loop
async def test_a_program_that_ends_leaves_a_sleeping_session_asleep(tmp_path: Path) -> None:
    naps, clock = Naps(), ManualClock()
    async with Engine(tmp_path / "h.db", clock=clock) as engine:
        session = await engine.start(naps.workflow, session_id="s")
        await settled(session, Status.SLEEPING)
    async with Engine(tmp_path / "h.db", clock=clock) as engine:
        assert (await engine.session("s").info()).status is Status.SLEEPING


# branches


@on_loop
async def test_what_runs_beside_a_timer_runs_to_its_end_before_the_session_is_parked() -> None:
    clock, calls = ManualClock(), list[str]()

    class Chain(BaseModel):
        links: int = 0

    def link(n: int) -> int:
        calls.append(f"link {n}")
        return n

    async def chain(ctx: Context) -> int:
        total = 0
        for n in range(5):
            total += await ctx.do(link, n)
            await asyncio.gather(ctx.do(link, 10 + n), ctx.do(link, 20 + n))
        return total

    @step(writes="links")
    async def both(ctx: Context) -> int:
        _, total = await asyncio.gather(ctx.sleep(HOUR), chain(ctx))
        return total

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("chain", state=Chain, steps=[both]))
        await settled(session, Status.SLEEPING)
        assert len(calls) == 15
        clock.advance(HOUR)
        assert (await session.outcome()).state.links == 10
        assert len(calls) == 15


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_a_timer_rings_while_another_branch_works() -> None:
    clock, order = ManualClock(), list[str]()
    started, go = asyncio.Event(), asyncio.Event()

    class Both(BaseModel):
        done: bool = False

    async def long() -> str:
        started.set()
        await go.wait()
        order.append("long")
        return "long"

    @step(writes="done")
    async def both(ctx: Context) -> bool:
        async def short() -> None:
            await ctx.sleep(60)
            order.append("short")
            go.set()

        await asyncio.gather(short(), ctx.do(long))
        return True

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("both", state=Both, steps=[both]))
        await started.wait()
        await clock.asleep()
        clock.advance(60)
        assert (await session.outcome()).state.done
        assert order == ["short", "long"]


@on_loop
async def test_every_item_of_a_map_has_a_timer_of_its_own() -> None:
    clock, calls = ManualClock(auto=True), list[int]()

    class Items(BaseModel):
        done: list[int] = []

    async def one(n: int, ctx: Context) -> int:
        await ctx.sleep(n)
        calls.append(n)
        return n * n

    @step(writes="done")
    async def all_of_them(ctx: Context) -> list[int]:
        return await ctx.map(one, range(12), concurrency=4)

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("items", state=Items, steps=[all_of_them]))
        outcome = await session.outcome()
        assert outcome.state.done == [n * n for n in range(12)]
        assert sorted(calls) == list(range(12))


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_a_blocking_step_sleeps_without_a_thread() -> None:
    clock, threads = ManualClock(), list[threading.Thread]()

    @step(writes="slept")
    def nap(ctx: BlockingContext) -> bool:
        threads.append(threading.current_thread())
        ctx.sleep(timedelta(hours=1))
        ctx.until(datetime(2020, 1, 1, tzinfo=UTC))
        return True

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("nap", state=Nap, steps=[nap]))
        await settled(session, Status.SLEEPING)
        while threads[0].is_alive():  # the thread ends on its own shortly after the session was parked
            await asyncio.sleep(0.001)
        clock.advance(HOUR)
        assert (await session.outcome()).state.slept
        assert len(threads) == 2


@on_loop
async def test_a_steps_time_out_does_not_count_what_it_sleeps() -> None:
    clock = ManualClock()

    @step(writes="slept", timeout=PATIENCE)
    async def nap(ctx: Context) -> bool:
        await ctx.sleep(HOUR)
        return True

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("nap", state=Nap, steps=[nap]))
        await settled(session, Status.SLEEPING)
        clock.advance(HOUR)
        assert (await session.outcome()).state.slept


# clocks and crashes

JUMPS = {
    "a second forth": 1.0,
    "a second back": -1.0,
    "an hour forth": HOUR,
    "an hour back": -HOUR,  # like the end of daylight saving time, if the clock shows local time
    "a year forth": 365 * 86400.0,
    "a year back": -365 * 86400.0,
    "to 1970": -1_700_000_000.0,
    "beyond 2038": 15 * 365 * 86400.0,
}


@pytest.mark.parametrize("jump", JUMPS)
@on_loop
async def test_a_clock_that_jumps_loses_no_timer_and_doubles_none(jump: str) -> None:
    naps, clock = Naps(), ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(naps.workflow, seconds=HOUR)
        await settled(session, Status.SLEEPING)
        clock.jump(JUMPS[jump])
        for _ in range(3):  # until the clock shows the timer's time, no matter how it jumped
            clock.advance(max(LONGEST_NAP, HOUR - JUMPS[jump]))
            await asyncio.sleep(0.01)
        assert (await session.outcome()).status is Status.COMPLETED
        assert naps.calls.count("before") == naps.calls.count("after") == 1
        checkpoints = [event async for event in session.events() if event.event_type == "step.completed"]
        assert len(checkpoints) == 2


@pytest.mark.long
def test_a_sleeping_workflow_survives_a_crash_at_every_durable_point() -> None:
    points = every_crash_point(Naps().workflow, seconds=HOUR)
    assert len(points) >= 10


@pytest.mark.long
@on_loop
async def test_a_session_of_a_day_and_a_night() -> None:
    clock, hours = ManualClock(auto=True), list[datetime]()

    class Watch(BaseModel):
        rounds: int = 0
        log: list[str] = []

    @step(writes=("rounds", "log"))
    async def make_a_round(rounds: int, log: list[str], ctx: Context) -> dict[str, Any]:
        await ctx.sleep(timedelta(hours=1))
        at = await ctx.do(now)
        return {"rounds": rounds + 1, "log": [*log, at]}

    def now() -> str:
        hours.append(clock.time)
        return clock.time.isoformat()

    @route(after=make_a_round)
    def again(rounds: int) -> Literal["make_a_round"] | None:
        return "make_a_round" if rounds < 24 else None

    workflow = Workflow("watch", state=Watch, steps=[make_a_round], routes=[again])
    async with Engine(":memory:", clock=clock) as engine:
        begin = clock.time
        session = await engine.start(workflow)
        outcome = await session.outcome()
        assert outcome.state.rounds == 24
        assert clock.time - begin == timedelta(hours=24)
        assert [hour - begin for hour in hours] == [timedelta(hours=n) for n in range(1, 25)]
        assert [event.event_type async for event in session.events()].count("session.waiting") == 24


@pytest.mark.long
@on_loop
async def test_parked_sessions_cost_no_task_and_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    naps, clock = Naps(), ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        first = await engine.start(naps.workflow)
        await settled(first, Status.SLEEPING)
        started = started_threads(monkeypatch)
        sessions = [await engine.start(naps.workflow) for _ in range(200)]
        for session in sessions:
            await settled(session, Status.SLEEPING)
        # Two tasks of this test, and those that wait for timers, for changes and for engines that die.
        assert len(asyncio.all_tasks()) <= 6
        assert [thread.name for thread in started if thread.is_alive()] in ([], [f"{NAME}-loop-watch"])
        assert not engine._service.driver.runs
        assert not engine._service.driver.listeners.sessions
        clock.advance(HOUR)
        for session in sessions:
            assert (await session.outcome()).status is Status.COMPLETED


@pytest.mark.no_always_replay("it counts how often the step's own code runs")
@on_loop
async def test_who_starts_or_resumes_what_this_engine_has_just_woken_gets_it(tmp_path: Path) -> None:
    naps, clock = Naps(), ManualClock()
    async with Engine(tmp_path / "h.db", clock=clock) as engine:
        await settled(await engine.start(naps.workflow, session_id="s"), Status.SLEEPING)
    clock.advance(HOUR)
    async with Engine(tmp_path / "h.db", clock=clock, workflows=[naps.workflow]) as engine:
        while not engine.running and naps.calls[-1] != "after":
            await asyncio.sleep(0)  # until its waker is about to drive it; a start that comes first would drive it
        calls = (engine.start(naps.workflow, session_id="s"), engine.session("s").resume())
        found: list[Any] = list(await asyncio.gather(*calls, return_exceptions=True))
        for session in found:
            assert isinstance(session, Session), session
            assert (await session.outcome()).status is Status.COMPLETED
    assert naps.calls == ["top", "before", "top", "after"]


@pytest.mark.long
def test_kill_minus_nine_while_it_sleeps_costs_nothing(tmp_path: Path) -> None:
    program = """
    from pydantic import BaseModel
    class Nap(BaseModel):
        slept: bool = False
    @step(writes="slept")
    async def nap(ctx: Context) -> bool:
        await ctx.do(say, "working", key="work")
        await ctx.sleep(float(args[1]))
        return True
    workflow = Workflow("nap", state=Nap, steps=[nap])
    async with Engine(args[0], workflows=[workflow]) as engine:
        session = await engine.start(workflow, session_id="s")
        while (status := await session.status()) not in (Status.SLEEPING, Status.COMPLETED):
            await asyncio.sleep(0.005)
        say(status)
        await heard()
        say((await session.outcome()).status)
    """
    path, status = tmp_path, ""
    for seconds in (0.5, 5, 50):  # a busy machine may take longer until the process says that it sleeps
        path = tmp_path / f"{seconds}.db"
        with child(program, path, seconds) as first:
            first.expect("working")
            status = first.line()
            first.signal(9)
            assert first.ended() == -9
        if status == "sleeping":
            break
    assert status == "sleeping"
    with child(program, path, seconds) as second:
        assert second.line() in ("sleeping", "completed")
        second.tell()
        second.expect("completed")
