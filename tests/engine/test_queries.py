"""Reading sessions without the code of their workflow, and finding them by what a person types."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from pausepoint import Append, Context, Engine, Workflow, step
from pausepoint.errors import (
    AmbiguousSession,
    DefinitionError,
    InvalidSessionId,
    PausepointError,
    StoreClosed,
    StoreError,
    StoreMissing,
    UnknownCheckpoint,
    UnknownSession,
)
from pausepoint.model.sessions import Filter
from pausepoint.stores.found import Found
from pausepoint.stores.sqlite import SqliteStore
from tests.support.children import outside_sql
from tests.support.loop import on_loop


class Diary(BaseModel):
    begun: datetime = datetime(2024, 5, 1, 12, tzinfo=UTC)
    seal: bytes = b"\xff\x00"
    weight: float = math.nan
    pages: Annotated[list[str], Append] = []
    title: str = ""


@step(writes="pages")
async def write() -> list[str]:
    return ["long " * 20_000, "short"]


@step(writes="title")
async def name(ctx: Context) -> str:
    return await ctx.receive(str)


diary = Workflow("diary", state=Diary, steps=[write, name])


class Shelf(BaseModel):
    label: str = ""


@step(writes="label")
async def fill(ctx: Context) -> str:
    return (await ctx.call(diary)).title


shelf = Workflow("shelf", state=Shelf, steps=[fill])


@on_loop
async def test_who_only_looks_makes_no_store(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "s.db"
    with pytest.raises(StoreMissing, match=r"There is no store at .+s\.db.*create=False") as missing:
        async with Engine(path, create=False):
            pass
    assert missing.value.path == str(path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreMissing), Engine(f"sqlite:///{path}", create=False):
        pass
    assert list(tmp_path.iterdir()) == []
    path.parent.mkdir()
    path.touch()  # an empty file is not a store
    with pytest.raises(StoreMissing):
        async with Engine(path, create=False):
            pass
    assert [(each.name, each.stat().st_size) for each in path.parent.iterdir()] == [("s.db", 0)]
    async with Engine(path) as engine:
        await engine.start(diary, session_id="d", paused=True)
    async with Engine(path, create=False) as engine:
        assert (await engine.session("d").info()).workflow == "diary"


def test_what_is_always_new_cannot_be_opened_without_making_it(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="A store in memory is always new"):
        Engine(":memory:", create=False)
    with pytest.raises(StoreError, match="Pass create=False to SqliteStore instead"):
        Engine(SqliteStore(tmp_path / "s.db"), create=False)


@on_loop
async def test_a_state_can_be_read_as_it_is_stored_without_the_code(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db", workflows=[diary]) as engine:
        session = await engine.start(diary, session_id="d")
        await session.outcome()
        assert (await session.stored()).values["pages"][1] == "short"
    async with Engine(tmp_path / "s.db") as engine:
        with pytest.raises(DefinitionError):
            await engine.session("d").state()
        stored = await engine.session("d").stored()
        assert stored.values == {
            "begun": "2024-05-01T12:00:00Z",
            "seal": "_wA=",
            "weight": "NaN",
            "pages": ["long " * 20_000, "short"],
            "title": "",
        }
        first = await engine.session("d").stored(1)
        assert (first.seq, first.values["pages"]) == (1, [])
        assert (await engine.session("d").stored("write#1")).values == stored.values
        with pytest.raises(UnknownCheckpoint):
            await engine.session("d").stored("name")
        assert await engine.session("d").outline() == ("write", "name")


@on_loop
async def test_a_beginning_means_the_session_before_its_children(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db", workflows=[diary, shelf]) as engine:
        for session_id in ("red-shelf", "rose-shelf"):
            await (await engine.start(shelf, session_id=session_id)).outcome()
        [child] = await engine.session("red-shelf").children()
        assert (await engine.find("red")).session_id == "red-shelf"
        assert (await engine.find("red-shelf.")).session_id == child.session_id
        mark = child.session_id.removeprefix("red-shelf.")[:4]
        assert (await engine.find(f"red.{mark}")).session_id == child.session_id
        with pytest.raises(AmbiguousSession) as several:
            await engine.find("r")
        assert several.value.candidates == ["rose-shelf", "red-shelf"]
        for wrong in ("red.x", "blue.1", ".", "x"):
            with pytest.raises(UnknownSession, match=f"'{wrong}'"):
                await engine.find(wrong)


@on_loop
async def test_a_listing_is_limited_whatever_is_asked_for(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db", workflows=[diary]) as engine:
        for number in range(4):
            await (await engine.start(diary, session_id=f"d{number}", paused=number == 0)).outcome()
        await engine.session("d3").cancel()
        assert [each.session_id for each in await engine.sessions(limit=2)] == ["d3", "d2"]
        assert [each.session_id for each in await engine.sessions(status="waiting", limit=1)] == ["d2"]
        assert [each.session_id for each in await engine.sessions(status="paused")] == ["d0"]
        assert [each.session_id for each in await engine.sessions(status="cancelled")] == ["d3"]
        assert await engine.sessions(limit=0) == []


@on_loop
async def test_a_handle_with_a_workflow_returns_the_state_of_that_workflow_only(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db") as engine:
        await engine.start(diary, session_id="d1", paused=True)
    async with Engine(tmp_path / "s.db") as engine:
        shelves = engine.session("d1", shelf)
        for read in (shelves.state, shelves.outcome, shelves.result):
            with pytest.raises(UnknownSession, match="'d1' belongs to workflow 'diary', not 'shelf'"):
                await read()
        assert (await engine.session("d1", diary).state()).title == ""  # the workflow brings its code
        with pytest.raises(UnknownSession, match="This store has no session 'd2'"):
            await engine.session("d2", diary).state()


@on_loop
async def test_a_handle_is_made_without_reading_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Engine(":memory:", workflows=[diary]) as engine:
        monkeypatch.setattr(engine.store, "get", None)
        handle = engine.session("nobody", diary, owner="ann")
        assert (handle.id, handle.owner) == ("nobody", "ann")
        monkeypatch.undo()
        with pytest.raises(UnknownSession, match="This store has no session 'nobody'"):
            await handle.info()
        with pytest.raises(InvalidSessionId, match=r"'\.\./x' is not a valid session id"):
            await engine.session("../x").info()
    with pytest.raises(StoreClosed):
        engine.session("nobody")


class Watched(SqliteStore):
    """Notes how many sessions each listing read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.read: list[int] = []

    async def find(self, query: Filter) -> Found:
        found = await super().find(query)
        self.read.append(len(found) + len(found.damaged))
        return found


