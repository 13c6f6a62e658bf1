"""Answers: the first is taken, once; whoever comes later is told who was first, and what was refused is on record."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import core_schema

from pausepoint import Context, Engine, Session, Status, Workflow, step
from pausepoint.errors import (
    AnswerConflict,
    AnswerRefused,
    QuestionChanged,
    QuestionClosed,
    SessionEnded,
    SeveralQuestions,
    UnknownQuestion,
    UnknownSession,
    WrongSession,
)
from pausepoint.model import Event
from pausepoint.stores.sqlite import SqliteStore
from tests.questions.kit import HALF_AN_HOUR, Asking, Talk, ended, held, one_step, passes, statuses, waits
from tests.support.chat import CountingStore, Mail, listening
from tests.support.loop import on_loop
from tests.support.status import settled


async def refusals(session: Session[Any]) -> list[tuple[str | None, str]]:
    """Return who gave each refused answer, and why it was refused."""
    events: list[Event] = [event async for event in session.events()]
    return [(event.data["by"], event.data["why"]) for event in events if event.event_type == "answer.refused"]


@on_loop
async def test_the_first_answer_is_taken_and_its_receipt_says_who_when_and_how() -> None:
    async with held(asking := Asking().workflow) as (engine, clock):
        session = await engine.start(asking)
        question = await waits(session)
        receipt = await engine.answer(question.id, "so", by="ann", channel="mail", seen=question.digest)
        assert (receipt.question_id, receipt.by, receipt.channel) == (question.id, "ann", "mail")
        assert (receipt.answered_at, receipt.version, receipt.session_id) == (clock.time, 1, session.id)
        assert await ended(session) == "so"
        assert (await engine.question(question.id)).receipt == receipt


@on_loop
async def test_the_same_again_gets_the_same_receipt_also_after_the_end() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking().workflow)
        question = await waits(session)
        first = await engine.answer(question.id, "so", by="ann")
        assert await engine.answer(question.id, "so", by="ann") == first
        await ended(session)
        assert await engine.answer(question.id, "so", by="bob") == first
        assert await refusals(session) == []


@on_loop
async def test_a_different_answer_is_a_conflict_that_names_the_winner() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking().workflow)
        question = await waits(session)
        await session.answer("so", by="ann", channel="web")
        with pytest.raises(AnswerConflict, match="by ann through web") as conflict:
            await engine.answer(question.id, "otherwise", by="bob")
        assert (conflict.value.by, conflict.value.channel, conflict.value.question_id) == ("ann", "web", question.id)
        assert await ended(session) == "so"
        assert await refusals(session) == [("bob", "conflict")]


@pytest.mark.covers("S2.45")
@on_loop
async def test_two_answers_at_the_same_moment_resume_the_session_once() -> None:
    asking = Asking()
    async with Engine(":memory:") as engine:
        session = await engine.start(asking.workflow)
        question = await waits(session)
        tries = [engine.answer(question.id, str(n)) for n in range(10)]
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(each, AnswerConflict) for each in results) == 9
        said = await ended(session)
        assert [call for call in asking.calls if call.startswith("use")] == [f"use {said}"]


@on_loop
async def test_an_answer_to_what_is_no_longer_asked_is_refused() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking(int).workflow)
        shown = await waits(session)
        await session.send("many")
        now = await waits(session)
        with pytest.raises(QuestionChanged, match="round 2") as changed:
            await engine.answer(shown.id, 3, seen=shown.digest, by="ann")
        assert (changed.value.version, changed.value.digest) == (2, now.digest)
        assert await refusals(session) == [("ann", "changed")]
        for seen in (shown.digest, ""):  # a message that was written before, or before anything was asked
            with pytest.raises(QuestionChanged):
                await session.send("3", seen=seen, key="once")
        await engine.session(session.id).send("3", seen=now.digest, key="once")
        assert await ended(session) == 3


@on_loop
async def test_forged_ids_and_digests_are_refused() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking().workflow)
        question = await waits(session)
        with pytest.raises(UnknownQuestion):
            await engine.answer("00000000-0000-0000-0000-000000000000", "x")
        with pytest.raises(UnknownQuestion, match="no question with the id 'nonsense'"):
            await engine.answer("nonsense", "x")
        with pytest.raises(QuestionChanged):
            await engine.answer(question.id, "x", seen="00" * 16, by="eve")
        with pytest.raises(ValueError, match="digest of a question"):
            await engine.answer(question.id, "x", seen="what?")
        with pytest.raises(TypeError, match="question_id must be a string, not NoneType"):
            await engine.answer(None, "x")  # type: ignore[arg-type]
        assert await refusals(session) == [("eve", "changed")]
        assert await session.status() is Status.WAITING


@on_loop
async def test_an_answer_for_another_session_is_refused_and_on_record_where_it_was_aimed() -> None:
    asking = Asking()
    async with Engine(":memory:") as engine:
        mine, yours = await engine.start(asking.workflow), await engine.start(asking.workflow)
        question = await waits(yours)
        await waits(mine)
        with pytest.raises(WrongSession, match=f"belongs to session {yours.id!r}, not to {mine.id!r}"):
            await mine.answer("x", question=question.id, by="eve")
        assert await refusals(yours) == [("eve", "elsewhere")]
        assert await statuses(yours) == await statuses(mine) == ["WAITING_USER_INPUT"]


# what cannot be right

TONES: dict[str, Any] = {"choices": ["formal", "playful"], "rounds": 2}


@on_loop
async def test_what_cannot_be_right_is_told_at_once_and_the_question_stays_as_it_is() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(lambda ctx: ctx.ask("How many?", int)))
        question = await waits(session)
        complaint = "it must be of type integer, not dict"
        with pytest.raises(AnswerRefused, match=r"of type integer, not dict\. Correct the answer") as refused:
            await session.answer({"n": 1}, by="eve")
        assert (refused.value.question_id, refused.value.reason) == (question.id, complaint)
        assert await waits(session) == question
        assert await refusals(session) == [("eve", "invalid")]
        await session.send({"n": 1}, by="eve")  # a chat has no other reply than the next round
        again = await waits(session)
        assert (again.id, again.current_round, again.complaint) == (question.id, 2, complaint)
        assert again.digest != question.digest
        assert await refusals(session) == [("eve", "invalid"), ("eve", "invalid")]
        await session.answer(1)
        assert await ended(session) == 1


@pytest.mark.covers("S2.52")
@on_loop
async def test_after_the_last_round_the_step_hears_of_it_and_a_resume_asks_anew() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(lambda ctx: ctx.ask("Which?", **TONES)))
        first = await waits(session)
        await session.send("rude")
        await waits(session)
        await session.send("rude")
        await settled(session, Status.PAUSED)
        assert "it must be one of 'formal', 'playful'" in (await session.outcome()).pauses[0].reason
        assert await statuses(session) == ["CANCELLED"]
        await session.resume()
        anew = await waits(session)
        assert (anew.id != first.id, anew.current_round, anew.complaint) == (True, 1, "")


@on_loop
async def test_a_round_is_counted_also_if_nobody_drives_the_session_when_the_answer_comes(tmp_path: Path) -> None:
    flow = one_step(lambda ctx: ctx.ask("Which?", **TONES))
    async with Engine(tmp_path / "h.db") as engine:
        question = await waits(await engine.start(flow, session_id="s"))
    async with Engine(tmp_path / "h.db") as engine:  # it does not know the workflow
        for _ in range(3):  # of this round: it counts once
            await engine.session("s").send("rude")
        [waiting] = await engine.questions()
        assert (waiting.id, waiting.complaint) == (question.id, "it must be one of 'formal', 'playful'")
    async with Engine(tmp_path / "h.db", workflows=[flow]) as engine:
        session = engine.session("s")
        again = await waits(session)
        assert (again.current_round, again.status, again.receipt) == (2, "WAITING_USER_INPUT", None)
        await session.answer("formal")
        assert await ended(session) == "formal"


@on_loop
async def test_the_first_valid_answer_wins_also_over_one_that_was_not_and_that_the_step_has_not_read() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(lambda ctx: ctx.ask("Which?", **TONES)))
        question = await waits(session)
        await session.pause("lunch")
        await session.send("rude", by="eve")
        receipt = await engine.answer(question.id, "formal", by="ann", seen=question.digest)
        assert receipt.by == "ann"
        with pytest.raises(AnswerConflict, match="by ann"):
            await engine.answer(question.id, "playful", by="bob")
        with pytest.raises(AnswerConflict, match="by ann"):
            await engine.answer(question.id, "rude", by="eve")
        await session.resume()
        assert await ended(session) == "formal"
        assert await session._engine.store.mail(1) == []


@pytest.mark.covers("S2.59")
@on_loop
async def test_an_answer_that_could_not_be_right_does_not_keep_a_question_from_expiring() -> None:
    flow = one_step(lambda ctx: ctx.ask("Which?", **TONES), questions_expire=HALF_AN_HOUR)
    async with held(flow) as (engine, clock):
        session = await engine.start(flow)
        question = await waits(session)
        await session.pause("lunch")
        await session.send("rude")
        clock.advance(1801)
        with pytest.raises(QuestionClosed, match="EXPIRED"):
            await engine.answer(question.id, "formal")
        await session.resume()
        await settled(session, Status.PAUSED)
        assert (await session.outcome()).pauses[0].kind == "question"
        assert await statuses(session) == ["EXPIRED"]
        assert await session._engine.store.mail(1) == []


@on_loop
async def test_a_message_that_cannot_be_right_is_no_error_but_asked_again() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(lambda ctx: ctx.ask("Which?", **TONES)))
        await waits(session)
        await session.send("rude")
        again = await waits(session)
        assert (again.current_round, again.complaint) == (2, "it must be one of 'formal', 'playful'")
        await session.send("Formal")
        assert await ended(session) == "formal"


@on_loop
async def test_what_no_json_schema_can_describe_is_judged_by_the_step() -> None:
    class Odd:
        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
            return core_schema.no_info_plain_validator_function(
                lambda value: value, serialization=core_schema.plain_serializer_function_ser_schema(lambda value: value)
            )

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(lambda ctx: ctx.ask("What?", Odd)))
        assert (await waits(session)).answer_schema == {}
        await session.answer({"any": "thing"})
        assert await ended(session) == {"any": "thing"}


# what it costs


@on_loop
async def test_forged_answers_do_not_fill_the_store_and_are_still_counted() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking().workflow)
        question = await waits(session)
        for n in range(200):
            with pytest.raises(QuestionChanged):
                await engine.answer(question.id, "x" * 100, seen="00" * 16, by=f"eve {n}")
        noted = [event.data async for event in session.events() if event.event_type == "answer.refused"]
        assert [data["refused"] for data in noted] == [*range(1, 17), 32, 64, 128]
        assert noted[-1]["by"] == "eve 127"
        assert await statuses(session) == ["WAITING_USER_INPUT"]


@on_loop
async def test_a_question_with_a_key_reads_none_of_the_messages_that_wait() -> None:
    store = CountingStore(SqliteStore(":memory:"))
    async with Engine(store) as engine:
        session = await engine.start(Asking(key="k").workflow, paused=True)
        for n in range(200):
            await session.send(f"{n}")
        await session.answer("other", key="o")
        await session.answer("so", key="k")
        await session.resume()
        assert await ended(session) == "so"
        assert store.signals_read == 1


@on_loop
async def test_a_session_with_one_question_needs_no_id_and_one_with_several_does() -> None:
    async def ask(ctx: Context) -> list[str]:
        return list(await asyncio.gather(ctx.ask("One?"), ctx.ask("Two?", key="two")))

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        await settled(session)
        for refused in (session.answer("x"), session.send("x")):
            with pytest.raises(SeveralQuestions, match=r"'One\?'.*'Two\?'") as several:
                await refused
            assert several.value.candidates == [each.id for each in await session.questions()]
        await session.answer("second", key="two")
        await settled(session)
        await session.answer("first")
        assert await ended(session) == ["first", "second"]


# early


@on_loop
async def test_an_answer_by_key_that_comes_early_is_kept_and_taken_when_it_is_asked() -> None:
    asking = Asking(int, key="n")
    async with Engine(":memory:") as engine:
        session = await engine.start(asking.workflow, paused=True)
        receipt = await session.answer(7, key="n", by="ann", channel="web")
        assert (receipt.question_id, receipt.key, receipt.by) == (None, "n", "ann")
        await session.resume()
        assert await ended(session) == 7
        [question] = await session.questions(None)
        assert question.receipt is not None
        assert (question.status, question.receipt.by, question.receipt.channel) == ("COMPLETED", "ann", "web")


@on_loop
async def test_of_early_answers_the_first_counts_as_well() -> None:
    async with held(asking := Asking(key="n").workflow) as (engine, clock):
        session = await engine.start(asking, paused=True)
        first = await session.answer("so", key="n", by="ann", channel="web")
        clock.advance(5)
        assert await session.answer("so", key="n", by="bob") == first
        with pytest.raises(AnswerConflict, match="has a different answer, given by ann through web") as conflict:
            await session.answer("not so", key="n", by="bob")
        assert conflict.value.by == "ann"
        await session.resume()
        assert await ended(session) == "so"
        assert await session._engine.store.mail(1) == []


@on_loop
async def test_an_early_answer_to_another_key_wakes_nobody_and_waits_for_its_question() -> None:
    async def ask(ctx: Context) -> list[str]:
        return [await ctx.ask("One?", key="one"), await ctx.ask("Two?", key="two")]

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        await waits(session)
        seq = (await session.info()).seq
        await session.answer("2", key="two")
        assert ((await session.info()).seq, await session.status()) == (seq, Status.WAITING)
        await session.answer("1", key="one")
        assert await ended(session) == ["1", "2"]


@on_loop
async def test_an_early_answer_that_does_not_fit_counts_as_a_round() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking(int, key="n").workflow, paused=True)
        await session.answer("many", key="n")
        await session.resume()
        question = await waits(session)
        assert (question.current_round, "valid integer" in question.complaint) == (2, True)
        await session.answer(2, key="n")
        assert await ended(session) == 2


@on_loop
async def test_by_key_the_same_again_is_the_same_and_another_one_a_conflict() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking(key="k").workflow)
        await waits(session)
        first = await session.answer("so", key="k")
        assert await session.answer("so", key="k") == first
        with pytest.raises(AnswerConflict):
            await session.answer("not so", key="k")
        await ended(session)
        with pytest.raises(AnswerConflict):  # it must not be kept for a question that nobody has asked
            await session.answer("not so", key="k")
        with pytest.raises(SessionEnded):
            await session.answer("x", key="other")


# messages


@pytest.mark.covers("S2.35", "S2.36", "S2.41")
@on_loop
async def test_a_message_answers_the_question_that_waits_and_the_rest_is_as_it_was() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Asking().workflow, topic="otters")
        question = await waits(session)
        saved = (await engine.question(question.id)).context_json
        assert await engine.session(session.id).send("so", by="ann", channel="chat") is not Status.WAITING
        assert await ended(session) == "so"
        [question] = await session.questions(None)
        assert question.receipt is not None
        assert (question.receipt.by, question.receipt.channel) == ("ann", "chat")
        assert (await engine.question(question.id)).context_json == saved


@pytest.mark.covers("S2.37")
@on_loop
async def test_a_message_that_no_question_waits_for_is_received_or_kept() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(listening(), wanted=2)
        await settled(session)
        await engine.session(session.id).send("one")
        await engine.session("new", listening_to("other")).send("hello", start={})
        await engine.session(session.id).send("two")
        assert (await session.outcome()).state.got == ["one", "two"]
        assert (await engine.session("new").outcome()).state.got == ["hello"]
        with pytest.raises(UnknownSession):
            await engine.session("nobody").send("hello")


def listening_to(name: str) -> Workflow[Mail]:
    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        return [await ctx.receive()]

    return Workflow(name, state=Mail, steps=[listen])


@on_loop
async def test_a_question_comes_before_a_receive_beside_it() -> None:
    async def ask(ctx: Context) -> list[str]:
        return list(await asyncio.gather(ctx.receive(), ctx.ask("Well?")))

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        await settled(session)
        assert (await session.info()).waiting == ("answer", "message")
        await session.send("to the question")
        await settled(session)
        await session.send("to the other")
        assert await ended(session) == ["to the other", "to the question"]


@pytest.mark.covers("S2.59", "S2.61")
@on_loop
async def test_a_late_answer_is_told_and_so_is_the_first_message_and_neither_is_a_new_request() -> None:
    async with held(asking := Asking().workflow) as (engine, clock):
        session = await engine.start(asking)
        question = await waits(session)
        await passes(clock, 1801)
        await settled(session, Status.PAUSED)
        for _ in range(2):
            with pytest.raises(QuestionClosed, match="is EXPIRED") as late:
                await engine.answer(question.id, "late")
            assert late.value.status == "EXPIRED"
    async with held(asking := Asking().workflow) as (engine, clock):
        session = await engine.start(asking)
        await waits(session)
        await passes(clock, 1801)
        await settled(session, Status.PAUSED)
        with pytest.raises(QuestionClosed, match="is EXPIRED"):
            await session.send("late")
        assert await session._engine.store.mail(1) == []
        assert await session.send("something new") is Status.PAUSED
        assert len(await session._engine.store.mail(1)) == 1
        assert await refusals(session) == [(None, "expired")]


@pytest.mark.covers("S2.60", "S2.61")
@on_loop
async def test_a_cancelled_or_completed_question_takes_no_other_answer() -> None:
    asking = Asking().workflow
    async with Engine(":memory:") as engine:
        session = await engine.start(asking)
        question = await waits(session)
        await session.cancel()
        assert await statuses(session) == ["CANCELLED"]
        with pytest.raises(QuestionClosed, match="CANCELLED"):
            await engine.answer(question.id, "so")
        with pytest.raises(SessionEnded):
            await session.send("so")
        other = await engine.start(asking)
        question = await waits(other)
        await engine.answer(question.id, "so", by="ann")
        await ended(other)
        assert await statuses(other) == ["COMPLETED"]
        with pytest.raises(AnswerConflict, match="already has a different answer, given by ann"):
            await engine.answer(question.id, "not so")
        assert await statuses(other) == ["COMPLETED"]


@pytest.mark.covers("S2.60")
@on_loop
async def test_after_a_question_was_cancelled_the_next_message_is_a_normal_one() -> None:
    seen: list[str] = []

    @step(writes="said")
    async def only(topic: str, ctx: Context) -> str:
        seen.append(topic)
        return await ctx.receive() if topic == "free" else await ctx.ask("Well?")

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("one", state=Talk, steps=[only]))
        await waits(session)
        await session.edit(topic="free")
        assert await statuses(session) == ["CANCELLED"]
        await session.send("a message")
        await session.resume()
        assert await ended(session) == "a message"
