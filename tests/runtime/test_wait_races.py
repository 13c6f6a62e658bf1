"""Requests, timers and engines that reach a waiting session at an unfortunate moment."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.errors import DefinitionError
from pausepoint.testing import ManualClock
from tests.runtime.kit import HOUR, Data, Gate, listening
from tests.support.loop import on_loop
from tests.support.status import settled

# next to running work


@pytest.mark.no_always_replay("waits for what another branch does in memory")
@on_loop
async def test_the_end_of_a_child_is_heard_while_another_branch_works() -> None:
    gate = Gate()

    @step(writes="out")
    async def quick() -> str:
        return "done"

    part = Workflow("part", state=Data, steps=[quick])

    @step(writes="out")
    async def top(ctx: Context) -> str:
        async def after_the_child() -> None:
            await ctx.call(part)
            gate.open.set()

        await asyncio.gather(ctx.do(gate.pass_through), after_the_child())
        return "both"

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("top", state=Data, steps=[top]))
        assert (await session.outcome()).state.out == "both"


@pytest.mark.no_always_replay("waits for what another branch does in memory")
@on_loop
async def test_a_timer_that_is_set_later_and_rings_earlier_is_not_late() -> None:
    clock, gate, short = ManualClock(), Gate(), Gate()
    rung: list[str] = []

    @step(writes="out")
    async def top(ctx: Context) -> str:
        async def late() -> None:
            await ctx.sleep(20)
            rung.append("late")

        async def early() -> None:
            await ctx.do(short.pass_through)
            await ctx.sleep(1)
            rung.append("early")
            gate.open.set()

        await asyncio.gather(ctx.do(gate.pass_through), late(), early())
        return "all"

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("top", state=Data, steps=[top]))
        await gate.begun.wait()
        await clock.asleep()
        short.open.set()
        while [event.event_type async for event in session.events()].count("timer.set") < 2:
            await asyncio.sleep(0)
        clock.advance(1)
        await gate.open.wait()
        assert rung == ["early"]
        await settled(session, Status.SLEEPING)
        clock.advance(19)
        assert (await session.outcome()).state.out == "all"


# requests


@pytest.mark.no_always_replay("waits for what another branch does in memory")
@on_loop
async def test_a_pause_that_is_taken_back_has_children_go_on_that_it_had_stopped() -> None:
    gate, below = Gate(), asyncio.Event()

    @step(writes="n")
    async def first() -> int:
        await below.wait()
        return 1

    @step(writes="out")
    async def second() -> str:
        return "done"

    part = Workflow("part", state=Data, steps=[first, second])

    @step(writes="out")
    async def top(ctx: Context) -> str:
        _, child = await asyncio.gather(ctx.do(gate.pass_through), ctx.call(part))
        return child.out

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("top", state=Data, steps=[top]))
        await gate.begun.wait()
        while not await session.children():
            await asyncio.sleep(0.001)
        assert (await session.pause())[0].status is Status.PAUSING
        [info] = await session.children()
        child = engine.session(info.session_id)
        below.set()
        await settled(child, Status.PAUSED)
        await session.resume()
        await settled(child, Status.COMPLETED)
        gate.open.set()
        assert (await session.outcome()).state.out == "done"


@on_loop
async def test_a_resume_of_the_root_with_more_money_has_the_whole_tree_go_on() -> None:
    @step(writes="out")
    async def spend(ctx: Context) -> str:
        ctx.spend(usd=1)
        return "spent"

    @step(writes="n")
    async def count(ctx: Context) -> int:
        return await ctx.do(int, 5)

    part = Workflow("part", state=Data, steps=[spend, count])

    @step(writes="n")
    async def middle(ctx: Context) -> int:
        return sum(each.n for each in await asyncio.gather(*[ctx.call(part, n=n) for n in range(3)]))

    inner = Workflow("inner", state=Data, steps=[middle])

    @step(writes="n")
    async def top(ctx: Context) -> int:
        return (await ctx.call(inner)).n

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("top", state=Data, steps=[top]), budget=1)
        assert (await session.outcome()).status is Status.WAITING
        await session.resume(budget=100)
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.n, outcome.spent_usd) == (Status.COMPLETED, 15, 3)


@on_loop
async def test_a_budget_that_comes_with_a_resume_while_pausing_holds() -> None:
    gate, done = Gate(), list[int]()

    @step(writes="out")
    async def top(ctx: Context) -> str:
        await ctx.do(gate.pass_through)
        for n in range(10):
            await ctx.do(done.append, n)
            ctx.spend(usd=1)
        return "all"

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("top", state=Data, steps=[top]))
        await gate.begun.wait()
        await session.pause()
        await session.resume(budget=2)
        gate.open.set()
        outcome = await session.outcome()
        assert ([pause.kind for pause in outcome.pauses], done) == (["budget"], [0, 1])


@pytest.mark.parametrize("after", ["an error", "a child"])
@on_loop
async def test_a_session_that_is_to_end_ends_as_cancelled_whatever_its_step_raises(after: str) -> None:
    gate, part = Gate(), listening()

    @step(writes="out")
    async def top(ctx: Context) -> str:
        if after == "a child":  # the child is cancelled first, which raises in the step that called it
            await asyncio.gather(ctx.do(gate.pass_through), ctx.call(part))
        await ctx.do(gate.pass_through)
        raise ValueError("too late")

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("top", state=Data, steps=[top]))
        await gate.begun.wait()
        while after == "a child" and [each.status for each in await session.children()] != [Status.WAITING]:
            await asyncio.sleep(0.001)
        assert await session.cancel() is Status.RUNNING
        gate.open.set()
        assert (await session.outcome()).status is Status.CANCELLED


@on_loop
async def test_a_child_that_is_called_by_a_session_that_is_to_end_does_not_run() -> None:
    gate, ran = Gate(), list[int]()

    @step(writes="out")
    async def run() -> str:
        ran.append(1)
        return "ran"

    part = Workflow("part", state=Data, steps=[run])

    @step(writes="out")
    async def top(ctx: Context) -> str:
        await ctx.do(gate.pass_through)
        return (await ctx.call(part)).out

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("top", state=Data, steps=[top]))
        await gate.begun.wait()
        await session.cancel()
        gate.open.set()
        assert (await session.outcome()).status is Status.CANCELLED
        for info in await session.children():
            assert (await engine.session(info.session_id).outcome()).status is Status.CANCELLED
        assert not ran


@on_loop
async def test_two_engines_that_cancel_a_session_at_once_agree(tmp_path: Path) -> None:
    clock = ManualClock()

    @step(writes="out")
    async def nap(ctx: Context) -> str:
        await ctx.sleep(HOUR)
        return ""

    workflow = Workflow("nap", state=Data, steps=[nap])
    async with Engine(tmp_path / "h.db", clock=clock) as one, Engine(tmp_path / "h.db", clock=clock) as two:
        for _ in range(5):
            session = await one.start(workflow)
            await settled(session, Status.SLEEPING)
            said = await asyncio.gather(*[engine.session(session.id).cancel() for engine in (one, two, one, two)])
            assert said == [Status.CANCELLED] * 4
            events = [event.event_type async for event in session.events()]
            assert events.count("session.cancelled") == 1


# frozen time


@pytest.mark.parametrize("pauses", ["operation", "step"])  # in the second case the timer starts while pausing
@pytest.mark.parametrize("effect", ["taken back", "taken"])
@on_loop
async def test_a_timer_is_frozen_for_as_long_as_it_stood_still_and_no_longer(
    effect: str, pauses: Literal["operation", "step"]
) -> None:
    clock, gate = ManualClock(), Gate()

    @step(writes="out", pause=pauses)
    async def top(ctx: Context) -> str:
        await ctx.do(gate.pass_through)
        await ctx.sleep(HOUR)
        return "done"

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("top", state=Data, steps=[top]))
        await gate.begun.wait()
        await session.pause(freeze=True)
        while not engine._service.driver.drive(session.id).must_stop:  # type: ignore[union-attr]  # it runs
            await asyncio.sleep(0.001)
        clock.advance(600)
        if effect == "taken back":
            await session.resume()
        gate.open.set()
        if effect == "taken":
            await settled(session, Status.PAUSED)
            clock.advance(600)
            await session.resume()
        await settled(session, Status.SLEEPING)
        assert (await session.info()).wakes_at == clock.time + timedelta(hours=1)
        clock.advance(HOUR)
        assert (await session.outcome()).state.out == "done"


@on_loop
async def test_a_pause_that_freezes_does_so_also_if_the_session_is_paused_already() -> None:
    clock = ManualClock()

    @step(writes="out")
    async def nap(ctx: Context) -> str:
        await ctx.sleep(HOUR)
        return ""

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("nap", state=Data, steps=[nap]))
        await settled(session, Status.SLEEPING)
        await session.pause("lunch")
        clock.advance(600)
        await session.pause("a long lunch", freeze=True)
        assert [pause.reason for pause in await session.pauses()] == ["lunch", "a long lunch"]
        clock.advance(6000)
        await session.resume()
        await settled(session, Status.SLEEPING)
        assert (await session.info()).wakes_at == clock.time + timedelta(seconds=HOUR - 600)


@pytest.mark.parametrize("span", [1e12, 1e300, timedelta.max])
@on_loop
async def test_a_sleep_beyond_the_end_of_time_is_refused_in_the_step(span: Any) -> None:
    @step(writes="out")
    async def nap(ctx: Context) -> str:
        await ctx.sleep(span)
        return ""

    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(Workflow("nap", state=Data, steps=[nap]))).outcome()
        assert outcome.failure is not None
        assert "'nap': sleep ends after the year 9999" in outcome.failure.message


# which engine picks it up


@on_loop
async def test_an_engine_that_comes_too_late_does_not_run_a_session_that_has_failed_since(tmp_path: Path) -> None:
    clock, runs = ManualClock(), list[int]()

    @step(writes="out")
    async def nap(ctx: Context) -> str:
        await ctx.sleep(HOUR)
        runs.append(1)
        raise ValueError("unlucky")

    workflow = Workflow("nap", state=Data, steps=[nap])
    path, asked, failed = tmp_path / "h.db", asyncio.Event(), asyncio.Event()
    async with (
        Engine(path, clock=clock, workflows=[workflow]) as quick,
        Engine(path, clock=clock, workflows=[workflow]) as slow,
    ):
        session = await quick.start(workflow, session_id="s")
        await settled(session, Status.SLEEPING)
        quickly, slowly = quick.store.claim, slow.store.claim

        async def first(*args: Any, **kwargs: Any) -> Any:
            await asked.wait()
            return await quickly(*args, **kwargs)

        async def second(*args: Any, **kwargs: Any) -> Any:
            asked.set()
            await failed.wait()
            return await slowly(*args, **kwargs)

        quick.store.claim, slow.store.claim = first, second  # type: ignore[method-assign]  # to order the two
        clock.advance(HOUR)
        await settled(session, Status.FAILED)
        failed.set()
        await asyncio.sleep(0.1)
        assert runs == [1]
        assert await session.status() is Status.FAILED


@pytest.mark.parametrize("verb", ["start", "resume", "send"])
@on_loop
async def test_a_session_is_driven_though_whoever_asked_went_away_meanwhile(verb: str, tmp_path: Path) -> None:
    workflow = listening()
    async with Engine(tmp_path / "h.db", workflows=[workflow]) as engine:
        if verb == "start":
            work: Any = engine.start(workflow, session_id="s")
        else:
            session = await engine.start(workflow, session_id="s", paused=verb == "resume")
            await settled(session, Status.PAUSED if verb == "resume" else Status.WAITING)
            work = engine.session("s").resume() if verb == "resume" else engine.session("s").send("hello")
        name = "create" if verb == "start" else "claim"
        take, taken = getattr(engine.store, name), asyncio.Event()

        async def signalled(*args: Any, **kwargs: Any) -> Any:
            try:
                return await take(*args, **kwargs)
            finally:
                taken.set()
                await asyncio.sleep(0)

        setattr(engine.store, name, signalled)
        task = asyncio.create_task(work)
        await taken.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        session = engine.session("s")
        if verb != "send":
            await settled(session, Status.WAITING)
            await session.send("hello")
        assert (await session.outcome()).state.out == "hello"


@on_loop
async def test_a_message_that_is_kept_is_no_error_though_this_code_is_too_old_to_go_on(tmp_path: Path) -> None:
    def version(number: int) -> Workflow[Data]:
        @step(writes="out")
        async def listen(ctx: Context) -> str:
            return await ctx.receive()

        return Workflow("part", state=Data, steps=[listen], version=number)

    new, old = version(2), version(1)
    async with Engine(tmp_path / "h.db") as engine:
        await settled(await engine.start(new, session_id="s"), Status.WAITING)
    async with Engine(tmp_path / "h.db", workflows=[old]) as engine:
        assert await engine.session("s").send("hello") is Status.READY
    async with Engine(tmp_path / "h.db", workflows=[new]) as engine:
        assert (await engine.session("s").outcome()).state.out == "hello"


@on_loop
async def test_who_waits_for_a_session_whose_workflow_is_not_known_here_is_told_at_once(tmp_path: Path) -> None:
    clock = ManualClock()

    @step(writes="out")
    async def nap(ctx: Context) -> str:
        await ctx.sleep(HOUR)
        return ""

    async with Engine(tmp_path / "h.db", clock=clock) as engine:
        session = await engine.start(Workflow("nap", state=Data, steps=[nap]), session_id="s")
        await settled(session, Status.SLEEPING)
    async with Engine(tmp_path / "h.db", clock=clock) as engine:
        with pytest.raises(DefinitionError, match="is not registered"):
            await engine.session("s").outcome()
