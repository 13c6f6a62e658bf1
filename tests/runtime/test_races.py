"""Remembered results stay correct when branches race, callers go away, or values do not fit."""

from __future__ import annotations

import asyncio
import functools
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, MapFailed, Retry, Status, Workflow, guard, step
from pausepoint.errors import DefinitionError, StoreClosed, StoreUnavailable
from pausepoint.runtime.signals import ECHO
from pausepoint.testing import ManualClock
from tests.support.children import child
from tests.support.loop import PATIENCE, on_loop
from tests.support.pipeline import FINISHED, Gate, Pipeline


class State(BaseModel):
    text: str = ""
    blob: str = ""
    rounds: int = 0


async def outcome_of(work: Any, engine: Engine | None = None, **options: Any) -> Any:
    workflow = Workflow("work", state=State, steps=[work], events=["found"])
    if engine is not None:
        return await (await engine.start(workflow, **options)).outcome()
    async with Engine(":memory:", clock=ManualClock(auto=True)) as own:
        return await (await own.start(workflow, **options)).outcome()


@on_loop
async def test_a_guard_that_refuses_without_a_reason_refuses_all_the_same() -> None:
    ran: list[str] = []

    @step
    async def first() -> None: ...

    @step
    async def second() -> None:
        ran.append("second")

    @guard(after=first)
    def shy() -> str | None:
        return ""

    async with Engine(":memory:") as engine:
        workflow = Workflow("shy", state=State, steps=[first, second], guards=[shy])
        outcome = await (await engine.start(workflow)).outcome()
        assert (outcome.status, ran) == (Status.PAUSED, [])
        assert "'shy'" in outcome.pauses[0].reason


@on_loop
async def test_finished_items_of_two_maps_that_race_do_not_run_again() -> None:
    ran: list[int] = []
    gate = Gate()

    async def score(item: int) -> int:
        ran.append(item)
        return item * 10

    @step(writes="text")
    async def work(ctx: Context) -> str:
        async def branch(base: int, turns: int) -> list[int]:
            for _ in range(turns if ctx.attempt == 1 and not gate.opened.is_set() else 5 - turns):
                await asyncio.sleep(0)
            found = await ctx.map(score, [base + n for n in range(4)])
            if not gate.opened.is_set():
                gate.reached.set()
                await asyncio.Event().wait()
            return found

        return str(await asyncio.gather(branch(0, 1), branch(100, 4)))

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("maps", state=State, steps=[work]))
        await gate.reached.wait()
        while len(ran) < 8:
            await asyncio.sleep(0)
        await session.pause(mode="abort")
        await session.outcome()
        gate.opened.set()
        await session.resume()
        outcome = await session.outcome()
        assert outcome.state.text == str([[0, 10, 20, 30], [1000, 1010, 1020, 1030]])
        assert sorted(ran) == [0, 1, 2, 3, 100, 101, 102, 103]


@on_loop
async def test_events_of_branches_that_race_are_neither_doubled_nor_lost() -> None:
    async def look(n: int) -> int:
        return n

    @step(retry=2)
    async def work(ctx: Context) -> None:
        async def branch(n: int, turns: int) -> None:
            for _ in range(turns if ctx.attempt == 1 else 5 - turns):
                await asyncio.sleep(0)
            ctx.emit("found", f"found {n}")
            await ctx.do(look, n)

        await asyncio.gather(branch(1, 1), branch(2, 4))
        if ctx.attempt == 1:
            raise ConnectionError("again")

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(Workflow("tells", state=State, steps=[work], events=["found"]))
        await session.outcome()
        told = [event.summary async for event in session.events() if event.event_type == "found"]
        assert sorted(told) == ["found 1", "found 2"]


@on_loop
async def test_what_a_partial_was_given_is_part_of_the_input() -> None:
    async def fetch(name: str) -> str:
        return f"got {name}"

    @step(writes="text", retry=2)
    async def work(ctx: Context) -> str:
        names = ["a", "b"] if ctx.attempt == 1 else ["b", "a"]
        found = [await ctx.do(functools.partial(fetch, name)) for name in names]
        if ctx.attempt == 1:
            raise ConnectionError("again")
        return str(found)

    assert (await outcome_of(work)).state.text == "['got b', 'got a']"


@on_loop
async def test_one_key_asked_for_twice_at_once_runs_once() -> None:
    ran: list[str] = []

    async def fetch() -> str:
        ran.append("fetch")
        await asyncio.sleep(0)
        return "got it"

    @step(writes="text")
    async def work(ctx: Context) -> str:
        return str(await asyncio.gather(ctx.do(fetch, key="k"), ctx.do(fetch, key="k")))

    assert (await outcome_of(work)).state.text == "['got it', 'got it']"
    assert ran == ["fetch"]


@on_loop
async def test_a_time_out_inside_a_map_is_no_failure_of_the_items_that_have_not_run() -> None:
    async def item(n: int) -> int:
        if n == 2:
            await asyncio.Event().wait()
        return n

    @step(timeout=0.05)
    async def work(ctx: Context) -> None:
        await ctx.map(item, range(50), concurrency=1)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("slow", state=State, steps=[work]))
        outcome = await session.outcome()
        assert outcome.failure is not None
        assert outcome.failure.type == "StepTimeout"
        assert [event async for event in session.events() if event.event_type == "item.failed"] == []


