"""An act that waits for a person's yes."""

from __future__ import annotations

from contextlib import suppress

import pytest

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.errors import Declined
from tests.questions.kit import Talk, ended, one_step, waits
from tests.support.loop import on_loop


@pytest.mark.covers("S2.57")
@on_loop
async def test_an_act_waits_for_a_yes() -> None:
    done: list[str] = []

    def pay(amount: int) -> int:
        done.append(f"paid {amount}")
        return amount

    async def ask(ctx: Context) -> int:
        assert await ctx.confirm("Pay 5?", act=pay) is True
        return await ctx.do(pay, 5)

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        question = await waits(session)
        assert (question.pause_reason, question.pending_tool_name) == ("WAITING_CONFIRMATION", "pay")
        assert done == []
        await session.answer(True)
        assert await ended(session) == 5
    assert done == ["paid 5"]


@on_loop
async def test_a_no_fails_the_session_without_retries_and_a_resume_does_not_change_that() -> None:
    async def ask(ctx: Context) -> None:
        await ctx.confirm("Pay?")

    @step(writes="said", retry=3)
    async def only(ctx: Context) -> None:
        await ask(ctx)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("one", state=Talk, steps=[only]))
        await waits(session)
        await session.answer({"approved": False, "reason": "too dear"})
        await ended(session, Status.FAILED)
        outcome = await (await session.resume()).outcome()
        assert (outcome.status, outcome.failure and outcome.failure.type) == (Status.FAILED, "Declined")
        assert "too dear" in str(outcome.failure)
        await session.rewind("only")
        await session.resume()
        await waits(session)
        await session.answer("yes")
        await ended(session)


@on_loop
async def test_what_was_declined_cannot_run_even_if_the_step_does_not_care() -> None:
    done: list[int] = []

    async def ask(ctx: Context) -> str:
        with suppress(Declined):
            await ctx.confirm("Pay?", act=done.append)
        try:
            await ctx.do(done.append, 1)
        except Declined as declined:
            return declined.reason
        return "paid"

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        await waits(session)
        await session.answer({"approved": False, "reason": "no"})
        assert await ended(session) == "no"
    assert done == []
