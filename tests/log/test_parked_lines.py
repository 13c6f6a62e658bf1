"""The folded line of a parked session, kept as bytes: the same as the log, and used only while the log is the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from pausepoint import Append, Context, Engine, Merge, Session, Workflow, route, step
from pausepoint.log import lines
from pausepoint.log.lines import ParkedLines, from_bytes, to_bytes
from pausepoint.log.replay import Line, fold
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.sqlite import SqliteStore
from tests.support.loop import on_loop

TURNS = 6


class Deep(BaseModel):
    count: int = 0
    words: Annotated[list[str], Append] = []


class Talk(BaseModel):
    said: Annotated[list[str], Append] = []
    seen: Annotated[dict[str, int], Merge] = {}
    deep: Deep = Deep()
    large: str = ""
    note: str = "at first"
    heard: Annotated[list[str], Append] = []


async def look_up(text: str) -> str:
    return text.upper()


@step(writes=["said", "seen", "deep.words", "large", "heard"])
async def reply(note: str, ctx: Context) -> dict[str, Any]:
    text = await ctx.receive()
    await ctx.do(look_up, text)
    ctx.spend(usd=0.01)
    later = await ctx.receive(timeout=3600)
    return {
        "said": [text, later],
        "seen": {text: len(text)},
        "deep.words": [text],
        "large": text * 20_000,
        "heard": [note],
    }


@route(after="reply")
def again() -> Literal["reply"]:
    return "reply"


talking = Workflow("talking", state=Talk, steps=[reply], routes=[again])


async def say(engine: Engine, session: Session[Talk], text: str) -> None:
    await session.send(text)
    await engine.idle("talk")


async def turns(engine: Engine, count: int = TURNS) -> Session[Talk]:
    session = await engine.start(talking, session_id="talk")
    await engine.idle("talk")
    for n in range(count):
        await say(engine, session, f"question {n}")
        await say(engine, session, f"answer {n}")
    return session


def facts(line: Line) -> dict[str, Any]:
    found = {name: getattr(line, name) for name in Line.__slots__ if name != "state"}
    return found | {"slots": line.state.slots, "deep": line.state.deep}


def lines_of(engine: Engine) -> ParkedLines:
    return engine._service.driver.lines


async def row_of(engine: Engine) -> SessionRow:
    return await engine._service.row("talk")


def stale(self: ParkedLines, row: SessionRow) -> Line | None:
    """Find a line without a look at the session's last record."""
    entry = self._entries.get(row.key)
    return None if entry is None else from_bytes(entry.data)


class CountingStore(SqliteStore):
    """A store that counts the reads of logs."""

    reads = 0

    async def records(self, key: int, since: int, until: int | None = None) -> Any:
        self.reads += 1
        return await super().records(key, since, until)


@on_loop
async def test_a_kept_line_is_what_the_log_folds_to(tmp_path: Path) -> None:
    async with Engine(tmp_path / "store.db", signals=False) as engine:
        session = await turns(engine)
        await say(engine, session, "in the middle of a visit")
        row = await row_of(engine)
        kept, read = lines_of(engine).find(row), fold(await engine._service.store.records(row.key, row.key_frame))
        assert kept is not None
        assert kept.operations
        assert kept.waits
        assert kept.state.deep
        assert facts(kept) == facts(read)
        assert facts(from_bytes(to_bytes(read))) == facts(read)


def test_every_fact_of_a_line_is_kept_or_refused() -> None:
    assert {*lines._FACTS, "state", "chunked", "trail"} == set(Line.__slots__)


@pytest.mark.long
@on_loop
async def test_a_wake_reads_no_log(tmp_path: Path) -> None:
    store = CountingStore(tmp_path / "store.db")
    async with Engine(store, signals=False) as engine:
        session = await turns(engine)
        before = store.reads
        for n in range(TURNS):
            await say(engine, session, f"more {n}")
        assert store.reads == before
        assert (await session.state()).said[-1] == f"more {TURNS - 1}"


