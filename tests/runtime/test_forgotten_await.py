"""A call of the context without an ``await`` fails the step, because the operation did not run."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Outcome, Status, Workflow, step
from tests.support.loop import on_loop


class Mail(BaseModel):
    sent: int = 0


async def send(name: str) -> str:
    return f"sent to {name}"


async def outcome_of(body: Callable[[Context], Awaitable[Any]]) -> Outcome[Mail]:
    @step(writes="sent")
    async def deliver(ctx: Context) -> int:
        await body(ctx)
        return 1

    mail = Workflow("mail", state=Mail, steps=[deliver])
    async with Engine(":memory:", workflows=[mail]) as engine:
        return await (await engine.start(mail)).outcome()


@pytest.mark.parametrize("call", ["do", "map", "sleep", "receive", "ask", "confirm", "safe_point"])
@on_loop
async def test_a_forgotten_await_fails_the_step_and_names_the_call(call: str) -> None:
    given: dict[str, tuple[Any, ...]] = {
        "do": (send, "Ada"), "map": (send, ["Ada"]), "sleep": (1,), "ask": ("Really?",), "confirm": ("Really?",),
    }  # fmt: skip

    async def body(ctx: Context) -> None:
        getattr(ctx, call)(*given.get(call, ()))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome = await outcome_of(body)
    assert outcome.status is Status.FAILED
    assert outcome.failure is not None
    assert f"called ctx.{call}() and did not await it" in outcome.failure.message
    assert f"Write 'await ctx.{call}()'" in outcome.failure.message


@on_loop
async def test_a_task_that_never_began_counts_as_forgotten() -> None:
    async def body(ctx: Context) -> None:
        body.task = asyncio.ensure_future(ctx.do(send, "Ada"))  # type: ignore[attr-defined]

    outcome = await outcome_of(body)
    assert outcome.status is Status.FAILED
    with pytest.raises(Exception, match=r"has ended|closed"):
        await body.task  # type: ignore[attr-defined]


@on_loop
async def test_many_awaited_and_cancelled_calls_are_not_forgotten() -> None:
    async def body(ctx: Context) -> None:
        for number in range(150):
            await ctx.do(send, str(number))
        await asyncio.gather(*(ctx.do(send, f"both {number}") for number in range(100)))
        never = asyncio.ensure_future(ctx.do(send, "nobody"))
        never.cancel()
        await asyncio.wait([never])

    assert (await outcome_of(body)).status is Status.COMPLETED
