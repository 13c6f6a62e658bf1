"""Conversations: one question a visit, own words for a yes, and a way out in the middle."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from pausepoint import Append, BlockingContext, Context, Engine, Tool, Workflow, collect, route, step
from pausepoint.errors import Declined, QuestionExpired, RoundsExhausted
from tests.questions.kit import ended, held, one_step, passes, statuses, waits
from tests.support.loop import on_loop


class Trip(BaseModel):
    town: str
    days: int
    by: Literal["train", "boat"]


class Planned(BaseModel):
    given: dict[str, Any] = {}
    round: int = 1
    said: Annotated[list[str], Append] = []
    outcome: str = ""
    keys: list[str] = []


def planned(**options: Any) -> tuple[Workflow[Planned], list[Trip]]:
    """A workflow that asks once a visit, and keeps every exchange in its state."""
    booked: list[Trip] = []

    def book(trip: Trip, ctx: BlockingContext) -> str:
        booked.append(trip)
        return ctx.idempotency_key

    @step(writes=["given", "round", "said", "outcome", "keys"])
    async def plan(given: dict[str, Any], round: int, ctx: Context) -> dict[str, Any]:
        done = await collect(ctx, Tool("book", Trip, book), given, round=round, history="said", **options)
        exchanged = [done.question, str(done.answer)] if done.question else []
        keys = [done.result] if done.result else []
        return {
            "given": done.parameters, "round": round + 1, "said": exchanged, "outcome": done.outcome, "keys": keys,
        }  # fmt: skip

    @route(after=plan)
    def again(outcome: str) -> Literal["plan", None]:
        return "plan" if outcome == "partial" else None

    return Workflow("trip", state=Planned, steps=[plan], routes=[again]), booked


@pytest.mark.covers("S2.13", "S2.42", "S2.51")
@on_loop
async def test_one_question_a_visit_keeps_every_exchange_in_the_history_of_the_next() -> None:
    workflow, booked = planned()
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow, given={"town": "Kiel"})
        first = await waits(session)
        await session.answer({"days": 3})
        second = await engine.question((await waits(session)).id)
        assert (first.current_round, second.current_round, second.max_rounds) == (1, 2, 5)
        assert second.id != first.id
        assert json.loads(second.chat_history_json or "") == [first.next_question, "{'days': 3}"]
        assert json.loads(second.collected_params_json or "") == {"town": "Kiel", "days": 3}
        await session.send("boat")
        state = (await session.outcome()).state
        assert state.said == [first.next_question, "{'days': 3}", second.next_question, "boat"]
        assert (state.outcome, booked) == ("done", [Trip(town="Kiel", days=3, by="boat")])
        assert len(state.keys[0]) == 32
        assert await statuses(session) == ["COMPLETED", "COMPLETED"]


@on_loop
async def test_what_was_wrong_in_one_round_is_told_by_the_next_and_counts_as_missing() -> None:
    workflow, booked = planned()
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow, given={"town": "Kiel", "by": "train"})
        await waits(session)
        await session.send("some")
        again = await waits(session)
        assert "days: Input should be a valid integer" in again.next_question
        assert json.loads(again.collected_params_json or "") == {"town": "Kiel", "by": "train"}
        await session.send("4")
        await session.outcome()
    assert booked == [Trip(town="Kiel", days=4, by="train")]


@pytest.mark.covers("S2.52")
@on_loop
async def test_the_last_round_ends_it_and_its_exchange_is_known() -> None:
    workflow, booked = planned(rounds=2)
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow, given={"town": "Kiel", "by": "train"})
        for text in ("some", "many"):
            await waits(session)
            await session.send(text)
        state = (await session.outcome()).state
        assert (state.outcome, state.said[1::2], state.given) == ("handed_over", ["some", "many"], {
            "town": "Kiel", "by": "train",
        })  # fmt: skip
    assert booked == []


@pytest.mark.parametrize("round", [0, 6])
@on_loop
async def test_a_round_that_does_not_exist_is_refused(round: int) -> None:
    workflow, _ = planned()
    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(workflow, round=round)).outcome()
        assert outcome.failure is not None
        assert f"round must be a number from 1 to 5, not {round}" in outcome.failure.message


@pytest.mark.covers("S2.60")
@on_loop
async def test_who_wants_none_of_it_any_more_takes_the_question_back() -> None:
    async def understand(text: str, names: list[str]) -> Mapping[str, Any]:
        if text == "forget it":
            raise Declined("taken back", reason="forget it")
        return {"town": text}

    workflow, booked = planned(understand=understand)
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow, given={"days": 2})
        await waits(session)
        await session.send("Kiel")
        await waits(session)
        await session.send("forget it")
        state = (await session.outcome()).state
        assert (state.outcome, state.given, state.said[-1]) == ("declined", {"days": 2, "town": "Kiel"}, "forget it")
        assert await statuses(session) == ["COMPLETED", "CANCELLED"]
    assert booked == []


@on_loop
async def test_understanding_may_take_an_operation_which_is_remembered() -> None:
    asked: list[str] = []

    async def model(text: str) -> int:
        asked.append(text)
        return 2

    async def ask(ctx: Context) -> Any:
        async def understand(text: str, names: list[str]) -> Mapping[str, Any]:
            return {"days": await ctx.do(model, text)}

        done = await collect(
            ctx, Tool("book", Trip, lambda trip: trip.days), {"town": "Kiel", "by": "boat"}, understand=understand,
            key="trip",
        )  # fmt: skip
        await ctx.ask("Sure?")
        return done.result

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        await waits(session)
        await session.send("a couple")
        await waits(session)
        await session.send("yes")
        assert await ended(session) == 2
    assert asked == ["a couple"]


# a yes in own words


def _word(text: str) -> bool | Mapping[str, Any] | None:
    words: dict[str, bool | Mapping[str, Any]] = {"好": True, "不": {"approved": False, "reason": "太贵"}}
    return words.get(text)


async def _slowly(text: str) -> bool | Mapping[str, Any] | None:
    await asyncio.sleep(0)
    return _word(text)


@pytest.mark.covers("S2.57")
@pytest.mark.parametrize("understand", [_word, _slowly])
@on_loop
async def test_a_yes_or_no_is_understood_in_own_words_and_asked_again_if_it_is_neither(understand: Any) -> None:
    async def ask(ctx: Context) -> Any:
        try:
            return await ctx.confirm("退款？", understand=understand)
        except Declined as declined:
            return [declined.reason, declined.question, json.loads(declined.answer)]

    for word, said in (("好", True), ("不", ["太贵", "退款？", "不"])):
        async with Engine(":memory:") as engine:
            session = await engine.start(one_step(ask))
            await waits(session)
            await session.send("也许")
            again = await waits(session)
            assert (again.current_round, again.complaint) == (2, "the answer is neither a yes nor a no")
            await session.send(word)
            assert await ended(session) == said


@on_loop
async def test_a_plain_yes_needs_nobody_who_understands_it() -> None:
    def never(text: str) -> bool:
        raise AssertionError(text)

    async def ask(ctx: Context) -> Any:
        return await ctx.confirm("Pay?", understand=never)

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        await waits(session)
        await session.answer({"approved": True})
        assert await ended(session) is True


@on_loop
async def test_what_came_to_nothing_names_what_was_asked_and_said_now_and_when_it_is_recalled() -> None:
    async def ask(ctx: Context) -> Any:
        found = []
        try:
            await ctx.ask("How many?", int, rounds=1)
        except RoundsExhausted as error:
            found.append([error.question, json.loads(error.answer)])
        try:
            await ctx.ask("How few?", int, expires=timedelta(minutes=30))
        except QuestionExpired as error:
            found.append([error.question, error.answer])
        await ctx.ask("Sure?", expires=None)
        return found

    async with held() as (engine, clock):
        session = await engine.start(one_step(ask))
        await waits(session)
        await session.send("many")
        await waits(session)
        await passes(clock, 3600)
        await waits(session)
        await session.send("yes")
        assert await ended(session) == [["How many?", "many"], ["How few?", ""]]
