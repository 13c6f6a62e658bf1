"""What operations that use a language model or are retried leave in spans, metrics and log lines."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Engine, Retry, Workflow, step
from pausepoint.testing import ManualClock
from tests.support.loop import on_loop
from tests.support.telemetry import Telemetry


class State(BaseModel):
    text: str = ""


def gen_ai(span: ReadableSpan) -> dict[str, Any]:
    return {name: value for name, value in (span.attributes or {}).items() if name.startswith("gen_ai.")}


@on_loop
async def run(workflow: Workflow[State]) -> None:
    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(workflow, session_id="talk")
        assert (await session.outcome()).failure is None


CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "gpt-5",
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.output_tokens": 20,
    "gen_ai.conversation.id": "talk",
}


@pytest.mark.no_always_replay("counts spans, and each replay has one")
def test_the_span_of_the_operation_that_spends_says_which_model_and_how_much(seen: Telemetry) -> None:
    async def outer(ctx: Context) -> str:
        return await ctx.do(model)

    async def model(ctx: Context) -> str:
        with trace.get_tracer("mine").start_as_current_span("mine"):  # as instrumented HTTP clients do
            ctx.spend(usd=0.01, model="gpt-5", input_tokens=100, output_tokens=20)
        return "hello"

    @step(writes="text")
    async def act(ctx: Context) -> str:
        return await ctx.do(outer)

    run(Workflow("talk", state=State, steps=[act]))
    assert gen_ai(seen.one("operation model")) == CHAT
    others = ("operation outer", "mine", "visit act", "session talk")
    assert [gen_ai(seen.one(name)) for name in others] == [{}] * 4


def test_several_calls_in_one_operation_are_added_up(seen: Telemetry) -> None:
    def model(ctx: BlockingContext) -> str:
        for count in (60, 40):
            ctx.spend(model="gpt-5", input_tokens=count, output_tokens=10)
        return "hello"

    @step(writes="text")
    def act(ctx: BlockingContext) -> str:
        return ctx.do(model, timeout=60)

    run(Workflow("talk", state=State, steps=[act]))
    assert gen_ai(seen.one("operation model")) == CHAT


def test_money_without_a_model_adds_no_such_attributes(seen: Telemetry) -> None:
    async def pay(ctx: Context) -> str:
        ctx.spend(usd=1, tokens=5)
        return "paid"

    @step(writes="text")
    async def act(ctx: Context) -> str:
        return await ctx.do(pay)

    run(Workflow("talk", state=State, steps=[act]))
    assert gen_ai(seen.one("operation pay")) == {}


def flaky() -> Workflow[State]:
    tries: Counter[str] = Counter()

    async def model() -> str:
        tries["model"] += 1
        if tries["model"] < 3:
            raise ConnectionError("busy")
        return "hello"

    @step(writes="text")
    async def act(ctx: Context) -> str:
        return await ctx.do(model, retry=Retry(attempts=3, first=1, jitter=0))

    return Workflow("talk", state=State, steps=[act])


@pytest.mark.no_always_replay("counts spans, and each replay has one")
def test_attempts_that_are_retried_are_counted_and_share_one_span(seen: Telemetry) -> None:
    run(flaky())
    assert (seen.one("operation model").attributes or {})["pausepoint.status"] == "completed"
    [point] = seen.points()["pausepoint.retries"]
    assert (point.value, dict(point.attributes)) == (2, {"pausepoint.workflow": "talk", "pausepoint.step": "act"})


def test_every_failed_attempt_that_is_retried_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pausepoint"):
        run(flaky())
    warned = [(record.levelname, record.getMessage()) for record in caplog.records if record.levelno > logging.INFO]
    assert warned == [
        ("WARNING", "session talk: model: attempt 1 failed, ConnectionError: busy; retry in 1.0 s"),
        ("WARNING", "session talk: model: attempt 2 failed, ConnectionError: busy; retry in 2.0 s"),
    ]
