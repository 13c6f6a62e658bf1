"""Drawers of sessions share their fate, and the store's own drawers are moved, swept and verified."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from pydantic import BaseModel

from pausepoint import Engine, Workflow, step
from pausepoint.errors import DamagedRecord, PausepointError, UnknownSession, VerbRefused
from pausepoint.model.drawers import Change, DrawerId, Range, StoredDrawer
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock
from tests.support.loop import on_loop


class Note(BaseModel):
    text: str = ""


@step(writes="text")
async def write() -> str:
    return "written"


notes = Workflow("notes", state=Note, steps=[write])


async def filled(engine: Engine, session: str | None = None) -> None:
    """Store a stream and a value in a drawer."""
    drawer = engine.drawer("lg", session=session)
    await drawer.append("s", [b"secret", b"two"], note=lambda old, now: b"note")
    await drawer.put("k", b"value")


async def content(engine: Engine, session: str | None = None) -> dict[str, Any]:
    drawer = engine.drawer("lg", session=session)
    found: dict[str, Any] = {key: value.data for key, value in (await drawer.values()).items()}
    return found | {each.stream: await drawer.read(each.stream) for each in await drawer.streams()}


FILLED = {"k": b"value", "s": [b"secret", b"two"]}


@on_loop
async def test_a_redaction_deletes_a_drawer_and_the_history_says_so(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Engine(path, workflows=[notes]) as engine:
        session = await engine.start(notes, session_id="n1")
        await session.outcome()
        await filled(engine, "n1")
        await engine.drawer("other", session="n1").put("k", b"stays")
        with pytest.raises(VerbRefused, match=r"has no drawer 'lq'\. Known: lg, other\."):
            await session.redact(drawer="lq")
        found = await session.redact(drawer="lg", by="ann", reason="gdpr")
        assert (found.records, found.signals, found.erased) == ((), (), True)
        assert await content(engine, "n1") == {}
        assert [each.name for each in await engine.drawers("n1")] == ["other"]
        event = await engine.session("n1").last_event("session.redacted")
        assert event is not None
        assert event.summary == "drawer 'lg' was redacted by ann (gdpr)"
        assert (await engine.verify()).ok
        with pytest.raises(ValueError, match="exactly one thing"):
            await session.redact(drawer="other", field="text")
    assert b"stays" in path.read_bytes()
    assert b"secret" not in path.read_bytes()


@on_loop
async def test_a_fork_has_its_own_copy_and_a_rewind_leaves_a_drawer_as_it_is() -> None:
    async with Engine(":memory:", workflows=[notes]) as engine:
        session = await engine.start(notes, session_id="n1")
        await session.outcome()
        await filled(engine, "n1")
        fork = await engine.session("n1").fork(session_id="n2", at_step="write", paused=True)
        await engine.drawer("lg", session="n2").put("k", b"new")
        assert await content(engine, "n1") == FILLED
        assert await content(engine, "n2") == FILLED | {"k": b"new"}
        await engine.session("n1").rewind("write")
        assert await content(engine, "n1") == FILLED
        await engine.session("n1").remove()
        with pytest.raises(UnknownSession):
            await content(engine, "n1")
        assert await content(engine, fork.id) == FILLED | {"k": b"new"}
        assert (await engine.verify()).ok


@on_loop
async def test_an_export_has_the_drawers_of_a_session(tmp_path: Path) -> None:
    path = tmp_path / "n1.jsonl"
    async with Engine(":memory:", workflows=[notes]) as engine:
        await (await engine.start(notes, session_id="n1")).outcome()
        await engine.session("n1").export(path)
        assert json.loads(path.read_text().splitlines()[0])["format"] == 1
        await filled(engine, "n1")
        versions = await engine.drawer("lg", session="n1").values()
        await engine.session("n1").export(path)
        assert json.loads(path.read_text().splitlines()[0])["format"] == 4
    async with Engine(":memory:", workflows=[notes]) as engine:
        for name in ("n1", "n2"):
            await engine.import_session(path, session_id=name)
            assert await content(engine, name) == FILLED
            assert await engine.drawer("lg", session=name).values() == versions
            assert (await engine.drawer("lg", session=name).streams())[0].note == b"note"
        assert (await engine.verify()).ok


def rewritten(path: Path, old: str, new: str) -> None:
    """Change an exported file and its hash, as a sender with bad intentions would."""
    *lines, _ = path.read_text().splitlines(keepends=True)
    changed = [line.replace(old, new) for line in lines]
    assert changed != lines
    digest = hashlib.sha256("".join(changed).encode()).hexdigest()
    path.write_text("".join([*changed, json.dumps({"end": {"lines": len(changed), "sha256": digest}}) + "\n"]))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"name":"lg"', '"name":"../lg"'), ('"stream":"s"', '"stream":""'), ('"key":"k"', '"key":"k\\u0000"'),
        ('"version":1', '"version":9'), ('"version":1', '"version":0'), ('"data":"dmFsdWU="', '"data":"%"'),
        ('"data":"dmFsdWU="', '"data":7'), ('"note":', '"changed":-1,"note":'),
    ],
)  # fmt: skip
@on_loop
async def test_a_drawer_in_a_file_that_anyone_wrote_is_checked(tmp_path: Path, old: str, new: str) -> None:
    assert base64.b64encode(b"value") == b"dmFsdWU="
    path = tmp_path / "n1.jsonl"
    async with Engine(":memory:", workflows=[notes]) as engine:
        await (await engine.start(notes, session_id="n1")).outcome()
        await filled(engine, "n1")
        await engine.session("n1").export(path)
        text = path.read_text()
        rewritten(path, old, new if "version" not in new else f'{new},"x":')
        if "version" in new:  # the value's own, and not the drawer's
            path.write_text(text)
            rewritten(path, '"key":"k","version":1', f'"key":"k",{new}')
        await engine.session("n1").remove()
        with pytest.raises(DamagedRecord, match=r"cannot be (imported|read)") as refused:
            await engine.import_session(path)
        assert ".. Nothing" not in str(refused.value)
        assert await engine.sessions() == []


@on_loop
async def test_gc_deletes_what_a_drawer_keeps_only_for_a_time() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock, workflows=[notes]) as engine:
        await (await engine.start(notes, session_id="n1")).outcome()
        await filled(engine, "n1")
        await engine.drawer("kept").put("k", b"1")
        await engine.drawer("lg", keep_for=timedelta(days=1)).append("old", [b"1"])
        with pytest.raises(ValueError, match="kept as long as the session"):
            engine.drawer("lg", session="n1", keep_for=timedelta(days=1))
        clock.advance(timedelta(hours=23))
        await filled(engine)
        clock.advance(timedelta(hours=2))
        assert (await engine.gc()).drawers == 0
        assert "old" in await content(engine)
        assert (await engine.gc(apply=True)).drawers == 1
        assert await content(engine) == FILLED
        await engine.drawer("lg", keep_for=timedelta.max).put("k", b"value")
        clock.advance(timedelta(days=900))
        report = await engine.gc(apply=True, keep_for=timedelta(days=1))
        assert (report.drawers, report.expired) == (0, ["n1"])
        assert await content(engine) == FILLED
        assert await engine.drawer("kept").get("k") is not None
        with pytest.raises(UnknownSession):
            await content(engine, "n1")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE drawers SET keep_for = 1",
        "UPDATE drawer_streams SET changed = 0; UPDATE drawer_values SET changed = 0",
        "UPDATE drawer_streams SET changed = 0; UPDATE drawer_values SET changed = 0, key = CAST(x'f8' AS TEXT)",
    ],
)
@on_loop
async def test_gc_deletes_nothing_whose_time_is_damaged(tmp_path: Path, statement: str) -> None:
    clock = ManualClock()
    path = tmp_path / "store.db"
    async with Engine(path, clock=clock) as engine:
        await engine.drawer("lg", keep_for=timedelta(days=1)).append("s", [b"1"])
        await engine.drawer("lg").put("k", b"1")
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()
    clock.advance(timedelta(hours=1))
    async with Engine(path, clock=clock) as engine:
        assert (await engine.gc(apply=True)).drawers == 0
        assert [(each.streams, each.values) for each in await engine.drawers()] == [(1, 1)]
        assert not (await engine.verify()).ok
        clock.advance(timedelta(days=2))
        await engine.drawer("other", keep_for=timedelta(hours=1)).put("k", b"1")
        clock.advance(timedelta(days=2))
        assert (await engine.gc(apply=True)).drawers == 1, "damage in one drawer does not stop the others"


@on_loop
async def test_a_move_takes_drawers_along_and_keeps_different_ones(tmp_path: Path) -> None:
    here, there = tmp_path / "here.db", tmp_path / "there.db"
    async with Engine(here, workflows=[notes]) as engine:
        await (await engine.start(notes, session_id="n1")).outcome()
        await filled(engine, "n1")
        await filled(engine)
        await engine.drawer("both").put("k", b"here")
    async with Engine(there) as engine:
        await engine.drawer("both").put("k", b"there")
    async with Engine(here, workflows=[notes]) as engine:
        assert (await engine.move(there, dry_run=True)).drawers == ["lg"]
        done = await engine.move(there)
        assert (done.moved, done.drawers, list(done.refused)) == (["n1"], ["lg"], ["drawer both"])
        assert "The other store has a different drawer" in done.refused["drawer both"]
    async with Engine(there, workflows=[notes]) as engine:
        assert await content(engine) == await content(engine, "n1") == FILLED
        assert (await engine.drawer("lg").streams())[0].note == b"note"
        await engine.drawer("lg").append("s", [b"three"])
        await engine.drawer("both").clear()
        assert (await engine.verify()).ok
    async with Engine(here, workflows=[notes]) as engine:
        again = await engine.move(there)
        assert (again.drawers, again.refused) == (["both"], {}), "what continues there is not touched by a second move"
        await engine.drawer("lg").put("k", b"late")
        assert "drawer lg" in (await engine.move(there)).refused, "what was written here after the move is named"


@on_loop
async def test_a_second_move_loses_no_write_to_the_drawer_of_a_session(tmp_path: Path) -> None:
    here, there = tmp_path / "here.db", tmp_path / "there.db"
    async with Engine(here, workflows=[notes], drives="none") as engine:
        await engine.start(notes, session_id="n1", paused=True)
        await filled(engine, "n1")
        assert (await engine.move(there)).moved == ["n1"]
        assert (await engine.move(there)).there == ["n1"]
    async with Engine(there, workflows=[notes], drives="none") as engine:
        await engine.drawer("lg", session="n1").put("k", b"there")
    async with Engine(here, workflows=[notes], drives="none") as engine:
        assert (await engine.move(there)).there == ["n1"], "what continues there is not touched by another move"
        await engine.drawer("lg", session="n1").append("s", [b"here"])
        for planned in (True, False):
            again = await engine.move(there, dry_run=planned)
            assert (again.moved, again.there) == ([], [])
            assert "drawers of session 'n1' were written here" in again.refused["n1"]
    async with Engine(there, workflows=[notes], drives="none") as engine:
        assert "drawers of session 'n1' were written here" in (await engine.move(here)).refused["n1"]
        assert await content(engine, "n1") == FILLED | {"k": b"there"}


@on_loop
async def test_a_session_moves_back_with_drawers_that_were_not_written_there(tmp_path: Path) -> None:
    here, there = tmp_path / "here.db", tmp_path / "there.db"
    async with Engine(here, workflows=[notes], drives="none") as engine:
        await engine.start(notes, session_id="n1", paused=True)
        await filled(engine, "n1")
        assert (await engine.move(there)).moved == ["n1"]
        await engine.drawer("lg", session="n1").put("k", b"late")
    async with Engine(there, workflows=[notes], drives="none") as engine:
        back = await engine.move(here)
        assert (back.there, back.refused) == (["n1"], {})
    async with Engine(here, workflows=[notes], drives="none") as engine:
        assert await content(engine, "n1") == FILLED | {"k": b"late"}


@on_loop
async def test_a_drawer_that_a_program_begins_to_use_during_a_move_is_not_called_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_drawer = SqliteStore.import_drawer

    async def late(self: SqliteStore, drawer: StoredDrawer) -> bool:
        await self.drawer_put(DrawerId("lg"), [Change("k", b"there")])
        return await import_drawer(self, drawer)

    async with Engine(tmp_path / "here.db") as engine:
        await filled(engine)
        monkeypatch.setattr(SqliteStore, "import_drawer", late)
        for _ in range(2):
            done = await engine.move(tmp_path / "there.db")
            assert (done.drawers, list(done.refused)) == ([], ["drawer lg"])
            assert "The other store has a different drawer" in done.refused["drawer lg"]


DAMAGE = {
    "an entry": ("UPDATE drawer_entries SET data = x'00' WHERE n = 1", "entry 1 of stream 's' is missing or damaged"),
    "a missing entry": ("DELETE FROM drawer_entries WHERE n = 1", "entry 1 of stream 's' is missing or damaged"),
    "the missing last": ("DELETE FROM drawer_entries WHERE n = 2", "entry 2 of stream 's' is missing or damaged"),
    "one too many": (
        "INSERT INTO drawer_entries (stream, n, data, sum) SELECT stream, 3, data, sum FROM drawer_entries WHERE n = 2",
        "entry 3 of stream 's' is missing or damaged",
    ),
    "swapped": ("UPDATE drawer_entries SET n = 3 - n + 100", "entry 1 of stream 's' is missing or damaged"),
    "a note": ("UPDATE drawer_streams SET note = x'00'", "the facts about stream 's' do not match their checksum"),
    "a count": ("UPDATE drawer_streams SET n = 1", "the facts about stream 's' do not match their checksum"),
    "a value": ("UPDATE drawer_values SET data = x'00'", "the value 'k' does not match its checksum"),
    "a version": ("UPDATE drawer_values SET version = 7", "the value 'k' does not match its checksum"),
    "a key": ("UPDATE drawer_values SET key = 'l'", "the value 'l' does not match its checksum"),
    "a drawer": ("UPDATE drawers SET version = 7", "its facts do not match their checksum"),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with a drawer of a session and one of its own."""
    path = tmp_path_factory.mktemp("drawers") / "store.db"
    with Engine(path, workflows=[notes]) as engine:
        engine.start(notes, session_id="n1").outcome()
        for session in (None, "n1"):
            drawer = engine.drawer("lg", session=session)
            drawer.append("s", [b"secret", b"two"], note=lambda old, now: b"note")
            drawer.put("k", b"value")
    return path


