"""Plans of an edit, a rewind and a fork before they are done, and edits that require the state they are based on."""

from __future__ import annotations

from typing import Any

import pytest

from pausepoint import Engine, Status
from pausepoint.errors import SessionChanged, StateRefused, UnknownCheckpoint, VerbRefused
from tests.engine.essay import COLLECTING, Desk, again
from tests.support.loop import on_loop
from tests.support.pipeline import Pipeline


def verdicts(plan: Any) -> dict[str, tuple[str, int]]:
    return {each.step: (each.verdict, each.visits) for each in plan}


@on_loop
async def test_the_plan_of_a_rewind_is_the_plan_after_it_and_changes_nothing() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        before = await session.info()
        planned = await session.plan_rewind("write#2")
        assert await session.info() == before
        assert planned.status is Status.READY
        await session.rewind("write#2")
        assert planned == await session.plan()
        assert verdicts(planned)["write"] == ("next", 1)


@on_loop
async def test_the_plan_of_a_rewind_knows_the_pauses_that_stay_and_those_that_go() -> None:
    pipeline = Pipeline()
    pipeline.errors["verdict"] = [OSError("no ink")]
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow)
        assert (await session.outcome()).status is Status.FAILED
        await session.pause("lunch")
        planned = await session.plan_rewind("draft")
        assert (planned.status, planned["draft"].why) == (Status.PAUSED, "rewound")
        await session.rewind("draft")
        assert planned == await session.plan()


@on_loop
async def test_a_running_session_has_the_plan_of_its_rewind_too() -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("verdict")
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow)
        await gate.reached.wait()
        planned = await session.plan_rewind("outline")
        assert (planned.status, verdicts(planned)["outline"]) == (Status.RUNNING, ("next", 0))
        gate.opened.set()
        assert (await session.outcome()).status is Status.COMPLETED


@on_loop
async def test_the_plan_of_a_rewind_to_nowhere_is_refused() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        with pytest.raises(UnknownCheckpoint, match="Did you mean 'write'"):
            await session.plan_rewind("writ")


@on_loop
async def test_the_plan_of_a_fork_is_the_plan_of_the_forked_session_and_stores_nothing() -> None:
    desk = Desk()
    async with Engine(":memory:") as engine:
        session = await desk.done(engine)
        planned = await session.plan_fork("write#3", topic="ink")
        assert [info.session_id for info in await engine.sessions()] == ["one"]
        assert (planned.session_id, planned.status) == ("one", Status.CREATED)
        forked = await session.fork("write#3", topic="ink", paused=True)
        assert planned.steps == (await forked.plan()).steps
        await again(forked)
        assert desk.calls == ["write#3", "review#3", "finish"]


@on_loop
async def test_the_edits_of_a_fork_that_is_only_planned_are_validated() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        with pytest.raises(StateRefused, match="greater than or equal to 1"):
            await session.plan_fork("write", {"plan.pages": 0})


@on_loop
async def test_the_plan_of_an_edit_is_the_plan_after_it_and_changes_nothing() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        before = await session.info()
        planned = await session.plan_edit(wanted=4)
        assert (await session.info(), (await session.state()).wanted) == (before, 3)
        assert planned == await session.plan_edit({"wanted": 4})
        await session.edit(wanted=4)
        assert planned == await session.plan()


@on_loop
async def test_the_plan_of_an_edit_asks_the_guard_again() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(COLLECTING)
        assert (await session.outcome()).status is Status.PAUSED
        passes, stays = await session.plan_edit(least=0, source="kelp"), await session.plan_edit(facts=["one"])
        assert (passes.status, passes.obstacles) == (Status.READY, ())
        assert "1 of 2 facts" in " ".join(stays.obstacles)
        assert [pause.reason for pause in await session.pauses()] == ["0 of 2 facts"], "nothing has changed"
        await session.edit(facts=["one"])
        assert stays == await session.plan()
        await session.edit(facts=[], least=0, source="kelp")
        assert passes == await session.plan()


@on_loop
async def test_the_plan_of_an_edit_of_a_failed_session_is_the_plan_after_it() -> None:
    pipeline = Pipeline()
    pipeline.errors["verdict"] = [OSError("no ink")]
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow)
        assert (await session.outcome()).status is Status.FAILED
        planned = await session.plan_edit(topic="kelp")
        assert planned.status is Status.READY
        await session.edit(topic="kelp")
        assert planned == await session.plan()


@on_loop
async def test_the_plan_of_an_edit_that_would_be_refused_says_why() -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("verdict")
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        with pytest.raises(StateRefused, match="greater than or equal to 1"):
            await session.plan_edit({"plan.pages": 0})
        with pytest.raises(StateRefused, match="Did you mean 'topic'"):
            await session.plan_edit(topci="ink")
        with pytest.raises(TypeError, match="needs changes"):
            await session.plan_edit()
        running = await engine.start(pipeline.workflow)
        await gate.reached.wait()
        with pytest.raises(VerbRefused, match="can only be edited while no process drives it"):
            await running.plan_edit(topic="ink")
        gate.opened.set()
        assert (await running.outcome()).status is Status.COMPLETED


@on_loop
async def test_an_edit_based_on_a_state_that_has_moved_since_is_refused() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        seen = (await session.info()).seq
        await session.edit(topic="ink", based_on=seen)
        told = f"was at record {seen} and is now at {seen + 1}. Read the state again"
        with pytest.raises(SessionChanged, match=told) as changed:
            await session.edit(topic="kelp", based_on=seen)
        assert isinstance(changed.value, VerbRefused)
        assert (changed.value.based_on, changed.value.seq) == (seen, seen + 1)
        assert (await session.state()).topic == "ink"
        await session.edit(topic="kelp", based_on=(await session.info()).seq)
        assert (await session.state()).topic == "kelp"
