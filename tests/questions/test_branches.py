"""Several questions at once: of the branches of one step, and of several sessions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.errors import QuestionClosed
from tests.questions.kit import Asking, ended, held, one_step, statuses, waits
from tests.support.chat import history
from tests.support.loop import on_loop
from tests.support.status import settled

SESSIONS = 30
"""Started at once, so that the writer has several commits of one session in a batch."""


class Poll(BaseModel):
    said: list[str] = []


@step(writes="said")
async def poll(ctx: Context) -> list[str]:
    return await asyncio.gather(*(ctx.ask(f"{number}?") for number in range(3)))


polls = Workflow("polls", state=Poll, steps=[poll])


@pytest.mark.long
@on_loop
async def test_questions_that_are_asked_together_are_all_readable_and_each_gets_its_answer(tmp_path: Path) -> None:
    async with Engine(tmp_path / "polls.db") as engine:
        sessions = await asyncio.gather(*(engine.start(polls) for _ in range(SESSIONS)))
        for session in sessions:
            found = (await session.outcome()).questions
            assert sorted(each.next_question for each in found) == ["0?", "1?", "2?"]
            for each in found:
                await engine.answer(each.id, f"to {each.next_question}")
            assert (await session.outcome()).state.said == ["to 0?", "to 1?", "to 2?"]


@on_loop
async def test_every_branch_has_its_own_question_and_each_answer_reaches_its_own() -> None:
    async def taste(dish: str, ctx: Context) -> str:
        return f"{dish}: {await ctx.ask(f'How is the {dish}?')}"

    async def ask(ctx: Context) -> list[str]:
        mapped = ctx.map(taste, ["soup", "bread"])
        both = await asyncio.gather(mapped, ctx.ask("And the wine?"), ctx.ask("And the room?", key="room"))
        return [*both[0], *both[1:]]

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        await settled(session)
        asked = {question.next_question: question.id for question in await session.questions()}
        assert len(asked) == 4
        for text, said in (("And the wine?", "sour"), ("How is the bread?", "stale"), ("How is the soup?", "cold")):
            await engine.answer(asked[text], said)
            await settled(session)
        await session.answer("loud", key="room")
        assert await ended(session) == ["soup: cold", "bread: stale", "sour", "loud"]


@pytest.mark.covers("S2.29")
@on_loop
async def test_a_step_that_asks_something_else_cancels_what_waited() -> None:
    texts = ["Which?", "Which one?", "Which one?"]

    async def ask(ctx: Context) -> str:
        return await ctx.ask(texts[0], key="which")

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        old = await waits(session)
        texts.pop(0)
        await session.pause()
        await session.edit(topic="squid")
        await session.resume()
        new = await waits(session)
        assert (new.next_question, await statuses(session)) == ("Which one?", ["CANCELLED", "WAITING_USER_INPUT"])
        with pytest.raises(QuestionClosed) as closed:
            await engine.answer(old.id, "that")
        assert closed.value.status == "CANCELLED"
        await session.answer("this")
        assert await ended(session) == "this"


@pytest.mark.covers("S2.29")
@pytest.mark.no_always_replay("asks something else in every run of the step's body")
@pytest.mark.parametrize("answered", [False, True])
@on_loop
async def test_a_question_that_the_step_does_not_come_to_again_is_cancelled_and_its_answer_wakes_nobody(
    answered: bool,
) -> None:
    runs: list[int] = []

    async def ask(ctx: Context) -> str:
        runs.append(1)
        said, _ = await asyncio.gather(ctx.ask(f"Text {min(len(runs), 2)}?"), ctx.sleep(60))
        return said

    async with held(one := one_step(ask)) as (engine, clock):
        session = await engine.start(one)
        first = await waits(session)
        if answered:
            await session.pause()
            await session.answer("to what was asked before")
        clock.advance(60)
        await session.resume()
        while not (asked := await session.questions()) or asked[0].id == first.id:
            await asyncio.sleep(0.001)
        await settled(session)
        assert await statuses(session) == ["CANCELLED", "WAITING_USER_INPUT"]
        assert await engine.store.mail(1) == []
        count = len(runs)
        await asyncio.sleep(0.02)
        assert len(runs) == count
        await session.answer("so")
        assert await ended(session) == "so"


@pytest.mark.covers("S2.30", "S2.33")
@on_loop
async def test_two_sessions_ask_at_once_and_do_not_mix() -> None:
    asking = Asking()
    async with Engine(":memory:") as engine:
        one, two = await engine.start(asking.workflow, topic="one"), await engine.start(asking.workflow, topic="two")
        await waits(one), await waits(two)
        await one.answer("for one")
        assert await ended(one) == "for one"
        assert await two.status() is Status.WAITING
        await two.answer("for two")
        assert await ended(two) == "for two"
        assert [(await each.state()).topic for each in (one, two)] == ["one", "two"]


@on_loop
async def test_two_branches_that_ask_the_same_under_one_key_share_the_answer() -> None:
    async def ask(ctx: Context) -> list[int]:
        return list(await asyncio.gather(ctx.ask("How many?", int, key="n"), ctx.ask("How many?", int, key="n")))

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        await waits(session)
        await session.send("some")
        await waits(session)
        await session.send("2")
        assert await ended(session) == [2, 2]


@on_loop
async def test_branches_that_share_a_question_both_go_on_while_the_session_runs() -> None:
    gate = asyncio.Event()

    async def busy() -> None:
        await gate.wait()

    async def ask(ctx: Context) -> list[Any]:
        many = [ctx.ask("How many?", int, key="n") for _ in range(3)]
        return list((await asyncio.gather(*many, ctx.do(busy)))[:3])

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        for said in ("some", "2"):
            while not await session.questions():
                await asyncio.sleep(0)
            await session.send(said)
            while said == "2" and "operation.completed" not in await history(session):
                await asyncio.sleep(0)
        gate.set()
        assert await ended(session) == [2, 2, 2]
        assert await statuses(session) == ["COMPLETED"]
