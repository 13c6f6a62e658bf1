"""A follower that asks for it is released when the session stops: paused, failed, waiting or ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pausepoint import Context, Engine, Session, Status, Workflow, step
from pausepoint.testing import ManualClock
from tests.support.chat import Chatting, Mail
from tests.support.loop import on_loop
from tests.support.pipeline import Gate
from tests.support.status import settled


async def followed(session: Session[Any], after: str = "") -> list[str]:
    """Return the events until the session is parked. Fails after a minute, like every test that hangs."""
    return [event.event_type async for event in session.events(after, follow=True, until="parked")]


async def cursor(session: Session[Any]) -> str:
    return [event.cursor async for event in session.events()][-1]


@on_loop
async def test_the_follower_of_a_chat_returns_after_each_turn() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Chatting().workflow)
        assert (await followed(session))[-1] == "session.waiting"
        for _ in range(3):
            last = await cursor(session)
            await session.send("hello")
            assert "step.completed" in await followed(session, last)
        await session.send("bye")
        assert (await followed(session))[-1] == "session.completed"


@pytest.mark.parametrize("act", ["paused", "failed", "cancelled"])
@on_loop
async def test_it_returns_when_the_session_is(act: str) -> None:
    gate = Gate()

    @step
    async def work(ctx: Context) -> None:
        await ctx.do(gate.hold)
        await ctx.receive()
        if act == "failed":
            raise ValueError("no")
        await ctx.sleep(3600)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=Mail, steps=[work]))
        follower = asyncio.create_task(followed(session))
        await gate.reached.wait()
        await session.send("hello")
        if act == "paused":
            await session.pause()
        elif act == "cancelled":
            await session.cancel()
        gate.opened.set()
        assert (await follower)[-1] == f"session.{act}"
        assert await session.status() is Status(act)


@on_loop
async def test_a_session_that_is_paused_already_does_not_hang_its_follower() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Chatting().workflow, paused=True)
        await session.send("hello")
        assert "message.received" in await followed(session)


@on_loop
async def test_it_follows_a_timer_but_not_the_time_limit_of_a_message() -> None:
    clock = ManualClock()

    @step(writes="got")
    async def nap(ctx: Context) -> list[Any]:
        await ctx.sleep(60)
        return [await ctx.receive(timeout=60), (await ctx.first(ctx.receive(), ctx.sleep(60))).name]

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("nap", state=Mail, steps=[nap]))
        events = session.events(follow=True, until="parked")
        seen = [await anext(events)]
        while seen[-1].event_type != "session.waiting":  # until the timer ends
            seen.append(await anext(events))
        follower = asyncio.ensure_future(anext(events))
        await settled(session, Status.SLEEPING)
        clock.advance(60)
        assert (await follower).event_type == "operation.completed"  # the timer; the follower has not stopped at it
        assert [event.event_type async for event in events][-1] == "session.waiting"
        last = await cursor(session)
        await session.send("hello")
        assert (await followed(session, last))[-1] == "session.waiting"  # the race, with a timer
        assert (await session.outcome()).status is Status.WAITING


@on_loop
async def test_other_words_are_refused() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Chatting().workflow)
        with pytest.raises(ValueError, match="until must be 'ended' or 'parked'"):
            async for _ in session.events(follow=True, until="paused"):  # type: ignore[arg-type]
                pass
