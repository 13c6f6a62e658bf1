"""A session that ends while another caller starts or resumes it gives that caller its stored result."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Engine, Status, Workflow, step
from pausepoint.errors import AlreadyRunning, SessionEnded, VerbRefused
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.sqlite import SqliteStore
from tests.support.loop import on_loop
from tests.support.pipeline import Gate


class Note(BaseModel):
    text: str = ""


@step(writes="text")
async def write() -> str:
    return "written"


note = Workflow("note", state=Note, steps=[write])


class Late(SqliteStore):
    """Lets another engine do something right before this one claims a session, and counts the claims that fail."""

    def __init__(self, path: str | Path, other: Engine | None = None, verb: str = "") -> None:
        super().__init__(path, synchronous="OFF")
        self.other = other
        self.verb = verb
        self.late = 0

    async def claim(
        self, session_id: str, steal: bool = False, fence: int | None = None, paused: bool = False
    ) -> SessionRow:
        if self.other is not None and self.verb == "cancel":
            await self.other.session(session_id).cancel()
        elif self.other is not None:
            await (await self.other.session(session_id).resume()).outcome()
        try:
            return await super().claim(session_id, steal, fence, paused)
        except SessionEnded:
            self.late += 1
            raise


@pytest.mark.parametrize("verb", ["start", "resume"])
@on_loop
async def test_a_session_that_completes_before_it_is_claimed_is_returned_with_its_result(
    tmp_path: Path, verb: str
) -> None:
    path = tmp_path / "store.db"
    async with Engine(path, workflows=[note]) as other, Engine(store := Late(path, other), drives="asked") as engine:
        await engine.start(note, session_id="x", paused=True)
        session = await (engine.start(note, session_id="x") if verb == "start" else engine.session("x").resume())
        outcome = await session.outcome()
        assert (outcome.status, outcome.state, store.late) == (Status.COMPLETED, Note(text="written"), 1)


@on_loop
async def test_a_session_that_is_cancelled_before_it_is_claimed_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with (
        Engine(path, workflows=[note]) as other,
        Engine(store := Late(path, other, "cancel"), workflows=[note], drives="asked") as engine,
    ):
        await other.start(note, session_id="x", paused=True)
        with pytest.raises(VerbRefused, match="was cancelled and cannot be resumed"):
            await engine.session("x").resume()
        assert store.late == 1


class Taken(SqliteStore):
    """Lets its own engine take what is ready as soon as the pauses of a session are withdrawn."""

    engine: Engine

    async def unpause(self, session_id: str, *args: Any, **options: Any) -> SessionRow:
        row = await super().unpause(session_id, *args, **options)
        assert await self.engine.take_ready() == [row.session_id]
        return row


@on_loop
async def test_a_session_that_the_engine_takes_while_it_is_resumed_is_resumed(tmp_path: Path) -> None:
    gate = Gate()

    @step(writes="text")
    async def hold() -> str:
        await gate.hold()
        return "written"

    held = Workflow("held", state=Note, steps=[hold])
    store = Taken(tmp_path / "store.db")
    async with Engine(store, workflows=[held], drives="asked") as engine:
        store.engine = engine
        await engine.start(held, session_id="x", paused=True)
        session = await engine.session("x").resume()
        gate.opened.set()
        assert (await session.outcome()).status is Status.COMPLETED


class Scattered(Late):
    """Delays every claim by a random number of turns of the loop, so that some come after the end of the session."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.chance = Random(7)

    async def claim(
        self, session_id: str, steal: bool = False, fence: int | None = None, paused: bool = False
    ) -> SessionRow:
        for _ in range(self.chance.randrange(300)):
            await asyncio.sleep(0)
        return await super().claim(session_id, steal, fence, paused)


@pytest.mark.long
@on_loop
async def test_a_thousand_starts_and_resumes_that_race_with_the_end_never_raise_session_ended() -> None:
    seen: Counter[str] = Counter()

    async def race(engine: Engine, session_id: str, number: int) -> None:
        try:
            if number % 2:
                session = await engine.session(session_id).resume()
            else:
                session = await engine.start(note, session_id=session_id)
            seen[(await session.outcome()).state.text] += 1
        except AlreadyRunning:
            seen["running"] += 1

    async with Engine(store := Scattered(), workflows=[note], drives="asked") as engine:
        for each in range(40):
            await engine.start(note, session_id=f"s{each}", paused=True)
            await asyncio.gather(*(race(engine, f"s{each}", number) for number in range(25)))
    assert seen.total() == 1000
    assert set(seen) <= {"written", "running"}
    assert store.late >= 40, "too few calls met the end of the session"


@on_loop
async def test_the_present_outcome_can_be_read_without_waiting() -> None:
    gate = Gate()

    @step(writes="text")
    async def held() -> str:
        await gate.hold()
        return "written"

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("held", state=Note, steps=[held]))
        await gate.reached.wait()
        outcome = await engine.session(session.id).outcome(wait=False)
        assert (outcome.status, outcome.state) == (Status.RUNNING, Note())
        gate.opened.set()
        assert (await engine.session(session.id).outcome()).status is Status.COMPLETED