@pytest.mark.parametrize("what", DAMAGE)
@on_loop
async def test_verify_names_damage_and_no_wrong_bytes_are_returned(template: Path, tmp_path: Path, what: str) -> None:
    path = Path(shutil.copy(template, tmp_path / "store.db"))
    statement, said = DAMAGE[what]
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()
    async with Engine(path, workflows=[notes]) as engine:
        found = await engine.verify()
        assert [(each.what, each.session_id) for each in found.problems] == [("drawer", "n1"), ("drawer", None)]
        assert all(said in str(each) for each in found.problems), [str(each) for each in found.problems]
        assert [str(each) for each in (await engine.session("n1").verify()).problems] == [str(found.problems[0])]
        drawer = engine.drawer("lg")
        if what != "one too many":
            read = drawer.values if statement.startswith("UPDATE drawer_values") else lambda: drawer.read("s")
            with pytest.raises(DamagedRecord, match="Drawer 'lg'"):
                await read()
        await drawer.drop("s")
        await drawer.clear()
        assert [each.session_id for each in (await engine.verify()).problems] == ["n1"], "the damage can be deleted"
        assert await drawer.append("s", [b"again"]) == 1
        assert (await drawer.put("k", b"again") > 10**15) == (what == "a drawer"), "no version is given out twice"
        await engine.session("n1").remove()
        assert await engine.store.check() == []


