"""The log keeps the arguments of operations for people, unless a step or a workflow says otherwise."""

from __future__ import annotations

import functools
from typing import Any

from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Engine, Workflow, current, durable, step, workflow
from pausepoint.codec.arguments import arguments_of
from pausepoint.log.replay import OperationBody, body_of
from tests.support.loop import on_loop


class Data(BaseModel):
    n: int = 0


async def add(n: int, more: int = 0) -> int:
    return n + more


async def sign_in(user: str, password: str) -> int:
    return 1


@workflow
async def child(n: int) -> int:
    return n


@durable
async def tool(query: str) -> int:
    return 1


def tick(n: int) -> int:
    return n


@step(writes="n")
async def work(ctx: Context) -> int:
    await ctx.do(add, 1, more=2)
    await ctx.do(add, 3, key="third")
    await ctx.do(functools.partial(add, 5, more=3), more=4)
    await ctx.do(lambda client: 6, object(), key="client")
    await ctx.do(sign_in, "ada", password="4711")
    await ctx.map(add, [7, 8])
    await ctx.call(child, n=9)
    await tool("tea")
    await current().sleep(0)
    return 1


@step(writes="n", arguments=False)
async def quiet(ctx: Context) -> int:
    await ctx.do(add, 1)
    return await ctx.do(add, 2, key="k")


@step(writes="n")
def blocking(ctx: BlockingContext) -> int:
    return ctx.do(tick, 10)


async def recorded(engine: Engine, session_id: str) -> list[tuple[str, str, dict[str, Any] | None]]:
    """Return the step, the name and the arguments of each operation in a session's log, in order."""
    row = await engine._service.row(session_id)
    records = await engine._service.store.records(row.key, 1, row.seq)
    bodies = [(record.step, body_of(record)) for record in records if record.kind == "operation"]
    return [
        (name, body.name, arguments_of(body.arguments))
        for name, body in bodies
        if isinstance(body, OperationBody) and not body.total
    ]


@on_loop
async def test_each_kind_of_operation_has_its_arguments() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("w", state=Data, steps=[work, quiet, blocking]))
        await session.outcome()
        hidden = "‹masked›"
        assert await recorded(engine, session.id) == [
            ("work", "add", {"n": 1, "more": 2}),
            ("work", "add", {"n": 3}),
            ("work", "add", {"n": 5, "more": 4}),
            ("work", "<lambda>", {"client": "‹object›"}),
            ("work", "sign_in", {"user": "ada", "password": hidden}),
            ("work", "add", {"n": 7}),
            ("work", "add", {"n": 8}),
            ("work", "call:child", {"n": 9}),
            ("work", "tool", {"query": "tea"}),
            ("work", "sleep", None),
            ("quiet", "add", None),
            ("quiet", "add", None),
            ("blocking", "tick", {"n": 10}),
        ]


@on_loop
async def test_a_workflow_leaves_them_out_unless_a_step_says_otherwise() -> None:
    @step(writes="n", arguments=True)
    async def loud(ctx: Context) -> int:
        return await ctx.do(add, 3)

    @workflow(arguments=False)
    async def silent(ctx: Context) -> int:
        return await ctx.do(add, 4)

    @step(writes="n")
    async def plain(ctx: Context) -> int:
        return await ctx.do(add, 2)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("w", state=Data, steps=[plain, loud], arguments=False))
        await session.outcome()
        assert await recorded(engine, session.id) == [("plain", "add", None), ("loud", "add", {"n": 3})]
        alone = await engine.start(silent)
        await alone.outcome()
        assert await recorded(engine, alone.id) == [("silent", "add", None)]
        guests = Workflow.guest("g", state=Data, arguments=False)
        async with engine.visit(guests, session_id="g1") as ctx:
            await ctx.do(add, 5)
        assert await recorded(engine, "g1") == [("visit", "add", None)]


@on_loop
async def test_the_arguments_are_those_at_the_time_of_the_call() -> None:
    async def grow(items: list[int]) -> int:
        items.append(2)
        return len(items)

    @workflow
    async def growing(ctx: Context) -> int:
        return await ctx.do(grow, [1])

    async with Engine(":memory:") as engine:
        session = await engine.start(growing)
        assert (await session.outcome()).result == 2
        assert await recorded(engine, session.id) == [("growing", "grow", {"items": [1]})]