@pytest.mark.long
@pytest.mark.parametrize("twin", [False, True])
@on_loop
async def test_a_change_by_another_engine_makes_a_wake_read_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, twin: bool
) -> None:
    """The twin does not compare the last record. It shows that this test notices a stale line."""
    if twin:
        monkeypatch.setattr(ParkedLines, "find", stale)
    path = tmp_path / "store.db"
    async with Engine(path, signals=False) as engine, Engine(path, drives="none", signals=False) as other:
        other.register(talking)
        session = await turns(engine)
        assert len(lines_of(engine)) == 1
        await other.session("talk").redact(field="note", value="redacted elsewhere")
        await say(engine, session, "and")
        await say(engine, session, "now?")
        heard = (await session.state()).heard[-1]
        assert heard == ("at first" if twin else "redacted elsewhere")


@pytest.mark.long
@on_loop
async def test_a_line_is_dropped_when_its_session_is_redacted_removed_or_driven(tmp_path: Path) -> None:
    async with Engine(tmp_path / "store.db", workflows=[talking], signals=False) as engine:
        session = await turns(engine)
        found = lines_of(engine)
        assert found.size > 0
        await engine.session("talk").redact(field="said")
        assert (len(found), found.size) == (0, 0)
        for n in range(TURNS):
            await say(engine, session, f"again {n}")
        assert len(found) == 1
        await session.cancel()
        await engine.session("talk").remove()
        assert (len(found), found.size) == (0, 0)


@on_loop
async def test_lines_are_bounded_in_bytes_and_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    line, found = Line(), ParkedLines()
    line.records_since_key = lines.FEW
    size = len(to_bytes(line))
    monkeypatch.setattr(lines, "MOST", 3 * size)
    monkeypatch.setattr(lines, "LONGEST", 0.0)
    for key in range(10):
        found.keep(key, 1, b"", line)
    assert (len(found), found.size) == (3, 3 * size)
    monkeypatch.setattr(lines, "LARGEST", size - 1)
    found.keep(9, 1, b"", line)
    assert (len(found), found.size) == (2, 2 * size)
    while len(found):  # the time of each is over, so the sweep drops them
        await asyncio.sleep(0)
    assert found.size == 0


@on_loop
async def test_a_line_with_few_records_is_not_kept() -> None:
    line, found = Line(), ParkedLines()
    line.records_since_key = lines.FEW - 1
    found.keep(1, 1, b"", line)
    assert len(found) == 0


class LaterTalk(Talk):
    mood: str = "calm"
    marks: Annotated[list[str], Append] = ["first"]
    nested: Deep = Deep(count=3)


@step(writes=["said", "marks", "nested.words"], name="reply")
async def marking(marks: list[str], ctx: Context) -> dict[str, Any]:
    text = await ctx.receive()
    return {"said": [text], "marks": [f"{text} after {len(marks)}"], "nested.words": [text]}


@pytest.mark.long
@on_loop
async def test_the_default_of_a_field_that_the_model_has_gained_is_recorded_with_its_first_change(
    tmp_path: Path,
) -> None:
    async with Engine(tmp_path / "store.db", signals=False) as engine:
        await turns(engine)
        assert len(lines_of(engine)) == 1
    later = Workflow("talking", state=LaterTalk, steps=[marking], routes=[again])
    for n in range(2):  # in another engine, which reads the log
        async with Engine(tmp_path / "store.db", workflows=[later], signals=False) as engine:
            for text in ("a", "b"):
                await engine.session("talk").send(text)
                await engine.idle("talk")
                assert len(lines_of(engine)) == 0  # no record has the mood
            found = await engine.session("talk").state()
            assert isinstance(found, LaterTalk)
            assert (found.mood, found.nested.count) == ("calm", 3)
            assert found.nested.words == ["a", "b"] * (n + 1)
            assert found.marks == ["first", "a after 1", "b after 2", "a after 3", "b after 4"][: 2 * n + 3]


@pytest.mark.long
@on_loop
async def test_an_edit_inside_a_field_that_the_model_has_gained_records_its_default(tmp_path: Path) -> None:
    async with Engine(tmp_path / "store.db", signals=False) as engine:
        await turns(engine)
        await engine.session("talk").pause()
    later = Workflow("talking", state=LaterTalk, steps=[marking], routes=[again])
    async with Engine(tmp_path / "store.db", workflows=[later], signals=False) as engine:
        await engine.session("talk").edit({"nested.words": ["edited"]})
        found = await engine.session("talk").state()
        assert isinstance(found, LaterTalk)
        assert (found.nested.count, found.nested.words) == (3, ["edited"])
        assert (await engine.session("talk").verify()).ok
