"""Picking up a session withdraws nothing: a pause that arrives between the look and the pick-up stays in effect."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.errors import (
    AlreadyRunning,
    CallRefused,
    DefinitionError,
    HoldLost,
    Redacted,
    SessionEnded,
    UnknownSession,
    VerbRefused,
)
from pausepoint.model.views import SessionInfo
from pausepoint.runtime.drive import Drive
from tests.support.children import outside_sql
from tests.support.loop import PATIENCE, on_loop


class Doc(BaseModel):
    text: str = ""
    broken: bool = False


runs: list[str] = []


@pytest.fixture(autouse=True)
def forgotten() -> None:
    runs.clear()


@step(writes="text")
async def first(text: str) -> str:
    runs.append("first")
    return text + "1"


@step(writes="text")
async def second(text: str, broken: bool, ctx: Context) -> str:
    runs.append("second")
    if broken:
        raise ValueError("no")
    return text + "2"


@step(writes="text")
async def listen(ctx: Context) -> str:
    return await ctx.receive(str)


brief = Workflow("brief", state=Doc, steps=[first, second])
chat = Workflow("chat", state=Doc, steps=[listen])
ALL: list[Workflow[Any]] = [brief, chat]


async def ready(path: Path, session_id: str = "one") -> None:
    """Store a session that no process drives and that nothing holds back."""
    async with Engine(path, workflows=ALL) as engine:
        await engine.start(brief, session_id=session_id, paused=True)
        await engine.store.unpause(session_id, "ann", 1)


async def pause_one(engine: Engine) -> object:
    return await engine.session("one").pause(by="ann")


async def pause_everything(engine: Engine) -> object:
    return await engine.pause_all(by="ann")


@pytest.mark.parametrize("pause", [pause_one, pause_everything])
@on_loop
async def test_a_pause_between_the_look_and_the_pick_up_stays_in_effect(
    tmp_path: Path, pause: Callable[[Engine], Awaitable[object]]
) -> None:
    await ready(tmp_path / "store.db")
    async with Engine(tmp_path / "store.db", workflows=ALL) as worker, Engine(tmp_path / "store.db") as desk:
        [seen] = await worker.sessions(status="created")
        await pause(desk)
        with pytest.raises(VerbRefused, match=r"session\('one'\)\.resume\(\)"):
            await worker.session("one").take_up(fence=seen.fence)
        assert (await desk.session("one").info()).status is Status.PAUSED
        assert ([pause.by for pause in await desk.session("one").pauses()], runs) == (["ann"], [])


@on_loop
async def test_what_is_ready_is_driven_and_the_history_says_by_whom(tmp_path: Path) -> None:
    await ready(tmp_path / "store.db")
    async with Engine(tmp_path / "store.db", workflows=ALL) as engine:
        session = await engine.session("one").take_up(by="worker 7")
        assert (await session.outcome()).state.text == "12"
        resumed = [event async for event in session.events() if event.event_type == "session.resumed"]
        assert [event.data["by"] for event in resumed] == ["worker 7"]
        with pytest.raises(SessionEnded):
            await engine.session("one").take_up()


@on_loop
async def test_of_two_that_saw_a_session_one_drives_it(tmp_path: Path) -> None:
    await ready(tmp_path / "store.db")
    async with Engine(tmp_path / "store.db", workflows=ALL) as one, Engine(tmp_path / "store.db", workflows=ALL) as two:
        seen = [await engine.session("one").info() for engine in (one, two)]

        async def take_up(engine: Engine, info: SessionInfo) -> bool:
            try:
                await engine.session("one").take_up(fence=info.fence)
            except (AlreadyRunning, HoldLost, SessionEnded):
                return False
            return True

        took = await asyncio.gather(take_up(one, seen[0]), take_up(two, seen[1]))
        await one.session("one").outcome()
        assert (sorted(took), runs) == ([False, True], ["first", "second"])
        with pytest.raises((HoldLost, SessionEnded)):
            await two.session("one").take_up(fence=seen[1].fence)


@on_loop
async def test_a_session_that_was_driven_since_it_was_seen_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Engine(path, workflows=ALL, drives="asked") as one, Engine(path, workflows=ALL, drives="asked") as two:
        session = await one.start(chat, session_id="one")
        await session.outcome()
        seen = await two.session("one").info()
        await one.session("one").take_up()
        await one.idle()
        now = await two.session("one").info()
        assert (now.status, now.fence) == (seen.status, seen.fence + 1)
        with pytest.raises(HoldLost):
            await two.session("one").take_up(fence=seen.fence)
        await two.session("one").take_up(fence=now.fence)
        await two.idle()


@on_loop
async def test_a_session_that_another_engine_drives_is_not_taken_from_it(tmp_path: Path) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    @step(writes="text")
    async def slow() -> str:
        begun.set()
        await goes_on.wait()
        return "done"

    works = [Workflow("slow", state=Doc, steps=[slow])]
    path = tmp_path / "store.db"
    async with Engine(path, workflows=works) as one, Engine(path, workflows=works, drives="asked") as two:
        session = await one.start(works[0], session_id="one")
        await begun.wait()
        with pytest.raises(AlreadyRunning):
            await two.session("one").take_up()
        goes_on.set()
        assert (await session.outcome()).state.text == "done"
        assert (await one.session("one").info()).fence == 1


@on_loop
async def test_a_failed_session_is_left_to_a_person(tmp_path: Path) -> None:
    async with Engine(tmp_path / "store.db", workflows=ALL) as engine:
        await (await engine.start(brief, session_id="one", broken=True)).outcome()
        runs.clear()
        with pytest.raises(VerbRefused, match="has failed"):
            await engine.session("one").take_up()
        assert ((await engine.session("one").info()).status, runs) == (Status.FAILED, [])


@on_loop
async def test_a_session_that_waits_goes_on_waiting(tmp_path: Path) -> None:
    async with Engine(tmp_path / "store.db", workflows=ALL) as engine:
        session = await engine.start(chat, session_id="one")
        await session.outcome()
        await engine.session("one").take_up()
        await engine.idle()
        assert await session.status() is Status.WAITING


@on_loop
async def test_it_needs_the_workflow_an_engine_that_drives_and_a_session(tmp_path: Path) -> None:
    await ready(tmp_path / "store.db")
    async with Engine(tmp_path / "store.db") as engine:
        with pytest.raises(DefinitionError):
            await engine.session("one").take_up()
        with pytest.raises(UnknownSession):
            await engine.session("nobody").take_up()
    async with Engine(tmp_path / "store.db", workflows=ALL, drives="none") as observer:
        with pytest.raises(CallRefused, match="cannot take up 'one'"):
            await observer.session("one").take_up()
    assert runs == []


@on_loop
async def test_ready_sessions_are_taken_and_what_cannot_run_here_is_given_back(tmp_path: Path) -> None:
    for name in ("one", "two", "paused", "damaged"):
        await ready(tmp_path / "store.db", name)
    outside_sql(tmp_path / "store.db", "UPDATE log SET payload = x'7b7b' WHERE session = 4")
    async with Engine(tmp_path / "store.db", workflows=ALL) as engine, Engine(tmp_path / "store.db") as desk:
        await desk.session("paused").pause(by="ann")
        assert await engine.take_ready(1, by="worker 7") == ["one"]
        assert await engine.take_ready() == ["two"]
        assert await engine.take_ready() == [], "the damaged session is not tried again"
        for name in ("one", "two"):
            assert (await engine.session(name).outcome()).state.text == "12"
        info = await desk.session("damaged").info()
        assert (info.status, info.holder) == (Status.CREATED, None)
        assert (await desk.session("paused").info()).status is Status.PAUSED


@on_loop
async def test_a_session_whose_log_cannot_be_read_here_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        await ready(tmp_path / "store.db", name)

    class Picky(Drive):
        def load(self, records: Any) -> None:
            if self.session_id == "one":
                raise Redacted("Record 1 was redacted.", seq=1)
            super().load(records)

    async with Engine(tmp_path / "store.db", workflows=ALL) as engine:
        monkeypatch.setattr(engine._service, "drive_class", Picky)
        assert await engine.take_ready() == ["two"]
        assert (await engine.session("two").outcome()).state.text == "12"
        assert (await engine.session("one").info()).holder is None


@on_loop
async def test_a_session_that_is_being_taken_does_not_look_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready(tmp_path / "store.db")
    async with Engine(tmp_path / "store.db", workflows=ALL) as engine:
        take, waiting = engine.store.take, list[asyncio.Task[Any]]()

        async def slow_take(*args: Any) -> Any:
            rows = await take(*args)
            waiting.append(asyncio.create_task(engine.session("one").outcome()))
            with pytest.raises(AlreadyRunning):
                await engine.session("one").resume()
            return rows

        monkeypatch.setattr(engine.store, "take", slow_take)
        assert await engine.take_ready() == ["one"]
        assert ((await waiting[0]).state.text, runs) == ("12", ["first", "second"])


@on_loop
async def test_what_an_observer_resumes_an_open_engine_picks_up(tmp_path: Path) -> None:
    async with Engine(tmp_path / "store.db", workflows=ALL) as engine:
        await engine.start(brief, session_id="one", paused=True)
        async with Engine(tmp_path / "store.db", drives="none") as observer:
            began = time.monotonic()
            await observer.session("one").resume(here=False, by="ann")
            async for info in engine.session("one").watch():
                if info.status is Status.COMPLETED:
                    break
            assert (runs, time.monotonic() - began < PATIENCE) == (["first", "second"], True)


@on_loop
async def test_what_is_unpaused_in_the_view_an_open_engine_picks_up(tmp_path: Path) -> None:
    async with Engine(tmp_path / "store.db", workflows=ALL) as engine:
        await engine.start(brief, session_id="one", paused=True)
        await engine.start(chat, session_id="two")
        await engine.idle()
        await engine.session("two").pause()
        outside_sql(tmp_path / "store.db", "UPDATE workflow_states SET pause_requested = 0")
        async for info in engine.session("one").watch():
            if info.status is Status.COMPLETED:
                break
        assert ((await engine.session("two").info()).status, (await engine.verify()).problems) == (Status.WAITING, [])


def test_blocking_code_has_it_too(tmp_path: Path) -> None:
    asyncio.run(ready(tmp_path / "store.db"))
    with Engine(tmp_path / "store.db", workflows=ALL) as engine:
        assert engine.session("one").take_up(fence=engine.session("one").info().fence).outcome().state.text == "12"
        assert engine.take_ready() == []
