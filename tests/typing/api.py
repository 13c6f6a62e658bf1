"""What a type checker sees of the public API. Never run; mypy reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import assert_type

from pydantic import BaseModel

from holdfast import Batch, BlockingContext, Context, Engine, Event, Outcome, Session, SessionId, Status, Workflow, step


class Brief(BaseModel):
    topic: str
    facts: list[str] = []


async def look_up(angle: str) -> int:
    return len(angle)


def weigh(angle: str) -> float:
    return len(angle) / 2


@step(writes="facts")
async def research(topic: str, ctx: Context) -> list[str]:
    assert_type(await ctx.do(look_up, topic), int)
    assert_type(await ctx.do(weigh, topic, key="w"), float)
    assert_type(await ctx.map(look_up, [topic]), list[int])
    assert_type(await ctx.map(weigh, [topic], concurrency=2), list[float])
    assert_type(await ctx.map(look_up, [topic], on_error="collect"), Batch[int])
    assert_type(await ctx.map(weigh, [topic], on_error="collect"), Batch[float])
    assert_type(ctx.session_id, SessionId)
    assert_type(ctx.idempotency_key, str)
    return [topic]


@step(writes="facts")
def revise(topic: str, ctx: BlockingContext) -> list[str]:
    assert_type(ctx.do(weigh, topic), float)
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
        assert_type(await session.status(), Status)
        assert_type(await session.resume(), Session[Brief])
        outcome = await session.outcome()
        assert_type(outcome, Outcome[Brief])
        assert_type(outcome.state, Brief)
        assert_type(session.events(follow=True), AsyncIterator[Event])
