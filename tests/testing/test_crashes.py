"""Crashes on purpose: at every durable point, at a named one, and what a workflow that cannot take it looks like."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Session, Status, Workflow, guard, route, step, testing
from pausepoint.errors import StoreClosed
from pausepoint.log.replay import Line
from pausepoint.model.sessions import Filter
from pausepoint.testing import CrashPointFailed, CrashPointMissed, Machine, after, before
from tests.support.corpus import CORPUS
from tests.support.loop import on_loop
from tests.support.sample import TOPIC, sample


class Doc(BaseModel):
    topic: str = ""
    plan: str = ""
    draft: str = ""


class World:
    """A workflow of two steps, and what of it really ran."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()

        async def think(topic: str) -> str:
            self.ran["think"] += 1
            return f"a plan for {topic}"

        async def pen(plan: str) -> str:
            self.ran["pen"] += 1
            return f"{plan}, written"

        @step(writes="plan")
        async def planning(topic: str, ctx: Context) -> str:
            self.ran["planning"] += 1
            return await ctx.do(think, topic)

        @step(writes="draft")
        async def writing(plan: str, ctx: Context) -> str:
            self.ran["writing"] += 1
            return await ctx.do(pen, plan)

        self.workflow = Workflow("doc", state=Doc, steps=[planning, writing])


@pytest.mark.long
@pytest.mark.parametrize("name", ["linear", "fan-out", "bent", "nested"])
def test_a_crash_at_any_durable_point_makes_no_difference(name: str) -> None:
    case = CORPUS[name]()
    points = testing.every_crash_point(case.workflow, **case.given)
    assert len(points) >= 12
    assert points == testing.crash_points(case.workflow, **case.given)


@pytest.mark.long
def test_a_crash_at_any_durable_point_makes_no_difference_to_a_workflow_with_a_bit_of_everything() -> None:
    assert len(testing.every_crash_point(sample, topic=TOPIC)) > 80


def test_the_points_are_before_and_after_every_write() -> None:
    points = testing.crash_points(World().workflow, topic="otters")
    assert [(point.when, point.write) for point in points] == [
        (when, number) for number in range(1, 6) for when in ("before", "after")
    ]


@pytest.mark.parametrize(
    ("point", "ran"),
    [
        (before(kind="start"), {"planning": 1, "think": 1, "writing": 1, "pen": 1}),
        (after(1), {"planning": 1, "think": 1, "writing": 1, "pen": 1}),
        # between an operation and its record: it ran, and nobody knew
        (before(kind="operation", step="planning"), {"planning": 2, "think": 2, "writing": 1, "pen": 1}),
        (after(kind="operation", name="think"), {"planning": 2, "think": 1, "writing": 1, "pen": 1}),
        (before(kind="checkpoint", step="planning"), {"planning": 2, "think": 1, "writing": 1, "pen": 1}),
        (after(kind="checkpoint", step="planning", visit=1), {"planning": 1, "think": 1, "writing": 1, "pen": 1}),
        (before(5), {"planning": 1, "think": 1, "writing": 2, "pen": 1}),
        (after(5), {"planning": 1, "think": 1, "writing": 1, "pen": 1}),
    ],
    ids=str,
)
@pytest.mark.no_always_replay("counts the runs of the steps' bodies")
def test_a_named_crash_costs_what_was_running_and_nothing_else(point: testing.CrashPoint, ran: dict[str, int]) -> None:
    world = World()
    outcome = testing.crash_at(point, world.workflow, topic="otters")
    assert outcome.state.draft == "a plan for otters, written"
    assert world.ran == ran


def test_a_point_that_is_never_passed_is_an_error_that_shows_what_was() -> None:
    with pytest.raises(CrashPointMissed, match=r"(?s)after write 9\. .*writes:.*write 5: checkpoint writing#1"):
        testing.crash_at(after(9), World().workflow, topic="otters")


def test_what_goes_wrong_before_the_point_comes_first() -> None:
    with pytest.raises(TypeError, match="not both"):
        testing.crash_at(after(1), World().workflow, Doc(), topic="otters")


def test_a_workflow_that_differs_without_any_crash_is_refused_first() -> None:
    told: list[str] = []

    @step(writes="draft")
    async def writing(topic: str) -> str:
        told.append(topic)  # plain code with a memory of its own
        return f"{topic} {len(told)}"

    forgetful = Workflow("forgetful", state=Doc, steps=[writing])
    with pytest.raises(AssertionError, match=r"runs of 'forgetful' differ: draft is 'otters 2', not 'otters 1'"):
        testing.every_crash_point(forgetful, topic="otters")


@pytest.mark.no_always_replay("a replay hides the difference that it is about")
def test_a_difference_that_only_a_crash_makes_is_named_with_its_points() -> None:
    fresh = False

    async def measure() -> int:
        nonlocal fresh
        fresh = True
        return 1

    @step(writes="draft")
    async def writing(ctx: Context) -> str:
        nonlocal fresh
        fresh = False
        await ctx.do(measure)
        return "measured now" if fresh else "measured before"

    workflow = Workflow("fickle", state=Doc, steps=[writing])
    with pytest.raises(CrashPointFailed, match="draft is 'measured before', not 'measured now'") as caught:
        testing.every_crash_point(workflow)
    assert [(point.when, write and write.kind) for point, write, _ in caught.value.failures] == [
        ("after", "operation"),
        ("before", "checkpoint"),
    ]
    assert "2 of 6 crash points change the result:\n  after write 2: operation writing#1 /measure~" in str(caught.value)


