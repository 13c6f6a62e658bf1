"""A wait for a message with a time-out: before, during and after the message, over restarts, pauses and freezes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pausepoint import BlockingContext, Context, Engine, Session, Status, Workflow, step
from pausepoint.testing import ManualClock
from tests.support.chat import Mail, history
from tests.support.loop import on_loop
from tests.support.status import settled

MINUTE = 60


@step(writes="got")
async def listen(wanted: int, ctx: Context) -> list[Any]:
    return [await ctx.receive(timeout=MINUTE) for _ in range(wanted)]


listening = Workflow("mail", state=Mail, steps=[listen])


async def got(session: Session[Any]) -> list[Any]:
    outcome = await session.outcome()
    while outcome.status is Status.WAITING:  # until the waker has seen the time
        await asyncio.sleep(0.001)
        outcome = await session.outcome()
    assert outcome.status is Status.COMPLETED
    return outcome.state.got  # type: ignore[no-any-return]


@on_loop
async def test_without_a_message_the_wait_returns_none_when_the_time_is_over() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(listening)
        await settled(session)
        info = await session.info()
        assert (info.status, info.waiting) == (Status.WAITING, ("message",))
        assert info.wakes_at == clock.time + timedelta(seconds=MINUTE)
        clock.advance(MINUTE - 1)
        await asyncio.sleep(0.01)
        assert await session.status() is Status.WAITING
        clock.advance(1)
        assert await got(session) == [None]
        assert (await history(session)).count("timer.set") == 1


@pytest.mark.parametrize("timeout", [0, 0.0, timedelta(0)])
@on_loop
async def test_a_time_out_of_zero_only_looks(timeout: Any) -> None:
    @step(writes="got")
    async def look(ctx: Context) -> list[Any]:
        return [await ctx.receive(timeout=timeout) for _ in range(2)]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[look]), paused=True)
        await session.send("hello")
        await session.resume()
        assert await got(session) == ["hello", None]
        assert "timer.set" not in await history(session)


@on_loop
async def test_a_message_before_the_wait_needs_no_timer() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(listening, paused=True)
        await session.send("hello")
        await session.resume()
        assert await got(session) == ["hello"]
        assert "timer.set" not in await history(session)


@on_loop
async def test_a_message_during_the_wait_ends_it_and_the_next_wait_has_its_own_time() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(listening, wanted=2)
        await settled(session)
        clock.advance(MINUTE - 1)
        await session.send("hello")
        await settled(session)
        assert (await session.info()).wakes_at == clock.time + timedelta(seconds=MINUTE)
        clock.advance(MINUTE)
        assert await got(session) == ["hello", None]


@on_loop
async def test_a_message_after_the_time_out_is_for_the_next_wait() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(listening, wanted=2)
        await settled(session)
        clock.advance(MINUTE)
        while "operation.completed" not in await history(session):
            await asyncio.sleep(0.001)
        await settled(session)
        await session.send("late")
        assert await got(session) == [None, "late"]


@on_loop
async def test_a_message_that_arrived_while_no_engine_was_open_counts_although_the_time_has_passed(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with Engine(tmp_path / "h.db", clock=clock) as engine:
        await settled(await engine.start(listening, session_id="one"))
    clock.advance(10 * MINUTE)
    async with Engine(tmp_path / "h.db", clock=clock, drives="none") as engine:
        await engine.session("one").send("hello")
    async with Engine(tmp_path / "h.db", clock=clock, workflows=[listening]) as engine:
        assert await got(engine.session("one")) == ["hello"]


@on_loop
async def test_the_time_counts_from_the_first_time_over_restarts(tmp_path: Path) -> None:
    clock = ManualClock()
    for _ in range(3):
        async with Engine(tmp_path / "h.db", clock=clock, workflows=[listening]) as engine:
            session = await engine.start(listening, session_id="one")
            await settled(session)
            clock.advance(MINUTE / 4)
    async with Engine(tmp_path / "h.db", clock=clock, workflows=[listening]) as engine:
        session = await engine.start(listening, session_id="one")
        clock.advance(MINUTE / 4)
        assert await got(session) == [None]


@pytest.mark.parametrize("freeze", [False, True])
@on_loop
async def test_a_pause_stops_the_time_only_if_it_freezes_timers(freeze: bool) -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(listening)
        await settled(session)
        clock.advance(10)
        await session.pause(freeze=freeze, wait=True)
        clock.advance(10 * MINUTE)
        await session.resume()
        if freeze:
            await settled(session)
            assert (await session.info()).wakes_at == clock.time + timedelta(seconds=MINUTE - 10)
            clock.advance(MINUTE - 10)
        assert await got(session) == [None]


@on_loop
async def test_a_message_in_a_pause_is_received_when_the_session_resumes_although_the_time_has_passed() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(listening)
        await settled(session)
        await session.pause(wait=True)
        clock.advance(10 * MINUTE)
        await session.send("hello")
        await session.resume()
        assert await got(session) == ["hello"]


@on_loop
async def test_a_resume_that_wakes_timers_ends_the_wait() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(listening)
        await settled(session)
        await session.resume(wake=True)
        assert await got(session) == [None]


@on_loop
async def test_a_def_step_has_the_time_out_too() -> None:
    @step(writes="got")
    def look(ctx: BlockingContext) -> list[Any]:
        return [ctx.receive(timeout=0.01), ctx.receive(int, timeout=0)]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[look]))
        assert await got(session) == [None, None]


@pytest.mark.parametrize("timeout", [-1, float("nan"), "soon", True])
@on_loop
async def test_what_is_no_time_is_refused(timeout: Any) -> None:
    @step(writes="got")
    async def look(ctx: Context) -> list[Any]:
        return [await ctx.receive(timeout=timeout)]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[look]))
        failure = (await session.outcome()).failure
        assert failure is not None
        assert "receive(timeout=) takes seconds or a timedelta, 0 or more" in failure.message
