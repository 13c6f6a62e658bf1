"""A pause takes effect at a wait. Arrivals while the session is pausing are kept and received after the resume."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Session, Status, Workflow, step
from pausepoint.errors import ChildFailed
from pausepoint.testing import ManualClock
from tests.support.chat import history
from tests.support.loop import on_loop
from tests.support.pipeline import Gate
from tests.support.status import settled

HOUR = 3600.0


class Data(BaseModel):
    out: list[str] = []


Branch = Callable[[Context], Awaitable[str]]


class Stage:
    """A session whose step has several branches: one runs an operation, the others wait and note what arrives."""

    engine: Engine
    session: Session[Data]

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.gate, self.below = Gate(), Gate()
        self.ran: list[str] = []
        self.tops = 0
        self.unlucky = False
        self.part = self.child()

    def child(self) -> Workflow[Data]:
        @step(writes="out")
        async def part() -> list[str]:
            await self.below.hold()
            if self.unlucky:
                raise ValueError("unlucky")
            return ["call"]

        return Workflow("part", state=Data, steps=[part])

    def parent(self, *branches: Branch) -> Workflow[Data]:
        async def work() -> str:
            self.ran.append("work")
            await self.gate.hold()
            return "work"

        async def note(what: str) -> str:
            self.ran.append(what)
            return what

        async def follow(ctx: Context, branch: Branch) -> str:
            return await ctx.do(note, await branch(ctx))

        @step(writes="out")
        async def both(ctx: Context) -> list[str]:
            self.tops += 1
            return list(await asyncio.gather(ctx.do(work), *[follow(ctx, branch) for branch in branches]))

        return Workflow("both", state=Data, steps=[both])

    @asynccontextmanager
    async def wanted(self, *branches: Branch, waiting: int, verb: str = "pause") -> AsyncIterator[None]:
        """Request a stop and wait until the session has seen it, while its operation still runs."""
        async with Engine(":memory:", clock=self.clock) as self.engine:
            self.session = await self.engine.start(self.parent(*branches))
            await self.gate.reached.wait()
            while len(self.drive.visit.waits) < waiting:
                await asyncio.sleep(0.001)
            if self.call in branches:
                await self.below.reached.wait()
            await getattr(self.session, verb)()
            await self.heard(True)
            try:
                yield
            finally:
                self.gate.opened.set()  # the engine closes after its operations have ended
                self.below.opened.set()

    @property
    def drive(self) -> Any:
        return self.engine._service.driver.drive(self.session.id)

    async def heard(self, wanted: bool) -> None:
        while self.drive.must_stop is not wanted:
            await asyncio.sleep(0.001)

    async def came_to(self, what: str) -> None:
        while what not in self.ran:
            await asyncio.sleep(0.001)

    async def paused(self) -> None:
        """Let the operation end, so that the pause takes effect."""
        self.gate.opened.set()
        await settled(self.session, Status.PAUSED)
        await nothing_happens()

    async def end(self) -> list[str]:
        outcome = await self.session.outcome()
        assert outcome.status is Status.COMPLETED
        return outcome.state.out

    # kinds of waits, and how each one ends

    async def sleep(self, ctx: Context) -> str:
        await ctx.sleep(HOUR)
        return "sleep"

    async def until(self, ctx: Context) -> str:
        await ctx.until(ManualClock().time + timedelta(hours=1))
        return "until"

    async def receive(self, ctx: Context) -> str:
        return await ctx.receive()

    async def call(self, ctx: Context) -> str:
        try:
            return (await ctx.call(self.part)).out[0]
        except ChildFailed:
            return "failed"

    async def comes(self, kind: str) -> None:
        """Let the awaited thing arrive."""
        if kind == "receive":
            await self.session.send("receive")
        elif kind == "call":
            await self.child_ends()
        else:
            self.clock.advance(HOUR)

    async def child_ends(self) -> None:
        self.below.opened.set()
        [child] = await self.session.children()
        while child.session_id in self.engine.running:
            await asyncio.sleep(0.001)


async def nothing_happens() -> None:
    for _ in range(20):
        await asyncio.sleep(0.001)


KINDS = ("sleep", "until", "receive", "call")


@pytest.mark.no_always_replay("counts the runs of the step's body")
@pytest.mark.parametrize("kind", KINDS)
@on_loop
async def test_what_comes_while_the_session_is_pausing_is_kept_until_it_is_resumed(kind: str) -> None:
    stage = Stage()
    async with stage.wanted(getattr(stage, kind), waiting=1):
        await stage.comes(kind)
        await nothing_happens()
        assert (await stage.session.status(), stage.ran) == (Status.PAUSING, ["work"])
        await stage.paused()
        assert (stage.ran, stage.tops) == (["work"], 1)
        await stage.session.resume()
        assert await stage.end() == ["work", kind]
        assert (stage.ran, stage.tops) == (["work", kind], 2)


@pytest.mark.no_always_replay("counts the runs of the step's body")
@pytest.mark.parametrize("early", [False, True], ids=["after the pause", "while pausing"])
@pytest.mark.parametrize("kind", KINDS)
@on_loop
async def test_a_pause_that_is_taken_back_lets_a_wait_end(kind: str, early: bool) -> None:
    stage = Stage()
    async with stage.wanted(getattr(stage, kind), waiting=1):
        if early:
            await stage.comes(kind)
            await nothing_happens()
        await stage.session.resume()
        await stage.heard(False)
        if not early:
            await nothing_happens()
            await stage.comes(kind)
        await stage.came_to(kind)  # although the other branch's operation still runs
        assert not stage.gate.opened.is_set()
        stage.gate.opened.set()
        assert await stage.end() == ["work", kind]
        assert (stage.ran, stage.tops) == (["work", kind], 1)


@pytest.mark.no_always_replay("counts the runs of the step's body")
@pytest.mark.parametrize("kind", KINDS)
@on_loop
async def test_a_session_that_is_to_be_cancelled_takes_nothing_up(kind: str) -> None:
    stage = Stage()
    async with stage.wanted(getattr(stage, kind), waiting=1, verb="cancel"):
        await stage.comes(kind)
        await nothing_happens()
        stage.gate.opened.set()
        assert (await stage.session.outcome()).status is Status.CANCELLED
        assert stage.ran == ["work"]


@pytest.mark.no_always_replay("counts the runs of the step's body")
@pytest.mark.parametrize("kind", ["sleep", "until", "receive"])
@on_loop
async def test_a_wait_that_is_reached_while_pausing_is_a_safe_point_though_it_could_end_at_once(kind: str) -> None:
    stage = Stage()

    async def late(ctx: Context) -> str:
        await stage.gate.opened.wait()
        await ctx.sleep(0) if kind == "sleep" else None
        return "sleep" if kind == "sleep" else await getattr(stage, kind)(ctx)

    async with stage.wanted(late, waiting=0):
        await stage.comes(kind)
        await stage.paused()
        assert stage.ran == ["work"]
        await stage.session.resume()
        assert await stage.end() == ["work", kind]
        assert stage.ran == ["work", kind]


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_a_step_that_pauses_at_its_end_receives_nothing_while_it_is_pausing() -> None:
    gate = Gate()
    got: list[str] = []

    @step(writes="out", pause="step")
    async def top(ctx: Context) -> list[str]:
        await ctx.do(gate.hold)
        got.append(await ctx.receive())
        return got

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("top", state=Data, steps=[top]))
        await gate.reached.wait()
        await session.send("a")
        await session.pause()
        gate.opened.set()
        assert (await session.outcome()).status is Status.PAUSED
        assert got == []
        await session.resume()
        assert (await session.outcome()).state.out == ["a"]


@pytest.mark.parametrize("effect", ["taken", "taken back"])
@on_loop
async def test_two_branches_that_stood_still_with_messages_in_the_inbox_get_one_each(effect: str) -> None:
    stage, come = Stage(), asyncio.Event()

    async def late(ctx: Context) -> str:
        await come.wait()
        return await ctx.receive()

    async with stage.wanted(late, late, waiting=0):
        await stage.session.send("a")
        await stage.session.send("b")
        come.set()
        await nothing_happens()
        assert stage.ran == ["work"]
        if effect == "taken":
            await stage.paused()
        await stage.session.resume()
        stage.gate.opened.set()
        assert sorted(await stage.end()) == ["a", "b", "work"]
        assert sorted(stage.ran) == ["a", "b", "work"]


@on_loop
async def test_a_message_that_cannot_be_read_is_refused_after_the_resume() -> None:
    stage = Stage()

    async def number(ctx: Context) -> str:
        return str(await ctx.receive(int))

    async with stage.wanted(number, waiting=1):
        await stage.session.send("seven")
        await nothing_happens()
        await stage.paused()
        assert "message.refused" not in await history(stage.session)
        await stage.session.send(7)
        await stage.session.resume()
        assert await stage.end() == ["work", "7"]
        assert (await history(stage.session)).count("message.refused") == 1


@on_loop
async def test_the_failure_of_a_child_is_told_to_its_step_after_the_resume() -> None:
    stage = Stage()
    stage.unlucky = True
    async with stage.wanted(stage.call, waiting=1):
        await stage.child_ends()
        await nothing_happens()
        await stage.paused()
        assert "child.noticed" not in await history(stage.session)
        assert stage.ran == ["work"]
        await stage.session.resume()
        assert await stage.end() == ["work", "failed"]
        assert "child.noticed" in await history(stage.session)


@pytest.mark.parametrize("how", ["paused", "stopped"])
@on_loop
async def test_a_session_that_is_left_beside_a_timer_goes_on_with_its_other_branch_when_it_is_resumed(
    how: str, tmp_path: Path
) -> None:
    clock, gate, ran = ManualClock(), Gate(), list[str]()

    async def note(what: str) -> str:
        ran.append(what)
        return what

    @step(writes="out")
    async def both(ctx: Context) -> list[str]:
        async def work() -> str:
            await ctx.do(gate.hold)
            return await ctx.do(note, "next")

        async def doze() -> str:
            await ctx.sleep(HOUR)
            return "awake"

        return list(await asyncio.gather(work(), doze()))

    workflow = Workflow("both", state=Data, steps=[both])
    async with Engine(tmp_path / "h.db", clock=clock) as engine:
        session = await engine.start(workflow, session_id="one")
        await gate.reached.wait()
        if how == "paused":
            await session.pause()
            while not engine._service.driver.drive("one").must_stop:  # type: ignore[union-attr]  # it runs
                await asyncio.sleep(0.001)
            gate.opened.set()
            await settled(session, Status.PAUSED)
        else:
            asyncio.get_running_loop().call_later(0.01, gate.opened.set)
    assert ran == []
    async with Engine(tmp_path / "h.db", clock=clock, workflows=[workflow]) as engine:
        session = await engine.session("one").resume()
        await settled(session, Status.SLEEPING)
        assert ran == ["next"]  # immediately, not after an hour
        clock.advance(HOUR)
        assert (await session.outcome()).state.out == ["next", "awake"]


@on_loop
async def test_a_session_of_which_only_a_wait_is_left_when_its_engine_closes_goes_on_by_itself_later(
    tmp_path: Path,
) -> None:
    gate = Gate()

    @step(writes="out")
    async def both(ctx: Context) -> list[str]:
        _, said = await asyncio.gather(ctx.do(gate.hold), ctx.receive())
        return [said]

    workflow = Workflow("both", state=Data, steps=[both])
    async with Engine(tmp_path / "h.db") as engine:
        await engine.start(workflow, session_id="one")
        await gate.reached.wait()
        asyncio.get_running_loop().call_later(0.01, gate.opened.set)
    async with Engine(tmp_path / "h.db", workflows=[workflow]) as engine:
        session = engine.session("one")
        assert await session.status() is Status.WAITING
        await session.send("hello")
        assert (await session.outcome()).state.out == ["hello"]
