"""Events that are appended from outside a step, long histories, and waiting for changes of a session."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, route, step
from pausepoint.engine import queries
from pausepoint.errors import AlreadyRunning, EventRefused, UnknownSession
from pausepoint.model.records import Record
from pausepoint.model.sessions import Event
from pausepoint.stores.sqlite import SqliteStore
from tests.support.loop import on_loop


class Note(BaseModel):
    text: str = ""


@step(writes="text")
async def listen(ctx: Context) -> str:
    first = await ctx.receive(str)
    return first + await ctx.receive(str)


listening = Workflow("listening", state=Note, steps=[listen])


async def types(engine: Engine, session_id: str) -> list[str]:
    return [event.event_type async for event in engine.session(session_id).events()]


@on_loop
async def test_an_event_is_appended_to_a_parked_an_ended_and_a_running_session(tmp_path: Path) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @step(writes="text")
    async def work() -> str:
        begun.set()
        await go.wait()
        return "done"

    working = Workflow("working", state=Note, steps=[work])
    async with Engine(tmp_path / "s.db") as engine, Engine(tmp_path / "s.db", workflows=[working]) as other:
        session = await engine.start(working, session_id="one")
        await begun.wait()
        await session.emit("looked.at", "while it runs", agent_name="ann")
        with pytest.raises(AlreadyRunning, match="'one'"):
            await other.session("one").emit("looked.at")
        go.set()
        await session.outcome()
        await other.session("one").emit("looked.at", "after its end", {"stars": 5})
        parked = await engine.start(listening, session_id="two", paused=True)
        await parked.emit("looked.at", "before it ran")
        found = [event async for event in session.events() if event.event_type == "looked.at"]
        assert [(event.summary, event.agent_name, event.data) for event in found] == [
            ("while it runs", "ann", {}),
            ("after its end", "", {"stars": 5}),
        ]
        assert (await parked.status(), (await session.status())) == (Status.PAUSED, Status.COMPLETED)
        assert (await engine.verify()).ok


@on_loop
async def test_an_event_from_outside_has_a_name_of_its_own_and_a_session() -> None:
    async with Engine(":memory:") as engine:
        await engine.start(listening, session_id="one", paused=True)
        with pytest.raises(EventRefused, match=r"'session.paused' is reserved for the engine. Give the event another"):
            await engine.session("one").emit("session.paused")
        with pytest.raises(UnknownSession):
            await engine.session("two").emit("seen")
        assert "seen" not in await types(engine, "one")


@on_loop
async def test_the_last_event_of_a_type_is_found_from_the_end() -> None:
    async with Engine(":memory:") as engine:
        await engine.start(listening, session_id="one", paused=True)
        assert await engine.session("one").last_event("seen") is None
        for number in range(300):
            await engine.session("one").emit("seen" if number < 2 else "other", str(number))
        found = await engine.session("one").last_event("seen")
        assert found is not None
        assert found.summary == "1"
        assert found.cursor in [event.cursor async for event in engine.session("one").events()]


@on_loop
async def test_watching_yields_the_session_now_and_after_each_change_until_it_has_ended(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db") as engine, Engine(tmp_path / "s.db") as other:
        session = await engine.start(listening, session_id="one")
        seen: list[Status] = []
        async for info in other.session("one").watch():
            if not seen or seen[-1] is not info.status:
                seen.append(info.status)
                if info.status is Status.WAITING:
                    await session.send("a")
                    await session.send("b")
        assert seen[-1] is Status.COMPLETED
        async with aclosing(other.session("one").watch()) as news:
            assert [info.status async for info in news] == [Status.COMPLETED]
        with pytest.raises(UnknownSession):
            await anext(other.session("two").watch())


@on_loop
async def test_a_session_and_all_that_it_called_are_found_by_its_tree() -> None:
    @step(writes="text")
    async def call(ctx: Context) -> str:
        return (await ctx.call(listening)).text

    calling = Workflow("calling", state=Note, steps=[call])
    async with Engine(":memory:", workflows=[listening]) as engine:
        await engine.start(calling, session_id="top")
        await engine.start(listening, session_id="other")
        async for info in engine.session("top").watch():
            if info.status is Status.WAITING:
                break
        found = {info.session_id for info in await engine.sessions(tree="top")}
        [child] = await engine.session("top").children()
        assert found == {"top", child.session_id}


@on_loop
async def test_on_step_is_called_before_each_step_and_cannot_fail_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    order: list[str] = []

    @step(writes="text")
    async def one() -> str:
        order.append("one runs")
        return "1"

    @step(writes="text")
    async def two() -> str:
        order.append("two runs")
        return "2"

    async def on_step(session_id: str, step: str, visit: int) -> None:
        order.append(f"{session_id} {step}#{visit}")
        if step == "two":
            raise ValueError("nobody reads this")

    pair = Workflow("pair", state=Note, steps=[one, two])
    async with Engine(":memory:", on_step=on_step) as engine:
        session = await engine.start(pair, session_id="s")
        assert (await session.outcome()).status is Status.COMPLETED
    assert order == ["s one#1", "one runs", "s two#1", "two runs"]
    assert "the on_step callback failed: nobody reads this" in caplog.text


@on_loop
async def test_an_event_without_a_type_or_with_none_is_refused_and_damages_nothing() -> None:
    nothing: Any = None
    async with Engine(":memory:") as engine:
        session = await engine.start(listening, session_id="one", paused=True)
        with pytest.raises(EventRefused, match="has no type"):
            await session.emit("")
        with pytest.raises(TypeError, match="event_type must be a string, not None"):
            await session.emit(nothing)
        with pytest.raises(TypeError, match="summary must be a string, not None"):
            await session.emit("seen", nothing)
        with pytest.raises(TypeError, match="agent_name must be a string, not None"):
            await session.emit("seen", agent_name=nothing)
        assert (await session.info()).seq == 1
        assert (await engine.verify()).ok


class Count(BaseModel):
    n: int = 0


@step(writes="n")
async def count(n: int, ctx: Context) -> int:
    ctx.emit("app.counted", n=n)
    if n % 3 == 0:
        return n + await ctx.receive(int)
    return n + 1


@route(after="count")
def on(n: int) -> Literal["count", None]:
    return "count" if n < 12 else None


counting = Workflow("counting", state=Count, steps=[count], routes=[on], events=["app.counted"])


async def _events(engine: Engine, after: str = "") -> list[Event]:
    return [event async for event in engine.session("c").events(after)]


@on_loop
async def test_a_long_history_is_read_a_few_records_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    async with Engine(tmp_path / "s.db") as engine:
        session = await engine.start(counting, session_id="c")
        for _ in range(4):
            await engine.session("c").send(1, by="ann")
            await engine.session("c").pause(by="ann")
            await engine.session("c").resume(by="ann")
        assert (await session.outcome()).status is Status.COMPLETED
        whole = await _events(engine)
        assert [event.event_type for event in whole].count("message.received") == 4
        wide = int(whole[-1].cursor.split(".")[0])
        for window, widest in ((1, 1), (2, 2), (1, 4), (5, 5), (wide, wide)):
            monkeypatch.setattr(queries, "WINDOW", window)
            monkeypatch.setattr(queries, "WIDEST", widest)
            assert await _events(engine) == whole
            for n, event in enumerate(whole):
                assert await _events(engine, event.cursor) == whole[n + 1 :]
        read, records = [], SqliteStore.records

        async def noted(store: SqliteStore, key: int, since: int, until: int | None = None) -> list[Record]:
            found = await records(store, key, since, until)
            read.append(len(found))
            return found

        monkeypatch.setattr(SqliteStore, "records", noted)
        monkeypatch.setattr(queries, "WINDOW", 3)
        monkeypatch.setattr(queries, "WIDEST", 6)
        async for event in engine.session("c").events():
            assert event == whole[0]
            break
        assert read == [3]
        read.clear()
        assert await _events(engine) == whole
        assert read[:3] == [3, 6, 6], "a long log is not read in many small pieces"
