"""Routes choose the next step, and guards can pause a session."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import BaseModel

from pausepoint import Engine, Session, Status, Workflow, guard, route, step
from pausepoint.model import Event
from tests.support.loop import on_loop


class Review(BaseModel):
    score: int = 0
    rounds: int = 0
    trail: list[str] = []


@step(writes="trail")
async def write(trail: list[str]) -> list[str]:
    return [*trail, "write"]


@step(writes=["rounds", "trail"])
async def review(rounds: int, trail: list[str]) -> dict[str, object]:
    return {"rounds": rounds + 1, "trail": [*trail, "review"]}


@step(writes="trail")
async def publish(trail: list[str]) -> list[str]:
    return [*trail, "publish"]


async def history(session: Session[Review]) -> list[Event]:
    return [event async for event in session.events()]


@on_loop
async def test_a_route_makes_a_loop_and_every_visit_of_a_step_has_its_number() -> None:
    @route(after="review")
    def again(rounds: int) -> Literal["write", "publish"]:
        return "write" if rounds < 3 else "publish"

    workflow = Workflow("loop", state=Review, steps=[write, review, publish], routes=[again])
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow)
        outcome = await session.outcome()
        assert outcome.state.trail == ["write", "review"] * 3 + ["publish"]
        visits = [(visit.step, visit.visit) for visit in await session.checkpoints(limit=None)]
        assert visits == [
            ("write", 1), ("review", 1), ("write", 2), ("review", 2), ("write", 3), ("review", 3), ("publish", 1),
        ]  # fmt: skip


@on_loop
async def test_a_route_to_none_ends_the_session_before_the_last_step() -> None:
    @route(after="review")
    def good_enough(score: int) -> Literal["publish"] | None:
        return "publish" if score > 5 else None

    workflow = Workflow("early", state=Review, steps=[write, review, publish], routes=[good_enough])
    async with Engine(":memory:") as engine:
        low, high = await engine.start(workflow, score=1), await engine.start(workflow, score=9)
        assert (await low.outcome()).state.trail == ["write", "review"]
        assert (await high.outcome()).state.trail == ["write", "review", "publish"]
        assert await low.status() is Status.COMPLETED


@pytest.mark.covers("S3.50", "S3.59")
@pytest.mark.parametrize("target", ["write", "publish", "nowhere", None])
@on_loop
async def test_a_transition_that_is_not_listed_is_refused_with_both_ends_named_and_the_position_unchanged(
    target: str | None,
) -> None:
    @route(after="review")
    def listed(score: int) -> Literal["check"]:
        return answer  # type: ignore[return-value]  # wrong on purpose

    @step(writes="trail")
    async def check(trail: list[str]) -> list[str]:
        return [*trail, "check"]

    answer = target
    workflow = Workflow("strict", state=Review, steps=[write, review, check, publish], routes=[listed])
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow)
        outcome = await session.outcome()
        assert outcome.status is Status.FAILED
        assert outcome.failure is not None
        assert outcome.failure.type == "IllegalTransition"
        assert f"returned {target!r} after step 'review', but its return type allows only" in outcome.failure.message
        assert "allows only: check" in outcome.failure.message
        info = await session.info()
        assert (info.step, info.visit) == ("review", 1)
        assert outcome.state.trail == ["write", "review"]
        answer = "check"  # the route runs again; the step does not
        await session.resume()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.trail) == (Status.COMPLETED, ["write", "review", "check", "publish"])
        assert outcome.failure is None


@pytest.mark.covers("S3.59")
@on_loop
async def test_a_completed_session_cannot_be_left_in_any_direction() -> None:
    workflow = Workflow("plain", state=Review, steps=[write, review])
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow)
        await session.outcome()
        before = await session.info()
        assert (await session.pause())[0].status is Status.COMPLETED
        assert await session.cancel() is Status.COMPLETED
        await session.resume()
        assert (await session.outcome()).status is Status.COMPLETED
        assert await session.info() == before


@pytest.mark.covers("S3.58", "S3.60")
@on_loop
async def test_a_route_that_raises_fails_the_session_keeps_its_data_and_is_asked_again_on_resume() -> None:
    @route(after="review")
    def fragile(score: int) -> Literal["publish"]:
        if broken:
            raise ZeroDivisionError("no votes")
        return "publish"

    broken = True
    workflow = Workflow("fragile", state=Review, steps=[write, review, publish], routes=[fragile])
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow)
        outcome = await session.outcome()
        assert outcome.failure is not None
        assert (outcome.failure.type, outcome.failure.step) == ("ZeroDivisionError", "review")
        broken = False
        await session.resume()
        assert (await session.outcome()).state.trail == ["write", "review", "publish"]


# guards


@pytest.mark.covers("S3.67")
@pytest.mark.parametrize("after", ["write", "review", "publish"])
@on_loop
async def test_a_guard_with_a_message_can_stand_after_any_step_and_pauses_with_its_reason(after: str) -> None:
    closed = True

    @guard(after=after)
    def open_hours(rounds: int) -> str | None:
        return "the office is closed" if closed else None

    workflow = Workflow("guarded", state=Review, steps=[write, review, publish], guards=[open_hours])
    done = ["write", "review", "publish"]
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow)
        outcome = await session.outcome()
        assert outcome.status is Status.PAUSED
        assert [(pause.kind, pause.reason) for pause in outcome.pauses] == [("guard", "the office is closed")]
        assert outcome.state.trail == done[: done.index(after) + 1]  # the step's work is kept
        assert (await session.info()).step == after
        await session.resume()
        outcome = await session.outcome()  # the guard runs again and still refuses
        assert (outcome.status, len(outcome.pauses)) == (Status.PAUSED, 1)
        closed = False
        await session.resume()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.trail, outcome.pauses) == (Status.COMPLETED, done, ())
        types = [event.event_type for event in await history(session)]
        assert types.count("guard.refused") >= 1
        assert types.count("guard.passed") == 1
        assert types.count("step.completed") == 3


@on_loop
async def test_all_guards_after_a_step_must_let_it_pass_before_the_route_is_asked() -> None:
    asked: list[str] = []
    reasons: dict[str, str | None] = {"first": "one", "second": "two"}

    @guard(after="write")
    def first(rounds: int) -> str | None:
        asked.append("first")
        return reasons["first"]

    @guard(after="write")
    def second(rounds: int) -> str | None:
        asked.append("second")
        return reasons["second"]

    @route(after="write")
    def onwards(rounds: int) -> Literal["publish"]:
        asked.append("route")
        return "publish"

    @route(after="publish")
    def back(rounds: int) -> Literal["review"] | None:
        return None

    workflow = Workflow(
        "guarded", state=Review, steps=[write, publish, review], guards=[first, second], routes=[onwards, back]
    )
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow)
        assert (await session.outcome()).pauses[0].reason == "one"
        reasons["first"] = None
        await session.resume()
        outcome = await session.outcome()
        assert [pause.reason for pause in outcome.pauses] == ["two"]
        reasons["second"] = None
        await session.resume()
        assert (await session.outcome()).state.trail == ["write", "publish"]
        assert asked == ["first", "first", "second", "first", "second", "route"]


@on_loop
async def test_a_guard_and_an_operator_add_up_and_both_must_be_gone() -> None:
    closed = True

    @guard(after="write")
    def open_hours(rounds: int) -> str | None:
        return "closed" if closed else None

    workflow = Workflow("guarded", state=Review, steps=[write, publish], guards=[open_hours])
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow)
        await session.outcome()
        await session.pause("and I want to look", by="ann")
        assert {pause.kind for pause in await session.pauses()} == {"guard", "operator"}
        await session.resume()
        outcome = await session.outcome()
        assert [pause.kind for pause in outcome.pauses] == ["guard"]
        closed = False
        await session.resume()
        assert (await session.outcome()).status is Status.COMPLETED