class RateLimited(Exception):
    retry_after = 7


@on_loop
async def test_a_fan_out_is_tried_again_for_the_errors_of_its_items_after_the_wait_that_they_ask_for() -> None:
    tries: list[int] = []

    async def ask(n: int) -> int:
        tries.append(n)
        if len(tries) < 3:
            raise RateLimited("slow down")
        return n

    @step(retry=Retry(attempts=3, on=(RateLimited,)))
    async def work(ctx: Context) -> None:
        await ctx.map(ask, [1])

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(Workflow("limited", state=State, steps=[work]))
        assert (await session.outcome()).status is Status.COMPLETED
        delays = [event.data["delay"] async for event in session.events() if event.event_type == "step.retried"]
        assert (len(tries), all(delay >= 7 for delay in delays)) == (3, True)


@pytest.mark.parametrize(
    "error",
    [ValueError("bad \udcff name"), type("Mute", (Exception,), {"__str__": lambda self: 1 / 0})()],
    ids=["", "mute"],
)
@on_loop
async def test_an_error_whose_text_cannot_be_stored_fails_the_session_like_any_other(error: Exception) -> None:
    @step
    async def work() -> None:
        raise error

    outcome = await outcome_of(work)
    assert outcome.status is Status.FAILED
    assert outcome.failure.type == type(error).__name__


@pytest.mark.parametrize(
    "use",
    [
        lambda ctx: ctx.emit("found", 5),
        lambda ctx: ctx.emit("found", "\udcff"),
        lambda ctx: ctx.progress(0.5, 1),
        lambda ctx: ctx.spend(tokens=1.5),
        lambda ctx: ctx.spend(tokens=2**64),
        lambda ctx: ctx.spend(usd=1e20),
        lambda ctx: ctx.spend(usd="much"),
    ],
)
@on_loop
async def test_what_cannot_be_stored_fails_the_step_and_the_session_stays_readable(use: Any) -> None:
    @step
    async def work(ctx: Context) -> None:
        use(ctx)

    async with Engine(":memory:") as engine:
        outcome = await outcome_of(work, engine)
        assert outcome.status is Status.FAILED
        assert [info.status for info in await engine.sessions()] == [Status.FAILED]
        session = engine.session(outcome.session_id)
        assert [event async for event in session.events()]


@pytest.mark.parametrize(
    "options", [{"tags": [1]}, {"by": 5}, {"owner": b"x"}, {"reason": 3, "paused": True}, {"by": "\udcff"}], ids=str
)
@on_loop
async def test_a_start_with_what_cannot_be_stored_is_refused_and_stores_nothing(options: dict[str, Any]) -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        with pytest.raises((TypeError, ValueError)):
            await engine.start(pipeline.workflow, **options)
        assert await engine.sessions() == []


@on_loop
async def test_a_single_tag_may_be_given_as_a_text() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        await engine.start(pipeline.workflow, tags="spring", paused=True)
        assert [info.tags for info in await engine.sessions(tag="spring")] == [("spring",)]


@pytest.mark.parametrize("thing", ["work", None, 5])
@on_loop
async def test_what_is_no_workflow_is_refused_as_such(thing: Any) -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(DefinitionError, match="needs a Workflow"):
            await engine.start(thing)


@on_loop
async def test_a_coroutine_instead_of_a_function_is_refused_with_the_right_way() -> None:
    async def fetch() -> None: ...

    @step
    async def work(ctx: Context) -> None:
        coroutine: Any = fetch()
        try:
            await ctx.do(coroutine)
        finally:
            coroutine.close()

    assert "ctx.do(fn, argument)" in (await outcome_of(work)).failure.message


@on_loop
async def test_a_session_whose_start_was_cut_off_is_driven_all_the_same(tmp_path: Path) -> None:
    pipeline = Pipeline()
    async with Engine(tmp_path / "h.db") as engine:
        starting = asyncio.ensure_future(engine.start(pipeline.workflow, session_id="s"))
        while "s" not in engine._service.driver.claims:
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
        while await engine.store.get("s") is None:  # a submitted write still takes effect
            await asyncio.sleep(0)
        while engine._service.driver.background:
            await asyncio.sleep(0)
        session = engine.session("s")
        assert (await session.outcome()).state == FINISHED


