"""A plan shows what a resume would do and why, and the resume does exactly that."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel

from pausepoint import Context, Engine, Workflow, guard, route, step
from pausepoint.engine.plans import Plan
from pausepoint.testing import ManualClock
from tests.support.loop import on_loop


class Essay(BaseModel):
    topic: str = "kelp"
    draft: str = ""
    rounds: int = 0
    checked: bool = False


class Author:
    """A pipeline with a loop, a guard and a step that may be skipped; ``broken`` steps fail."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.broken: set[str] = set()
        self.approved = True

        def ran(name: str) -> None:
            self.calls.append(name)
            if name in self.broken:
                raise OSError("no ink")

        @step(writes="draft")
        async def write(topic: str, ctx: Context) -> str:
            await ctx.do(ran, "look up", key="look up")
            ran("write")
            return topic.upper()

        @step(writes="checked", when=lambda rounds: rounds > 0)
        async def check(draft: str) -> bool:
            ran("check")
            return True

        @step(writes="rounds")
        async def review(rounds: int) -> int:
            ran("review")
            return rounds + 1

        @route(after=review)
        def again(rounds: int) -> Literal["write", "publish"]:
            return "write" if rounds < 2 else "publish"

        @step
        async def publish() -> None:
            ran("publish")

        @step
        async def file() -> None:
            ran("file")

        @guard(after=write)
        def signed() -> str | None:
            return None if self.approved else "nobody has signed"

        self.workflow = Workflow(
            "essay", state=Essay, steps=[write, check, review, publish, file], routes=[again], guards=[signed]
        )


def verdicts(plan: Plan) -> dict[str, str]:
    return {each.step: each.verdict for each in plan}


@on_loop
async def test_before_the_first_step_everything_up_to_the_route_will_run() -> None:
    author = Author()
    async with Engine(":memory:") as engine:
        session = await engine.start(author.workflow, paused=True)
        plan = await session.plan()
        assert verdicts(plan) == {
            "write": "next", "check": "will run", "review": "will run", "publish": "may run", "file": "may run"
        }  # fmt: skip
        assert plan["write"].why == "never ran"
        assert plan["check"].why == "follows write, if signed allows it; its `when` may skip it"
        assert plan["publish"].why == "route 'again' after review decides"
        assert plan["file"].why == "follows publish"
        assert plan.obstacles == ()
        assert author.calls == []


@on_loop
async def test_after_a_failure_it_says_what_is_kept_and_what_runs_and_the_resume_does_that() -> None:
    author = Author()
    author.broken.add("review")
    async with Engine(":memory:") as engine:
        session = await engine.start(author.workflow)
        await session.outcome()
        plan = await session.plan()
        assert verdicts(plan) == {
            "write": "may run", "check": "may run", "review": "next", "publish": "may run", "file": "may run"
        }  # fmt: skip
        assert plan["review"].why == "failed: OSError: no ink"
        assert plan["write"].visits == 1
        author.broken.clear()
        author.calls.clear()
        await session.resume()
        await session.outcome()
        assert author.calls[0] == "review"
        done = await session.plan()
        assert set(verdicts(done).values()) == {"done"}
        assert done["review"].why == "2 visits are kept"


@on_loop
async def test_a_failed_step_says_why_also_while_the_session_is_paused() -> None:
    author = Author()
    author.broken.add("write")
    async with Engine(":memory:") as engine:
        session = await engine.start(author.workflow)
        await session.outcome()
        await session.pause()
        plan = await session.plan()
        assert (plan["write"].verdict, plan["write"].why) == ("next", "failed: OSError: no ink")


@on_loop
async def test_what_stands_in_the_way_is_named() -> None:
    author = Author()
    author.approved = False
    async with Engine(":memory:") as engine:
        session = await engine.start(author.workflow)
        await session.outcome()
        plan = await session.plan()
        assert plan.obstacles == ("guard: nobody has signed (after write)",)
        assert (plan["write"].verdict, plan["write"].visits) == ("may run", 1)  # runs again if the route chooses it
        assert plan["check"].verdict == "will run"


@on_loop
async def test_a_rewound_step_says_so() -> None:
    author = Author()
    async with Engine(":memory:") as engine:
        session = await engine.start(author.workflow)
        await session.outcome()
        await session.rewind("publish")
        plan = await session.plan()
        assert (plan["publish"].verdict, plan["publish"].why) == ("next", "rewound")
        assert plan["file"].verdict == "will run"
        assert plan["review"].verdict == "done"


@on_loop
async def test_a_sleeping_session_says_until_when() -> None:
    clock = ManualClock()

    @step
    async def nap(ctx: Context) -> None:
        await ctx.sleep(3600)

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("nap", state=Essay, steps=[nap]))
        while await session.status() != "sleeping":
            await clock.asleep()
        assert (await session.plan())["nap"].why == "sleeps until 2023-11-14T23:13:20+00:00"
        assert "sleeps" not in (await session.plan(wake=True))["nap"].why


@on_loop
async def test_a_definition_that_no_longer_fits_is_an_obstacle() -> None:
    author = Author()
    author.broken.add("review")
    async with Engine(":memory:") as engine:
        session = await engine.start(author.workflow)
        await session.outcome()

        @step
        async def publish() -> None: ...

        engine.workflows["essay"] = Workflow("essay", state=Essay, steps=[publish])
        plan = await session.plan()
        assert any("review" in obstacle for obstacle in plan.obstacles)


@on_loop
async def test_it_can_be_printed_sent_and_shown() -> None:
    author = Author()
    async with Engine(":memory:") as engine:
        session = await engine.start(author.workflow, session_id="essay-1", paused=True)
        plan = await session.plan()
        assert str(plan).splitlines()[:2] == [
            "essay-1 is paused",
            "  next      write    never ran",
        ]
        assert json.loads(json.dumps(plan.to_json()))["steps"][0] == {
            "step": "write", "verdict": "next", "why": "never ran", "visits": 0
        }  # fmt: skip
        assert "<td" in plan._repr_html_()
        assert "never ran" in plan._repr_html_()
