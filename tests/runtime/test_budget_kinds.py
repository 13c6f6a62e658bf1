"""Budgets in dollars, tokens and operations, and spending that names the model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Budget, Context, Engine, Retry, Status, Workflow, run, step
from pausepoint.testing import ManualClock
from tests.support.loop import on_loop


class State(BaseModel):
    done: list[int] = []


ran: list[int] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


async def costly(n: int, ctx: Context) -> int:
    ran.append(n)
    ctx.spend(usd=0.5, tokens=100)
    return n


@step(writes="done")
async def work(ctx: Context) -> list[int]:
    return [await ctx.do(costly, n) for n in range(6)]


async def lasting(n: int, ctx: Context) -> int:
    await asyncio.sleep(0.02)  # so that the others may begin meanwhile
    return await costly(n, ctx)


@step(writes="done")
async def fan(ctx: Context) -> list[int]:
    return await ctx.map(lasting, range(6), concurrency=6)


costs, fanned = Workflow("costs", state=State, steps=[work]), Workflow("fanned", state=State, steps=[fan])

SPENT = [
    (Budget(tokens=300), 3, "300 of the 300 tokens of the budget are spent; resume with a higher budget"),
    (Budget(operations=4), 4, "4 of the 4 operations of the budget are used; resume with a higher budget"),
    (Budget(usd=1, tokens=900, operations=9), 2, "$1.0000 of the $1.0000 budget is spent; resume with a higher budget"),
    (Budget(operations=0), 0, "0 of the 0 operations of the budget are used; resume with a higher budget"),
    (1, 2, "$1.0000 of the $1.0000 budget is spent; resume with a higher budget"),
]


@pytest.mark.parametrize(("budget", "count", "reason"), SPENT)
@on_loop
async def test_the_session_pauses_when_one_of_the_limits_is_reached(budget: Any, count: int, reason: str) -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(costs, budget=budget)
        outcome = await session.outcome()
        assert (outcome.status, [(pause.kind, pause.reason) for pause in outcome.pauses]) == (
            Status.PAUSED, [("budget", reason)],
        )  # fmt: skip
        assert ran == list(range(count))
        assert (await session.plan()).obstacles == (f"budget: {reason}",)
        await session.resume(budget=Budget(usd=100, tokens=10_000, operations=100))
        outcome = await session.outcome()
        assert (outcome.status, ran) == (Status.COMPLETED, list(range(6)))
        info = await session.info()
        assert (info.spent_usd, info.spent_tokens, info.spent_operations) == (3, 600, 6)
        assert (info.budget_usd, info.budget_tokens, info.budget_operations) == (100, 10_000, 100)
        assert (await session.verify()).ok


@pytest.mark.no_always_replay("an operation that waits for its replay counts as in flight")
@on_loop
async def test_operations_in_flight_count_so_a_map_does_not_start_more_than_are_left() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(fanned, budget=Budget(operations=4))
        assert ((await session.outcome()).status, len(ran)) == (Status.PAUSED, 4)
        await session.resume(budget=Budget(operations=10))
        assert ((await session.outcome()).state.done, len(ran)) == (list(range(6)), 6)


@pytest.mark.no_always_replay("the replay begins the step again when the budget is spent")
@on_loop
async def test_a_limit_that_a_new_budget_does_not_name_stays() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(costs, budget=Budget(usd=1, operations=5))
        await session.outcome()
        await session.resume(budget=9)
        outcome = await session.outcome()
        assert (outcome.pauses[0].reason.partition(" of ")[0], len(ran)) == ("5", 5)
        requested = [event.data async for event in session.events() if event.event_type == "resume.requested"]
        assert requested == [{"budget_usd": 9.0}]
        await session.resume(budget=Budget(operations=6, tokens=700))
        assert (await session.outcome()).status is Status.COMPLETED
        info = await session.info()
        assert (info.budget_usd, info.budget_tokens, info.budget_operations) == (9, 700, 6)


@on_loop
async def test_failed_attempts_that_are_retried_count_as_operations() -> None:
    async def flaky() -> int:
        ran.append(0)
        raise ConnectionError

    @step(writes="done")
    async def act(ctx: Context) -> list[int]:
        return [await ctx.do(flaky, retry=Retry(attempts=9, first=0))]

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(Workflow("flaky", state=State, steps=[act]), budget=Budget(operations=3))
        assert ((await session.outcome()).status, len(ran)) == (Status.PAUSED, 3)
        assert (await session.info()).spent_operations == 3


@on_loop
async def test_what_children_do_counts_for_their_parents() -> None:
    @step(writes="done")
    async def top(ctx: Context) -> list[int]:
        return (await ctx.call(costs)).done

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("top", state=State, steps=[top]), budget=Budget(operations=3))
        await session.outcome()
        [child] = await engine.session(session.id).children()
        assert len(ran) == 3
        [pause] = await engine.session(child.session_id).pauses()
        assert pause.reason.startswith(f"3 of the 3 operations of the budget of its parent session {session.id!r}")
        await session.resume(budget=Budget(operations=50))
        assert ((await session.outcome()).state.done, ran) == (list(range(6)), list(range(6)))
        assert (await session.info()).spent_operations == 7  # six of the child, and the call
        assert (await engine.verify()).ok


@on_loop
async def test_a_fork_has_the_same_limits_unless_others_are_given() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(costs, budget=Budget(usd=9, tokens=300, operations=5), paused=True)
        fork = await (await session.fork(budget=Budget(operations=7), paused=True)).info()
        assert (fork.budget_usd, fork.budget_tokens, fork.budget_operations) == (9, 300, 7)


def test_run_takes_a_budget() -> None:
    outcome = run(costs, budget=Budget(operations=2), store=":memory:")
    assert (outcome.status, len(ran)) == (Status.PAUSED, 2)


@pytest.mark.parametrize("wrong", [{"tokens": -1}, {"operations": 1.5}, {"tokens": True}, {"usd": -1}, {}])
def test_a_budget_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|has no limit"):
        Budget(**wrong)


# models


@on_loop
async def test_spending_names_the_model_and_adds_up_its_tokens() -> None:
    @step
    async def act(ctx: Context) -> None:
        ctx.spend(usd=0.01, model="gpt-5", input_tokens=100, output_tokens=20)
        ctx.spend(model="gpt-5", input_tokens=100, output_tokens=20)
        ctx.spend(model="other", tokens=7)
        ctx.spend(tokens=3)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("models", state=State, steps=[act]))
        assert (await session.outcome()).spent_tokens == 250
        events = [event async for event in session.events() if event.event_type == "spent"]
        assert [event.summary for event in events] == [
            "$0.0100, 120 tokens, gpt-5", "$0.0000, 120 tokens, gpt-5", "$0.0000, 7 tokens, other", "$0.0000, 3 tokens",
        ]  # fmt: skip
        assert events[0].data == {
            "usd": 0.01, "tokens": 120, "model": "gpt-5", "input_tokens": 100, "output_tokens": 20,
        }  # fmt: skip
        assert events[3].data == {"usd": 0.0, "tokens": 3}


@pytest.mark.parametrize("wrong", [{"model": 5}, {"input_tokens": -1}, {"output_tokens": 1.5}, {"tokens": "9"}])
@on_loop
async def test_usage_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    @step
    async def act(ctx: Context) -> None:
        ctx.spend(**wrong)

    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(Workflow("models", state=State, steps=[act]))).outcome()
        assert outcome.failure is not None
        assert outcome.failure.type == "ValueError"


class Size(IntEnum):
    SMALL = 3


COUNTS: dict[str, Callable[[Context, Any], None]] = {
    "tokens": lambda ctx, count: ctx.spend(tokens=count),
    "input tokens": lambda ctx, count: ctx.spend(model="m", input_tokens=count),
    "progress": lambda ctx, count: ctx.progress(count, 9),
}


@pytest.mark.parametrize("kind", COUNTS)
@on_loop
async def test_a_truth_value_is_no_count_and_an_enum_is_stored_as_its_number(kind: str) -> None:
    """Otherwise the record could never be read again."""

    @step
    async def counts(ctx: Context) -> None:
        with pytest.raises(ValueError, match="whole number"):
            COUNTS[kind](ctx, True)
        COUNTS[kind](ctx, Size.SMALL)
        await ctx.receive(str)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("counts", state=State, steps=[counts]))
        assert (await session.outcome()).status is Status.WAITING
        info = await session.info()
        assert 3 in (info.spent_tokens, (info.progress or (0,))[0])
        await session.send("go")
        assert (await session.outcome()).status is Status.COMPLETED
        assert (await engine.verify()).ok
