"""`ctx.first` in a blocking step: the same race, of functions that make the calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pausepoint import BlockingContext, Engine, Session, Status, Workflow, current, step
from pausepoint.errors import StepError
from pausepoint.runtime import First
from pausepoint.testing import ManualClock, every_crash_point
from tests.support.chat import Mail, history
from tests.support.loop import on_loop
from tests.support.status import settled


def racing(race: Callable[[BlockingContext], First[Any]], rest: int = 0, name: str = "race") -> Workflow[Mail]:
    @step(writes="got")
    def listen(ctx: BlockingContext) -> list[Any]:
        name, value = race(ctx)
        return [name, value, *[ctx.receive() for _ in range(rest)]]

    return Workflow(name, state=Mail, steps=[listen])


def reply_or_late(ctx: BlockingContext) -> First[Any]:
    return ctx.first(reply=lambda: ctx.receive(), late=lambda: ctx.sleep(60))


@on_loop
async def test_the_winner_is_returned_and_a_late_message_stays(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Engine(tmp_path / "s.db", clock=clock) as engine:
        early = await engine.start(racing(reply_or_late))
        await settled(early)
        await early.send("hello")
        assert (await early.outcome()).state.got == ["reply", "hello"]
        late = await engine.start(racing(reply_or_late, rest=1, name="late"))
        await settled(late)
        clock.advance(60)
        while "operation.completed" not in await history(late):
            await asyncio.sleep(0.001)
        await late.send("too late")
        assert (await late.outcome()).state.got == ["late", None, "too late"]


@on_loop
async def test_questions_race_by_position_and_the_losers_close() -> None:
    def asks(ctx: BlockingContext) -> First[Any]:
        return ctx.first(
            lambda: ctx.ask("How many?", int),
            lambda: current(blocking=True).confirm("Really?"),
            lambda: ctx.receive(),
        )

    async with Engine(":memory:") as engine:
        session = await engine.start(racing(asks, rest=1))
        await settled(session)
        one, two = sorted(await session.questions(), key=lambda each: each.next_question)
        await engine.answer(one.id, 3)
        while "operation.completed" not in await history(session):
            await asyncio.sleep(0.001)
        # The session has not ended, so the race has closed the other question.
        assert (await engine.question(two.id)).status.value == "CANCELLED"
        await session.send("next")
        assert (await session.outcome()).state.got == [0, 3, "next"]


@pytest.mark.long
def test_every_crash_point_gives_the_same_winner() -> None:
    def race(ctx: BlockingContext) -> First[Any]:
        return ctx.first(reply=lambda: ctx.receive(timeout=3600), late=lambda: ctx.sleep(3600))

    async def play(session: Session[Any]) -> None:
        for text in ("1", "2"):
            await session.send(text, key=text)

    def compare(state: Mail) -> None:
        assert state.got == ["reply", "1", "2"]

    assert len(every_crash_point(racing(race, rest=1), play=play, compare=compare)) > 4


@on_loop
async def test_a_function_that_does_not_wait_is_refused() -> None:
    def upper(text: str) -> str:
        return text.upper()

    wrong: list[tuple[Callable[[BlockingContext], Any], str]] = [
        (lambda ctx: ctx.first(lambda: 3), "returned 3 without such a call"),
        (lambda ctx: ctx.first(lambda: ctx.sleep(1), lambda: ctx.do(upper, "a")), "ctx.first takes"),
        (lambda ctx: ctx.first(lambda: ctx.emit("x")), "ctx.first takes"),
        (lambda ctx: ctx.first(lambda: reply_or_late(ctx)), "ctx.first takes"),
        (lambda ctx: ctx.first(), "needs at least one wait"),
    ]

    @step(writes="got")
    def listen(ctx: BlockingContext) -> list[Any]:
        for race, said in wrong:
            with pytest.raises(StepError, match=said):
                race(ctx)
        ctx.sleep(0)  # the context works as before
        return []

    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(Workflow("wrong", state=Mail, steps=[listen]))).outcome()
        assert (outcome.failure, outcome.status) == (None, Status.COMPLETED)
