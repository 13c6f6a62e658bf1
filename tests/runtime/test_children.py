"""Child sessions: a parent waits for its children, and pause, cancel and cost follow the tree."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Engine, Status, Workflow, guard, step
from pausepoint.errors import ChildFailed
from pausepoint.model.sessions import Filter
from pausepoint.stores.found import Found
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock, every_crash_point
from tests.support.children import child, run_child
from tests.support.loop import on_loop
from tests.support.otherstores import ProxyStore


class Part(BaseModel):
    n: int
    square: int = 0
    note: str = ""


class Whole(BaseModel):
    size: int = 3
    total: int = 0
    said: str = ""


@step(writes="note")
async def listen(ctx: Context) -> str:
    return await ctx.receive()


listening = Workflow("part", state=Part, steps=[listen])


@step(writes="said")
async def ask(ctx: Context) -> str:
    return (await ctx.call(listening, n=1)).note


asking = Workflow("ask", state=Whole, steps=[ask])


class Family:
    """A parent that calls a child for each number. ``calls`` lists what ran."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.broken: set[int] = set()
        self.gate: asyncio.Event | None = None

        @step(writes="square")
        async def square(n: int, ctx: Context) -> int:
            self.calls.append(f"square {n}")
            ctx.spend(usd=0.25, tokens=10)
            return n * n

        @step(writes="note")
        async def annotate(n: int) -> str:
            self.calls.append(f"annotate {n}")
            if self.gate is not None:
                await self.gate.wait()
            if n in self.broken:
                raise ValueError(f"{n} is unlucky")
            return f"{n} is fine"

        @step
        async def close() -> None: ...

        self.part = Workflow("part", state=Part, steps=[square, annotate, close])

        @step(writes="total")
        async def gather(size: int, ctx: Context) -> int:
            self.calls.append("gather")
            parts = await asyncio.gather(*[ctx.call(self.part, n=n) for n in range(1, size + 1)])
            return sum(part.square for part in parts)

        self.whole = Workflow("whole", state=Whole, steps=[gather])


@on_loop
async def test_a_call_returns_the_final_state_of_a_session_of_its_own() -> None:
    family = Family()
    async with Engine(":memory:") as engine:
        session = await engine.start(family.whole, owner="ann", tags=["batch"])
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.total) == (Status.COMPLETED, 14)
        children = await session.children()
        assert [each.status for each in children] == [Status.COMPLETED] * 3
        assert {each.parent_id for each in children} == {session.id}
        assert {(each.owner, each.tags) for each in children} == {("ann", ("batch",))}
        assert sorted(call for call in family.calls if call != "gather") == sorted(
            f"{what} {n}" for what in ("square", "annotate") for n in (1, 2, 3)
        )
        assert (await session.info()).parent_id is None


@on_loop
async def test_a_parent_waits_as_a_row_while_its_children_run() -> None:
    family = Family()
    family.gate = asyncio.Event()
    async with Engine(":memory:") as engine:
        session = await engine.start(family.whole)
        while await session.status() is not Status.WAITING or session.id in engine._service.driver.runs:
            await asyncio.sleep(0.001)
        assert (await session.info()).waiting == ("child",)
        assert {each.status for each in await session.children()} == {Status.RUNNING}
        family.gate.set()
        assert (await session.outcome()).state.total == 14


@on_loop
async def test_the_same_input_twice_is_two_children_and_a_key_names_one() -> None:
    family = Family()

    @step(writes="total")
    async def both(ctx: Context) -> int:
        one, two = await asyncio.gather(ctx.call(family.part, n=4), ctx.call(family.part, n=4))
        three = await ctx.call(family.part, Part(n=5), key="five")
        again = await ctx.call(family.part, Part(n=5), key="five")
        assert three == again
        return one.square + two.square + three.square

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("both", state=Whole, steps=[both]))
        assert (await session.outcome()).state.total == 57
        assert len(await session.children()) == 3


