"""Time-outs of operations: the time stops while an operation waits, and an attempt that timed out no longer counts."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from math import inf
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Engine, OperationTimeout, Retry, Session, Status, Workflow, step
from pausepoint.errors import StepExited
from pausepoint.runtime.frames import Frame
from pausepoint.runtime.timeouts import Timeouts
from pausepoint.runtime.visit import Visit
from pausepoint.testing import ManualClock
from tests.runtime.kit import Gate, pass_time
from tests.support.loop import PATIENCE, on_loop
from tests.support.status import settled

SOON = 0.05
"""A time-out that expires within the test."""


class State(BaseModel):
    text: str = ""


calls: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def nothing_called() -> None:
    calls.clear()


async def hangs_at_first(name: str) -> str:
    calls[name] += 1
    if calls[name] == 1:
        await asyncio.Event().wait()
    return name


def work(fn: Any, *args: Any, **options: Any) -> Workflow[State]:
    @step(writes="text")
    async def act(ctx: Context) -> str:
        return str(await ctx.do(fn, *args, **options))

    return Workflow("work", state=State, steps=[act])


@on_loop
async def test_an_operation_that_takes_too_long_is_cancelled_and_says_what_to_do() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(work(hangs_at_first, "a", timeout=SOON))
        outcome = await session.outcome()
        assert outcome.failure is not None
        assert (outcome.failure.type, outcome.failure.message) == (
            "OperationTimeout",
            f"Operation 'hangs_at_first' exceeded its timeout of {SOON} s. Raise timeout=, or pass retry= to try it"
            " again.",
        )
        assert issubclass(OperationTimeout, TimeoutError)  # so that on=(TimeoutError,) covers it


@on_loop
async def test_a_time_out_is_retried_like_any_error() -> None:
    async with Engine(":memory:") as engine:
        retry = Retry(attempts=2, first=0, on=(TimeoutError,))
        session = await engine.start(work(hangs_at_first, "a", retry=retry, timeout=SOON))
        assert ((await session.outcome()).state.text, calls["a"]) == ("a", 2)


@on_loop
async def test_items_of_a_map_time_out_one_by_one() -> None:
    @step(writes="text")
    async def act(ctx: Context) -> str:
        retry = Retry(attempts=2, first=0)
        return "".join(await ctx.map(hangs_at_first, "abc", concurrency=2, retry=retry, timeout=SOON))

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[act]))
        assert ((await session.outcome()).state.text, calls) == ("abc", Counter(a=2, b=2, c=2))


@pytest.mark.no_always_replay("the question waits in memory")
@on_loop
async def test_the_time_stops_while_the_operation_asks_a_person() -> None:
    visits: list[Visit] = []

    async def approved(ctx: Context) -> str:
        calls["approved"] += 1
        visits.append(ctx._visit)
        return await ctx.ask("Go?", expires=None)

    async with Engine(":memory:") as engine:
        gate = Gate()

        @step(writes="text")
        async def act(ctx: Context) -> str:
            # The second operation keeps the step running, so the question waits in memory beyond the time-out.
            answer, _ = await asyncio.gather(ctx.do(approved, timeout=PATIENCE), ctx.do(gate.pass_through))
            return answer

        session = await engine.start(Workflow("work", state=State, steps=[act]))
        while not (visits and visits[0].waits):
            await asyncio.sleep(0.001)
        pass_time(visits[0], 2 * PATIENCE)
        [question] = await engine.questions()
        await session.answer("yes", question=question.id)
        gate.open.set()
        assert ((await session.outcome()).state.text, calls["approved"]) == ("yes", 1)


@pytest.mark.no_always_replay("the step is kept in memory")
@on_loop
async def test_the_time_stops_while_a_pause_keeps_the_step_in_memory() -> None:
    visits: list[Visit] = []

    async def two(ctx: Context) -> str:
        calls["two"] += 1
        visits.append(ctx._visit)
        await ctx.do(first)
        return await ctx.do(second)

    async def first() -> None:
        await session.pause()

    async def second() -> str:
        return "done"

    async with Engine(":memory:", hold=60) as engine:
        session: Session[State] = await engine.start(work(two, timeout=PATIENCE))
        assert (await session.outcome()).status is Status.PAUSED
        pass_time(visits[0], 2 * PATIENCE)
        await session.resume()
        assert ((await session.outcome()).state.text, calls["two"]) == ("done", 1)


@on_loop
async def test_an_attempt_that_waited_across_processes_has_all_its_time_again(tmp_path: Path) -> None:
    async def patient(ctx: Context) -> str:
        calls["patient"] += 1
        pass_time(ctx._visit, 0.7 * PATIENCE)
        return await ctx.receive()

    workflow = work(patient, timeout=PATIENCE)
    async with Engine(tmp_path / "s.db") as engine:
        session = await engine.start(workflow, session_id="s")
        await settled(session)
    async with Engine(tmp_path / "s.db", workflows=[workflow]) as engine:
        session = engine.session("s")
        await session.send("hello")
        assert ((await session.outcome()).state.text, calls["patient"]) == ("hello", 2)


@on_loop
async def test_a_cancellation_from_elsewhere_is_not_taken_for_the_time_out() -> None:
    async def slow() -> str:
        await asyncio.Event().wait()
        return ""

    @step(writes="text")
    async def act(ctx: Context) -> str:
        try:
            async with asyncio.timeout(SOON):
                await ctx.do(slow, timeout=PATIENCE, retry=5)
        except TimeoutError as error:
            return type(error).__name__
        return ""

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[act]))
        assert (await session.outcome()).state.text == "TimeoutError"


@on_loop
async def test_an_operation_that_ends_although_it_was_cancelled_counts() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "cleaned up"
        return ""

    @step(writes="text")
    async def act(ctx: Context) -> str:
        found = await ctx.do(stubborn, timeout=SOON)
        await asyncio.sleep(0)  # no cancellation is left
        return found

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[act]))
        assert (await session.outcome()).state.text == "cleaned up"


# threads, which cannot be stopped


@pytest.mark.parametrize("blocking_step", [False, True])
@pytest.mark.no_always_replay("counts the runs of the step")
@on_loop
async def test_a_thread_whose_attempt_timed_out_can_do_nothing_more_and_holds_up_nothing(blocking_step: bool) -> None:
    stuck, free, over = threading.Event(), threading.Event(), threading.Event()
    seen: list[str] = []
    visits: list[Visit] = []

    def inner() -> str:
        calls["inner"] += 1
        if calls["inner"] == 1:
            stuck.set()
            free.wait(PATIENCE)
        return "done"

    def outer(ctx: BlockingContext) -> str:
        calls["outer"] += 1
        mine = calls["outer"]
        visits.append(ctx._visit)
        try:
            return ctx.do(inner)
        except StepExited:
            seen.append("exited")
            raise
        finally:
            try:
                ctx.spend(usd=100) if mine == 1 else ctx.spend(usd=1)
            except StepExited:
                seen.append("refused")
                over.set()

    options: dict[str, Any] = {"timeout": PATIENCE, "retry": Retry(attempts=2, first=0)}
    if blocking_step:

        @step(writes="text")
        def act(ctx: BlockingContext) -> str:
            return ctx.do(outer, **options)

        workflow = Workflow("work", state=State, steps=[act])
    else:
        workflow = work(outer, **options)
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow)
        assert await asyncio.to_thread(stuck.wait, PATIENCE)
        pass_time(visits[0], 2 * PATIENCE)
        outcome = await session.outcome()  # the second attempt ends, although the first thread is stuck
        assert (outcome.status, outcome.state.text, outcome.spent_usd) == (Status.COMPLETED, "done", 1)
        free.set()
        assert await asyncio.to_thread(over.wait, PATIENCE)
        assert (calls["outer"], calls["inner"], seen) == (2, 2, ["exited", "refused"])
        assert (await session.info()).spent_usd == 1


@on_loop
async def test_a_pause_takes_effect_although_a_thread_of_a_failed_attempt_is_stuck() -> None:
    stuck, free = threading.Event(), threading.Event()
    visits: list[Visit] = []

    def inner() -> None:
        stuck.set()
        free.wait(PATIENCE)

    def outer(ctx: BlockingContext) -> None:
        calls["outer"] += 1
        visits.append(ctx._visit)
        ctx.do(inner)

    async with Engine(":memory:", clock=ManualClock(), hold=0) as engine:
        session = await engine.start(work(outer, timeout=PATIENCE, retry=Retry(attempts=2, first=30, jitter=0)))
        assert await asyncio.to_thread(stuck.wait, PATIENCE)
        pass_time(visits[0], 2 * PATIENCE)
        while not await engine.session(session.id).retries():
            await asyncio.sleep(0.001)
        assert (await session.pause(wait=True, timeout=PATIENCE))[0].status is Status.PAUSED
        assert calls["outer"] == 1
        free.set()


@pytest.mark.parametrize("in_a_task", [False, True])
@on_loop
async def test_if_an_operation_and_one_inside_it_expire_at_once_the_outer_time_out_counts(in_a_task: bool) -> None:
    async def inner(ctx: Context) -> None:
        calls["inner"] += 1
        ctx._visit.loop.call_soon(pass_time, ctx._visit, 2 * PATIENCE)
        await asyncio.Event().wait()

    async def outer(ctx: Context) -> None:
        call = ctx.do(inner, timeout=PATIENCE, retry=Retry(attempts=3, first=0))
        await (asyncio.gather(call) if in_a_task else call)

    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(work(outer, timeout=PATIENCE))).outcome()
        assert outcome.failure is not None
        assert ("Operation 'outer' exceeded" in outcome.failure.message, calls["inner"]) == (True, 1)


# the timer


@on_loop
async def test_one_timer_serves_all_time_outs_of_a_visit() -> None:
    frames = {name: Frame(name, None) for name in ("late", "soon")}
    timeouts, now = Timeouts(asyncio.get_running_loop(), frames), asyncio.get_running_loop().time()
    timeouts.watch(now + PATIENCE)
    timeouts.watch(now + PATIENCE / 2)
    assert timeouts.rings_at == now + PATIENCE / 2
    timer = timeouts.timer
    timeouts.watch(now + PATIENCE)
    assert timeouts.timer is timer
    timeouts.close()


@on_loop
async def test_a_limit_that_is_stopped_keeps_the_rest_of_its_time() -> None:
    frame, loop = Frame("one", None), asyncio.get_running_loop()
    timeouts, now = Timeouts(loop, {"one": frame}), int(loop.time())
    timeouts.stop(frame)
    timeouts.go(frame)
    assert (frame.due, frame.left) == (inf, None)  # it has no limit
    frame.due = now + PATIENCE
    timeouts.time = lambda: now + 10
    timeouts.stop(frame)
    assert (frame.due, frame.left) == (inf, PATIENCE - 10)
    timeouts.time = lambda: now + 1000
    timeouts.go(frame)
    assert (frame.due, frame.left, timeouts.rings_at) == (now + 990 + PATIENCE, None, now + 990 + PATIENCE)
    timeouts.close()
