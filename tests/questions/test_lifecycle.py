"""The life of a question, against a model of a few lines; and with a crash at every write."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pydantic import BaseModel

from pausepoint import Context, Engine, Session, Status, Workflow, step, testing
from pausepoint.errors import AnswerConflict, AnswerRefused, QuestionClosed, UnknownQuestion, VerbRefused
from pausepoint.runtime.collect import Tool, collect
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock
from tests.questions.kit import Talk

LASTS = 60
ROUNDS = 3

used: list[int] = []


def use(number: int) -> int:
    used.append(number)
    return number


@step(writes="said")
async def only(ctx: Context) -> int:
    """Asks for a number, and uses it once."""
    number = await ctx.ask("How many?", int, rounds=ROUNDS, expires=timedelta(seconds=LASTS))
    return await ctx.do(use, number)


life = Workflow("life", state=Talk, steps=[only])


class Life(RuleBasedStateMachine):
    """One session that asks; people, operators, clocks and restarts do to it what they like.

    The model: which round, until when, what was answered and not yet read, and whether an operator holds it.
    """

    def __init__(self) -> None:
        super().__init__()
        used.clear()
        self.folder = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.opened()
        self.session: Session[Any] = self.do(self.engine.start(life, session_id="s"))
        self.held = self.gave_up = self.cancelled = False
        self.result: int | None = None
        self.asked()

    # the world

    def do(self, work: Any) -> Any:
        return self.runner.run(work)

    def opened(self) -> None:
        store = SqliteStore(self.folder / "it.db", clock=self.clock, synchronous="OFF", ballast=0)
        self.engine = Engine(store, workflows=[life], clock=self.clock, signals=False)
        self.do(self.engine.__aenter__())

    def settle(self) -> None:
        """Wait until nothing goes on by itself any more."""

        async def quiet() -> None:
            for _ in range(20_000):
                status = (await self.engine.session("s").info()).status
                is_driven = bool(self.engine._service.driver.runs)
                if not is_driven and status not in (Status.RUNNING, Status.READY, Status.PAUSING):
                    return
                await asyncio.sleep(0.0002)
            raise AssertionError(f"it does not come to rest: {await self.engine.session('s').info()}")

        if self.runs:
            self.do(quiet())

    def teardown(self) -> None:
        self.do(self.engine.__aexit__(None, None, None))
        self.runner.close()
        shutil.rmtree(self.folder)

    # the model

    @property
    def runs(self) -> bool:
        return not self.held

    @property
    def over(self) -> bool:
        return self.cancelled or self.result is not None

    @property
    def late(self) -> bool:
        return self.clock.now() >= self.deadline

    def asked(self) -> None:
        self.round, self.deadline = 1, self.clock.now() + LASTS * 1_000_000
        self.unread: object = None
        self.winner: object = None
        self.gave_up = False
        self.settle()
        [question] = self.do(self.session.questions())
        self.id = question.id

    def goes_on(self) -> None:
        """What the session makes of what it finds when nobody holds it."""
        if self.held or self.over or self.gave_up:
            return
        if isinstance(self.unread, int):
            self.result, self.unread = self.unread, None
        elif self.unread == [] and self.late:  # it was no answer, and nobody gave one in time
            self.unread, self.gave_up = None, True
        elif self.unread is not None:
            self.unread = self.winner = None
            self.round += 1
            self.deadline = self.clock.now() + LASTS * 1_000_000
            self.gave_up = self.round > ROUNDS
        elif self.late:
            self.gave_up = True

    # what happens to it

    @rule(value=st.sampled_from([1, 2, "many", []]), by=st.sampled_from(["ann", "bob"]))
    def answers(self, value: Any, by: str) -> None:
        answering = self.engine.answer(self.id, value, by=by)
        if self.winner is not None:
            if value == self.winner:
                self.do(answering)
            else:
                self.refused(answering, AnswerConflict)
        elif self.over or self.gave_up or self.late:
            self.refused(answering, QuestionClosed)
        elif not isinstance(value, int):  # it cannot be right, so another answer may still be the first
            self.refused(answering, AnswerRefused)
            self.do(self.session.send(value, by=by))  # a chat gets another round
            self.unread = value
            self.winner = None if value == [] else value  # the step judges what is said in words
        else:
            self.do(answering)
            self.winner = self.unread = value
        self.goes_on()
        self.settle()

    def refused(self, answering: Any, error: type[Exception]) -> None:
        try:
            self.do(answering)
        except error:
            return
        raise AssertionError(f"not refused as {error.__name__}")

    @rule(seconds=st.sampled_from([1, 30, 61]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.engine._service.waker.poke()
        self.goes_on()
        self.settle()

    @rule()
    def the_clock_is_set_back(self) -> None:
        self.clock.jump(-10)

    @precondition(lambda self: not self.over)
    @rule()
    def somebody_pauses(self) -> None:
        self.do(self.session.pause("lunch"))
        self.held = True

    @precondition(lambda self: not self.over and (self.held or self.gave_up))
    @rule()
    def somebody_resumes(self) -> None:
        anew = self.gave_up
        self.do(self.session.resume())
        self.held = False
        if anew:
            self.asked()
        else:
            self.goes_on()
            self.settle()

    @rule()
    def the_program_ends_and_another_one_begins(self) -> None:
        self.do(self.engine.__aexit__(None, None, None))
        self.opened()
        self.session = self.engine.session("s")
        self.goes_on()
        self.settle()

    @precondition(lambda self: not self.over)
    @rule()
    def somebody_cancels(self) -> None:
        self.do(self.session.cancel())
        self.cancelled = True

    @precondition(lambda self: not self.over and self.runs and not self.gave_up)
    @rule()
    def somebody_goes_back(self) -> None:
        with suppress(VerbRefused):
            self.do(self.session.rewind("only"))
            self.do(self.session.resume())
            self.asked()

    # what must hold

    @invariant()
    def it_stands_as_the_model_says(self) -> None:
        info = self.do(self.engine.session("s").info())
        if self.cancelled:
            expected = Status.CANCELLED
        elif self.result is not None:
            expected = Status.COMPLETED
        elif self.held or self.gave_up:
            expected = Status.PAUSED
        else:
            expected = Status.WAITING
        assert info.status is expected, (info.status, expected)

    @invariant()
    def the_answer_is_used_once_and_is_the_one_that_won(self) -> None:
        assert used == ([] if self.result is None else [self.result])

    @invariant()
    def at_most_one_question_waits(self) -> None:
        waiting = self.do(self.session.questions())
        open_ = not (self.over or self.gave_up or self.late or self.winner is not None)
        assert [(question.id, question.current_round) for question in waiting] == (
            [(self.id, self.round)] if open_ else []
        )


TestLife = pytest.mark.long(Life.TestCase)
TestLife.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)


# crashes


class Order(BaseModel):
    item: str
    count: int


class Desk(BaseModel):
    names: list[str] = []
    done: str = ""
    booked: str = ""


def book(order: Order) -> str:
    return f"{order.count} {order.item}"


async def name_of(n: int, ctx: Context) -> str:
    return await ctx.ask(f"Who is number {n}?", key="who")


@step(writes="names")
async def ask_all(ctx: Context) -> list[str]:
    return await ctx.map(name_of, [1, 2])


@step(writes=["done", "booked"])
async def act(ctx: Context) -> dict[str, str]:
    many = await ctx.ask("How many?", int)
    await ctx.confirm("Really?", act=book)
    collected = await collect(ctx, Tool("book", Order, book), {"count": many})
    return {"done": "yes", "booked": collected.result or ""}


desk = Workflow("desk", state=Desk, steps=[ask_all, act])

SAID = {
    "Who is number 1?": ["ann"],
    "Who is number 2?": ["bob"],
    "How many?": ["lots", "3"],
    "Really?": ["yes"],
    "book needs: item.": ["", "soup"],
}


async def play(session: Session[Any]) -> None:
    """Answer what is asked, the first time wrongly where there are two answers, until nothing is asked any more."""
    while (outcome := await session.outcome()).status is Status.WAITING:
        for question in outcome.questions:
            said = SAID[question.next_question]
            with suppress(AnswerConflict, QuestionClosed, UnknownQuestion):
                await session.send(said[min(question.current_round, len(said)) - 1]) if len(
                    outcome.questions
                ) == 1 else (await session.answer(said[-1], question=question.id))


@pytest.mark.long
def test_a_crash_at_any_write_changes_nothing_that_people_said() -> None:
    points = testing.every_crash_point(desk, play=play)
    assert len(points) > 40
    outcome = testing.crash_at(points[-1], desk, play=play)
    assert outcome.state == Desk(names=["ann", "bob"], done="yes", booked="3 soup")