@on_loop
async def test_input_that_the_childs_model_refuses_fails_the_step_and_makes_no_child() -> None:
    family = Family()

    @step(writes="total")
    async def wrong(ctx: Context) -> int:
        return (await ctx.call(family.part, n="many")).square

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("wrong", state=Whole, steps=[wrong]))
        outcome = await session.outcome()
        assert outcome.failure is not None
        assert "n: Input should be a valid integer" in outcome.failure.message
        assert await session.children() == []


@on_loop
async def test_a_blocking_step_and_a_map_item_can_call() -> None:
    family = Family()

    @step(writes="size")
    def one(ctx: BlockingContext) -> int:
        return ctx.call(family.part, n=7).square

    async def item(n: int, ctx: Context) -> int:
        return (await ctx.call(family.part, n=n)).square

    @step(writes="total")
    async def many(ctx: Context) -> int:
        return sum(await ctx.map(item, range(20), concurrency=4))

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("kinds", state=Whole, steps=[one, many]))
        outcome = await session.outcome()
        assert (outcome.state.size, outcome.state.total) == (49, sum(n * n for n in range(20)))
        assert len(await session.children()) == 21
        assert family.calls.count("square 7") == 2


# failing, pausing


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_a_child_that_fails_fails_its_parent_and_both_go_on_with_the_parent() -> None:
    family = Family()
    family.broken.add(2)
    async with Engine(":memory:") as engine:
        session = await engine.start(family.whole)
        outcome = await session.outcome()
        assert outcome.status is Status.FAILED
        assert outcome.failure is not None
        assert outcome.failure.type == "ChildFailed"
        assert "It resumes when this step runs again. Reason: ValueError: 2 is unlucky" in outcome.failure.message
        kinds = [event.event_type async for event in session.events()]
        assert "child.failed" in kinds
        family.broken.clear()
        await session.resume()
        assert (await session.outcome()).state.total == 14
        assert [family.calls.count(f"square {n}") for n in (1, 2, 3)] == [1, 1, 1]
        assert [family.calls.count(f"annotate {n}") for n in (1, 2, 3)] == [1, 2, 1]


@on_loop
async def test_a_step_can_go_on_without_a_child_that_failed() -> None:
    family = Family()
    family.broken.add(5)

    @step(writes="said")
    async def careful(ctx: Context) -> str:
        try:
            await ctx.call(family.part, n=5)
        except ChildFailed as error:
            return f"{error.status}, {error.child_id == (await ctx.do(str, error.child_id))}"
        return "fine"

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("careful", state=Whole, steps=[careful]))
        assert (await session.outcome()).state.said == "failed, True"


@on_loop
async def test_retries_of_the_step_have_the_child_try_again_where_it_failed() -> None:
    family, clock = Family(), ManualClock(auto=True)
    family.broken.add(5)

    @step(writes="total", retry=3)
    async def stubborn(ctx: Context) -> int:
        if ctx.attempt == 3:
            family.broken.clear()
        return (await ctx.call(family.part, n=5)).square

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("stubborn", state=Whole, steps=[stubborn]))
        assert (await session.outcome()).state.total == 25
        assert (family.calls.count("square 5"), family.calls.count("annotate 5")) == (1, 3)


@on_loop
async def test_a_child_that_pauses_is_seen_in_its_parent_which_goes_on_when_it_does() -> None:
    ready: list[bool] = []

    @step(writes="square")
    async def square(n: int) -> int:
        return n * n

    @guard(after=square)
    def approved() -> str | None:
        return None if ready else "needs a signature"

    part = Workflow("part", state=Part, steps=[square], guards=[approved])

    @step(writes="total")
    async def one(ctx: Context) -> int:
        return (await ctx.call(part, n=6)).square

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("one", state=Whole, steps=[one]))
        outcome = await session.outcome()
        assert outcome.status is Status.WAITING
        [paused] = await session.children()
        assert paused.status is Status.PAUSED
        [event] = [event async for event in session.events() if event.event_type == "child.paused"]
        assert event.summary == f"child session {paused.session_id} paused: needs a signature"
        ready.append(True)
        await engine.session(paused.session_id).resume()
        assert (await session.outcome()).state.total == 36


@on_loop
async def test_a_message_to_a_child_makes_the_whole_tree_go_on() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(asking)
        assert (await session.outcome()).status is Status.WAITING
        [info] = await session.children()
        await engine.session(info.session_id).send("good morning")
        assert (await session.outcome()).state.said == "good morning"


