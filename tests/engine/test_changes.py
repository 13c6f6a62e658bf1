"""The verb ``changes``: every event of all sessions once, over restarts, kills, processes and removals."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Session, Status, Workflow, step
from pausepoint.engine.changes import TURN
from pausepoint.errors import StoreClosed
from pausepoint.model import Change
from pausepoint.runtime.listeners import Listeners
from pausepoint.stores.sqlite import SqliteStore
from tests.support.children import child, outside_sql
from tests.support.dictstore import DictStore
from tests.support.loop import PATIENCE, excused, on_loop
from tests.support.waits import async_until


class Note(BaseModel):
    words: int = 2
    text: str = ""


async def look_up(n: int) -> str:
    return f"word {n}"


@step(writes="text")
async def collect(words: int, ctx: Context) -> str:
    return " ".join([await ctx.do(look_up, n) for n in range(words)])


@step(writes="text")
async def listen(ctx: Context) -> str:
    return str(await ctx.receive(str))


note = Workflow("note", state=Note, steps=[collect])
letter = Workflow("letter", state=Note, steps=[listen])


async def events_of(engine: Engine) -> dict[str, list[str]]:
    """Return the cursors of all events of each session: the history that a reader of changes must have seen."""
    found = {}
    for info in await engine.sessions():
        found[str(info.session_id)] = [event.cursor async for event in engine.session(info.session_id).events()]
    return found


def seen(changes: list[Change]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for change in changes:
        found.setdefault(change.session_id, []).extend(event.cursor for event in change.events)
    return found


@pytest.mark.parametrize("kind", ["file", "memory", "dictionaries"])
@on_loop
async def test_changes_have_every_event_of_all_sessions_once(tmp_path: Path, kind: str) -> None:
    places: dict[str, Any] = {"file": tmp_path / "s.db", "memory": ":memory:", "dictionaries": DictStore()}
    async with Engine(places[kind]) as engine:
        changes: list[Change] = []
        for n in range(4):
            await (await engine.start(note, session_id=f"n{n}")).outcome()
            waiting = await engine.start(letter, session_id=f"l{n}")
            await waiting.outcome()
            await waiting.send("hello")
            async for change in engine.changes(changes[-1].mark if changes else ""):
                changes.append(change)
                if len(changes) % 3 == 0:
                    break  # and begin again, as another program would
        await engine.idle()  # the last letter has read its message
        changes += [change async for change in engine.changes(changes[-1].mark)]
        assert seen(changes) == await events_of(engine)
        assert not any(change.reset for change in changes)
        assert [change async for change in engine.changes(changes[-1].mark)] == []


@on_loop
async def test_a_follower_gets_own_writes_at_once_and_those_of_other_engines(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db") as engine, Engine(tmp_path / "s.db") as other:
        found: list[Change] = []

        async def follow() -> None:
            async for change in engine.changes(None, follow=True, types=["session.created", "session.completed"]):
                found.append(change)

        task = asyncio.create_task(follow())
        while not found:
            await asyncio.sleep(0)
        assert (found[0].reset, found[0].session_id, found[0].events) == (True, "", ())
        await (await engine.start(note, session_id="own")).outcome()
        await (await other.start(note, session_id="other")).outcome()
        expected = [(name, f"session.{what}") for name in ("own", "other") for what in ("created", "completed")]
        while [(change.session_id, event.event_type) for change in found for event in change.events] != expected:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@on_loop
async def test_types_filter_events_and_without_types_no_record_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(tmp_path / "s.db") as engine:
        await (await engine.start(note, session_id="n")).outcome()
        whole = [change async for change in engine.changes()]
        some = [change async for change in engine.changes(types={"operation.completed"})]
        assert [change.mark for change in some] == [change.mark for change in whole]
        assert [event.summary for change in some for event in change.events] == ["look_up", "look_up"]

        async def refuse(*args: object) -> None:
            raise AssertionError("a record was read")

        monkeypatch.setattr(engine.store, "records", refuse)
        bare = [change async for change in engine.changes(types=())]
        assert [(change.session_id, change.seq, change.events) for change in bare] == [
            (change.session_id, change.seq, ()) for change in whole
        ]
        with pytest.raises(TypeError, match="types must be a list"):
            await anext(engine.changes(types="session.created"))


@on_loop
async def test_a_lost_mark_is_a_reset_and_the_next_changes_follow(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db") as engine:
        await (await engine.start(note, session_id="old")).outcome()
        [*_, last] = [change async for change in engine.changes()]
        await engine.session("old").remove()
        await (await engine.start(note, session_id="new")).outcome()
        [reset] = [change async for change in engine.changes(last.mark)]
        assert (reset.reset, reset.session_id, reset.seq, reset.events) == (True, "", 0, ())
        assert [change async for change in engine.changes(reset.mark)] == []
        await (await engine.start(note, session_id="newer")).outcome()
        assert {change.session_id for change in [each async for each in engine.changes(reset.mark)]} == {"newer"}


@on_loop
async def test_other_tasks_run_while_old_changes_are_read() -> None:
    async with Engine(":memory:") as engine:
        for n in range(2 * TURN):
            await engine.start(letter, session_id=f"s{n}", paused=True)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count())
        await asyncio.sleep(0)
        assert len([change async for change in engine.changes()]) == 2 * TURN
        assert turns >= 2
        counting.cancel()


@on_loop
async def test_a_removal_is_an_event(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db") as engine:
        for name in ("old", "other"):
            await (await engine.start(note, session_id=name)).outcome()
        [*_, last] = [change async for change in engine.changes()]
        await engine.session("old").remove(by="ann", reason="too old")
        [removed] = [change async for change in engine.changes(last.mark)]
        assert (removed.session_id, removed.reset) == ("old", False)
        assert [(event.event_type, event.agent_name) for event in removed.events] == [("session.removed", "ann")]


@on_loop
async def test_a_damaged_session_does_not_hide_the_others(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db") as engine:
        for name in ("bad", "good"):
            await (await engine.start(note, session_id=name)).outcome()
        await asyncio.to_thread(outside_sql, tmp_path / "s.db", "UPDATE log SET payload = x'7b7d' WHERE session = 1")
        changes = {change.session_id: change for change in [each async for each in engine.changes()]}
        assert changes["bad"].events == ()
        assert "record 1 does not match its digest" in str(changes["bad"].damaged)
        assert changes["good"].damaged is None
        assert changes["good"].events


@on_loop
async def test_what_is_not_a_mark_is_refused_and_a_closed_engine_ends_the_loop(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db") as engine:
        for wrong in ("12.3.0", "now", "0:,0:"):
            with pytest.raises(ValueError, match="is not the mark of a change"):
                await anext(engine.changes(wrong))
        following = engine.changes(None, follow=True)
        assert (await anext(following)).reset
        waiting = asyncio.ensure_future(anext(following))
        await asyncio.sleep(0)
    with pytest.raises((StopAsyncIteration, StoreClosed)):
        await waiting


READER = """
import json
path, out = args
mark = ""
with open(out, "ab+") as lines:
    lines.seek(0)
    whole = [line for line in lines if line.endswith(bytes([10]))]
    lines.truncate(sum(map(len, whole)))  # a kill may leave a part of a line, whose mark was not kept
    if whole:
        mark = json.loads(whole[-1])["mark"]
