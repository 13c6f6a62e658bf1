"""Live output of operations that are retried: the text of a failed attempt is void."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Engine, Retry, Workflow, step
from pausepoint.model import Restarted, StreamItem, StreamText
from tests.runtime.kit import pass_time
from tests.support.loop import PATIENCE, on_loop

RETRY = Retry(attempts=2, first=0.001)


class Talk(BaseModel):
    out: str = ""


async def streamed(*steps: Any) -> tuple[list[str], int]:
    """Run steps. Return the texts that a page shows at the end, and how often something was declared void."""
    text, items = StreamText(), list[StreamItem]()
    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("talk", state=Talk, steps=list(steps)))
        async for item in session.stream():
            items.append(item)
            text.apply(item)
        assert (await session.outcome()).failure is None
    return sorted(text.parts.values()), sum(isinstance(item, Restarted) for item in items)


class Flaky:
    """Operations that send their text, and fail the first time."""

    def __init__(self, silent: bool) -> None:
        self.calls = 0
        self.silent = silent

    def call(self, ctx: Context | BlockingContext) -> None:
        self.calls += 1
        if self.calls == 1 or not self.silent:
            ctx.stream(f"try {self.calls}")
        if self.calls == 1:
            raise ConnectionError("down")

    async def later(self, ctx: Context) -> None:
        self.call(ctx)

    def now(self, ctx: BlockingContext) -> None:
        self.call(ctx)


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("kind", ["async", "thread", "def step"])
@on_loop
async def test_a_retried_operation_begins_its_text_again_even_if_it_sends_nothing_more(kind: str, silent: bool) -> None:
    flaky = Flaky(silent)

    @step()
    async def async_step(ctx: Context) -> None:
        await ctx.do(flaky.later if kind == "async" else flaky.now, key="flaky", retry=RETRY)

    @step()
    def def_step(ctx: BlockingContext) -> None:
        ctx.do(flaky.now, key="flaky", retry=RETRY)

    texts, voids = await streamed(def_step if kind == "def step" else async_step)
    assert (texts, voids, flaky.calls) == ([] if silent else ["try 2"], 1, 2)


@on_loop
async def test_a_text_can_be_void_with_its_own_attempt_and_then_with_one_around_it() -> None:
    tries: list[int] = []

    async def inner(ctx: Context) -> None:
        tries.append(1)
        ctx.stream(f"try {len(tries)}")
        if len(tries) < 4:
            raise ConnectionError("down")

    async def outer(ctx: Context) -> None:
        await ctx.do(inner, retry=RETRY)

    @step()
    async def act(ctx: Context) -> None:
        await ctx.do(outer, retry=Retry(attempts=3, first=0))

    assert await streamed(act) == (["try 4"], 3)


@on_loop
async def test_operations_inside_keep_their_text_if_they_have_ended() -> None:
    calls: list[str] = []

    async def say(text: str, ctx: Context) -> None:
        ctx.stream(text)
        if text == "half":
            raise ConnectionError("down")

    async def outer(ctx: Context) -> None:
        calls.append("outer")
        ctx.stream(f"try {len(calls)}")
        await ctx.do(say, "kept")
        if len(calls) == 1:
            await ctx.do(say, "half")

    @step()
    async def talk(ctx: Context) -> None:
        await ctx.do(outer, retry=RETRY)

    texts, _ = await streamed(talk)
    assert texts == ["kept", "try 2"]


@on_loop
async def test_what_a_thread_sends_after_its_attempt_has_timed_out_reaches_nobody() -> None:
    calls: list[int] = []
    late, ended = threading.Event(), threading.Event()

    def slow(ctx: BlockingContext) -> None:
        calls.append(1)
        if len(calls) == 1:
            ctx.stream("first")
            visit = ctx._visit
            visit.loop.call_soon_threadsafe(pass_time, visit, 2 * PATIENCE)
            assert late.wait(PATIENCE)
            try:
                ctx.stream("too late")
            finally:
                ended.set()
        else:
            ctx.stream("second")
            late.set()
            assert ended.wait(PATIENCE)
            ctx.stream(" and last")

    @step()
    async def talk(ctx: Context) -> None:
        await ctx.do(slow, timeout=PATIENCE, retry=RETRY)

    assert await streamed(talk) == (["second and last"], 1)


@on_loop
async def test_what_a_task_sends_after_its_attempt_has_failed_reaches_nobody() -> None:
    calls: list[int] = []
    late = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    async def afterwards(ctx: Context) -> None:
        await late.wait()
        ctx.stream("too late")

    async def flaky(ctx: Context) -> None:
        calls.append(1)
        if len(calls) == 1:
            tasks.append(asyncio.create_task(afterwards(ctx)))
            raise ConnectionError("down")
        ctx.stream("second")
        late.set()
        await tasks[0]
        ctx.stream(" and last")

    @step()
    async def talk(ctx: Context) -> None:
        await ctx.do(flaky, retry=RETRY)

    assert await streamed(talk) == (["second and last"], 0)
