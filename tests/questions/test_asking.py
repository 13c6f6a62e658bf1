"""A step asks, the session waits as a row, and goes on at that very place with the answer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import date, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, field_validator
from pydantic_core import core_schema

from pausepoint import BlockingContext, Context, Engine, Status, Workflow, step, testing
from pausepoint.errors import (
    AnswerRefused,
    Declined,
    QuestionClosed,
    RoundsExhausted,
    StoreUnavailable,
    UnknownQuestion,
)
from pausepoint.model.sessions import Commit
from pausepoint.testing import ManualClock
from tests.questions.kit import Asking, Talk, ended, held, one_step, settled, statuses, waits
from tests.support.chatting import history
from tests.support.loop import on_loop
from tests.support.otherstores import ProxyStore


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Address(BaseModel):
    street: str
    number: int

    @field_validator("number")
    @classmethod
    def _from_one(cls, number: int) -> int:
        if number < 1:
            raise ValueError("houses are numbered from 1")
        return number


@pytest.mark.parametrize(
    ("kind", "said", "got"),
    [
        (str, "hello", "hello"),
        (str, "你好 🐙 שלום", "你好 🐙 שלום"),
        (int, "3", 3),
        (int, 3, 3),
        (bool, "yes", True),
        (date, "2026-02-28", date(2026, 2, 28)),
        (Size, "large", Size.LARGE),
        (Literal["a", "b"], "b", "b"),
        (list[int], "[1, 2]", [1, 2]),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (str | None, None, None),
    ],
    ids=["text", "unicode", "number as text", "number", "yes", "date", "enum", "literal", "json", "dict", "none"],
)
@on_loop
async def test_an_answer_comes_as_a_value_of_the_type_that_was_asked_for(kind: Any, said: Any, got: Any) -> None:
    found: list[Any] = []

    async def ask(ctx: Context) -> None:
        found.append(await ctx.ask("Well?", kind))

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        await waits(session)
        await session.answer(said)
        await ended(session)
    assert found == [got]
    assert type(found[0]) is type(got)


@on_loop
async def test_an_answer_may_be_a_model_given_as_such_as_a_dict_or_as_json() -> None:
    asking = Asking(Address)
    async with Engine(":memory:") as engine:
        for said in (Address(street="Quay", number=7), {"street": "Quay", "number": 7}, '{"street":"Quay","number":7}'):
            session = await engine.start(asking.workflow)
            await waits(session)
            await session.answer(said)
            assert await ended(session) == {"street": "Quay", "number": 7}


@on_loop
async def test_choices_are_offered_and_taken_however_they_are_written() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(lambda ctx: ctx.ask("Tone?", choices=["formal", "playful"])))
        question = await waits(session)
        assert question.choices == ["formal", "playful"]
        with pytest.raises(AnswerRefused, match="none of 'formal', 'playful'"):
            await session.answer("rude")
        await session.answer(" Playful ")
        assert await ended(session) == "playful"


@pytest.mark.no_always_replay("counts the runs of the step's body")
@pytest.mark.covers("S2.22", "S2.24", "S2.25", "S2.38", "S2.39")
@on_loop
async def test_the_session_stops_at_the_step_that_asks_and_goes_on_there_and_nothing_runs_twice() -> None:
    asking = Asking()
    async with Engine(":memory:") as engine:
        session = await engine.start(asking.workflow)
        outcome = await session.outcome()
        assert (outcome.status, (await session.info()).step) == (Status.WAITING, "middle")
        assert asking.calls == ["first", "middle", "work"]
        await session.answer("that")
        assert await ended(session) == "that"
        assert (await session.state()).after == 1
    assert asking.calls == ["first", "middle", "work", "middle", "use that", "last"]


@pytest.mark.covers("S2.23")
@on_loop
async def test_the_question_is_what_the_outcome_of_the_turn_says() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking(text="Which way?").workflow)
        [question] = (await session.outcome()).questions
        assert (question.next_question, question.status) == ("Which way?", "WAITING_USER_INPUT")
        assert "Which way?" in (await session.outcome())._repr_html_()


@pytest.mark.covers("S2.31")
@on_loop
async def test_nothing_is_held_while_a_session_waits() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking().workflow)
        await waits(session)
        assert (await session.info()).holder is None
        assert engine.driver.runs == {}
        assert {task.get_name() for task in asyncio.all_tasks()} & {f"pausepoint {session.id}"} == set()


@pytest.mark.covers("S2.32")
@on_loop
async def test_a_question_survives_the_end_of_its_engine(tmp_path: Path) -> None:
    asking = Asking()
    async with Engine(tmp_path / "it.db") as engine:
        question = await waits(await engine.start(asking.workflow, session_id="s"))
    async with Engine(tmp_path / "it.db") as engine:  # knows no workflow, and can answer all the same
        assert [each.id for each in await engine.questions()] == [question.id]
        await engine.answer(question.id, "later", by="ann")
        assert await (await engine.session("s")).status() is Status.READY
    async with Engine(tmp_path / "it.db", workflows=[asking.workflow]) as engine:
        assert await ended(await engine.session("s")) == "later"
    assert asking.calls.count("first") == asking.calls.count("work") == 1


@pytest.mark.covers("S2.26")
@on_loop
async def test_a_question_that_cannot_be_written_is_an_error_and_no_pause(tmp_path: Path) -> None:
    def refuse(commit: Commit) -> None:
        if commit.asks:
            raise StoreUnavailable("no room")

    engine = Engine(":memory:")
    engine.store = engine.driver.store = engine.waker.store = ProxyStore(engine.store, refuse)  # type: ignore[assignment]
    async with engine:
        session = await engine.start(Asking().workflow)
        with pytest.raises(StoreUnavailable, match="no room"):
            await session.outcome()
        assert await session.questions(None) == []


@pytest.mark.covers("S2.27")
@on_loop
async def test_a_default_that_cannot_be_stored_is_named() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(
            one_step(lambda ctx: ctx.ask("Well?", Any, default=[object()], on_expiry="default"))
        )
        outcome = await session.outcome()
        assert outcome.failure is not None
        assert "default[0]: object cannot be stored" in outcome.failure.message
        assert await session.questions(None) == []


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


# confirming


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


# branches


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


@on_loop
async def test_a_pause_takes_effect_before_an_early_answer_is_read() -> None:
    async def ask(ctx: Context) -> str:
        if (await session.info()).spent_tokens == 0:
            ctx.spend(tokens=1)
            await session.pause()
        return await ctx.ask("Well?", key="k")

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask), paused=True)
        await session.answer("so", key="k")
        await session.resume()
        await settled(session, Status.PAUSED)
        assert await statuses(session) == ["WAITING_USER_INPUT"]
        await session.resume()
        assert await ended(session) == "so"


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


# other places


@on_loop
async def test_a_def_step_asks_and_confirms_too() -> None:
    @step(writes="said")
    def only(ctx: BlockingContext) -> int:
        ctx.confirm("Shall I?")
        return ctx.ask("How many?", int)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("one", state=Talk, steps=[only]))
        await waits(session)
        await session.answer(True)
        assert (await waits(session)).next_question == "How many?"
        await session.answer(4)
        assert await ended(session) == 4


@pytest.mark.covers("S2.4", "S2.40")
@on_loop
async def test_a_child_asks_for_its_parent_which_people_talk_to() -> None:
    asking = Asking()

    async def ask(ctx: Context) -> Any:
        return (await ctx.call(asking.workflow)).said

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        while not (asked := await session.questions()):
            await session.outcome()
        [question] = asked
        assert (question.session_id, question.workflow_id) == (session.id, "one")
        assert question.sub_chain_id == question.asked_in == (await session.children())[0].session_id
        await session.send("from above")
        assert await ended(session) == "from above"


def test_a_blocking_engine_lists_and_answers() -> None:
    with Engine(":memory:") as engine:
        session = engine.start(Asking().workflow)
        [question] = session.outcome().questions
        assert [each.id for each in engine.questions()] == [each.id for each in session.questions()] == [question.id]
        assert engine.question(question.id).context_json is not None
        assert engine.answer(question.id, "so").by is None
        assert session.outcome().state.said == "so"
        with pytest.raises(UnknownQuestion):
            session.answer("again")


@on_loop
async def test_a_step_asks_in_a_loop_once_for_every_visit() -> None:
    async with held(asking := Asking().workflow) as (engine, _):
        session = await engine.start(asking)
        first = await waits(session)
        await session.answer("a")
        await ended(session)
        await session.rewind("middle")
        await session.resume()
        second = await waits(session)
        assert second.id != first.id
        await session.answer("b")
        assert await ended(session) == "b"
        assert await statuses(session) == ["COMPLETED", "COMPLETED"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"on_expiry": "explode"}, "'pause', 'default' or 'escalate'"),
        ({"on_expiry": "default"}, "needs a default="),
        ({"rounds": 0}, "at least 1"),
        ({"rounds": True}, "at least 1"),
        ({"expires": 30}, "expires is a timedelta"),
        ({"expires": timedelta(0)}, "expires is a timedelta"),
        ({"remind": timedelta(-1)}, "remind is a timedelta"),
        ({"history": "topci"}, "did you mean 'topic'"),
        ({"choices": []}, "choices are texts"),
        ({"choices": [object()]}, "choices are texts"),
        ({"key": 1.5}, "key= must be a string or an integer"),
    ],
)
@on_loop
async def test_what_cannot_be_meant_is_refused(options: dict[str, Any], why: str) -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(lambda ctx: ctx.ask("Well?", **options)))
        outcome = await session.outcome()
        assert outcome.failure is not None
        assert why in outcome.failure.message


@pytest.mark.parametrize("text", ["", "  ", None, 3])
@on_loop
async def test_a_question_needs_a_text(text: Any) -> None:
    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(one_step(lambda ctx: ctx.ask(text)))).outcome()
        assert outcome.failure is not None
        assert "a question is a text" in outcome.failure.message


def test_how_long_questions_wait_is_checked_where_it_is_said() -> None:
    with pytest.raises(ValueError, match="questions_expire is a timedelta above zero"):
        Engine(":memory:", questions_expire=timedelta(0))
    with pytest.raises(Exception, match="questions_expire is a timedelta above zero"):
        one_step(lambda ctx: ctx.ask("Well?"), questions_expire=5)


@on_loop
async def test_the_clock_of_a_test_does_not_let_questions_expire() -> None:
    async with testing.engine(clock=ManualClock(auto=True)) as engine:
        outcome = await engine.run(Asking().workflow)
        assert outcome.status is Status.WAITING
        assert outcome.questions[0].expired_at is None
