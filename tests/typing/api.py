"""What a type checker sees of the public API. Never run; mypy reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any, Literal, assert_type

from pydantic import BaseModel

from pausepoint import (
    BlockingContext,
    Context,
    Engine,
    Outcome,
    Question,
    Session,
    Status,
    Tool,
    Workflow,
    collect,
    current,
    durable,
    run,
    step,
    workflow,
)
from pausepoint.engine import BlockingEngine, BlockingSession
from pausepoint.model import Event, SessionId
from pausepoint.model.questions import Receipt
from pausepoint.model.views import Checkpoint, Diff, Listing, SessionInfo
from pausepoint.runtime import Batch, GuestContext
from pausepoint.runtime.collect import Collected


class Brief(BaseModel):
    topic: str
    facts: list[str] = []


async def look_up(angle: str) -> int:
    return len(angle)


def weigh(angle: str) -> float:
    return len(angle) / 2


def count_facts(brief: Brief) -> int:
    return len(brief.facts)


@step(writes="facts")
async def research(topic: str, ctx: Context) -> list[str]:
    assert_type(await ctx.do(look_up, topic), int)
    assert_type(await ctx.do(weigh, topic, key="w"), float)
    assert_type(await ctx.map(look_up, [topic]), list[int])
    assert_type(await ctx.map(weigh, [topic], concurrency=2), list[float])
    assert_type(await ctx.map(look_up, [topic], on_error="collect"), Batch[int])
    assert_type(await ctx.map(weigh, [topic], on_error="collect"), Batch[float])
    assert_type(await ctx.ask("Which?"), str)
    assert_type(await ctx.ask("How many?", int, default=3, on_expiry="default"), int)
    assert_type(await ctx.ask("Which brief?", Brief, expires=None, rounds=2), Brief)
    assert_type(await ctx.ask("Which tone?", choices=["formal", "playful"]), str)
    assert_type(await ctx.ask("Which?", schema={"type": "integer"}, payload=["a"]), Any)
    assert_type(await ctx.receive(), str)
    assert_type(await ctx.receive(int), int)
    assert_type(await ctx.receive(timeout=5), str | None)
    assert_type(await ctx.receive(Brief, timeout=timedelta(seconds=5)), Brief | None)
    assert_type((await ctx.first(reply=ctx.receive(), late=ctx.sleep(60))).value, str | None)
    assert_type((await asyncio.gather(ctx.sleep(1), ctx.receive(int)))[1], int)
    assert_type(await ctx.confirm("Really?", act=weigh, key="sure"), Literal[True])
    assert_type(await collect(ctx, Tool("count", Brief, count_facts)), Collected[int])
    assert_type(ctx.session_id, SessionId)
    assert_type(ctx.idempotency_key, str)
    return [topic]


@step(writes="facts")
def revise(topic: str, ctx: BlockingContext) -> list[str]:
    assert_type(ctx.do(weigh, topic), float)
    assert_type(ctx.ask("How many?", int), int)
    assert_type(ctx.ask("Which tone?", choices=["formal", "playful"]), str)
    assert_type(ctx.confirm("Really?"), Literal[True])
    assert_type(collect(ctx, Tool("count", Brief, count_facts)), Collected[int])
    assert_type(ctx.map(weigh, [topic]), list[float])
    assert_type(ctx.map(weigh, [topic], on_error="collect"), Batch[float])
    return [topic]


brief = Workflow("brief", state=Brief, steps=[research, revise])


async def use() -> None:
    assert_type(brief, Workflow[Brief])
    async with Engine(":memory:", workflows=[brief]) as engine:
        assert_type(engine, Engine)
        session = await engine.start(brief, topic="squid")
        assert_type(session, Session[Brief])
        assert_type(await engine.start(brief, Brief(topic="squid")), Session[Brief])
        assert_type(await session.state(), Brief)
        assert_type(engine.session("one", brief), Session[Brief])
        assert_type(engine.session("one"), Session[Any])
        assert_type(await session.status(), Status)
        assert_type(await session.resume(), Session[Brief])
        assert_type(await session.questions(), Listing[Question])
        assert_type(await session.answer("playful", by="ann"), Receipt)
        assert_type(await engine.answer("id", 3, seen="digest"), Receipt)
        outcome = await session.outcome()
        assert_type(outcome, Outcome[Brief])
        assert_type(outcome.state, Brief)
        assert_type(await session.state(at_checkpoint="research#1"), Brief)
        assert_type(await session.fork(at_step="research", topic="octopus"), Session[Brief])
        assert_type(await session.rewind("research", reuse=True), Status)
        assert_type(await session.edit(topic="octopus", by="ann"), Status)
        assert_type(await session.checkpoints(), list[Checkpoint])
        assert_type(await session.diff(1), Diff)
        assert_type(session.events(follow=True), AsyncIterator[Event])


def use_blocking() -> None:
    with Engine(":memory:", workflows=[brief]) as engine:
        assert_type(engine, BlockingEngine)
        session = engine.start(brief, topic="squid", session_id="one")
        assert_type(session, BlockingSession[Brief])
        assert_type(engine.start(brief, Brief(topic="squid")), BlockingSession[Brief])
        assert_type(engine.session("one").id, SessionId)
        assert_type(engine.session("one", brief).state(), Brief)
        assert_type(session.state(), Brief)
        assert_type(session.status(), Status)
        assert_type(session.pause("lunch", by="ann"), Listing[SessionInfo])
        assert_type(session.resume(by="ann"), BlockingSession[Brief])
        assert_type(session.fork(at_step=3), BlockingSession[Brief])
        assert_type(session.checkpoints(limit=None), list[Checkpoint])
        assert_type(session.outcome(), Outcome[Brief])
        assert_type(session.events(follow=True), Iterator[Event])
        assert_type(engine.session("one").events(follow=True), Iterator[Event])
        engine.start(brief, session_id=1, topic="squid")  # type: ignore[arg-type]
        engine.session(1).info()  # type: ignore[call-overload]
        session.pause(mode="now")  # type: ignore[arg-type]
        session.resume(colour="red")  # type: ignore[call-arg]
    assert_type(run(brief, topic="squid"), Outcome[Brief])
    assert_type(run(brief, Brief(topic="squid"), store=":memory:").state, Brief)


@workflow
async def outlined(topic: str, ctx: Context, angles: tuple[str, ...] = ()) -> list[str]:
    assert_type(await ctx.call(counted, topic=topic), int)
    assert_type(await ctx.call(Workflow("brief", state=Brief, steps=[research]), topic=topic), Brief)
    return [topic, *angles]


@workflow(name="count", version=2)
def counted(topic: str) -> int:
    return len(topic)


async def functions(engine: Engine) -> None:
    assert_type(run(outlined, topic="x").result, list[str])
    assert_type(run(counted, topic="x").result, int)
    assert_type((await (await engine.start(outlined, topic="x")).outcome()).result, list[str])
    assert_type(counted("x"), int)
    assert_type(await outlined("x", some_context()), list[str])
    counted(topic=3)  # type: ignore[arg-type]


def some_context() -> Context: ...  # type: ignore[empty-body]


@durable
async def charge(order: str, cents: int = 0) -> int:
    return cents


@durable(key=lambda order: order)
def ship(order: str) -> bool:
    return True


async def in_a_step() -> None:
    assert_type(current(), Context)
    assert_type(current(None), Context | None)
    assert_type(current(blocking=True), BlockingContext)
    assert_type(await charge("a", cents=1), int)
    assert_type(ship("a"), bool)
    await charge(1)  # type: ignore[arg-type]


guest = Workflow.guest("guest", state=Brief)


async def visits(engine: Engine, blocking: BlockingEngine) -> None:
    assert_type(guest, Workflow[Brief])
    async with engine.visit(guest, session_id="a", input={"topic": "x"}) as ctx:
        assert_type(ctx, GuestContext[Brief])
        assert_type(ctx.state, Brief)
        assert_type(await ctx.do(look_up, "x"), int)
    with blocking.visit(guest, input=Brief(topic="x")) as block:
        assert_type(block.state.topic, str)
        assert_type(block.do(weigh, "x"), float)
    async with engine.visit(guest, input=1):  # type: ignore[arg-type]
        pass
