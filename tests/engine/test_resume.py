"""Resuming after a failure, a signal or a crash, by one engine at a time and without doing anything twice."""

from __future__ import annotations

import asyncio
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from pausepoint import Append, BlockingContext, Context, Engine, Status, Workflow, step
from pausepoint.errors import AlreadyRunning, DefinitionError, HoldLost, VerbRefused
from pausepoint.testing import ManualClock
from tests.support.children import child, run_child
from tests.support.loop import on_loop
from tests.support.pipeline import FINISHED, STEPS, Pipeline, executions, until


class RateLimited(Exception):
    def __init__(self) -> None:
        super().__init__("429: slow down")
        self.retry_after = 30


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(TimeoutError("the model did not answer"), marks=pytest.mark.covers("S4.1")),
        pytest.param(RateLimited(), marks=pytest.mark.covers("S4.2")),
        pytest.param(ConnectionError("network is unreachable"), marks=pytest.mark.covers("S4.3")),
    ],
    ids=["time-out", "rate limit", "network"],
)
@on_loop
async def test_a_run_that_trouble_outside_ended_goes_on_without_redoing_what_was_done(error: Exception) -> None:
    pipeline = Pipeline(retry=3)
    pipeline.errors["verdict"] = [error] * 3
    clock = ManualClock(auto=True)
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(pipeline.workflow)
        outcome = await session.outcome()
        assert outcome.status is Status.FAILED
        assert outcome.failure is not None
        assert (outcome.failure.type, outcome.failure.attempts) == (type(error).__name__, 3)
        assert outcome.failure.message == str(error)
        assert len(clock.slept) == 2
        assert pipeline.calls == ["outline", "draft", "verdict", "verdict", "verdict"]
        pipeline.calls.clear()
        await session.resume()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state) == (Status.COMPLETED, FINISHED)
        assert pipeline.calls == ["verdict", "report"]


@on_loop
async def test_a_step_that_does_not_exist_cannot_run_again() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow, paused=True)
        with pytest.raises(DefinitionError, match="no step 'drft'"):
            await session.resume(rerun="drft")
        assert await session.status() is Status.PAUSED


class Dates(BaseModel):
    seen: Annotated[list[datetime], Append] = []
    child: datetime | None = None


@on_loop
async def test_the_start_of_a_session_is_the_same_in_every_step_and_on_every_day() -> None:
    begun = datetime(2024, 2, 28, 23, tzinfo=UTC)
    clock = ManualClock(begun)

    @step(writes="seen")
    async def first(ctx: Context) -> list[datetime]:
        return [ctx.started_at]

    @step(writes="seen")
    def second(ctx: BlockingContext) -> list[datetime]:
        return [ctx.started_at]

    async def item(number: int, ctx: Context) -> datetime:
        return ctx.started_at

    @step(writes="seen")
    async def third(ctx: Context) -> list[datetime]:
        return await ctx.map(item, [1])

    @step(writes="child")
    async def called(ctx: Context) -> datetime:
        return (await ctx.call(inner)).seen[0]

    inner = Workflow("inner", state=Dates, steps=[first])
    outer = Workflow("outer", state=Dates, steps=[first, second, third, called])
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(outer, paused=True)
        clock.advance(timedelta(days=3))
        await session.resume()
        state = (await session.outcome()).state
        copied = (await (await session.fork(at_step="first")).outcome()).state
    assert [each.isoformat() for each in state.seen] == [begun.isoformat()] * 3
    assert state.child == begun + timedelta(days=3)  # a child and a fork are sessions of their own
    assert copied.seen[0] == begun + timedelta(days=3)


@pytest.mark.covers("S1.59")
@on_loop
async def test_resuming_a_completed_session_runs_nothing_and_gives_the_stored_result() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow)
        await session.outcome()
        before = await session.info()
        again = await engine.session(session.id).resume()
        outcome = await again.outcome()
        assert (outcome.status, outcome.state) == (Status.COMPLETED, FINISHED)
        assert pipeline.calls == list(STEPS)
        assert await session.info() == before


