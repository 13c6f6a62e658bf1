"""A held step while its session is claimed again: nothing of it begins before the claim, or after another pause."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Budget, Context, Engine, Session, Status, Workflow, step
from pausepoint.errors import StoreReadOnly
from pausepoint.model.commits import Flags
from tests.support.loop import on_loop
from tests.support.status import settled

pytestmark = pytest.mark.no_always_replay("counts the runs of the step's body")

TURNS = 20
"""More loop turns than an operation needs to begin."""


class Out(BaseModel):
    total: int = 0


class Branches:
    """A step with two branches. One is halted by the pause; the other calls an operation when a test lets it."""

    def __init__(self) -> None:
        self.began, self.go = asyncio.Event(), asyncio.Event()  # of the first operation
        self.call, self.called, self.end = asyncio.Event(), asyncio.Event(), asyncio.Event()  # of the other branch
        self.ran: list[str] = []

        async def work(name: str) -> int:
            self.ran.append(name)
            if name == "first":
                self.began.set()
                await self.go.wait()
            if name == "other":
                self.called.set()
                await self.end.wait()
            return 1

        @step(writes="total")
        async def both(ctx: Context) -> int:
            async def one() -> int:
                return await ctx.do(work, "first") + await ctx.do(work, "second")

            async def other() -> int:
                await self.call.wait()
                return await ctx.do(work, "other")

            return sum(await asyncio.gather(one(), other()))

        self.workflow = Workflow("both", state=Out, steps=[both])

    async def held(self, engine: Engine) -> Session[Out]:
        session = await engine.start(self.workflow, session_id="s")
        await self.began.wait()
        await session.pause()
        self.go.set()
        await settled(session, Status.PAUSED)
        assert (await session.info()).kept_by is not None
        return session


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


@pytest.mark.parametrize("paused_again", [False, True])
@on_loop
async def test_no_operation_begins_before_the_session_is_claimed_again(
    monkeypatch: pytest.MonkeyPatch, paused_again: bool
) -> None:
    step, early = Branches(), list[str]()
    async with Engine(":memory:") as engine:
        session = await step.held(engine)
        claim = engine.store.claim

        async def slow_claim(*args: Any, **how: Any) -> Any:
            monkeypatch.undo()
            step.call.set()
            await turns()
            early.extend(step.ran)
            if paused_again:
                await session.pause()
            return await claim(*args, **how)

        monkeypatch.setattr(engine.store, "claim", slow_claim)
        await session.resume()
        if paused_again:
            await settled(session, Status.PAUSED)
            assert step.ran == ["first"]
            await session.resume()
        step.end.set()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.total) == (Status.COMPLETED, 3)
    assert (early, sorted(step.ran)) == (["first"], ["first", "other", "second"])


@on_loop
async def test_a_pause_right_after_the_claim_waits_for_an_operation_that_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = Branches()
    async with Engine(":memory:") as engine:
        session = await step.held(engine)
        pauses = engine.store.pauses

        async def slow_pauses(key: int, open_only: bool = True) -> Any:
            if not open_only:  # the claim has succeeded, and its record is about to be written
                monkeypatch.undo()
                step.call.set()
                await step.called.wait()
                await session.pause()
            return await pauses(key, open_only)

        monkeypatch.setattr(engine.store, "pauses", slow_pauses)
        resumed = asyncio.create_task(session.resume())
        await step.called.wait()
        await turns()
        assert await session.status() is Status.PAUSING
        step.end.set()
        await resumed
        await settled(session, Status.PAUSED)
        assert (await session.info()).kept_by is not None
        await session.resume()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.total) == (Status.COMPLETED, 3)
    assert sorted(step.ran) == ["first", "other", "second"]


@on_loop
async def test_a_request_that_was_read_before_the_claim_is_ignored_after_it() -> None:
    step = Branches()
    async with Engine(":memory:") as engine:
        session = await step.held(engine)
        drive = engine._service.driver.drive("s")
        assert drive is not None
        fence = drive.fence
        step.call.set()
        await session.resume()
        await step.called.wait()
        drive.requests.notice(fence, Flags(True, "abort", False, False))
        step.end.set()
        assert (await session.outcome()).status is Status.COMPLETED
    assert sorted(step.ran) == ["first", "other", "second"]


@on_loop
async def test_a_budget_that_another_process_gives_applies_to_a_step_that_continues_in_place(tmp_path: Path) -> None:
    step = Branches()
    async with Engine(tmp_path / "h.db", signals=False) as keeper, Engine(tmp_path / "h.db", signals=False) as other:
        session = await step.held(keeper)
        await other.session("s").resume(budget=Budget(operations=1), here=False)
        step.call.set()
        step.end.set()
        outcome = await session.outcome()
        assert [pause.kind for pause in outcome.pauses] == ["budget"]
    assert step.ran == ["first"]


@on_loop
async def test_a_step_that_cannot_be_claimed_again_is_left_to_any_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Branches()
    async with Engine(":memory:") as engine:
        session = await step.held(engine)

        async def refused(*args: Any, **how: Any) -> Any:
            monkeypatch.undo()
            raise StoreReadOnly("The disk is full.", path="", full=True)

        monkeypatch.setattr(engine.store, "claim", refused)
        step.call.set()
        step.end.set()
        await session.resume(here=False)
        while await session.status() is not Status.COMPLETED:
            await asyncio.sleep(0.001)
        assert (await session.state()).total == 3
    assert sorted(step.ran) == ["first", "other", "second"]


@on_loop
async def test_a_held_step_that_demands_a_pause_exits_quietly(caplog: pytest.LogCaptureFixture) -> None:
    """A branch may meet a mismatch while the step is held. The step starts again, and finds it then."""
    began, go, late = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(number: int) -> int:
        if number == 2:
            began.set()
            await go.wait()
        return number

    @step(writes="total")
    async def both(ctx: Context) -> int:
        async def other() -> int:
            await late.wait()
            return await ctx.do(work, 7, key="same")

        await ctx.do(work, 1, key="same")
        other_branch = asyncio.create_task(other())
        await ctx.do(work, 2)
        await ctx.do(work, 3)
        return await other_branch

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("w", state=Out, steps=[both]))
        await began.wait()
        await session.pause()
        go.set()
        await settled(session, Status.PAUSED)
        late.set()
        await turns()
        run = engine._service.driver.runs[session.id]
        await engine._service.driver.let_go(session.id)
        assert run.broken is None
        await session.resume()
        outcome = await session.outcome()
        assert [pause.kind for pause in outcome.pauses] == ["mismatch"]
    assert "no longer held" not in caplog.text


@pytest.mark.parametrize("paused_again", [False, True])
@on_loop
async def test_a_resume_whose_keeper_gave_up_withdraws_no_later_pause(
    monkeypatch: pytest.MonkeyPatch, paused_again: bool
) -> None:
    step = Branches()
    async with Engine(":memory:") as engine:
        session = await step.held(engine)

        async def gives_up(*_: Any) -> bool:
            if paused_again:
                await session.pause(by="bob")
            await engine._service.driver.let_go("s")
            return False

        monkeypatch.setattr(engine._parts.control, "_continues_in_place", gives_up)
        step.call.set()
        step.end.set()
        await session.resume(by="ada", budget=5)
        outcome = await session.outcome()
        assert outcome.status is (Status.PAUSED if paused_again else Status.COMPLETED)
        assert [pause.by for pause in outcome.pauses] == (["bob"] if paused_again else [])
        resumes = [event async for event in session.events() if event.event_type == "resume.requested"]
        assert [event.data["budget_usd"] for event in resumes] == [5.0]


@on_loop
async def test_a_resume_elsewhere_makes_a_session_due_even_if_its_keeper_has_just_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = Branches()
    async with Engine(":memory:") as engine:
        session = await step.held(engine)
        unpause = engine.store.unpause

        async def late(*args: Any, **how: Any) -> Any:
            monkeypatch.undo()
            await engine._service.driver.let_go("s")
            return await unpause(*args, **how)

        monkeypatch.setattr(engine.store, "unpause", late)
        step.call.set()
        step.end.set()
        await session.resume(here=False)
        while await session.status() is not Status.COMPLETED:
            await asyncio.sleep(0.001)
