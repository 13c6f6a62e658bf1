"""Workflows that ask, and helpers that wait for questions and answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, field_validator

from pausepoint import Context, Engine, Session, Status, Workflow, step
from pausepoint.model.questions import Question
from pausepoint.testing import ManualClock
from tests.support.status import settled


class Talk(BaseModel):
    topic: str = "kelp"
    before: int = 0
    said: Any = None
    after: int = 0


class Address(BaseModel):
    street: str
    number: int

    @field_validator("number")
    @classmethod
    def _from_one(cls, number: int) -> int:
        if number < 1:
            raise ValueError("houses are numbered from 1")
        return number


HALF_AN_HOUR = timedelta(minutes=30)


class Asking:
    """``first``, then a step that asks for half an hour, then ``last``; ``calls`` lists what ran."""

    def __init__(self, kind: Any = str, text: str = "What then?", **options: Any) -> None:
        self.calls: list[str] = []
        options.setdefault("expires", HALF_AN_HOUR)

        @step(writes="before")
        async def first(before: int) -> int:
            self.calls.append("first")
            return before + 1

        @step(writes="said")
        async def middle(ctx: Context) -> Any:
            self.calls.append("middle")
            await ctx.do(self.work)
            answer = await ctx.ask(text, kind, **options)
            await ctx.do(self.use, str(answer))
            return answer.model_dump() if isinstance(answer, BaseModel) else answer

        @step(writes="after")
        async def last(after: int) -> int:
            self.calls.append("last")
            return after + 1

        self.workflow = Workflow("asking", state=Talk, steps=[first, middle, last])

    def work(self) -> str:
        """An operation before the question."""
        self.calls.append("work")
        return "worked"

    def use(self, answer: str) -> None:
        """An operation with the answer."""
        self.calls.append(f"use {answer}")


def one_step(ask: Callable[[Context], Any], **options: Any) -> Workflow[Talk]:
    """Make a workflow of one step that writes what ``ask`` returns."""

    @step(writes="said")
    async def only(ctx: Context) -> Any:
        return await ask(ctx)

    return Workflow("one", state=Talk, steps=[only], **options)


async def waits(session: Session[Any]) -> Question:
    """Wait until the session is parked with one question, and return it."""
    await settled(session)
    [question] = await session.questions()
    return question


async def ended(session: Session[Any], status: Status = Status.COMPLETED) -> Any:
    """Wait for the end and return the answer."""
    outcome = await session.outcome()
    assert outcome.status is status, (outcome.status, outcome.failure, outcome.pauses)
    return outcome.state.said


async def statuses(session: Session[Any]) -> list[str]:
    return [question.status.value for question in await session.questions(None)]


@asynccontextmanager
async def held(*workflows: Workflow[Any], **options: Any) -> AsyncIterator[tuple[Engine, ManualClock]]:
    """Open an engine with a clock that only the test advances."""
    clock = ManualClock()
    async with Engine(":memory:", clock=clock, workflows=workflows, signals=False, **options) as engine:
        yield engine, clock


async def passes(clock: ManualClock, seconds: float) -> None:
    """Advance the clock as soon as someone sleeps on it."""
    await clock.asleep()
    clock.advance(seconds)