@on_loop
async def test_resuming_a_cancelled_session_is_refused_and_says_what_to_do() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow, paused=True)
        await session.cancel("no longer needed", by="ann")
        with pytest.raises(VerbRefused, match="cancelled and cannot be resumed") as refused:
            await session.resume()
        assert refused.value.status == "cancelled"
        assert pipeline.calls == []


@pytest.mark.covers("S1.62", "S3.86", "S3.88")
@on_loop
async def test_of_many_who_resume_at_once_one_drives_and_the_others_are_told_who(tmp_path: Path) -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("outline")
    path = tmp_path / "h.db"
    async with Engine(path, workflows=[pipeline.workflow]) as one, Engine(path, workflows=[pipeline.workflow]) as two:
        session = await one.start(pipeline.workflow, session_id="memo-1", paused=True)
        tries = [engine.session("memo-1").resume() for engine in (one, two, one, two)]
        results = await asyncio.gather(*tries, return_exceptions=True)
        refused = [result for result in results if isinstance(result, AlreadyRunning)]
        assert len(refused) == 3
        assert all("driven by process" in str(error) for error in refused)
        gate.opened.set()
        assert (await session.outcome()).state == FINISHED
        assert pipeline.calls == list(STEPS)


@on_loop
async def test_a_resume_from_another_process_is_refused_with_the_holders_process(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    with child(
        """
        pipeline = Pipeline()
        gate = pipeline.hold("draft")
        async with Engine(args[0]) as engine:
            session = await engine.start(pipeline.workflow, session_id="memo-1")
            await gate.reached.wait()
            say("ready")
            await heard()
            gate.opened.set()
            say((await session.outcome()).status)
        """,
        path,
    ) as holder:
        holder.expect("ready")
        pipeline = Pipeline()
        async with Engine(path, workflows=[pipeline.workflow]) as engine:
            with pytest.raises(AlreadyRunning, match=f"process {holder.pid} on"):
                await engine.session("memo-1").resume()
            info = await engine.session("memo-1").info()
            assert info.status is Status.RUNNING
            assert info.holder is not None
            assert f"process {holder.pid} on" in info.holder
            holder.tell()
            holder.expect("completed")
            assert (await engine.session("memo-1").state()) == FINISHED
            assert pipeline.calls == []


@on_loop
async def test_an_engine_that_was_overtaken_writes_nothing_more_and_is_told(tmp_path: Path) -> None:
    slow, quick = Pipeline(), Pipeline()
    gate = slow.hold("draft")
    path = tmp_path / "h.db"
    async with Engine(path) as one, Engine(path, workflows=[quick.workflow]) as two:
        session = await one.start(slow.workflow, session_id="memo-1")
        await gate.reached.wait()
        taken = await two.session("memo-1").resume(steal=True)
        assert (await taken.outcome()).state == FINISHED
        gate.opened.set()
        with pytest.raises(HoldLost, match="memo-1"):
            await session.outcome()
        assert quick.calls == ["draft", "verdict", "report"]
        assert slow.calls == ["outline", "draft"]
        assert [visit.step for visit in await two.session("memo-1").checkpoints(limit=None)] == list(STEPS)


# the end of a program


PROGRAM = """
pipeline = Pipeline(log=args[1])
gate = pipeline.hold("verdict")
async with Engine(args[0]) as engine:
    session = await engine.start(pipeline.workflow, session_id="memo-1")
    await gate.reached.wait()
    say("ready")
    await session.outcome()
"""


async def goes_on(path: Path, log: Path) -> None:
    """Check that another engine finds the session ready and completes it without running the first two steps again."""
    pipeline = Pipeline(log=log)
    async with Engine(path, workflows=[pipeline.workflow]) as engine:
        assert (await engine.session("memo-1").info()).status is Status.READY
        assert await engine.session("memo-1").state() == until("verdict")
        outcome = await (await engine.session("memo-1").resume()).outcome()
        assert (outcome.status, outcome.state, outcome.skipped_visits) == (Status.COMPLETED, FINISHED, 2)
    assert executions(log) == ["outline", "draft", "verdict", "verdict", "report"]


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, -signal.SIGINT, marks=pytest.mark.covers("S4.5", "S1.52"), id="Ctrl+C"),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.covers("S4.6", "S1.52"), id="shutdown"),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.covers("S4.4", "S1.38"), id="kill"),
    ],
)
@on_loop
async def test_a_program_ended_by_a_signal_loses_only_the_step_that_ran(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    path, log = tmp_path / "h.db", tmp_path / "log"
    with child(PROGRAM, path, log) as running:
        running.expect("ready")
        running.signal(number)
        assert running.ended() == code
    await goes_on(path, log)


OPERATION = """
async def one():
    say("in flight")
    await heard()
    return "one"
async def two():
    say("must not start")
@step
async def work(ctx: Context) -> None:
    await ctx.do(one)
    await ctx.do(two)
work = Workflow("work", state=Doc, steps=[work])
async with Engine(args[0]) as engine:
    session = await engine.start(work, session_id="memo-1")
    try:
        await session.outcome()
    finally:
        say("ending", await session.status())
"""


@pytest.mark.covers("S1.52")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@on_loop
async def test_a_signal_lets_the_operation_in_flight_end_and_remembers_it(
    number: signal.Signals, tmp_path: Path
) -> None:
    with child(OPERATION, tmp_path / "h.db") as running:
        running.expect("in flight")
        running.signal(number)
        time.sleep(0.1)  # shows that it does not end on its own
        assert running.popen.poll() is None
        running.tell()
        running.expect("ending ready")
        assert running.ended() == (-signal.SIGINT if number == signal.SIGINT else 143)
    async with Engine(tmp_path / "h.db") as engine:
        types = [event.event_type async for event in engine.session("memo-1").events()]
        assert types == ["session.created", "operation.completed", "session.stopped"]


@pytest.mark.covers("S4.5")
@on_loop
async def test_a_second_ctrl_c_aborts_at_once_and_loses_nothing_committed(tmp_path: Path) -> None:
    with child(OPERATION, tmp_path / "h.db") as running:
        running.expect("in flight")
        running.signal(signal.SIGINT)
        time.sleep(0.1)
        assert running.popen.poll() is None
        running.signal(signal.SIGINT)
        running.expect("ending ready")
        running.tell()  # only the child's own reader thread still waits
        assert running.ended() == -signal.SIGINT
    async with Engine(tmp_path / "h.db") as engine:
        types = [event.event_type async for event in engine.session("memo-1").events()]
        assert types == ["session.created", "session.stopped"]


@pytest.mark.covers("S1.52")
@on_loop
async def test_leaving_the_engines_block_leaves_its_sessions_ready(tmp_path: Path) -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("verdict")
    async with Engine(tmp_path / "h.db") as engine:
        await engine.start(pipeline.workflow, session_id="memo-1")
        await gate.reached.wait()
    gate.opened.set()
    async with Engine(tmp_path / "h.db", workflows=[pipeline.workflow]) as engine:
        assert (await engine.session("memo-1").info()).status is Status.READY
        assert (await (await engine.session("memo-1").resume()).outcome()).state == FINISHED
    assert pipeline.calls == ["outline", "draft", "verdict", "verdict", "report"]


# crashes


@pytest.mark.long
@pytest.mark.covers("S3.85", "S4.4")
@on_loop
async def test_a_run_that_is_killed_again_and_again_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    path, log = tmp_path / "h.db", tmp_path / "log"
    for name in STEPS:  # more crashes than one position allows; crashes at different positions do not add up
        with child(
            """
            pipeline = Pipeline(log=args[1])
            gate = pipeline.hold(args[2])
            async with Engine(args[0], workflows=[pipeline.workflow]) as engine:
                await engine.start(pipeline.workflow, session_id="memo-1")
                await gate.reached.wait()
                say("ready")
                await asyncio.Event().wait()
            """,
            path,
            log,
            name,
        ) as running:
            running.expect("ready")
            running.signal(signal.SIGKILL)
            assert running.ended() == -signal.SIGKILL
    pipeline = Pipeline(log=log)
    async with Engine(path, workflows=[pipeline.workflow]) as engine:
        outcome = await (await engine.session("memo-1").resume()).outcome()
        assert (outcome.status, outcome.state) == (Status.COMPLETED, FINISHED)
        assert [visit.step for visit in await engine.session("memo-1").checkpoints(limit=None)] == list(STEPS)
    assert executions(log) == [name for name in STEPS for _ in range(2)]


POISON = """
pipeline = Pipeline(log=args[1])
pipeline.acts["draft"] = lambda: os._exit(7)
async with Engine(args[0], workflows=[pipeline.workflow]) as engine:
    session = await engine.start(pipeline.workflow, session_id="memo-1")
    print((await session.outcome()).status)
"""


@pytest.mark.long
@pytest.mark.parametrize("here", [True, False], ids=["here", "handed over"])
@on_loop
async def test_three_crashes_at_one_position_pause_the_session_and_a_resume_tries_again(
    tmp_path: Path, here: bool
) -> None:
    path, log = tmp_path / "h.db", tmp_path / "log"
    for _ in range(3):
        with child(POISON, path, log) as running:
            assert running.ended() == 7
    assert run_child(POISON, path, log) == "paused"  # the fourth run pauses instead of crashing
    assert executions(log) == ["outline", "draft", "draft", "draft"]
    pipeline = Pipeline(log=log)
    async with Engine(path, workflows=[pipeline.workflow]) as engine:
        (pause,) = await engine.session("memo-1").pauses()
        assert pause.kind == "crashes"
        assert "3 processes died at draft#1" in pause.reason
        assert "then resume" in pause.reason
        outcome = await (await engine.session("memo-1").resume(here=here)).outcome()
        assert (outcome.status, outcome.state, outcome.pauses) == (Status.COMPLETED, FINISHED, ())


@on_loop
async def test_a_resume_tells_from_where_it_went_on_and_what_that_saved() -> None:
    clock = ManualClock()
    pipeline = Pipeline()
    pipeline.acts = dict.fromkeys(STEPS, lambda: clock.advance(10))
    gate = pipeline.hold("draft")
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(pipeline.workflow)
        await gate.reached.wait()
        await session.pause()
        gate.opened.set()
        await session.outcome()
        await session.resume()
        outcome = await session.outcome()
        assert (outcome.skipped_visits, outcome.saved_time) == (2, timedelta(seconds=20))
        told = {event.event_type: event async for event in session.events()}["session.resumed"]
        assert told.summary == "resumed at verdict#1, 2 visits skipped"
        assert (told.data["step"], told.data["skipped"], told.data["saved_seconds"]) == ("verdict", 2, 20)


@pytest.mark.long
@on_loop
async def test_an_outcome_waits_for_a_session_that_another_process_drives(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    with child(
        """
        pipeline = Pipeline()
        gate = pipeline.hold("report")
        async with Engine(args[0]) as engine:
            session = await engine.start(pipeline.workflow, session_id="memo-1")
            await gate.reached.wait()
            say("ready")
            await heard()
            gate.opened.set()
            await session.outcome()
        """,
        path,
    ) as holder:
        holder.expect("ready")
        async with Engine(path, workflows=[Pipeline().workflow]) as engine:
            session = engine.session("memo-1")
            waiting: asyncio.Task[Any] = asyncio.create_task(session.outcome())
            await asyncio.sleep(0.02)
            assert not waiting.done()
            holder.tell()
            assert (await waiting).state == FINISHED