@on_loop
async def test_two_starts_of_one_id_at_once_in_one_engine_make_one_run(tmp_path: Path) -> None:
    pipeline = Pipeline()
    async with Engine(tmp_path / "h.db") as engine:
        starts = [engine.start(pipeline.workflow, session_id="s") for _ in range(3)]
        results = await asyncio.gather(*starts, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["AlreadyRunning", "AlreadyRunning", "Session"]
        assert (await engine.session("s").outcome()).state == FINISHED


@on_loop
async def test_large_values_that_were_replaced_do_not_stay_in_memory() -> None:
    held: list[int] = []

    @step(writes=["blob", "rounds"])
    async def work(rounds: int, blob: str, ctx: Context) -> dict[str, Any]:
        held.append(len(ctx._visit.host.line.state.loaded))
        return {"blob": f"{rounds}" * 30_000, "rounds": rounds + 1}

    async with Engine(":memory:") as engine:
        names = [f"work{n}" for n in range(8)]
        steps = [step(work.fn, writes=["blob", "rounds"], name=name) for name in names]
        outcome = await (await engine.start(Workflow("heavy", state=State, steps=steps))).outcome()
        assert (outcome.status, outcome.state.rounds) == (Status.COMPLETED, 8)
        assert max(held) <= 1


@on_loop
async def test_a_budget_that_is_raised_while_the_session_is_pausing_counts() -> None:
    gate = Gate()

    @step
    async def work(ctx: Context) -> None:
        ctx.spend(usd=2)
        gate.reached.set()
        await gate.opened.wait()

    @step
    async def more(ctx: Context) -> None:
        ctx.spend(usd=1)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("costly", state=State, steps=[work, more]), budget=2)
        await gate.reached.wait()
        await session.pause()
        await session.resume(budget=10)
        gate.opened.set()
        assert (await session.outcome()).status is Status.COMPLETED


@on_loop
async def test_an_error_of_another_engine_that_a_step_uses_is_the_steps_own() -> None:
    other = Engine(":memory:")

    @step
    async def work() -> None:
        await other.sessions()

    outcome = await outcome_of(work)
    assert (outcome.status, outcome.failure.type) == (Status.FAILED, StoreClosed.__name__)


@on_loop
async def test_trouble_of_our_own_store_before_a_second_attempt_is_not_the_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:

        async def refuses(session_id: str, *, sure: bool = False) -> None:
            monkeypatch.undo()  # only the engine's own read is refused, not the test's
            raise StoreUnavailable("the disk is gone")

        @step(retry=2)
        async def work(ctx: Context) -> None:
            ctx.spend(usd=2)
            monkeypatch.setattr(engine.store, "get", refuses)
            raise ConnectionError("again")

        session = await engine.start(Workflow("work", state=State, steps=[work]), budget=1)
        with pytest.raises(StoreUnavailable, match="the disk is gone"):
            await session.outcome()


@on_loop
async def test_abort_insists_when_a_step_swallows_its_cancellation() -> None:
    gate = Gate()
    swallowed: list[int] = []

    @step
    async def stubborn() -> None:
        while len(swallowed) < 3:
            try:
                gate.reached.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append(1)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("stubborn", state=State, steps=[stubborn]))
        await gate.reached.wait()
        drive = engine._service.driver.drive(session.id)
        assert drive is not None
        for _ in range(3):
            drive.requests.stop("now", now=True)
            await asyncio.sleep(0)
        assert (await session.outcome()).status is Status.READY
        assert len(swallowed) == 3


@pytest.mark.long
@on_loop
async def test_following_a_history_ends_when_the_engine_closes() -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("draft")

    async def follow() -> list[str]:
        return [event.event_type async for event in session.events(follow=True)]

    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow)
        await gate.reached.wait()
        following = asyncio.ensure_future(follow())
        await asyncio.sleep(0)
    with pytest.raises(StoreClosed):
        await following


@pytest.mark.long
@on_loop
async def test_an_outcome_is_told_although_the_process_that_drove_was_killed(tmp_path: Path) -> None:
    pipeline = Pipeline()
    with child(
        """
        pipeline = Pipeline()
        pipeline.hold("draft")
        async with Engine(args[0]) as engine:
            session = await engine.start(pipeline.workflow, session_id="s")
            say("running")
            await session.outcome()
        """,
        tmp_path / "h.db",
    ) as other:
        other.expect("running")
        async with Engine(tmp_path / "h.db", workflows=[pipeline.workflow]) as engine:
            waiting = asyncio.ensure_future(engine.session("s").outcome())
            await asyncio.sleep(0.1)
            assert not waiting.done()
            other.signal(signal.SIGKILL)
            assert (await waiting).status in (Status.READY, Status.CREATED)


def test_signals_reach_the_outer_engine_after_an_inner_one_has_closed() -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("draft")

    async def main() -> None:
        async with Engine(":memory:") as outer:
            async with Engine(":memory:"):
                pass
            session = await outer.start(pipeline.workflow)
            await gate.reached.wait()
            signal.raise_signal(signal.SIGINT)
            await session.outcome()
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_a_second_interrupt_ends_a_program_whose_loop_is_blocked() -> None:
    @step
    async def blocks() -> None:
        signal.raise_signal(signal.SIGINT)
        time.sleep(2 * ECHO)
        signal.raise_signal(signal.SIGINT)
        survived.append("the second signal")

    survived: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(outcome_of(blocks))
    assert survived == []


def test_map_failed_carries_what_failed() -> None:
    assert MapFailed("two failed", failed={"a": "b"}).failed == {"a": "b"}