@pytest.mark.long
@on_loop
async def test_health_counts_all_sessions_and_reads_only_those_whose_process_died(tmp_path: Path) -> None:
    store = Watched(tmp_path / "store.db")
    async with Engine(store, workflows=[diary], drives="none") as engine:
        for n in range(20):
            await engine.start(diary, session_id=f"d{n:02}", paused=True)
        outside_sql(tmp_path / "store.db", "UPDATE sessions SET crashes = 2 WHERE session_id = 'd03'")
        outside_sql(tmp_path / "store.db", "UPDATE sessions SET crashes = 1, version = 9 WHERE session_id = 'd05'")
        outside_sql(tmp_path / "store.db", "UPDATE sessions SET version = 9 WHERE session_id = 'd07'")
        store.read.clear()
        found = await engine.health()
        assert store.read == [2]
        assert found.crashes == {"d03": 2}
        [damage] = found.damaged
        assert "'d05'" in damage
        assert sum(found.sessions.values()) == 20
        assert {error.fields["session_id"] for error in (await engine.misfits()).damaged} == {"d05", "d07"}


LONG = "x" * 2_000_000
"""Text that no message may repeat."""

WRONG: dict[str, Callable[[Any, Any], Any]] = {
    "since, a text": lambda engine, session: engine.sessions(since="yesterday"),
    "since, a number": lambda engine, session: engine.sessions(since=3600),
    "since, before all time": lambda engine, session: engine.sessions(since=timedelta.max),
    "since of a bulk verb": lambda engine, session: engine.select(since=timedelta.max).cancel(),
    "now": lambda engine, session: engine.gc(now="today"),
    "limit": lambda engine, session: engine.sessions(limit=10**30),
    "workflow": lambda engine, session: engine.sessions(workflow=diary),
    "status": lambda engine, session: engine.sessions(status=LONG),
    "by": lambda engine, session: session.pause(by=[LONG]),
    "beginning": lambda engine, session: engine.find(LONG),
    "beginning with many dots": lambda engine, session: engine.find("x." * 2000),
    "description": lambda engine, session: engine.description(LONG),
    "visit": lambda engine, session: session.rewind(LONG),
    "question": lambda engine, session: engine.question(LONG),
    "question, a number": lambda engine, session: engine.question(7),
    "answer": lambda engine, session: engine.answer(LONG, "x"),
    "question to ask again": lambda engine, session: session.ask_again(LONG),
    "field": lambda engine, session: session.redact(field=LONG),
    "event": lambda engine, session: session.redact(event=7),
    "file": lambda engine, session: session.redact(file=LONG),
    "cursor": lambda engine, session: anext(session.events(after=LONG)),
    "cursor, a number": lambda engine, session: anext(session.events(after=7)),
    "mark": lambda engine, session: anext(engine.changes(after=7)),
    "budget": lambda engine, session: engine.session("d").resume(budget=LONG),
}


@on_loop
async def test_an_argument_that_cannot_be_meant_is_refused_in_a_short_message(tmp_path: Path) -> None:
    wrong = {}
    async with Engine(tmp_path / "s.db", workflows=[diary]) as engine:
        session = await engine.start(diary, session_id="d", paused=True)
        for name, call in WRONG.items():
            try:
                await call(engine, session)
                wrong[name] = "was accepted"
            except (PausepointError, ValueError, TypeError) as error:
                is_ours = (traceback.extract_tb(error.__traceback__)[-1].line or "").startswith("raise")
                if not is_ours or len(str(error)) > 300:
                    wrong[name] = f"{type(error).__name__}: {error!s:.100}"
            except Exception as error:
                wrong[name] = f"{type(error).__name__}: {error!s:.100}"
    assert wrong == {}
