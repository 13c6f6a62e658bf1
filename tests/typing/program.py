"""A program of a user: functions that are workflows. mypy and pyright read this file; nothing runs it.

An ignore that is not needed is an error in both, so the ignored lines are errors in both.
"""

from __future__ import annotations

from typing import assert_type

from pausepoint import BlockingContext, Context, Engine, Retry, current, durable, run, workflow


async def look_up(question: str) -> int:
    return len(question)


@workflow
async def brief(topic: str, ctx: Context, angles: tuple[str, ...] = ("habitat",)) -> list[int]:
    facts = await ctx.map(look_up, [topic, *angles], concurrency=8, retry=3, timeout=60)
    assert_type(facts, list[int])
    assert_type(await ctx.do(look_up, topic, retry=Retry(attempts=2), timeout=1), int)
    assert_type(await ctx.call(count, topic=topic), int)
    assert_type(await ctx.receive(timeout=5), str | None)
    assert_type((await ctx.first(reply=ctx.receive(int), late=ctx.sleep(60))).value, int | None)
    return facts


@workflow(name="counting", version=2)
def count(topic: str, ctx: BlockingContext) -> int:
    assert_type(ctx.first(reply=lambda: ctx.receive(int), late=lambda: ctx.sleep(60)).value, int | None)
    return len(topic)


@durable(retry=3, timeout=30)
async def refund(order: str) -> bool:
    assert_type(current(), Context)
    return bool(order)


async def use(engine: Engine, ctx: Context) -> None:
    assert_type(run(brief, topic="octopus").result, list[int])
    assert_type(run(count, topic="octopus").result, int)
    session = await engine.start(brief, topic="octopus")
    assert_type((await session.outcome()).result, list[int])
    assert_type(await brief("octopus", ctx), list[int])
    assert_type(await refund("A-17"), bool)


async def misuse(ctx: Context, blocking: BlockingContext) -> str:
    await brief(3, ctx)  # type: ignore[arg-type]
    count("octopus", blocking, 3)  # type: ignore[call-arg]
    await refund(order=1)  # type: ignore[arg-type]
    return run(count, topic="octopus").result  # type: ignore[return-value]