async with Engine(path, drives="none") as engine:
    with open(out, "ab", buffering=0) as lines:
        say("reading")
        async for change in engine.changes(mark, follow=True):
            row = {"mark": change.mark, "session": change.session_id, "reset": change.reset}
            row["events"] = [event.cursor for event in change.events]
            lines.write(json.dumps(row).encode() + bytes([10]))
"""


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a file, whose last one may be half written."""
    text = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]


@pytest.mark.long
@on_loop
async def test_a_reader_that_is_killed_again_and_again_misses_nothing_and_gets_nothing_twice(tmp_path: Path) -> None:
    store, out = tmp_path / "s.db", tmp_path / "seen"
    quick = partial(SqliteStore, store, synchronous="OFF")  # no power is lost here
    async with Engine(quick()) as engine, Engine(quick()) as other:
        killed, expected = 0, dict[str, list[str]]()
        for turn in range(3):
            with child(READER, str(store), str(out)) as reader:
                reader.expect("reading")
                before = len(lines_of(out))
                work = asyncio.create_task(_work(engine, other, turn))
                until = time.monotonic() + PATIENCE
                while len(lines_of(out)) < before + 3 and time.monotonic() < until:
                    await asyncio.sleep(0.002)
                if turn < 2:
                    reader.signal(signal.SIGKILL)  # while both engines write
                    killed += not work.done()
                await work
                if turn == 2:
                    expected = await events_of(engine)
                    while _read(out) != expected and time.monotonic() < until:
                        await asyncio.sleep(0.01)
                    reader.signal(signal.SIGKILL)
                with excused():
                    assert reader.ended() == -signal.SIGKILL
        assert _read(out) == expected
        assert not any(line["reset"] for line in lines_of(out))
        assert killed, "no reader was killed while the engines wrote"


async def _work(engine: Engine, other: Engine, turn: int) -> None:
    for n in range(5):
        for name, by in (("a", engine), ("b", other)):
            await (await by.start(note, session_id=f"{name}{turn}-{n}", words=4)).outcome()
        waiting = await engine.start(letter, session_id=f"c{turn}-{n}")
        await waiting.outcome()
        await other.session(waiting.id).send("hello")
        await async_until(partial(_has_completed, waiting))


async def _has_completed(session: Session[Any]) -> bool:
    return (await session.info()).status is Status.COMPLETED


def _read(out: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines_of(out):
        found.setdefault(line["session"], []).extend(line["events"])
    return found


@on_loop
async def test_only_listeners_of_sessions_that_changed_are_woken(tmp_path: Path) -> None:
    """A child's change also wakes those who wait for its parent, and a lift of the pause of everything wakes all."""
    async with Engine(tmp_path / "s.db", drives="none") as engine, Engine(tmp_path / "s.db") as other:
        for name in ("busy", "quiet"):
            await (await other.start(letter, session_id=name)).outcome()
        listening = engine._service.driver.listening
        with listening("busy") as busy, listening("quiet") as quiet, engine._service.driver.listening_to_all() as any_:
            await _settled(engine._service.driver.listeners)
            for event in (busy, quiet, any_):
                event.clear()
            await other.session("busy").send("hello")
            await busy.wait()
            assert any_.is_set()
            await _settled(engine._service.driver.listeners)
            assert not quiet.is_set()
            await other.pause_all()
            await quiet.wait()


async def _settled(listeners: Listeners) -> None:
    """Wait until the listeners know what has changed so far, and nothing is left to look at."""
    listeners.look()
    while listeners._looking is not None and not listeners._looking.done():
        await asyncio.sleep(0)
