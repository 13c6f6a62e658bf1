"""A pause takes effect inside a step before the next operation or item, never in the middle of one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from pausepoint import Budget, Context, Engine, Retry, Session, Status, Workflow, step
from pausepoint.model.commits import Commit
from pausepoint.stores.sqlite import SqliteStore
from tests.support.loop import on_loop
from tests.support.otherstores import ProxyStore
from tests.support.pipeline import Gate
from tests.support.waits import async_until


class State(BaseModel):
    done: list[str] = []
    text: str = ""


async def held(session: Session[Any], gate: Gate, **how: Any) -> None:
    await gate.reached.wait()
    await session.pause(**how)


@pytest.mark.parametrize("at", ["operation", "step"])
@on_loop
async def test_a_pause_never_takes_effect_in_the_middle_of_a_do(at: Literal["operation", "step"]) -> None:
    gate = Gate()
    ran: list[str] = []

    async def first() -> str:
        ran.append("first")
        await gate.hold()
        ran.append("first ended")
        return "one"

    async def second() -> str:
        ran.append("second")
        return "two"

    @step(writes="done", pause=at)
    async def work(ctx: Context) -> list[str]:
        return [await ctx.do(first), await ctx.do(second)]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work, finish]))
        await held(session, gate)
        await asyncio.sleep(0.01)
        assert await session.status() is Status.PAUSING
        gate.opened.set()
        outcome = await session.outcome()
        assert outcome.status is Status.PAUSED
        if at == "step":
            assert (ran, outcome.state.done) == (["first", "first ended", "second"], ["one", "two"])
        else:
            assert (ran, outcome.state.done) == (["first", "first ended"], [])
        await session.resume()
        assert (await session.outcome()).state.text == "one,two"
        assert ran == ["first", "first ended", "second"]


@step(writes="text")
async def finish(done: list[str]) -> str:
    return ",".join(done)


@pytest.mark.covers("S3.80")
@pytest.mark.parametrize("concurrency", [1, 2])
@on_loop
async def test_a_pause_takes_effect_before_the_next_item_of_a_map_and_no_finished_item_runs_again(
    concurrency: int,
) -> None:
    gate = Gate()
    ran: list[str] = []

    async def chunk(name: str) -> str:
        ran.append(name)
        if name in "cd":
            await gate.hold()
        return name.upper()

    @step(writes="done")
    async def work(ctx: Context) -> list[str]:
        return await ctx.map(chunk, list("abcdef"), concurrency=concurrency)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work]))
        await gate.reached.wait()
        while len(ran) < 2 + concurrency:
            await asyncio.sleep(0)
        await session.pause()
        gate.opened.set()
        outcome = await session.outcome()
        assert outcome.status is Status.PAUSED
        assert ran == list("abcd")[: 2 + concurrency]
        await session.resume()
        assert (await session.outcome()).state.done == list("ABCDEF")
        assert ran == list("abcdef")


@pytest.mark.no_always_replay("pauses at one look at the budget")
@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("operations", [9, 0])
@on_loop
async def test_a_pause_that_arrives_during_a_look_at_the_budget_comes_before_the_operation(
    monkeypatch: pytest.MonkeyPatch, attempt: int, operations: int
) -> None:
    """A resume with a lower budget then lets nothing begin either."""
    attempts: list[int] = []

    def pause_at_the_next_look() -> None:
        purses = engine.store.purses

        async def late(key: int) -> Any:
            monkeypatch.undo()
            await session.pause()
            await async_until(lambda: (drive := engine._service.driver.drive(session.id)) and drive.must_stop)
            return await purses(key)

        monkeypatch.setattr(engine.store, "purses", late)

    async def call() -> str:
        attempts.append(len(attempts) + 1)
        if len(attempts) < attempt:
            pause_at_the_next_look()
            raise ConnectionError
        return "done"

    @step(writes="text")
    async def work(ctx: Context) -> str:
        if attempt == 1:
            pause_at_the_next_look()
        return await ctx.do(call, retry=Retry(attempts=2, first=0))

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work]), budget=Budget(operations=5))
        assert (await session.outcome()).status is Status.PAUSED
        assert len(attempts) == attempt - 1
        await session.resume(budget=Budget(operations=operations))
        outcome = await session.outcome()
        assert [pause.kind for pause in outcome.pauses] == ([] if operations else ["budget"])
        assert len(attempts) == (attempt if operations else attempt - 1)


@pytest.mark.no_always_replay("counts the runs of the step's body")
@pytest.mark.parametrize("hold", [0, 60])
@on_loop
async def test_a_pause_takes_effect_at_a_safe_point_and_what_was_remembered_is_not_done_again(hold: float) -> None:
    gate = Gate()
    ran: list[str] = []

    async def note(what: str) -> str:
        ran.append(what)
        return what

    @step(writes="done")
    async def work(ctx: Context) -> list[str]:
        ran.append("top")
        first = await ctx.do(note, "one")
        await gate.hold()
        await ctx.safe_point()
        return [first, await ctx.do(note, "two")]

    async with Engine(":memory:", hold=hold) as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work]))
        await held(session, gate)
        gate.opened.set()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state, ran) == (Status.PAUSED, State(), ["top", "one"])
        await session.resume()
        assert (await session.outcome()).state.done == ["one", "two"]
        assert ran == (["top", "one", "two"] if hold else ["top", "one", "top", "two"])


@pytest.mark.parametrize("style", ["gather", "TaskGroup"])
@on_loop
async def test_a_pause_inside_concurrent_branches_waits_for_what_is_in_flight_and_leaves_the_rest(style: str) -> None:
    gate = Gate()
    ran: list[str] = []

    async def slow(name: str) -> str:
        ran.append(name)
        await gate.hold()
        return name

    async def quick(name: str) -> str:
        ran.append(name)
        return name

    async def branch(ctx: Context, name: str) -> str:
        await paused.wait()
        await ctx.safe_point()
        return await ctx.do(quick, name)

    @step(writes="done")
    async def work(ctx: Context) -> list[str]:
        if style == "gather":
            return list(await asyncio.gather(ctx.do(slow, "slow"), branch(ctx, "a"), branch(ctx, "b")))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in (ctx.do(slow, "slow"), branch(ctx, "a"), branch(ctx, "b"))]
        return [task.result() for task in tasks]

    paused = asyncio.Event()
    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work]))
        await held(session, gate)
        paused.set()
        await asyncio.sleep(0.03)
        assert await session.status() is Status.PAUSING  # an operation is in flight
        assert ran == ["slow"]
        gate.opened.set()
        assert (await session.outcome()).status is Status.PAUSED
        assert ran == ["slow"]
        await session.resume()
        assert (await session.outcome()).state.done == ["slow", "a", "b"]
        assert sorted(ran) == ["a", "b", "slow"]


@pytest.mark.no_always_replay("counts the runs of the step's body")
@pytest.mark.parametrize("style", ["gather", "TaskGroup"])
@on_loop
async def test_a_pause_that_is_withdrawn_while_a_branch_stands_still_lets_it_go_on(style: str) -> None:
    gate = Gate()
    tops: list[str] = []

    async def slow() -> str:
        await gate.hold()
        return "slow"

    async def branch(ctx: Context) -> str:
        await gate.reached.wait()
        while not standing.is_set():
            await asyncio.sleep(0.001)
        await ctx.safe_point()
        return "branch"

    @step(writes="done")
    async def work(ctx: Context) -> list[str]:
        tops.append("top")
        if style == "gather":
            return list(await asyncio.gather(ctx.do(slow), branch(ctx)))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.do(slow)), group.create_task(branch(ctx))]
        return [task.result() for task in tasks]

    standing = asyncio.Event()
    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work]))
        await held(session, gate)
        standing.set()
        await asyncio.sleep(0.02)  # the branch reaches its safe point and pauses
        await session.resume()
        gate.opened.set()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.done) == (Status.COMPLETED, ["slow", "branch"])
        assert tops == ["top"]  # it continued in place and did not start again


@on_loop
async def test_what_a_step_emitted_is_not_lost_when_its_pause_is_withdrawn_at_the_last_moment() -> None:
    gate = Gate()

    class Late(ProxyStore):
        async def commit(self, commit: Commit) -> Any:
            if commit.only_if_paused:
                await self.unpause("one", "bob", 0)
            return await super().commit(commit)

    @step
    async def work(ctx: Context) -> None:
        ctx.emit("note", "once")
        ctx.spend(usd=0.25)
        await gate.hold()
        await ctx.safe_point()

    workflow = Workflow("work", state=State, steps=[work], events=["note"])
    async with Engine(Late(SqliteStore(":memory:"))) as engine:
        session = await engine.start(workflow, session_id="one")
        await held(session, gate)
        gate.opened.set()
        outcome = await session.outcome()
        assert outcome.status is Status.COMPLETED
        types = [event.event_type async for event in session.events()]
        assert (types.count("note"), types.count("spent"), outcome.spent_usd) == (1, 1, 0.25)
        assert "session.paused" not in types


@pytest.mark.parametrize("mode", ["finish", "abort"])
@on_loop
async def test_an_except_exception_in_a_step_cannot_swallow_a_pause(mode: Any) -> None:
    gate = Gate()
    swallowed: list[BaseException] = []

    @step(writes="text")
    async def stubborn(ctx: Context) -> str:
        try:
            await gate.hold()
            await ctx.safe_point()
        except Exception as error:
            swallowed.append(error)
        return "done"

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[stubborn]))
        await held(session, gate, mode=mode)
        if mode == "finish":
            gate.opened.set()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state, swallowed) == (Status.PAUSED, State(), [])


@on_loop
async def test_even_a_bare_except_cannot_make_a_step_that_is_being_left_commit() -> None:
    gate = Gate()

    @step(writes="text")
    async def stubborn(ctx: Context) -> str:
        with suppress(BaseException):  # user code should never do this
            await gate.hold()
        return "committed"

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[stubborn]))
        await held(session, gate, mode="abort")
        outcome = await session.outcome()
        assert (outcome.status, outcome.state) == (Status.PAUSED, State())