DAMAGED = re.compile("damaged|cannot be read|does not match")


@pytest.mark.parametrize("name", ["e1", "f8", ""])
@pytest.mark.parametrize("column", ["drawer_values SET key", "drawer_streams SET stream"])
@on_loop
async def test_a_row_whose_name_is_damaged_does_not_hide(
    template: Path, tmp_path: Path, name: str, column: str
) -> None:
    path = Path(shutil.copy(template, tmp_path / "store.db"))
    connection = apsw.Connection(str(path))
    connection.execute(f"UPDATE {column} = CAST(x'{name}' AS TEXT)")
    connection.close()
    async with Engine(path, workflows=[notes]) as engine:
        found = await engine.verify()
        assert {(each.what, each.session_id) for each in found.problems} == {("drawer", "n1"), ("drawer", None)}
        drawer = engine.drawer("lg")
        with pytest.raises(PausepointError, match=DAMAGED):
            await engine.store.whole_drawer("lg")
        if "values" in column:
            with pytest.raises(PausepointError, match=DAMAGED):
                await drawer.values()
            assert await drawer.clear() == 1
            assert [each.session_id for each in (await engine.verify()).problems] == ["n1"], "the damage can be deleted"
        elif name != "e1":
            assert (await drawer.streams()).damaged


@on_loop
async def test_rows_without_their_drawer_are_named(template: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(template, tmp_path / "store.db"))
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM drawers WHERE session = 0")
    connection.close()
    async with Engine(path) as engine:
        assert await engine.store.drawer_find(engine.drawer("lg")._id, Range()) == {}
        said = [str(each) for each in (await engine.verify()).problems]
        assert said == [
            f"{each} in the drawers belongs to no drawer, stream or session" for each in ("stream 1", "value 1")
        ]
