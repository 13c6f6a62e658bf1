"""``resume(wake=True)`` ends the timers of a guest session. Its next visit continues it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pausepoint import AlreadyRunning, Engine, Parked, Retry, Status
from pausepoint.runtime import GuestContext
from pausepoint.testing import ManualClock
from tests.engine.guest import AGENT, Counter, Talk
from tests.support.loop import on_loop

ran: list[int] = []


async def flaky() -> int:
    ran.append(1)
    if len(ran) == 1:
        raise ConnectionError("busy")
    return len(ran)


async def wait_for(ctx: GuestContext[Talk], what: str) -> object:
    match what:
        case "sleep":
            await ctx.sleep(3600)
            return None
        case "receive":
            return await ctx.receive(timeout=3600)
        case "back-off":
            return await ctx.do(flaky, retry=Retry(2, first=3600, longest=3600, jitter=0))
        case _:
            return await ctx.ask("Go on?", expires=timedelta(hours=1))


async def visit(engine: Engine, what: str) -> str:
    async with engine.visit(AGENT, session_id="t") as ctx:
        ctx.output = {"answer": str(await wait_for(ctx, what))}
    return str((await engine.session("t").stored()).values["answer"])


@pytest.mark.parametrize(("what", "result"), [("sleep", "None"), ("receive", "None"), ("back-off", "2")])
@pytest.mark.parametrize("paused", [False, True])
@on_loop
async def test_its_timers_end_now(what: str, result: str, paused: bool, tmp_path: Path) -> None:
    ran.clear()
    clock = ManualClock()
    async with Engine(tmp_path / "s.db", clock=clock) as engine:
        with pytest.raises(Parked, match=r"session\('t'\)\.resume\(wake=True\)" if what != "receive" else "message"):
            await visit(engine, what)
        if paused:
            await engine.session("t").pause()
    async with Engine(tmp_path / "s.db", clock=clock, drives="none") as desk:  # any process can do it
        session = await desk.session("t").resume(wake=True, by="ann")
        assert await session.status() is Status.READY
        resumed = [event async for event in session.events() if event.event_type == "session.resumed"][-1]
        assert "ann" in resumed.summary
        assert "timers end now; its own program continues it" in resumed.summary
    async with Engine(tmp_path / "s.db", clock=clock) as engine:
        assert await visit(engine, what) == result
        assert (await engine.verify()).problems == []


@on_loop
async def test_a_question_stays_open() -> None:
    async with Engine(":memory:", clock=ManualClock()) as engine:
        with pytest.raises(Parked):
            await visit(engine, "ask")
        before = await engine.session("t").info()
        await engine.session("t").resume(wake=True)
        after = await engine.session("t").info()
        assert (after.status, after.wakes_at) == (Status.WAITING, before.wakes_at)
        await engine.session("t").answer("yes")
        assert await visit(engine, "ask") == "yes"


@on_loop
async def test_while_it_is_visited_the_refusal_says_what_to_do() -> None:
    counter = Counter()
    async with Engine(":memory:") as engine:
        running = await counter.stop_at(1, engine)
        with pytest.raises(AlreadyRunning, match=r"is being visited in .* Try again when that visit has ended"):
            await engine.session("t").resume(wake=True)
        counter.go.set()
        assert await running == 6
        done: Any = await engine.session("t").resume(wake=True)  # a completed session is returned unchanged
        assert await done.status() is Status.COMPLETED