# the tree


@on_loop
async def test_a_pause_of_the_parent_stops_the_whole_tree_and_resume_has_it_go_on() -> None:
    family = Family()
    family.gate = asyncio.Event()
    async with Engine(":memory:") as engine:
        session = await engine.start(family.whole)
        while await session.status() is not Status.WAITING:
            await asyncio.sleep(0.001)
        assert (await session.pause("lunch", by="ann"))[0].status is Status.PAUSED
        assert {each.status for each in await session.children()} == {Status.PAUSING}
        family.gate.set()
        for each in await session.children():
            outcome = await engine.session(each.session_id).outcome()
            assert (outcome.status, outcome.state.note) == (Status.PAUSED, f"{outcome.state.n} is fine")
        assert (await session.outcome()).status is Status.PAUSED
        await session.resume()
        assert (await session.outcome()).state.total == 14
        assert family.calls.count("gather") >= 2


@on_loop
async def test_grandchildren_pause_resume_and_cost_with_the_root() -> None:
    family = Family()
    family.gate = asyncio.Event()

    class Top(BaseModel):
        total: int = 0

    @step(writes="total")
    async def top(ctx: Context) -> int:
        return (await ctx.call(family.whole, size=2)).total

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("top", state=Top, steps=[top]))
        while len(family.calls) < 5:
            await asyncio.sleep(0.001)
        await session.pause(mode="abort", by="ann")
        [middle] = await session.children()
        leaves = await engine.session(middle.session_id).children()
        for each in leaves:
            assert (await engine.session(each.session_id).outcome()).status is Status.PAUSED
        assert (await engine.session(middle.session_id).info()).status is Status.PAUSED
        assert (await session.outcome()).status is Status.PAUSED
        family.gate.set()
        await session.resume()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.total) == (Status.COMPLETED, 5)
        assert [family.calls.count(f"square {n}") for n in (1, 2)] == [1, 1]
        info = await session.info()
        assert (info.spent_usd, info.spent_tokens) == (0.5, 20)
        assert (await engine.session(middle.session_id).info()).spent_usd == 0.5


@on_loop
async def test_cancelling_the_parent_cancels_its_children() -> None:
    family = Family()
    family.gate = asyncio.Event()
    async with Engine(":memory:") as engine:
        session = await engine.start(family.whole)
        while await session.status() is not Status.WAITING:
            await asyncio.sleep(0.001)
        assert await session.cancel("enough", by="ann") is Status.CANCELLED
        family.gate.set()
        for each in await session.children():
            outcome = await engine.session(each.session_id).outcome()
            assert outcome.status is Status.CANCELLED
        assert (await session.outcome()).status is Status.CANCELLED


@on_loop
async def test_a_child_that_was_cancelled_is_an_error_in_its_parent() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(asking)
        assert (await session.outcome()).status is Status.WAITING
        [info] = await session.children()
        assert await engine.session(info.session_id).cancel() is Status.CANCELLED
        outcome = await session.outcome()
        assert outcome.failure is not None
        assert "was cancelled. Rewind this step to start another one" in outcome.failure.message


@on_loop
async def test_the_budget_of_the_root_holds_for_its_children() -> None:
    family = Family()

    async def item(n: int, ctx: Context) -> int:
        return (await ctx.call(family.part, n=n)).square

    @step(writes="total")
    async def many(ctx: Context) -> int:
        return sum(await ctx.map(item, range(10), concurrency=1))

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("many", state=Whole, steps=[many]), budget=0.75)
        outcome = await session.outcome()
        assert outcome.spent_usd == 0.75
        tree = [await session.info(), *await session.children()]
        stopped = [info for info in tree if info.status is Status.PAUSED]
        assert len(stopped) >= 1
        pauses = await engine.session(stopped[0].session_id).pauses()
        assert "of the $0.7500 budget" in pauses[0].reason
        await session.resume(budget=10)
        for info in await session.children():
            if info.status is Status.PAUSED:
                await engine.session(info.session_id).resume()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.total, outcome.spent_usd) == (Status.COMPLETED, 285, 2.5)


