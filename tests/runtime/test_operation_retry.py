"""Operations that are retried: attempts, durable back-off, pauses during it, nested operations and spending."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import BlockingContext, Budget, Context, Engine, Retry, Status, Workflow, step
from pausepoint.errors import StepError
from pausepoint.testing import ManualClock, always_replay
from tests.support.loop import on_loop
from tests.support.status import settled
from tests.support.waits import async_until


class State(BaseModel):
    text: str = ""
    done: list[str] = []


PLAIN = Retry(attempts=4, first=1, factor=2, jitter=0)
calls: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def nothing_called() -> None:
    calls.clear()


async def flaky(name: str, times: int = 2) -> str:
    calls[name] += 1
    if calls[name] <= times:
        raise ConnectionError(f"{name} is down")
    return name.upper()


numbers = count(1)


def work(fn: Any, *args: Any, **options: Any) -> Workflow[State]:
    @step(writes="text")
    async def act(ctx: Context) -> str:
        calls["step"] += 1
        return str(await ctx.do(fn, *args, **options))

    return Workflow(f"work{next(numbers)}", state=State, steps=[act])


@on_loop
async def test_a_retry_of_an_item_of_a_map_names_the_item() -> None:
    long = "x" * 1_000

    async def fetch(value: str) -> str:
        calls[value] += 1
        return await flaky(f"{value[:1]}!", times=1)

    @step
    async def act(ctx: Context) -> None:
        retry = Retry(attempts=2, first=1, jitter=0)
        await ctx.map(fetch, ["a", long], retry=retry, concurrency=1)
        await ctx.map(fetch, ["b"], key=lambda value: f"row {value}", retry=retry)

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(Workflow("work", state=State, steps=[act]))
        assert (await session.outcome()).status is Status.COMPLETED
        events = [event async for event in session.events() if event.event_type == "operation.retried"]
    assert [event.data["item"] for event in events] == ["a", f"{long[:47]}…{long[-32:]}", "row b"]
    assert [event.summary.partition(" is down")[0] for event in events] == [
        "fetch, item a: attempt 1 failed, ConnectionError: a!",
        f"fetch, item {long[:47]}…{long[-32:]}: attempt 1 failed, ConnectionError: x!",
        "fetch, item row b: attempt 1 failed, ConnectionError: b!",
    ]


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_an_operation_is_retried_after_waits_that_double_and_the_step_does_not_start_again() -> None:
    clock = ManualClock(auto=True)
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(work(flaky, "a", retry=PLAIN))
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.text, calls["a"], calls["step"]) == (Status.COMPLETED, "A", 3, 1)
        assert clock.slept == [1, 2]
        events = [event async for event in session.events() if event.event_type == "operation.retried"]
        assert [event.summary for event in events] == [
            "flaky: attempt 1 failed, ConnectionError: a is down; retry in 1.0 s",
            "flaky: attempt 2 failed, ConnectionError: a is down; retry in 2.0 s",
        ]
        assert {key: events[1].data[key] for key in ("attempt", "delay", "error")} == {
            "attempt": 2, "delay": 2.0, "error": "ConnectionError: a is down",
        }  # fmt: skip
        assert (await session.verify()).ok


@on_loop
async def test_when_the_attempts_are_used_up_the_last_error_is_raised_and_a_resume_counts_again() -> None:
    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(work(flaky, "a", times=99, retry=3))
        for runs in (1, 2):
            outcome = await session.outcome()
            assert (outcome.status, calls["a"]) == (Status.FAILED, 3 * runs)
            assert outcome.failure is not None
            assert (outcome.failure.type, outcome.failure.message) == ("ConnectionError", "a is down")
            await session.resume()


@on_loop
async def test_a_retry_of_the_step_gives_the_operation_all_its_attempts_again() -> None:
    @step(writes="text", retry=Retry(attempts=2, first=0))
    async def act(ctx: Context) -> str:
        return await ctx.do(flaky, "a", times=4, retry=Retry(attempts=3, first=0))

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[act]))
        assert ((await session.outcome()).state.text, calls["a"]) == ("A", 5)


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_a_retry_of_an_operation_gives_those_inside_all_their_attempts_again() -> None:
    async def whole(ctx: Context) -> str:
        calls["whole"] += 1
        return await ctx.do(flaky, "a", times=4, retry=Retry(attempts=3, first=0))

    async with Engine(":memory:") as engine:
        session = await engine.start(work(whole, retry=Retry(attempts=2, first=0)))
        assert ((await session.outcome()).state.text, calls["a"], calls["whole"]) == ("A", 5, 2)


@on_loop
async def test_errors_that_a_retry_cannot_help_are_raised_at_once() -> None:
    class Wrong(Exception):
        retryable = False

    async def fails(error: str) -> None:
        calls[error] += 1
        raise Wrong if error == "wrong" else ValueError(error)

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        for error, options in (("wrong", {"retry": 5}), ("value", {"retry": Retry(on=(OSError,))})):
            assert (await (await engine.start(work(fails, error, **options))).outcome()).status is Status.FAILED
            assert calls[error] == 1


@on_loop
async def test_collect_keeps_flaky_items_and_names_the_bad_one() -> None:
    async def fetch(name: str) -> str:
        calls[name] += 1
        if name == "bad":
            raise ValueError("no such row")
        return await flaky(f"{name}!", times=1)

    @step(writes="done")
    async def act(ctx: Context) -> list[str]:
        batch = await ctx.map(fetch, ["a", "bad", "b"], on_error="collect", retry=Retry(attempts=3, first=0.01))
        assert [str(error) for error in batch.failed.values()] == ["no such row"]
        return [batch.done[index] for index in sorted(batch.done)]

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(Workflow("work", state=State, steps=[act]))
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.done) == (Status.COMPLETED, ["A!", "B!"])
        assert (calls["a"], calls["b"], calls["bad"]) == (2, 2, 3)
        failed = [event.summary async for event in session.events() if event.event_type == "item.failed"]
        assert failed == ["fetch, item bad: ValueError: no such row"]


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_operations_inside_are_remembered_over_the_attempts_and_count_from_one_again() -> None:
    async def part(n: int) -> int:
        calls[f"part {n}"] += 1
        return n

    async def whole(ctx: Context) -> str:
        found = [await ctx.do(part, n) for n in (1, 1, 2)]
        await flaky("whole")
        return str([*found, await ctx.do(part, 2)])

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(work(whole, retry=3))
        assert (await session.outcome()).state.text == "[1, 1, 2, 2]"
        assert (calls["whole"], calls["part 1"], calls["part 2"]) == (3, 2, 2)


@pytest.mark.parametrize("inside", [True, False])
@on_loop
async def test_every_attempt_spends_and_a_remembered_operation_inside_is_paid_once(inside: bool) -> None:
    async def model(ctx: Context) -> float:
        if inside:
            ctx.spend(usd=0.5)
        return 0.5

    async def whole(ctx: Context) -> None:
        ctx.spend(usd=0.01, tokens=3)
        cost = await ctx.do(model)
        if not inside:
            ctx.spend(usd=cost)
        await flaky("whole")

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(work(whole, retry=3))
        outcome = await session.outcome()
        assert (outcome.spent_usd, outcome.spent_tokens) == (0.53, 9)
        assert (await session.verify()).ok


@on_loop
async def test_a_spent_budget_pauses_before_the_next_attempt_and_a_higher_one_continues_it() -> None:
    async def costly(ctx: Context) -> str:
        ctx.spend(usd=1)
        return await flaky("a", times=3)

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(work(costly, retry=4), budget=2)
        outcome = await session.outcome()
        assert (outcome.status, outcome.pauses[0].kind, calls["a"]) == (Status.PAUSED, "budget", 2)
        await session.resume(budget=Budget(usd=9))
        outcome = await session.outcome()
        assert (outcome.state.text, calls["a"], outcome.spent_usd) == ("A", 4, 4)


@on_loop
async def test_an_option_that_is_also_a_parameter_of_the_function_is_refused_unless_it_is_bound() -> None:
    async def fetch(url: str, timeout: float = 5) -> str:
        return f"{url} {timeout}"

    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(work(fetch, "x", timeout=30))).outcome()
        assert outcome.failure is not None
        assert (outcome.failure.type, "functools.partial(" in outcome.failure.message) == (StepError.__name__, True)
        assert "parameter 'timeout' too" in outcome.failure.message
        outcome = await (await engine.start(work(partial(fetch, timeout=1), "x", timeout=30, retry=2))).outcome()
        assert outcome.state.text == "x 1"


@pytest.mark.parametrize(
    ("options", "message"),
    [({"retry": 0}, "retry=0 must be"), ({"retry": "3"}, "retry='3' must be"), ({"timeout": 0}, "timeout=0 must be"),
     ({"timeout": True}, "timeout=True must be"), ({"timeout": timedelta(0)}, "must be a timedelta")],
)  # fmt: skip
@on_loop
async def test_wrong_options_are_refused_with_the_right_ones(options: dict[str, Any], message: str) -> None:
    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(work(flaky, "a", **options))).outcome()
        assert outcome.failure is not None
        assert (outcome.failure.type, calls["a"]) == ("ValueError", 0)
        assert message in outcome.failure.message


# pauses


@pytest.mark.no_always_replay("counts the runs of the step's body")
@pytest.mark.parametrize("hold", [60, 0], ids=["in place", "left"])
@on_loop
async def test_a_pause_takes_effect_during_a_back_off_and_keeps_the_count(hold: float) -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock, hold=hold) as engine:
        session = await engine.start(work(flaky, "a", times=1, retry=Retry(attempts=2, first=30, jitter=0)))
        await clock.asleep()
        assert (await session.info()).status is Status.RUNNING
        assert (await session.pause(wait=True))[0].status is Status.PAUSED
        assert (calls["a"], calls["step"]) == (1, 1)
        plan = str(await session.plan())
        assert "flaky waits to be retried at" in plan
        assert "attempt 1 failed, ConnectionError: a is down" in plan
        assert [each.attempt for each in await engine.session(session.id).retries()] == [1]
        clock.advance(31)
        await session.resume()
        assert (await session.outcome()).state.text == "A"
        assert (calls["a"], calls["step"]) == (2, 1 if hold else 2)


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_a_pause_that_ends_before_the_back_off_waits_for_the_rest_of_it() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock, hold=60) as engine:
        session = await engine.start(work(flaky, "a", times=1, retry=Retry(attempts=2, first=30, jitter=0)))
        await clock.asleep()
        assert (await session.pause(wait=True))[0].status is Status.PAUSED
        clock.advance(10)
        await session.resume()
        await clock.asleep()
        assert calls["a"] == 1
        clock.advance(19)
        await asyncio.sleep(0)
        assert calls["a"] == 1
        clock.advance(2)
        assert ((await session.outcome()).state.text, calls["a"], calls["step"]) == ("A", 2, 1)


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_a_long_back_off_parks_the_session_until_it_is_over() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        retry = Retry(attempts=2, first=3600, longest=3600, jitter=0)
        session = await engine.start(work(flaky, "a", times=1, retry=retry))
        await settled(session, Status.SLEEPING)
        assert "flaky waits to be retried at" in (await session.plan())["act"].why
        clock.advance(3601)
        assert ((await session.outcome()).state.text, calls["a"], calls["step"]) == ("A", 2, 2)


@on_loop
async def test_an_engine_that_closes_leaves_the_back_off_to_the_next_one(tmp_path: Path) -> None:
    clock, workflow = ManualClock(), work(flaky, "a", times=1, retry=Retry(attempts=2, first=30, jitter=0))
    async with Engine(tmp_path / "s.db", clock=clock) as engine:
        await engine.start(workflow, session_id="s")
        await clock.asleep()
    async with Engine(tmp_path / "s.db", clock=clock, workflows=[workflow], drives="none") as engine:
        info = await engine.session("s").info()
        assert (info.status, info.wakes_at is not None) == (Status.SLEEPING, True)
    clock.advance(31)
    async with Engine(tmp_path / "s.db", clock=clock, workflows=[workflow]) as engine:
        session = engine.session("s")
        assert ((await session.outcome()).state.text, calls["a"]) == ("A", 2)


@on_loop
async def test_an_engine_that_closes_begins_no_further_attempt_even_without_a_back_off(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def down(ctx: Context) -> str:
        calls["down"] += 1
        begun.set()
        while calls["down"] == 1 and not ctx._visit.host.stopping:
            await asyncio.sleep(0.001)
        return await flaky("a")

    workflow = work(down, retry=Retry(attempts=3, first=0))
    async with Engine(tmp_path / "s.db") as engine:
        await engine.start(workflow, session_id="s")
        await begun.wait()
    assert calls["down"] == 1
    async with Engine(tmp_path / "s.db", workflows=[workflow]) as engine:
        session = engine.session("s")
        assert ((await session.outcome()).state.text, calls["down"]) == ("A", 3)


@on_loop
async def test_an_engine_that_closes_while_the_budget_is_read_begins_no_further_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = asyncio.Event()

    async def late(key: int) -> Any:
        monkeypatch.undo()
        reading.set()
        await async_until(lambda: (drive := engine._service.driver.drive("s")) and drive.stopping)
        return await engine.store.purses(key)

    async def down() -> None:
        calls["down"] += 1
        monkeypatch.setattr(engine.store, "purses", late)
        raise ConnectionError("down")

    async with Engine(tmp_path / "s.db") as engine:
        await engine.start(work(down, retry=Retry(attempts=2, first=0)), session_id="s", budget=9)
        await reading.wait()
    assert calls["down"] == 1


@on_loop
async def test_a_wake_ends_the_back_off_now() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        retry = Retry(attempts=2, first=3600, longest=3600, jitter=0)
        session = await engine.start(work(flaky, "a", times=1, retry=retry))
        await settled(session, Status.SLEEPING)
        await session.resume(wake=True)
        assert ((await session.outcome()).state.text, calls["a"]) == ("A", 2)


@on_loop
async def test_another_branch_can_finish_during_a_back_off() -> None:
    clock = ManualClock()
    open_, begun = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        begun.set()
        await open_.wait()
        return "slow"

    @step(writes="done")
    async def act(ctx: Context) -> list[str]:
        retry = Retry(attempts=2, first=30, jitter=0)
        return list(await asyncio.gather(ctx.do(flaky, "a", times=1, retry=retry), ctx.do(slow)))

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("work", state=State, steps=[act]))
        await begun.wait()
        await clock.asleep()
        open_.set()
        while not [event async for event in session.events() if event.summary == "slow"]:
            await asyncio.sleep(0.001)
        assert calls["a"] == 1  # the back-off is not over
        clock.advance(31)
        assert (await session.outcome()).state.done == ["A", "slow"]


# blocking steps


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_a_blocking_step_retries_in_its_own_thread() -> None:
    threads: set[int] = set()

    def fetch(name: str) -> str:
        threads.add(threading.get_ident())
        calls[name] += 1
        if calls[name] < 3:
            raise ConnectionError("down")
        return name

    @step(writes="text")
    def act(ctx: BlockingContext) -> str:
        threads.add(threading.get_ident())
        return ctx.do(fetch, "x", retry=3)

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(Workflow("work", state=State, steps=[act]))
        assert ((await session.outcome()).state.text, calls["x"], len(threads)) == ("x", 3, 1)


@on_loop
async def test_a_step_that_replays_after_every_operation_gives_the_same(tmp_path: Path) -> None:
    async def part(n: int, ctx: Context) -> int:
        ctx.spend(usd=0.25)
        return len(await flaky(f"part {n}", times=1))

    async def whole(ctx: Context) -> int:
        return sum(await ctx.map(part, [1, 2], retry=Retry(attempts=2, first=0)))

    async with always_replay(Engine(tmp_path / "s.db", clock=ManualClock(auto=True))) as engine:
        session = await engine.start(work(whole, retry=2))
        outcome = await session.outcome()
        assert (outcome.state.text, outcome.spent_usd, outcome.failure) == ("12", 1.0, None)
