"""A question is asked again, and what its step has finished is kept."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Context, Engine, Session, Status, Workflow, step, workflow
from pausepoint.errors import Declined, RoundsExhausted, SeveralQuestions, UnknownQuestion, VerbRefused, WrongSession
from tests.questions.kit import Talk, waits
from tests.support.loop import PATIENCE, on_loop


class Shop:
    """A function and a step that pay, then ask. Each payment is counted."""

    def __init__(self) -> None:
        self.paid: list[str] = []

        @workflow
        async def order(ctx: Context) -> str:
            return await self.sell(ctx)

        @step(writes="said")
        async def sell(ctx: Context) -> str:
            return await self.sell(ctx)

        self.kinds: dict[str, Workflow[Any]] = {"function": order, "step": Workflow("sell", state=Talk, steps=[sell])}

    async def sell(self, ctx: Context) -> str:
        await ctx.do(self.pay, "card", key="pay")
        await ctx.confirm("Ship?", key="ship")
        await ctx.do(self.pay, "parcel")
        return "shipped"

    async def pay(self, what: str, ctx: Context) -> str:
        ctx.spend(usd=0.25, tokens=10)
        self.paid.append(what)
        return what


async def ended(session: Session[Any], status: Status = Status.COMPLETED) -> None:
    assert (await session.outcome()).status is status


async def declined(engine: Engine, code: Any, answer: Any = "no") -> Session[Any]:
    session: Session[Any] = await engine.start(code, session_id="s")
    await waits(session)
    await session.answer(answer)
    await ended(session, Status.FAILED)
    return session


@pytest.mark.parametrize("kind", ["function", "step"])
@on_loop
async def test_a_declined_question_is_asked_again_and_nothing_is_paid_twice(kind: str) -> None:
    shop = Shop()
    async with Engine(":memory:") as engine:
        session = await declined(engine, shop.kinds[kind])
        failure = (await session.info()).failure
        assert failure is not None
        first = (await session.questions(status=None))[0]
        assert f"session.ask_again('{first.id}')" in failure.message
        before = [record async for record in engine.session("s").events()]
        assert await session.ask_again(first.id, by="ann", reason="cheaper now") is Status.READY
        after = [record async for record in engine.session("s").events()]
        assert after[: len(before)] == before
        assert [each.event_type for each in after[len(before) :]] == ["session.reopened", "question.forgotten"]
        assert (after[-1].data["question_id"], after[-1].data["by"]) == (first.id, "ann")
        await session.resume()
        again = await waits(session)
        assert (again.next_question, again.id != first.id) == ("Ship?", True)
        await session.answer("yes")
        await ended(session)
    assert shop.paid == ["card", "parcel"]


@on_loop
async def test_the_only_question_without_an_answer_needs_no_name() -> None:
    shop = Shop()
    async with Engine(":memory:") as engine:
        session = await declined(engine, shop.kinds["function"])
        await session.ask_again()
        with pytest.raises(VerbRefused, match="has no question to ask again"):
            await session.ask_again()


@on_loop
async def test_a_no_that_a_rewind_has_kept_is_asked_again() -> None:
    shop = Shop()
    async with Engine(":memory:") as engine:
        session = await declined(engine, shop.kinds["function"])
        await session.rewind("order", reuse=True)
        await session.ask_again()
        await session.resume()
        await waits(session)
    assert shop.paid == ["card"]


@on_loop
async def test_an_answer_that_the_step_does_not_like_is_asked_for_again_by_name() -> None:
    calls: list[int] = []

    @workflow
    async def tip(ctx: Context) -> int:
        await ctx.do(calls.append, 1)
        amount = await ctx.ask("How much?", int)
        if amount < 0:
            raise ValueError("less than nothing")
        return amount

    async with Engine(":memory:") as engine:
        session = await declined(engine, tip, -1)
        [question] = await session.questions(status=None)
        with pytest.raises(VerbRefused, match="name it by its id"):
            await session.ask_again()
        await session.ask_again(question.id)
        with pytest.raises(VerbRefused, match="nothing to forget"):
            await session.ask_again(question.id)
        await session.resume()
        await waits(session)
        await session.answer(5)
        assert (await session.outcome()).result == 5
    assert calls == [1]


@on_loop
async def test_a_question_without_a_valid_answer_whose_error_was_caught_is_asked_again() -> None:
    @workflow
    async def tip(ctx: Context) -> int:
        try:
            return await ctx.ask("How much?", int, rounds=1)
        except RoundsExhausted as error:
            raise ValueError("no tip") from error

    async with Engine(":memory:") as engine:
        session = await engine.start(tip, session_id="s")
        await waits(session)
        await session.send("a lot")
        await ended(session, Status.FAILED)
        await ended(await session.resume(), Status.FAILED)
        await session.ask_again()
        await session.resume()
        await waits(session)


@on_loop
async def test_a_question_inside_an_operation_and_one_of_a_child_are_asked_again() -> None:
    async def inside(ctx: Context) -> bool:
        return await ctx.confirm("Inside?")

    @workflow
    async def child(ctx: Context) -> bool:
        return await ctx.do(inside)

    @workflow
    async def parent(ctx: Context) -> bool:
        return await ctx.call(child)

    async with Engine(":memory:", workflows=[child]) as engine:
        session = await engine.start(parent, session_id="s")
        question = await waits(session)
        await engine.answer(question.id, "no")
        await ended(session, Status.FAILED)
        await session.ask_again(question.id)
        await session.resume()
        again = await waits(session)
        await engine.answer(again.id, "yes")
        assert (await session.outcome()).result is True


@on_loop
async def test_what_cannot_be_asked_again_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    shop, gate = Shop(), asyncio.Event()

    @workflow
    async def held(ctx: Context) -> None:
        await gate.wait()

    @workflow
    async def two(ctx: Context) -> None:
        for name in ("a", "b"):
            with suppress(Declined):
                await ctx.confirm(name)
        raise ValueError("both declined")

    async with Engine(tmp_path / "s.db") as engine:
        running = await engine.start(held)
        with pytest.raises(VerbRefused, match="Pause it"):
            await running.ask_again()
        gate.set()
        await ended(running)
        session = await engine.start(shop.kinds["function"], session_id="s")
        question = await waits(session)
        before = await session.info()
        with pytest.raises(VerbRefused, match="is open"):
            await session.ask_again(question.id)
        with pytest.raises(UnknownQuestion):
            await session.ask_again("nonsense")
        with pytest.raises(WrongSession, match="belongs to session 's'"):
            await running.ask_again(question.id)
        assert await session.info() == before
        await session.answer("yes")
        await ended(session)
        with pytest.raises(VerbRefused, match="rewind to it"):
            await session.ask_again(question.id)
        both = await engine.start(two)
        for _ in range(2):
            await waits(both)
            await both.answer("no")
        await ended(both, Status.FAILED)
        with pytest.raises(SeveralQuestions) as several:
            await both.ask_again()
        assert len(several.value.candidates) == 2
        await both.ask_again(several.value.candidates[1])
        await both.resume()
        assert (await waits(both)).next_question == "b"


@on_loop
async def test_a_session_that_is_paused_stays_paused_and_one_that_waits_keeps_its_other_question() -> None:
    @workflow
    async def both(ctx: Context) -> list[Any]:
        asked = (ctx.confirm("a"), ctx.confirm("b"))
        return list(await asyncio.gather(*asked, return_exceptions=True))

    async with Engine(":memory:") as engine:
        session = await engine.start(both)
        await session.outcome()
        first, other = await session.questions()
        await engine.answer(first.id, "no")
        await session.outcome()
        assert await session.ask_again(first.id) is Status.READY
        await session.pause("lunch")
        await session.resume()
        await session.outcome()
        assert {each.id for each in await session.questions()} > {other.id}
        again = next(each for each in await session.questions() if each.id != other.id)
        await engine.answer(again.id, "no")
        await session.outcome()
        await session.pause("lunch")
        assert await session.ask_again(again.id) is Status.PAUSED


@on_loop
async def test_a_question_that_is_asked_again_survives_another_engine(tmp_path: Path) -> None:
    shop = Shop()
    async with Engine(tmp_path / "s.db") as engine:
        await declined(engine, shop.kinds["function"])
    async with Engine(tmp_path / "s.db", drives="none") as engine:
        await engine.session("s").ask_again()  # without the code of the workflow
        assert (await engine.session("s").verify()).ok
    async with Engine(tmp_path / "s.db", workflows=[shop.kinds["function"]]) as engine:
        session = await engine.session("s").resume()
        await waits(session)
    assert shop.paid == ["card"]


@pytest.mark.parametrize("is_paused", [True, False])
@on_loop
async def test_an_answer_beside_a_question_with_a_time_limit_is_asked_for_again(is_paused: bool) -> None:
    @workflow
    async def two(ctx: Context) -> str:
        await ctx.ask("Which size?", key="size")
        return str(await ctx.ask("Which colour?", key="colour", expires=timedelta(days=1)))

    async with Engine(":memory:") as engine:
        session = await engine.start(two)
        size = await waits(session)
        await session.answer("large")
        await waits(session)
        if is_paused:
            await session.pause()
        await asyncio.wait_for(session.ask_again(size.id), PATIENCE)
        await session.resume()
        assert (await waits(session)).next_question == "Which size?"
        await session.answer("small")
        assert (await waits(session)).next_question == "Which colour?"
        await session.answer("red")
        assert await session.result() == "red"
