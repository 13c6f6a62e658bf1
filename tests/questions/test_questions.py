"""A step asks, the session waits without a process, and continues at that place with the answer."""

from __future__ import annotations

import asyncio
from datetime import date, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest

from pausepoint import BlockingContext, Context, Engine, Status, Workflow, step
from pausepoint.errors import AnswerRefused, StoreUnavailable, UnknownQuestion
from pausepoint.model.commits import Commit
from tests.questions.kit import Address, Asking, Talk, ended, held, one_step, statuses, waits
from tests.support.loop import on_loop
from tests.support.otherstores import ProxyStore
from tests.support.status import settled


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


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
        with pytest.raises(AnswerRefused, match="must be one of 'formal', 'playful'"):
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
        assert engine._service.driver.runs == {}
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
        assert await engine.session("s").status() is Status.READY
    async with Engine(tmp_path / "it.db", workflows=[asking.workflow]) as engine:
        assert await ended(engine.session("s")) == "later"
    assert asking.calls.count("first") == asking.calls.count("work") == 1


@pytest.mark.covers("S2.26")
@on_loop
async def test_a_question_that_cannot_be_written_is_an_error_and_no_pause(tmp_path: Path) -> None:
    def refuse(commit: Commit) -> None:
        if commit.asks:
            raise StoreUnavailable("no room")

    engine = Engine(":memory:")
    service = engine._service
    service.store = service.driver.store = service.waker.store = ProxyStore(engine.store, refuse)
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


# branches


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
        assert await statuses(session) == []  # it is asked after the resume
        await session.resume()
        assert await ended(session) == "so"


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
        ({"on_expiry": "default"}, "needs a default"),
        ({"rounds": 0}, "at least 1"),
        ({"rounds": True}, "at least 1"),
        ({"expires": 30}, "expires must be a timedelta"),
        ({"expires": timedelta(0)}, "expires must be a timedelta"),
        ({"remind": timedelta(-1)}, "remind must be a timedelta"),
        ({"history": "topci"}, "Did you mean 'topic'"),
        ({"choices": []}, "choices must be strings"),
        ({"choices": [object()]}, "choices must be strings"),
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
        assert "a question must be a non-empty string" in outcome.failure.message


def test_how_long_questions_wait_is_checked_where_it_is_said() -> None:
    with pytest.raises(ValueError, match="questions_expire must be a timedelta above zero"):
        Engine(":memory:", questions_expire=timedelta(0))
    with pytest.raises(Exception, match="questions_expire must be a timedelta above zero"):
        one_step(lambda ctx: ctx.ask("Well?"), questions_expire=5)
