"""Resuming up to a step (``pause_after``), and finding the sessions of one input."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.errors import DefinitionError, VerbRefused
from pausepoint.testing import ManualClock
from tests.support.loop import on_loop
from tests.support.pipeline import FINISHED, Gate, Pipeline, until


@on_loop
async def test_a_session_resumed_until_a_step_pauses_behind_it_and_goes_on_when_it_is_resumed() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow, paused=True)
        outcome = await (await session.resume(pause_after="draft", by="Ada")).outcome()
        assert (outcome.status, outcome.state) == (Status.PAUSED, until("verdict"))
        assert pipeline.calls == ["outline", "draft"]
        (pause,) = outcome.pauses
        assert (pause.kind, pause.by, pause.reason) == ("operator", "Ada", "ran until draft as requested")
        outcome = await (await session.resume()).outcome()
        assert (outcome.status, outcome.state) == (Status.COMPLETED, FINISHED)


@on_loop
async def test_a_session_that_pauses_after_its_last_step_completes() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow, paused=True)
        outcome = await (await session.resume(pause_after="report")).outcome()
        assert outcome.status is Status.COMPLETED


class Nap(BaseModel):
    words: list[str] = []


@on_loop
async def test_pause_after_holds_though_the_session_sleeps_before_and_is_woken_by_its_timer() -> None:
    @step(writes="words")
    async def rest(ctx: Context) -> list[str]:
        await ctx.sleep(3600)
        return ["rested"]

    @step(writes="words")
    async def work(words: list[str]) -> list[str]:
        return [*words, "worked"]

    nap = Workflow("nap", state=Nap, steps=[rest, work])
    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(nap, paused=True)
        outcome = await (await session.resume(pause_after="rest")).outcome()
        assert (outcome.status, outcome.state.words) == (Status.PAUSED, ["rested"])


@on_loop
async def test_pause_after_names_a_step_of_the_workflow_and_a_session_that_nobody_else_drives() -> None:
    pipeline = Pipeline()
    gate = pipeline.gates["draft"] = Gate()
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow)
        await gate.reached.wait()
        await session.pause()
        with pytest.raises(VerbRefused, match="still driven"):
            await session.resume(pause_after="verdict")
        gate.opened.set()
        assert (await session.outcome()).status is Status.PAUSED
        with pytest.raises(DefinitionError, match="draft"):
            await session.resume(pause_after="draf")
        assert await session.status() is Status.PAUSED
        assert (await (await session.resume()).outcome()).status is Status.COMPLETED
        assert await (await session.resume(pause_after="draft")).status() is Status.COMPLETED
        with pytest.raises(DefinitionError, match="draft"):
            await session.resume(pause_after="draf")


@on_loop
async def test_sessions_of_the_same_input_are_found_newest_first_however_they_stand() -> None:
    pipeline = Pipeline()
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        first = await engine.start(pipeline.workflow, topic="squid")
        await first.outcome()
        clock.advance(1)
        second = await engine.start(pipeline.workflow, topic="squid", paused=True, tags="other")
        await engine.start(pipeline.workflow, topic="otters", paused=True)
        await engine.start(pipeline.workflow, topic="squid", paused=True, at_step="draft")
        found = await engine.same_input(pipeline.workflow, topic="squid")
        assert [(info.session_id, info.status) for info in found] == [
            (second.id, Status.PAUSED),
            (first.id, Status.COMPLETED),
        ]
        model = pipeline.workflow.model(topic="squid")
        assert await engine.same_input(pipeline.workflow, model) == found
        assert await engine.same_input(pipeline.workflow, topic="whales") == []
