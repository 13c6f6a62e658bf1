"""What an engine drives: everything, only sessions it was asked for, or nothing; and which sessions run here."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from pydantic import BaseModel

from pausepoint import Artifact, Context, Engine, Status, Workflow, step
from pausepoint.errors import CallRefused, UnknownSession
from pausepoint.testing import ManualClock
from tests.support.loop import PATIENCE, on_loop

HOUR = timedelta(hours=1)


class Note(BaseModel):
    text: str = ""


@step(writes="text")
async def nap(ctx: Context) -> str:
    await ctx.sleep(HOUR)
    return "slept"


@step(writes="text")
async def listen(ctx: Context) -> str:
    return await ctx.receive(str)


@step(writes="text")
async def call(ctx: Context) -> str:
    return (await ctx.call(napping)).text


napping = Workflow("napping", state=Note, steps=[nap])
listening = Workflow("listening", state=Note, steps=[listen])
calling = Workflow("calling", state=Note, steps=[call])
ALL: list[Workflow[Any]] = [napping, listening, calling]


async def reached(engine: Engine, session_id: str, status: Status) -> None:
    async for info in engine.session(session_id).watch():
        if info.status is status:
            return
    assert (await engine.session(session_id).info()).status is status


async def stored(path: Path, clock: ManualClock, **sessions: Workflow[Any]) -> None:
    """Store waiting sessions with an engine that closes afterwards."""
    async with Engine(path, clock=clock) as engine:
        for name, workflow in sessions.items():
            await engine.start(workflow, session_id=name)
        for name in sessions:
            while (await engine.session(name).info()).status not in (Status.SLEEPING, Status.WAITING):
                await asyncio.sleep(0.001)


@on_loop
async def test_an_engine_that_drives_nothing_leaves_due_sessions_alone(tmp_path: Path) -> None:
    clock = ManualClock()
    await stored(tmp_path / "s.db", clock, one=napping)
    clock.advance(HOUR.total_seconds())
    async with Engine(tmp_path / "s.db", workflows=ALL, clock=clock, drives="none") as engine:
        await engine.idle()
        assert engine.running == ()
        assert (await engine.session("one").info()).status is Status.READY
    async with Engine(tmp_path / "s.db", workflows=ALL, clock=clock) as engine:
        await reached(engine, "one", Status.COMPLETED)


@on_loop
async def test_an_engine_that_drives_nothing_says_so_when_it_is_asked_to(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db", workflows=ALL, drives="none") as engine:
        with pytest.raises(CallRefused, match=r"drives no sessions, so it cannot start 'one'.*start\(paused=True\)"):
            await engine.start(napping, session_id="one")
        with pytest.raises(UnknownSession):
            await engine.session("one").info()
        await engine.start(napping, session_id="one", paused=True)
        with pytest.raises(CallRefused, match=r"cannot resume 'one'.*resume\(here=False\)"):
            await engine.session("one").resume()
        with pytest.raises(CallRefused, match="cannot drive 'one'"):
            await engine.session("one").drive_only()
        assert (await engine.session("one").info()).status is Status.PAUSED


@on_loop
async def test_an_asked_engine_wakes_what_it_started_and_nothing_else(tmp_path: Path) -> None:
    clock = ManualClock()
    await stored(tmp_path / "s.db", clock, other=napping)
    async with Engine(tmp_path / "s.db", workflows=ALL, clock=clock, drives="asked") as engine:
        await engine.start(calling, session_id="mine")  # sleeps in a child
        await reached(engine, "mine", Status.WAITING)
        [child] = await engine.session("mine").children()
        await reached(engine, child.session_id, Status.SLEEPING)
        clock.advance(HOUR.total_seconds())
        await reached(engine, "mine", Status.COMPLETED)
        assert (await engine.session("other").info()).status is Status.READY


@on_loop
async def test_a_message_alone_does_not_make_an_asked_engine_drive_a_session(tmp_path: Path) -> None:
    await stored(tmp_path / "s.db", ManualClock(), one=listening, two=listening)
    async with Engine(tmp_path / "s.db", workflows=ALL, drives="asked") as engine:
        for name in ("one", "two"):
            await engine.session(name).send("hello")
        await engine.idle()
        assert [(await engine.session(name).info()).status for name in ("one", "two")] == [Status.READY, Status.READY]
        await engine.session("two").drive_only()
        await reached(engine, "two", Status.COMPLETED)
        assert (await engine.session("one").info()).status is Status.READY
        with pytest.raises(UnknownSession):
            await engine.session("three").drive_only()


@pytest.mark.long
@on_loop
async def test_asked_sessions_that_have_ended_are_forgotten() -> None:
    async with Engine(":memory:", workflows=ALL, drives="asked") as engine:
        for number in range(70):
            session = await engine.start(listening, session_id=f"s{number}")
            await session.send("hello")
            await session.outcome()
        asked = engine._service.waker.asked
        assert asked is not None
        assert len(asked) < 70


@on_loop
async def test_running_names_what_is_driven_here_and_idle_waits_for_it(tmp_path: Path) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @step(writes="text")
    async def work() -> str:
        begun.set()
        await go.wait()
        return "done"

    working = Workflow("working", state=Note, steps=[work])
    async with Engine(tmp_path / "s.db") as engine, Engine(tmp_path / "s.db", workflows=[working]) as other:
        await engine.start(working, session_id="one")
        await begun.wait()
        assert (engine.running, other.running) == (("one",), ())
        await asyncio.wait_for(other.idle("one"), PATIENCE)  # it runs elsewhere
        waiting = asyncio.ensure_future(engine.idle("one"))
        await asyncio.sleep(0)
        assert not waiting.done()
        go.set()
        await waiting
        assert engine.running == ()
        assert (await engine.session("one").info()).status is Status.COMPLETED


@on_loop
async def test_ending_says_why_an_engine_ends_what_runs() -> None:
    async with Engine(":memory:") as engine:
        assert engine.ending == ""
    assert engine.ending == "the engine was closed"


@on_loop
async def test_a_resume_elsewhere_withdraws_the_pause_and_drives_nothing(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db") as engine:
        await engine.start(listening, session_id="one", paused=True)
    async with Engine(tmp_path / "s.db", drives="none") as observer:  # it does not know the workflow
        session = await observer.session("one").resume(here=False, by="ann", budget=2)
        info = await session.info()
        assert (info.status, info.holder, info.budget_usd) == (Status.READY, None, 2.0)
        assert (await session.pauses()) == []
        with pytest.raises(ValueError, match="here=False only closes pauses"):
            await session.resume(here=False, wake=True)


@on_loop
async def test_drive_only_stops_an_engine_that_drove_everything_from_waking_other_sessions() -> None:
    async with Engine(":memory:", workflows=ALL) as engine:
        for name in ("one", "two"):
            await engine.start(listening, session_id=name)
        await engine.idle()
        await engine.session("one").drive_only()
        await engine.session("two").send("hello")
        assert engine.running == ()
        await engine.session("one").send("hello")
        await reached(engine, "one", Status.COMPLETED)
        assert (await engine.session("two").info()).status is Status.READY


@on_loop
async def test_a_resume_elsewhere_leaves_edited_artifacts_alone(tmp_path: Path) -> None:
    @step(writes="text", publishes=Artifact("note.md"))
    async def write() -> str:
        return "a note " * 20

    publishing = Workflow("publishing", state=Note, steps=[write, listen])
    async with Engine(tmp_path / "s.db") as engine:
        session = await engine.start(publishing, session_id="one", folder=tmp_path / "out")
        await engine.idle()
        await session.pause()
        (tmp_path / "out" / "note.md").unlink()
        seq = (await session.info()).seq
        await session.resume(here=False)
        info = await session.info()
        assert (info.seq, info.status) == (seq, Status.WAITING)


def test_what_an_engine_drives_is_one_of_three_words() -> None:
    drives: Any = "some"
    with pytest.raises(ValueError, match="drives must be 'all', 'asked' or 'none', not 'some'"):
        Engine(":memory:", drives=drives)


def test_the_blocking_engine_has_the_same_verbs(tmp_path: Path) -> None:
    with Engine(tmp_path / "s.db", drives="asked") as engine:
        session = engine.start(listening, session_id="one")
        engine.register(napping)
        engine.session("one").drive_only()
        assert next(iter(engine.session("one").watch())).session_id == "one"
        session.send("hello")
        assert session.outcome().status == "completed"
        engine.idle()
        session.emit("seen", "by a person", {"who": "ann"})
        found = engine.session("one").last_event("seen")
        assert found is not None
        assert (found.summary, found.data) == ("by a person", {"who": "ann"})
        assert (engine.running, engine.ending, engine.session("one").definition().name) == ((), "", "listening")
        assert [info.session_id for info in session.watch()] == ["one"]


async def driven(engine: Engine) -> list[tuple[str, ...]]:
    """Return what the engines of the store drive."""
    return [each.workflows for each in await engine.engines()]


@on_loop
async def test_every_engine_knows_what_the_others_drive(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with Engine(path, drives="none", workflows=ALL) as looking:
        assert await driven(looking) == [], "it only looks, so it has written nothing"
        async with Engine(path, workflows=[napping]) as worker:
            assert await driven(looking) == [("napping",)]
            await worker.start(listening, session_id="l")
            assert await driven(looking) == [("listening", "napping")], "what it starts, it drives"
            assert [each.sessions for each in await looking.engines()] in ([("l",)], [()])
            async with Engine(path, drives="asked", workflows=ALL):
                assert await driven(looking) == [("listening", "napping"), ()]
            await worker.session("l").outcome()
            await worker.session("l").drive_only()
            await worker.session("l").pause()
            assert await driven(looking) == [()], "it picks up one session only"
        assert await driven(looking) == [], "it has closed the store"
        await looking.session("l").pause()
        assert await driven(looking) == [()], "it has written, and drives nothing"


@on_loop
async def test_a_look_writes_nothing_while_a_cancelled_session_is_still_driven(tmp_path: Path) -> None:
    path, begun, go = tmp_path / "s.db", asyncio.Event(), asyncio.Event()

    @step
    async def stubborn() -> None:
        begun.set()
        await go.wait()

    slow = Workflow("slow", state=Note, steps=[stubborn])
    async with Engine(path) as worker:
        await worker.start(slow, session_id="s")
        await begun.wait()
        cancelling = asyncio.ensure_future(worker.session("s").cancel())
        while not (await worker.session("s").info()).cancel_requested:
            await asyncio.sleep(0.01)
        async with Engine(path, drives="none") as looking:
            assert await driven(looking) == [("slow",)], "it only looks, so it has written nothing"
        go.set()
        await cancelling


def test_the_blocking_engine_names_the_engines_too() -> None:
    with Engine(":memory:", workflows=[napping]) as engine:
        [own] = engine.engines()
        assert (own.live, own.workflows) == (True, ("napping",))


@on_loop
async def test_telling_what_an_engine_drives_costs_no_write_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with Engine(path, drives="none") as looking, Engine(path) as engine:
        version = apsw.Connection(str(path))
        before = version.pragma("data_version")
        engine.register(napping)
        assert version.pragma("data_version") == before
        await engine.start(napping, session_id="n", paused=True)
        assert version.pragma("data_version") == before + 1
        assert await driven(looking) == [("napping",)]
        version.close()