@pytest.mark.long
@pytest.mark.no_always_replay("a replay finds it before any crash does")
def test_an_engine_that_forgets_what_it_remembered_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fold = Line.fold

    def forgetful(self: Line, record: Any, body: Any, *args: Any) -> None:
        fold(self, record, body, *args)
        self.operations.clear()

    monkeypatch.setattr(Line, "fold", forgetful)
    with pytest.raises(CrashPointFailed, match=r"ran again although it was remembered: operation planning#1 /think~"):
        testing.every_crash_point(World().workflow, topic="otters")


def test_a_field_that_differs_from_run_to_run_can_be_left_out() -> None:
    stamps = iter(range(1000))

    @step(writes=["draft", "plan"])
    async def stamp() -> dict[str, str]:
        return {"draft": str(next(stamps)), "plan": "the same"}

    workflow = Workflow("stamped", state=Doc, steps=[stamp])
    with pytest.raises(AssertionError, match="pass compare="):
        testing.every_crash_point(workflow)
    assert testing.every_crash_point(workflow, compare=lambda doc: doc.plan)


def test_a_person_can_be_played() -> None:
    shut = True

    @step(writes="plan")
    async def planning() -> str:
        return "a plan"

    @guard(after="planning")
    def approved(plan: str) -> str | None:
        return "wait for the boss" if shut else None

    async def boss(session: Session[Any]) -> None:
        nonlocal shut
        shut = True
        await session.outcome()
        shut = False
        await session.resume()

    workflow = Workflow("approval", state=Doc, steps=[planning], guards=[approved])
    points = testing.every_crash_point(workflow, play=boss)
    assert len(points) >= 6


@pytest.mark.long
def test_loops_routes_and_blocking_steps_are_crashed_too() -> None:
    class Count(BaseModel):
        n: int = 0

    @step(writes="n")
    def count(n: int, ctx: BlockingContext) -> int:
        return ctx.do(int.__add__, n, 1, key="add")

    @route(after="count")
    def again(n: int) -> Literal["count", None]:
        return "count" if n < 3 else None

    assert len(testing.every_crash_point(Workflow("count", state=Count, steps=[count], routes=[again]))) == 14


@on_loop
async def test_a_dead_process_gets_no_answer_and_writes_nothing_more() -> None:
    world = World()
    swallowed: list[BaseException] = []

    @step(writes="plan")
    async def stubborn(topic: str, ctx: Context) -> str:
        try:
            await ctx.do(len, topic, key="measure")
            return "kept"
        except Exception as error:  # a killed process would not come here either
            swallowed.append(error)
            return "swallowed"

    workflow = Workflow("stubborn", state=Doc, steps=[stubborn])
    async with Machine(workflow, world.workflow) as machine:
        life = lambda engine: engine.run(workflow, session_id="s", topic="otters")  # noqa: E731
        write = await machine.crash(life, before(kind="operation"))
        assert (write.kind, write.step) == ("operation", "stubborn")
        assert [write.kind for write in machine.writes] == ["start"]
        assert swallowed == []
        [row] = await machine.store.find(Filter())
        assert row.seq == 1
        outcome = await machine.run(life)
        assert (outcome.status, outcome.state.plan) == (Status.COMPLETED, "kept")
        assert machine.doubled == []


@on_loop
async def test_one_machine_can_see_many_deaths() -> None:
    world = World()
    async with Machine(world.workflow) as machine:
        life = lambda engine: engine.run(world.workflow, session_id="s", topic="otters")  # noqa: E731
        deaths = [
            await machine.crash(life, point)
            for point in (
                after(kind="start"), before(kind="operation"), after(kind="operation"), before(kind="checkpoint"),
                after(kind="checkpoint"), before(kind="checkpoint", step="writing"),
            )
        ]  # fmt: skip
        assert [death.kind for death in deaths] == [
            "start", "operation", "operation", "checkpoint", "checkpoint", "checkpoint",
        ]  # fmt: skip
        outcome = await machine.run(life)
        assert outcome.state.draft == "a plan for otters, written"
        assert machine.doubled == []
        assert outcome.skipped_visits == 1


@on_loop
async def test_branches_that_were_in_flight_end_with_the_process() -> None:
    cut: list[str] = []

    async def slow(name: str) -> str:
        try:
            await asyncio.sleep(0 if name == "a" else 30)
        except asyncio.CancelledError:
            cut.append(name)
            raise
        return name

    @step(writes="draft")
    async def writing(ctx: Context) -> str:
        return "".join(await ctx.map(slow, ["a", "b", "c"]))

    workflow = Workflow("branches", state=Doc, steps=[writing])
    async with Machine(workflow) as machine:
        await machine.crash(lambda engine: engine.run(workflow), after(kind="operation", name="slow~"))
        assert sorted(cut) == ["b", "c"]


@on_loop
async def test_the_dead_cannot_be_asked() -> None:
    world = World()
    engines: list[testing.InlineEngine] = []

    async def life(engine: testing.InlineEngine) -> None:
        engines.append(engine)
        await engine.run(world.workflow, topic="otters")

    async with Machine(world.workflow) as machine:
        await machine.crash(life, before(3))
        with pytest.raises(StoreClosed):
            await engines[0].sessions()
        with pytest.raises(StoreClosed, match="dead"):
            await engines[0].store.find(Filter())
        assert engines[0]._service.driver.runs == {}
