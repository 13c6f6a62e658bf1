"""Steps with branches: some of them are held by a pause or wait, while others fail or want to begin something.

A task group cancels the task of the step when a branch fails. Before Python 3.13, it does not always take that back.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Retry, Session, Status, Workflow, step
from pausepoint.errors import VerbRefused
from pausepoint.model.sessions import SessionRow
from pausepoint.runtime.drive import Drive
from pausepoint.testing import ManualClock
from tests.support.loop import PATIENCE, on_loop
from tests.support.status import settled


class Work(BaseModel):
    done: list[str] = []


class Bumpy:
    """A step with two branches. The operation of the first one fails once, when the test lets it."""

    def __init__(self) -> None:
        self.began, self.go, self.held = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.ran: list[str] = []
        self.workflow = Workflow("bumpy", state=Work, steps=[self._step()])

    async def first(self) -> str:
        self.ran.append("first")
        if self.ran.count("first") == 1:
            self.began.set()
            await self.go.wait()
            raise ConnectionError("try again")
        return "first"

    async def second(self, number: int) -> str:
        self.ran.append(f"second {number}")
        return f"second {number}"

    async def kept(self, engine: Engine) -> tuple[Session[Work], Drive]:
        """Start the session, pause it, and return it with the drive that keeps its step."""
        session = await engine.start(self.workflow)
        await self.began.wait()
        await session.pause()
        self.go.set()
        await settled(session, Status.PAUSED)
        drive = engine._service.driver.drive(session.id)
        assert drive is not None
        return session, drive

    def _step(self) -> Any:
        @step(writes="done", retry=Retry(attempts=2, first=0))
        async def work(ctx: Context) -> list[str]:
            async def failing() -> str:
                try:
                    return await ctx.do(self.first)
                except ConnectionError:
                    await self.held.wait()
                    raise

            async def steady() -> str:
                await ctx.do(self.second, 1)
                await self.go.wait()
                return await ctx.do(self.second, 2)

            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(failing()), group.create_task(steady())]
            return [task.result() for task in tasks]

        return work


@pytest.mark.no_always_replay("counts the runs of operations")
@on_loop
async def test_a_branch_that_fails_when_its_session_pauses_is_retried_after_the_resume(tmp_path: Path) -> None:
    bumpy = Bumpy()
    async with Engine(tmp_path / "store.db") as engine:
        session = await engine.start(bumpy.workflow)
        await bumpy.began.wait()
        await session.pause()
        bumpy.go.set()  # the other branch is held before its next operation
        await settled(session, Status.PAUSED)
        assert (await session.info()).kept_by is not None
        bumpy.held.set()  # the step fails while it is held
        await asyncio.sleep(0.05)
        assert await session.status() is Status.PAUSED
        await session.resume(here=False)
        await settled(session, Status.COMPLETED)
        outcome = await session.outcome()
        assert outcome.state.done == ["first", "second 2"]
        assert bumpy.ran == ["first", "second 1", "first", "second 2"]


@pytest.mark.parametrize("first", ["caught", "retried"])
@on_loop
async def test_a_session_waits_although_a_branch_failed_before(first: str) -> None:
    async def fails() -> None:
        raise ConnectionError("no luck")

    async def works() -> None:
        await asyncio.sleep(0.01)

    async def attempt(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.do(fails))
            group.create_task(ctx.do(works))

    @step(writes="done", retry=Retry(attempts=2, first=0))
    async def work(ctx: Context) -> list[str]:
        if first == "caught" or ctx.attempt == 1:
            try:
                await attempt(ctx)
            except* ConnectionError:
                if first == "retried":
                    raise
        await ctx.sleep(60)
        return ["slept"]

    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("work", state=Work, steps=[work]))
        if first == "retried":
            await clock.asleep()
            clock.advance(1)
        await settled(session, Status.SLEEPING)
        await clock.asleep()
        clock.advance(60)
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.done) == (Status.COMPLETED, ["slept"])


@pytest.mark.no_always_replay("counts the runs of operations")
@pytest.mark.parametrize("pause", ["operation", "step"])
@on_loop
async def test_no_branch_begins_an_operation_while_the_step_is_held(pause: Literal["operation", "step"]) -> None:
    began, go, later = asyncio.Event(), asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    async def item(name: str) -> str:
        ran.append(name)
        began.set()
        await go.wait()
        return name

    async def other(name: str) -> str:
        ran.append(name)
        return name

    @step(writes="done", pause=pause)
    async def work(ctx: Context) -> list[str]:
        async def branch() -> str:
            await later.wait()
            return await ctx.do(other, "other")

        items, one = await asyncio.gather(ctx.map(item, ["a", "b"], concurrency=1), branch())
        return [*items, one]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=Work, steps=[work]))
        await began.wait()
        await session.pause()
        go.set()
        await settled(session, Status.PAUSED)  # the map is held before its second item
        assert (await session.info()).kept_by is not None
        later.set()
        await asyncio.sleep(0.05)
        assert ran == ["a"]
        await session.resume(here=False)
        await settled(session, Status.COMPLETED)
        assert (await session.outcome()).state.done == ["a", "b", "other"]
        assert sorted(ran) == ["a", "b", "other"]


@pytest.mark.no_always_replay("a replayed step is never held")
@pytest.mark.parametrize("ticks", range(4))
@on_loop
async def test_news_at_the_same_moment_do_not_hide_that_the_event_loop_ends(ticks: int) -> None:
    """The end of ``asyncio.run`` cancels all tasks. A held step must not delay it by the length of the hold."""
    bumpy = Bumpy()
    async with Engine(":memory:") as engine:
        _, drive = await bumpy.kept(engine)
        keeping = drive.keeping
        assert keeping is not None
        await asyncio.sleep(0.01)
        drive.requests.news.set()
        for _ in range(ticks):
            await asyncio.sleep(0)
        keeping.cancel()
        done, _ = await asyncio.wait([keeping], timeout=PATIENCE)
        drive.keeper.stop_keeping()
        bumpy.held.set()
        assert done


@pytest.mark.no_always_replay("a replayed step is never held")
@on_loop
async def test_a_resume_is_noticed_although_the_claim_before_it_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bumpy = Bumpy()
    bumpy.held.set()
    async with Engine(":memory:") as engine:
        session, drive = await bumpy.kept(engine)
        claim, refused = engine.store.claim, list[str]()

        async def refuse_once(*args: Any, **options: Any) -> SessionRow:
            if not refused:  # as if it was paused again, and resumed again before the refusal arrives
                refused.append("refused")
                drive.requests.notice(*drive.requests.seen)
                raise VerbRefused("it is paused", session_id=session.id, status="paused")
            return await claim(*args, **options)

        monkeypatch.setattr(engine.store, "claim", refuse_once)
        await session.resume(here=False)
        await settled(session, Status.COMPLETED)
        assert refused
