"""Answers that do not fit: the question is asked again with the reason, for a limited number of rounds."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_core import core_schema

from pausepoint import Context, Engine, Status, workflow
from pausepoint.errors import RoundsExhausted
from pausepoint.runtime import questions
from tests.questions.kit import Address, Asking, ended, one_step, statuses, waits
from tests.support.chat import history
from tests.support.loop import on_loop

# again


@pytest.mark.covers("S2.10", "S2.51", "S2.53")
@on_loop
async def test_an_answer_that_does_not_fit_is_asked_again_with_the_reason_and_the_round_is_counted() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking(Address).workflow)
        first = await waits(session)
        assert (first.current_round, first.max_rounds, first.complaint) == (1, 5, "")
        await session.answer({"street": "Quay", "number": 0})
        second = await waits(session)
        assert (second.id, second.current_round) == (first.id, 2)
        assert second.complaint == "number: Value error, houses are numbered from 1"
        assert second.digest != first.digest
        await session.answer({"street": "Quay", "number": 1})
        await ended(session)
        assert (await history(session)).count("question.asked") == 2


@pytest.mark.covers("S2.52")
@on_loop
async def test_after_the_last_round_the_session_pauses_and_resume_asks_anew() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking(int, rounds=2).workflow)
        for _ in range(2):
            await waits(session)
            await session.send("many")
        outcome = await session.outcome()
        [pause] = outcome.pauses
        assert (outcome.status, pause.kind) == (Status.PAUSED, "question")
        assert "in 2 rounds" in pause.reason
        await session.resume()
        question = await waits(session)
        assert question.current_round == 1
        await session.answer(3)
        assert await ended(session) == 3
        assert await statuses(session) == ["CANCELLED", "COMPLETED"]


@pytest.mark.parametrize("rounds", [1, 2])
@on_loop
async def test_an_answer_that_arrives_while_another_one_is_refused_counts(
    rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was lost, and woke the session again and again."""
    refuse = questions._Asking._next_round

    async def refused_late(asking: Any, asked: Any, again: Any, signal: Any) -> None:
        if signal.n == 1:
            await session.send("yes")
        await refuse(asking, asked, again, signal)

    monkeypatch.setattr(questions._Asking, "_next_round", refused_late)

    @workflow
    async def asks(ctx: Context) -> str:
        return str(await ctx.ask("Publish it?", choices=["yes", "no"], rounds=rounds))

    async with Engine(":memory:", workflows=[asks]) as engine:
        session = await engine.start(asks)
        await waits(session)
        await session.send("maybe")
        assert (await session.outcome()).result == "yes"
        assert await statuses(session) == ["COMPLETED"]
        assert (await engine.verify()).ok


@on_loop
async def test_a_step_that_catches_used_up_rounds_goes_on_and_stays_on_that_way() -> None:
    async def ask(ctx: Context) -> str:
        try:
            return str(await ctx.ask("How many?", int, rounds=1))
        except RoundsExhausted as error:
            await ctx.ask("Who takes over?")  # the step runs again from its top, and gives up again
            return error.reason

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        await waits(session)
        await session.send("lots")
        assert (await waits(session)).next_question == "Who takes over?"
        await session.send("ann")
        assert "valid integer" in await ended(session)


# branches


@on_loop
async def test_a_type_that_json_schema_cannot_say_is_judged_by_the_step_alone() -> None:
    class Odd:
        def __init__(self, text: str) -> None:
            self.text = text

        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
            return core_schema.no_info_plain_validator_function(
                lambda value: value if isinstance(value, cls) else cls(str(value)),
                serialization=core_schema.plain_serializer_function_ser_schema(lambda odd: odd.text),
            )

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Odd) and other.text == self.text

        __hash__ = None  # type: ignore[assignment]

    async def ask(ctx: Context) -> str:
        return (await ctx.ask("Odd?", Odd)).text

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        assert (await waits(session)).answer_schema == {}
        await session.answer("very")
        assert await ended(session) == "very"


@pytest.mark.parametrize("said", ["[1, ", "{nonsense", '["a"]'])
@on_loop
async def test_what_only_looks_like_json_is_asked_for_again(said: str) -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking(list[int]).workflow)
        await waits(session)
        await session.send(said)
        assert (await waits(session)).current_round == 2