# crashes and other processes


@pytest.mark.long
def test_a_tree_survives_a_crash_at_every_durable_point_of_its_parent() -> None:
    family = Family()
    points = every_crash_point(family.whole, size=2)
    assert len(points) >= 10


_PROGRAM = """
    import logging, os
    from pydantic import BaseModel
    class Part(BaseModel):
        n: int
        square: int = 0
    class Whole(BaseModel):
        total: int = 0
    def note(n: int) -> int:
        with open(args[1], "a") as file:
            file.write(f"{n}\\n")
        return n * n
    @step(writes="square")
    async def square(n: int, ctx: Context) -> int:
        result = await ctx.do(note, n)
        await asyncio.sleep(0.01)
        return result
    part = Workflow("part", state=Part, steps=[square])
    async def one(n: int, ctx: Context) -> int:
        return (await ctx.call(part, n=n)).square
    @step(writes="total")
    async def gather(ctx: Context) -> int:
        return sum(await ctx.map(one, range(500), concurrency=50))
    whole = Workflow("whole", state=Whole, steps=[gather])
    async with Engine(args[0], workflows=[whole, part]) as engine:
        session = await engine.start(whole, session_id="root")
        say("started")
        outcome = await session.outcome()
        say(outcome.status, outcome.state.total)
"""


@pytest.mark.long
@pytest.mark.parametrize("after", [0.2, 0.8])
def test_five_hundred_children_of_one_parent_killed_and_resumed(after: float, tmp_path: Path) -> None:
    path, notes = tmp_path / "h.db", tmp_path / "notes"
    with child(_PROGRAM, path, notes) as first:
        first.expect("started")
        time.sleep(after)
        first.signal(9)
        assert first.ended() == -9
    begun = len(notes.read_text().splitlines()) if notes.exists() else 0
    with child(_PROGRAM, path, notes) as second:
        second.expect("started")
        second.expect(f"completed {sum(n * n for n in range(500))}")
        assert second.ended() == 0
    counts = notes.read_text().splitlines()
    # Only an operation that was in flight when the process died may run a second time.
    assert sorted(set(map(int, counts))) == list(range(500))
    assert len(counts) - 500 <= min(begun, 50)


@on_loop
async def test_a_child_that_ends_in_another_process_wakes_its_parent_here(tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db", workflows=[asking]) as here:
        session = await here.start(asking)
        assert (await session.outcome()).status is Status.WAITING
        here.workflows.pop("part")  # leaves the child to the other process
        [info] = await session.children()
        program = """
        from pydantic import BaseModel
        class Part(BaseModel):
            n: int
            square: int = 0
            note: str = ""
        @step(writes="note")
        async def listen(ctx: Context) -> str:
            return await ctx.receive()
        async with Engine(args[0], workflows=[Workflow("part", state=Part, steps=[listen])]) as engine:
            await engine.session(args[1]).send("from afar")
            say((await engine.session(args[1]).outcome()).status)
        """
        printed = await asyncio.to_thread(run_child, program, tmp_path / "h.db", info.session_id)
        assert printed == "completed"
        assert (await session.outcome()).state.said == "from afar"


@on_loop
async def test_an_outcome_is_not_that_of_the_moment_before_a_child_ended() -> None:
    gate = asyncio.Event()

    class Slow(ProxyStore):
        """A store in which the child ends while the tree is read."""

        async def find(self, query: Filter) -> Found:
            if query.tree and query.unended and not gate.is_set():
                gate.set()
                while (row := await self._inner.get("parent")) is None or row.status is not Status.COMPLETED:
                    await asyncio.sleep(0.001)
            return await self._inner.find(query)

    @step
    async def work() -> None:
        await gate.wait()

    @step
    async def call(ctx: Context) -> None:
        await ctx.call(below)

    below = Workflow("below", state=Whole, steps=[work])
    async with Engine(Slow(SqliteStore(":memory:"))) as engine:
        session = await engine.start(Workflow("above", state=Whole, steps=[call]), session_id="parent")
        assert (await session.outcome()).status is Status.COMPLETED
