"""Time: a question expires by itself, is reminded of before, and what follows is what its author said."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.errors import QuestionClosed, QuestionExpired
from pausepoint.model.commits import Commit, Flags
from pausepoint.model.questions import Answer
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock
from tests.questions.kit import HALF_AN_HOUR, Asking, Talk, ended, held, one_step, passes, statuses, waits
from tests.support.chat import history
from tests.support.loop import on_loop
from tests.support.otherstores import ProxyStore
from tests.support.status import settled


@pytest.mark.covers("S2.19")
@pytest.mark.parametrize(
    ("call", "workflow", "engine", "lasts"),
    [
        ({}, {}, {}, None),
        ({"expires": timedelta(minutes=1)}, {}, {}, timedelta(minutes=1)),
        ({"expires": timedelta(days=9)}, {"questions_expire": timedelta(hours=1)}, {}, timedelta(days=9)),
        ({}, {"questions_expire": timedelta(hours=1)}, {"questions_expire": timedelta(hours=2)}, timedelta(hours=1)),
        ({}, {}, {"questions_expire": timedelta(hours=2)}, timedelta(hours=2)),
        ({"expires": None}, {}, {}, None),
        ({}, {"questions_expire": None}, {}, None),
        ({}, {}, {"questions_expire": None}, None),
    ],
)
@on_loop
async def test_a_question_waits_as_long_as_the_call_says_or_the_workflow_or_the_engine(
    call: dict[str, Any],
    workflow: dict[str, timedelta | None],
    engine: dict[str, timedelta | None],
    lasts: timedelta | None,
) -> None:
    one = one_step(lambda ctx: ctx.ask("Well?", **call), **workflow)
    async with held(one, **engine) as (control, clock):
        question = await waits(await control.start(one))
        assert question.created_at == question.updated_at == clock.time
        assert question.expired_at == (None if lasts is None else clock.time + lasts)


@pytest.mark.covers("S2.58")
@on_loop
async def test_a_question_expires_by_itself_and_the_session_pauses_and_resume_asks_anew() -> None:
    async with held(asking := Asking().workflow) as (engine, clock):
        session = await engine.start(asking)
        first = await waits(session)
        await passes(clock, 1799)
        assert await statuses(session) == ["WAITING_USER_INPUT"]
        await passes(clock, 1)
        await settled(session, Status.PAUSED)
        [pause] = await session.pauses()
        assert (pause.kind, "nobody answered 'What then?' in time" in pause.reason) == ("question", True)
        assert await statuses(session) == ["EXPIRED"]
        await session.resume()
        second = await waits(session)
        assert second.id != first.id
        assert second.expired_at == clock.time + HALF_AN_HOUR
        await session.answer("so")
        assert await ended(session) == "so"
        assert (await history(session)).count("question.expired") == 1


@pytest.mark.covers("S2.58")
@on_loop
async def test_who_looks_sees_that_it_has_expired_even_if_nobody_drives_it(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Engine(tmp_path / "it.db", clock=clock, workflows=[asking := Asking().workflow]) as engine:
        question = await waits(await engine.start(asking, session_id="s"))
    clock.advance(3600)
    async with Engine(tmp_path / "it.db", clock=clock) as engine:  # it does not know the workflow
        assert await engine.questions() == []
        [late] = await engine.questions(status="EXPIRED")
        assert late.id == question.id
        with pytest.raises(QuestionClosed, match="EXPIRED"):
            await engine.session("s").send("late")
        with pytest.raises(QuestionClosed, match="EXPIRED"):
            await engine.answer(question.id, "late")


@on_loop
async def test_a_step_may_catch_it_and_stays_on_that_way_in_every_replay() -> None:
    async def ask(ctx: Context) -> str:
        try:
            return await ctx.ask("Well?", expires=timedelta(seconds=5))
        except QuestionExpired:
            return "late: " + await ctx.ask("Somebody else?", expires=None)

    async with held(one := one_step(ask)) as (engine, clock):
        session = await engine.start(one)
        await waits(session)
        await passes(clock, 5)
        while (await waits(session)).next_question != "Somebody else?":
            await asyncio.sleep(0)
        await session.answer("yes")
        assert await ended(session) == "late: yes"


@on_loop
async def test_an_answer_in_the_last_moment_is_not_lost_to_the_expiry() -> None:
    class LastMoment(ProxyStore):
        """Somebody answers in time while the session is about to note that nobody did."""

        async def commit(self, commit: Commit) -> Flags | None:
            if commit.only_if_waiting:
                said = Answer(value=b'"in time"', at=clock.now() - 1, question=commit.only_if_waiting)
                answered.append((await self._inner.answer(said)).verdict)
            return await super().commit(commit)

    answered: list[str] = []
    clock = ManualClock()
    store: Any = LastMoment(SqliteStore(":memory:", clock=clock))
    async with Engine(store, clock=clock, workflows=[asking := Asking().workflow], signals=False) as engine:
        session = await engine.start(asking)
        await waits(session)
        await passes(clock, 1800)
        await settled(session, Status.COMPLETED)
        assert (await ended(session), answered) == ("in time", ["taken"])
        assert "question.expired" not in await history(session)


@on_loop
async def test_with_a_default_the_session_goes_on() -> None:
    async def ask(ctx: Context) -> int:
        return await ctx.ask("How many?", int, default=5, expires=timedelta(seconds=9), on_expiry="default")

    async with held(one := one_step(ask)) as (engine, clock):
        session = await engine.start(one)
        assert (await waits(session)).default == 5
        await passes(clock, 9)
        await settled(session, Status.COMPLETED)
        assert await ended(session) == 5
        assert await statuses(session) == ["EXPIRED"]


@on_loop
async def test_escalated_it_is_asked_once_more_under_another_id_and_then_expires() -> None:
    async def ask(ctx: Context) -> str:
        return await ctx.ask("Well?", expires=timedelta(seconds=9), on_expiry="escalate")

    async with held(one := one_step(ask)) as (engine, clock):
        session = await engine.start(one)
        first = await waits(session)
        await passes(clock, 9)
        while (second := await waits(session)).id == first.id:
            await asyncio.sleep(0)
        assert (second.instead_of, second.expired_at) == (first.id, clock.time + timedelta(seconds=9))
        with pytest.raises(QuestionClosed):
            await engine.answer(first.id, "late")
        await passes(clock, 9)
        await settled(session, Status.PAUSED)
        assert await statuses(session) == ["EXPIRED", "EXPIRED"]
        assert (await history(session)).count("question.escalated") == 1


@on_loop
async def test_a_reminder_is_one_event_before_the_end() -> None:
    async def ask(ctx: Context) -> str:
        return await ctx.ask("Well?", expires=timedelta(seconds=60), remind=timedelta(seconds=10))

    async with held(one := one_step(ask)) as (engine, clock):
        session = await engine.start(one)
        question = await waits(session)
        assert "question.reminded" not in await history(session)
        await passes(clock, 50)
        while "question.reminded" not in await history(session):
            await asyncio.sleep(0)
        assert (await waits(session)).id == question.id
        await session.pause()
        await session.resume()
        await settled(session)
        await session.answer("so")
        assert await ended(session) == "so"
        assert (await history(session)).count("question.reminded") == 1


@on_loop
async def test_an_expiry_does_not_keep_anybody_waiting_but_a_timer_beside_it_does() -> None:
    async def only(ctx: Context) -> str:
        return await ctx.ask("Well?")

    async def both(ctx: Context) -> list[object]:
        return list(await asyncio.gather(ctx.ask("Well?"), ctx.sleep(0.05)))

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(only))
        assert (await session.outcome()).status is Status.WAITING
    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(both))
        assert (await session.outcome()).status is Status.WAITING
        assert (await session.info()).waiting == ("answer",)  # the timer has rung


@pytest.mark.covers("S2.21")
@on_loop
async def test_a_new_round_sets_a_new_expiry_and_nothing_else_moves_it() -> None:
    async with held(asking := Asking(int).workflow) as (engine, clock):
        session = await engine.start(asking)
        first = await waits(session)
        clock.advance(600)
        await session.pause()
        await session.resume()
        assert (await waits(session)).expired_at == first.expired_at
        await session.send("many")
        while (second := await waits(session)).current_round == 1:
            await asyncio.sleep(0)
        assert second.expired_at == clock.time + HALF_AN_HOUR
        assert (second.created_at, second.updated_at) == (first.created_at, clock.time)


# pauses


@on_loop
async def test_time_goes_on_while_a_session_is_paused_and_the_answer_is_late() -> None:
    async with held(asking := Asking().workflow) as (engine, clock):
        session = await engine.start(asking)
        question = await waits(session)
        await session.pause()
        clock.advance(1801)
        with pytest.raises(QuestionClosed):
            await engine.answer(question.id, "late")
        await session.resume()
        await settled(session, Status.PAUSED)  # now for the question


@on_loop
async def test_a_pause_that_freezes_timers_freezes_questions_too() -> None:
    async with held(asking := Asking().workflow) as (engine, clock):
        session = await engine.start(asking)
        question = await waits(session)
        clock.advance(600)
        await session.pause(freeze=True)
        clock.advance(24 * 3600)
        assert await statuses(session) == ["WAITING_USER_INPUT"]
        await session.resume()
        await settled(session)
        moved = await waits(session)
        assert question.expired_at is not None
        assert moved.expired_at == question.expired_at + timedelta(days=1)
        assert (moved.id, moved.digest) == (question.id, question.digest)
        await passes(clock, 1200)
        await settled(session, Status.PAUSED)
        assert await statuses(session) == ["EXPIRED"]


@on_loop
async def test_an_answer_in_time_counts_although_the_session_goes_on_later() -> None:
    async with held(asking := Asking().workflow) as (engine, clock):
        session = await engine.start(asking)
        await waits(session)
        await session.pause()
        await session.answer("in time")
        clock.advance(7200)
        await session.resume()
        assert await ended(session) == "in time"


@on_loop
async def test_a_clock_that_is_set_back_only_makes_a_question_wait_longer() -> None:
    async with held(asking := Asking().workflow) as (engine, clock):
        session = await engine.start(asking)
        await waits(session)
        clock.jump(-3600)
        await passes(clock, 1801)
        assert await statuses(session) == ["WAITING_USER_INPUT"]
        await session.answer("so")
        assert await ended(session) == "so"


@on_loop
async def test_an_expiry_in_a_branch_lets_the_others_finish_and_then_pauses() -> None:
    done: list[int] = []

    async def item(n: int, ctx: Context) -> int:
        if n == 1:
            await ctx.ask("Well?", expires=timedelta(seconds=3))
        done.append(n)
        return n

    @step(writes="said", retry=3)
    async def only(ctx: Context) -> list[int]:
        return await ctx.map(item, [0, 1, 2])

    async with held(one := Workflow("one", state=Talk, steps=[only])) as (engine, clock):
        session = await engine.start(one)
        await waits(session)
        await passes(clock, 3)
        await settled(session, Status.PAUSED)
        assert done == [0, 2]
        await session.resume()
        await waits(session)
        await session.answer("so")
        assert await ended(session) == [0, 1, 2]
    assert sorted(done) == [0, 1, 2]
