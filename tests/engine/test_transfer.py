"""A session as one file: its content is imported unchanged, and a wrong file is refused."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Artifact, BlockingContext, Context, Engine, Status, Workflow, step
from pausepoint.engine import bundle
from pausepoint.engine.copies import MOVER
from pausepoint.errors import (
    DamagedRecord,
    FolderRefused,
    InputConflict,
    InvalidSessionId,
    StoreUnavailable,
    UnknownSession,
    VerbRefused,
)
from pausepoint.model.remembered import Remembered
from pausepoint.stores.sqlite import SqliteStore
from tests.support.loop import PATIENCE, on_loop


class Talk(BaseModel):
    heard: list[str] = []
    big: str = ""


class Part(BaseModel):
    number: int = 0
    said: str = ""


@step(writes="said")
async def wait(number: int, ctx: Context) -> str:
    ctx.spend(usd=0.25, tokens=3)
    return await ctx.receive(str)


part = Workflow("part", state=Part, steps=[wait])


@step(writes="big")
def grow(ctx: BlockingContext) -> str:
    ctx.emit("grown", "it grew", by=9)
    return "large " * 5000


@step(writes="heard")
async def listen(ctx: Context) -> list[str]:
    return [await ctx.receive(str), await ctx.receive(str)]


talk = Workflow("talk", state=Talk, steps=[grow, listen], events=["grown"])


@step(writes="heard")
async def call(ctx: Context) -> list[str]:
    return [(await ctx.call(part, number=n)).said for n in (1, 2)]


calls = Workflow("calls", state=Talk, steps=[call])
ALL: list[Workflow[Any]] = [talk, part, calls]


async def written(path: Path) -> bundle.Bundle:
    """Return a session that was paused, has received one of three messages, and has a large value."""
    async with Engine(":memory:", workflows=ALL) as engine:
        session = await engine.start(talk, session_id="s", owner="ann", tags=["a", "b"], budget=5)
        await session.outcome()
        await session.send("one", by="ben")
        await session.outcome()
        await session.pause("lunch", by="ann")
        await session.send("two", by="ben")
        await session.send("three", by="ben")
        return await engine.session("s").export(path)


@on_loop
async def test_everything_that_is_known_of_a_session_comes_back(tmp_path: Path) -> None:
    before = await written(tmp_path / "s.jsonl")
    async with Engine(":memory:", workflows=ALL) as engine:
        info = await engine.import_session(tmp_path / "s.jsonl")
        assert (info.status, info.owner, info.tags, info.budget_usd) == (Status.PAUSED, "ann", ("a", "b"), 5)
        after = await bundle.collect(engine.store, "s")
        assert after == before
        assert len(before.blobs) >= 1
        assert before.mail == [3, 4]
        assert [pause.reason for pause in await engine.session("s").pauses()] == ["lunch"]
        assert (await engine.verify()).ok
        assert (await engine.session("s").export()).to_bytes() == (tmp_path / "s.jsonl").read_bytes()


@on_loop
async def test_an_imported_session_goes_on_where_it_was_and_receives_what_came_before(tmp_path: Path) -> None:
    await written(tmp_path / "s.jsonl")
    async with Engine(":memory:", workflows=ALL) as engine:
        await engine.import_session(tmp_path / "s.jsonl")
        outcome = await (await engine.session("s").resume()).outcome()
        assert (outcome.status, outcome.state.heard) == (Status.COMPLETED, ["one", "two"])
        assert len(outcome.state.big) == 30_000
        events = [event.event_type async for event in engine.session("s").events()]
        assert events.count("grown") == 1
        assert (await engine.verify()).ok


@on_loop
async def test_a_session_comes_with_those_that_it_called(tmp_path: Path) -> None:
    path = tmp_path / "tree.jsonl"
    async with Engine(":memory:", workflows=ALL) as engine:
        session = await engine.start(calls, session_id="root")
        await session.outcome()
        [first] = await session.children()
        await engine.session(first.session_id).send("from the first")
        await session.outcome()
        found = await engine.session("root").export(path)
        assert [each.workflow for each in found.sessions] == ["calls", "part", "part"]
        second = next(each for each in await session.children() if each.session_id != first.session_id)
        await engine.session(second.session_id).export(tmp_path / "alone.jsonl")
    async with Engine(":memory:", workflows=ALL) as engine:
        await engine.import_session(path)
        assert [each.parent_id for each in await engine.session("root").children()] == ["root", "root"]
        assert (await engine.verify()).ok  # the spending of a parent includes that of its children, too
        await engine.session(second.session_id).send("from the second")
        assert (await engine.session("root").outcome()).state.heard == ["from the first", "from the second"]
        with pytest.raises(VerbRefused, match="whose ids are derived from its own"):
            await engine.import_session(path, session_id="other")
        with pytest.raises(InputConflict):
            await engine.import_session(tmp_path / "alone.jsonl")
    async with Engine(":memory:", workflows=ALL) as engine:
        assert (await engine.import_session(tmp_path / "alone.jsonl")).parent_id is None
        with pytest.raises(InputConflict):  # one id of the tree is taken, so nothing is stored
            await engine.import_session(path)
        assert len(await engine.sessions()) == 1


@on_loop
async def test_under_another_id_it_is_another_session(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    await written(path)
    async with Engine(":memory:", workflows=ALL) as engine:
        await engine.import_session(path)
        with pytest.raises(InputConflict):
            await engine.import_session(path, session_id="s")
        assert (await engine.import_session(path, session_id="copy")).session_id == "copy"
        assert (await (await engine.session("copy").resume()).outcome()).state.heard == ["one", "two"]
        assert (await engine.session("s").info()).status is Status.PAUSED
        assert (await engine.verify()).ok
        with pytest.raises(InvalidSessionId):
            await engine.import_session(path, session_id="no spaces")


@on_loop
async def test_a_pause_that_was_set_by_hand_is_kept(tmp_path: Path) -> None:
    async with Engine(tmp_path / "a.db", workflows=ALL) as engine:
        await (await engine.start(talk, session_id="s")).outcome()
        await engine.store._writer.do(  # type: ignore[attr-defined]  # what a person does in a database tool
            lambda connection: connection.execute("UPDATE workflow_states SET pause_requested = 1")
        )
        await engine.session("s").export(tmp_path / "s.jsonl")
    async with Engine(":memory:", workflows=ALL) as engine:
        assert (await engine.import_session(tmp_path / "s.jsonl")).status is Status.PAUSED
        [pause] = await engine.session("s").pauses()
        assert "set in the database" in pause.reason


@on_loop
async def test_what_was_redacted_stays_so_also_under_another_id(tmp_path: Path) -> None:
    async with Engine(":memory:", workflows=ALL) as engine:
        await (await engine.start(talk, session_id="s")).outcome()
        await engine.session("s").redact(field="big")
        await engine.session("s").export(tmp_path / "s.jsonl")
    assert "large large" not in (tmp_path / "s.jsonl").read_text()
    async with Engine(":memory:", workflows=ALL) as engine:
        await engine.import_session(tmp_path / "s.jsonl", session_id="copy")
        report = await engine.session("copy").verify()
        assert report.ok, report.problems
        assert report.redacted >= 1


@on_loop
async def test_who_is_not_there_cannot_be_written_and_no_file_is_left(tmp_path: Path) -> None:
    async with Engine(":memory:", workflows=ALL) as engine:
        with pytest.raises(UnknownSession):
            await engine.session("nobody").export(tmp_path / "s.jsonl")
        await (await engine.start(talk, session_id="s")).outcome()
        with pytest.raises(FileNotFoundError):
            await engine.session("s").export(tmp_path / "missing" / "s.jsonl")
    assert list(tmp_path.iterdir()) == []


@on_loop
async def test_a_file_that_is_not_right_is_refused_with_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    found = await written(path)
    lines = path.read_text().splitlines()
    messages = {
        "is cut off or was changed": "\n".join(lines[:-2] + lines[-1:]),
        "is not an exported Pausepoint session. Check": "hello\n",
        "is not a JSON object": "\n".join([lines[0], "hello", *lines[1:]]),
        "has format 9": sealed(['{"pausepoint":"session","format":9}', *lines[1:-1]]),
        "is not an exported Pausepoint session": sealed(['{"something":"else"}', *lines[1:-1]]),
        "unknown kind of line 'surprise'": sealed([*lines[:-1], '{"surprise":1}']),
        "does not match its digest": sealed([line.replace('"by":"ben"', '"by":"eve"') for line in lines[:-1]]),
        "is damaged: large value": sealed([line for line in lines[:-1] if not line.startswith('{"blob"')]),
        "does not match its hash": sealed([line.replace("large large", "large LARGE", 1) for line in lines[:-1]]),
        "unknown kind of line 'session'": sealed([*lines[:2], *lines[1:-1]]),
        "large value x has no text": sealed([*lines[:-1], '{"blob":"x","text":5}']),
        "nested too deep": sealed([*lines[:-1], f'{{"record":{"[" * 100_000}{"]" * 100_000}}}']),
    }
    async with Engine(":memory:", workflows=ALL) as engine:
        for message, text in messages.items():
            path.write_text(text)
            with pytest.raises(DamagedRecord, match=message):
                await engine.import_session(path)
        path.write_text(sealed([line.replace(',"unread":true', "") for line in lines[:-1]]))
        with pytest.raises(VerbRefused, match="does not say which"):
            await engine.import_session(path)
        assert await engine.sessions() == []
    assert found.records


@on_loop
async def test_a_file_may_contain_one_tree_of_sessions_and_each_of_them_once(tmp_path: Path) -> None:
    path = tmp_path / "tree.jsonl"
    async with Engine(":memory:", workflows=ALL) as engine:
        await (await engine.start(calls, session_id="root")).outcome()
        await engine.session("root").export(path)
    lines = path.read_text().splitlines()[:-1]
    start = next(number for number, line in enumerate(lines) if '"parent_id":"root"' in line)
    stranger = [line.replace('"parent_id":"root"', '"parent_id":"elsewhere"') for line in lines]
    messages = {
        "is not a child of another session in the file": sealed(stranger),
        "occurs twice": sealed([*lines, *lines[start:]]),
    }
    async with Engine(":memory:", workflows=ALL) as engine:
        for message, text in messages.items():
            path.write_text(text)
            with pytest.raises(DamagedRecord, match=message):
                await engine.import_session(path)
        assert await engine.sessions() == []


def sealed(lines: list[str]) -> str:
    """Return a file whose last line matches the others."""
    from hashlib import sha256

    body = "".join(f"{line}\n" for line in lines)
    end = {"end": {"lines": len(lines), "sha256": sha256(body.encode()).hexdigest()}}
    return body + json.dumps(end) + "\n"


@on_loop
async def test_the_health_of_a_store_says_who_has_it_open(tmp_path: Path) -> None:
    async with Engine(tmp_path / "a.db", workflows=ALL) as first, Engine(tmp_path / "a.db") as second:
        await (await first.start(talk, session_id="s")).outcome()
        found = await second.health()
        assert (found.sessions, found.trouble, found.gone) == ({Status.WAITING: 1}, None, ())
        [other] = found.engines
        assert other.number == first.store.number
        assert (found.store.kind, found.store.schema, found.store.ballast) == ("sqlite", 1, 2**20)
        assert found.store.size > 4096
        assert found.store.disk_free is not None
    async with Engine(":memory:") as alone:
        found = await alone.health()
        assert (found.engines, found.store.disk_free, found.store.ballast_size) == ((), None, 0)


# artifacts


class Note(BaseModel):
    text: str = ""
    more: str = ""


@step(writes="text", publishes=Artifact("text.md", min_bytes=1))
async def jot() -> str:
    return "jotted\n"


@step(writes="more", publishes=Artifact("more.md", min_bytes=1))
async def extend(text: str) -> str:
    return text + "more\n"


notes = Workflow("notes", state=Note, steps=[jot, extend])


async def noted(folder: Path, path: Path) -> None:
    """Export a session that has published one of two artifacts."""
    async with Engine(":memory:", workflows=[notes]) as engine:
        session = await engine.start(notes, session_id="n1", folder=folder, paused=True)
        await session.resume(pause_after="jot")
        await session.outcome()
        await engine.session("n1").export(path)


@on_loop
async def test_an_imported_session_never_uses_the_artifact_folder_of_its_sender(tmp_path: Path) -> None:
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    await noted(theirs, tmp_path / "n.jsonl")
    before = {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file()}
    async with Engine(":memory:", workflows=[notes]) as engine:
        with pytest.raises(FolderRefused, match=r"needs a folder on this machine.*Pass folder="):
            await engine.import_session(tmp_path / "n.jsonl")
        assert await engine.sessions() == []
        await engine.import_session(tmp_path / "n.jsonl", folder=mine)
        with pytest.raises(FolderRefused, match=r"write its files again with\s+restore\(\)"):
            await engine.session("n1").resume()
        assert await engine.session("n1").restore() == ["text.md"]
        outcome = await (await engine.session("n1").resume()).outcome()
        assert (outcome.status, outcome.state.more) == (Status.COMPLETED, "jotted\nmore\n")
        assert (await engine.verify()).ok
        assert [each.state for each in await engine.session("n1").artifacts()] == ["valid", "valid"]
    assert (mine / "more.md").read_text() == "jotted\nmore\n"
    assert {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file()} == before


@on_loop
async def test_artifacts_that_were_copied_before_the_import_are_found(tmp_path: Path) -> None:
    await noted(tmp_path / "theirs", tmp_path / "n.jsonl")
    shutil.copytree(tmp_path / "theirs", tmp_path / "mine")
    async with Engine(":memory:", workflows=[notes]) as engine:
        with pytest.raises(FolderRefused, match="belongs to session 'n1'"):
            await engine.import_session(tmp_path / "n.jsonl", session_id="other", folder=tmp_path / "mine")
        await engine.import_session(tmp_path / "n.jsonl", folder=tmp_path / "mine")
        assert (await (await engine.session("n1").resume()).outcome()).status is Status.COMPLETED


@on_loop
async def test_a_folder_for_a_session_without_artifacts_is_refused(tmp_path: Path) -> None:
    await written(tmp_path / "s.jsonl")
    async with Engine(":memory:", workflows=ALL) as engine:
        with pytest.raises(FolderRefused, match="publishes no artifacts"):
            await engine.import_session(tmp_path / "s.jsonl", folder=tmp_path)
        assert await engine.sessions() == []


@on_loop
async def test_the_children_of_a_session_whose_id_ends_with_a_dot_have_valid_ids(tmp_path: Path) -> None:
    async with Engine(":memory:", workflows=ALL) as engine:
        session = await engine.start(calls, session_id="root.")
        await session.outcome()
        [child] = await session.children()
        assert (await engine.session(child.session_id).info()).workflow == "part"


@on_loop
async def test_sessions_move_to_another_store_as_they_were_and_the_originals_stay_paused(tmp_path: Path) -> None:
    there = tmp_path / "there.db"
    async with Engine(":memory:", workflows=ALL) as here:
        await (await here.start(calls, session_id="root")).outcome()
        await (await here.start(talk, session_id="own")).outcome()
        await here.session("own").pause(reason="lunch", by="ann", mode="abort")
        await here.schedule("daily", talk, cron="0 7 * * *", zone="Europe/Berlin")
        await here.schedule("resting", talk, cron="0 8 * * *")
        await here.schedules.pause("resting", by="ann")
        planned = await here.move(there, dry_run=True)
        assert (planned.moved, planned.schedules, there.exists()) == (["own", "root"], ["daily", "resting"], False)
        seen: list[int] = []
        result = await here.move(there, reason="gone", on_progress=lambda so_far: seen.append(len(so_far.moved)))
        assert (result.total, result.moved, result.there, result.refused, seen) == (2, ["own", "root"], [], {}, [1, 2])
        assert result.schedules == ["daily", "resting"]
        assert [each.paused_by for each in await here.schedules.list()] == [MOVER, "ann"]
        await here.lift_pause()  # each original has a pause of its own
        assert {info.status for info in await here.sessions()} == {Status.PAUSED}

        async with Engine(there, workflows=ALL) as other:
            assert {info.session_id: info.status for info in await other.sessions(level="root")} == {
                "root": Status.WAITING, "own": Status.PAUSED,
            }  # fmt: skip
            assert [pause.reason for pause in await other.session("own").pauses()] == ["lunch"]
            pauses = {each.name: each.paused_by for each in await other.schedules.list()}
            assert pauses == {"daily": None, "resting": "ann"}
            [first] = await other.session("root").children()
            await other.session(first.session_id).send("on the other side")
            await other.session("root").outcome()
            assert len(await other.session("root").children()) == 2
            assert (await other.verify()).ok
            await other.schedule("daily", talk, cron="0 9 * * *")
        again = await here.move(there)  # what has continued or was changed there is left alone
        assert (again.there, again.schedules, again.refused) == (["own", "root"], [], {})

        await here.session("own").resume()
        await here.session("own").send("one")
        await here.session("own").outcome()
        refused = await here.move(there)
        assert (refused.there, list(refused.refused)) == (["root"], ["own"])
        assert "The other store has a different session 'own'" in refused.refused["own"]


@on_loop
async def test_a_session_that_does_not_stop_is_moved_later(tmp_path: Path) -> None:
    ready = asyncio.Event()

    @step(writes="big")
    async def work() -> str:
        await ready.wait()
        return "done"

    working = Workflow("working", state=Talk, steps=[work])
    async with Engine(":memory:", workflows=[working]) as here:
        session = await here.start(working, session_id="s")
        assert (await here.move(tmp_path / "there.db", dry_run=True)).running == ["s"]
        refused = await here.move(tmp_path / "there.db", timeout=0)
        assert (refused.moved, "is still running, so it was not moved" in refused.refused["s"]) == ([], True)
        ready.set()
        await session.outcome()
        assert (await here.move(tmp_path / "there.db", dry_run=True)).moved == ["s"]
        assert (await here.move(tmp_path / "there.db")).moved == ["s"]


@on_loop
async def test_a_repeated_move_brings_back_nothing_that_was_removed_and_overwrites_no_limit(tmp_path: Path) -> None:
    there = tmp_path / "there.db"
    async with Engine(":memory:", workflows=ALL) as here:
        await (await here.start(calls, session_id="root")).outcome()
        await (await here.start(talk, session_id="own")).outcome()
        await here.schedule("daily", talk, cron="0 7 * * *")
        await here.limit(queue="gpu", most=3)
        await here.limit(queue="cpu", most=2)
        await here.limit(queue="tpu", most=1)
        planned = await here.move(there, dry_run=True)
        assert planned.limits == ["queue cpu", "queue gpu", "queue tpu"]
        assert (await here.move(there)).limits == planned.limits
        async with Engine(there, workflows=ALL, drives="none") as other:
            await other.session("root").remove()
            await other.session("own").remove()
            await other.schedules.remove("daily")
            await other.limits.remove(queue="cpu")
            await other.limit(queue="gpu", most=8)
            await other.schedule("taken", talk, cron="0 9 * * *")
        await here.schedule("late", talk, cron="0 8 * * *")  # by a program that still uses the old store
        await here.schedule("taken", talk, cron="0 8 * * *")
        await here.limit(queue="tpu", most=2)
        for dry_run in (True, False):
            again = await here.move(there, dry_run=dry_run)
            assert (again.moved, again.there, again.removed) == ([], [], ["own", "root"])
            assert (again.schedules, again.limits) == (["late"], [])
            assert list(again.refused) == ["limit of queue tpu", "schedule taken"]
        assert [each.paused_by for each in await here.schedules.list()] == [MOVER] * 3
        async with Engine(there, drives="none") as other:
            assert await other.sessions() == []
            assert [(each.name, each.paused_at) for each in await other.schedules.list()] == [
                ("late", None),
                ("taken", None),
            ]
            assert [(each.name, each.most) for each in await other.limits.list()] == [("gpu", 8), ("tpu", 1)]

        # another session with the id of a removed one, and a removed one that has continued since, are moved
        await here.session("own").remove()
        await (await here.start(talk, session_id="own", paused=True)).outcome()
        await here.session("root").resume()
        [child] = await here.session("root").children()
        await here.session(child.session_id).send("on")
        await here.session("root").outcome()
        assert (await here.move(there)).moved == ["own", "root"]


@pytest.mark.long
@on_loop
async def test_sessions_and_schedules_that_are_moved_back_continue(tmp_path: Path) -> None:
    @step(writes="big")
    async def fail() -> str:
        raise LookupError("no ink")

    failing = Workflow("failing", state=Talk, steps=[fail])
    first, second, third = (tmp_path / f"{name}.db" for name in ("first", "second", "third"))
    async with Engine(first, workflows=[*ALL, failing]) as engine:
        await (await engine.start(calls, session_id="root")).outcome()
        await (await engine.start(talk, session_id="own")).outcome()
        await engine.session("own").pause(by="ann")
        await (await engine.start(failing, session_id="wrong")).outcome()
        await engine.schedule("daily", talk, cron="0 7 * * *")
        await engine.schedule("weekly", talk, cron="0 7 * * 1")
        await engine.move(second)
    async with Engine(second, workflows=ALL, drives="none") as engine:
        await engine.session("own").resume(by="ann", here=False)
        await engine.schedule("weekly", talk, cron="0 9 * * 1")
        planned = await engine.move(first, dry_run=True)
        back = await engine.move(first)
        for each in (planned, back):
            assert (each.moved, each.schedules) == (["own", "root", "wrong"], ["daily", "weekly"])
        again = await engine.move(first)
        assert (again.moved, again.there, again.schedules) == ([], ["own", "root", "wrong"], [])
    async with Engine(first, drives="none") as engine:
        assert await engine.standing_pause() is None
        assert {info.session_id: info.status for info in await engine.sessions(level="root")} == {
            "root": Status.WAITING, "own": Status.WAITING, "wrong": Status.FAILED,
        }  # fmt: skip
        assert [info.status for info in await engine.session("root").children()] == [Status.WAITING]
        assert [(each.cron, each.paused_by) for each in await engine.schedules.list()] == [
            ("0 7 * * *", None), ("0 9 * * 1", None),
        ]  # fmt: skip
        # what the first store gives to a third one stays paused there, if an older move is repeated
        await engine.move(third)
    async with Engine(second, drives="none") as engine:
        again = await engine.move(first)
        assert (again.moved, again.there, again.schedules) == ([], ["own", "root", "wrong"], [])
    async with Engine(first, drives="none") as engine:
        assert {info.status for info in await engine.sessions()} == {Status.PAUSED}
        assert {each.paused_by for each in await engine.schedules.list()} == {MOVER}


@pytest.mark.long
@on_loop
async def test_a_repeated_move_names_the_sessions_that_received_messages_in_the_old_store(tmp_path: Path) -> None:
    async with Engine(tmp_path / "here.db", workflows=ALL) as here:
        await (await here.start(talk, session_id="own")).outcome()
        await (await here.start(talk, session_id="quiet")).outcome()
        await here.move(tmp_path / "there.db")
        async with Engine(tmp_path / "there.db", drives="none") as other:
            await other.session("quiet").send("in the new store")
        await here.lift_pause()
        await here.session("own").send("in the old store")
        for dry_run in (True, False):
            again = await here.move(tmp_path / "there.db", dry_run=dry_run)
            assert (again.there, list(again.refused)) == (["quiet"], ["own"])
            assert "received messages or other requests here after it was moved" in again.refused["own"]
        await here.session("own").remove()
        assert (await here.move(tmp_path / "there.db")).refused == {}


class Cut(SqliteStore):
    """A store that cannot note that something was moved to it, as if the move was killed."""

    async def remember(self, key: str, digest: bytes, answer: bytes | None, *rest: Any) -> Remembered:
        if answer is not None:
            raise StoreUnavailable("cut off")
        return await super().remember(key, digest, answer, *rest)


@on_loop
async def test_a_schedule_whose_move_was_cut_off_has_been_moved_once(tmp_path: Path) -> None:
    there = tmp_path / "there.db"
    async with Engine(":memory:", workflows=ALL, drives="none") as here:
        await here.schedule("daily", talk, cron="0 7 * * *")
        await here.schedules.trigger("daily", by="ann")
        assert (await here.move(Cut(there))).refused == {"schedule daily": "cut off"}
        async with Engine(there, drives="none") as other:
            [found] = await other.schedules.list()
            assert (found.triggered_at is None, found.paused_at) == (False, None)
            await other.schedules.remove("daily")
        assert (await here.move(there)).refused == {}
        async with Engine(there, drives="none") as other:
            assert await other.schedules.list() == []
        assert [each.triggered_at for each in await here.schedules.list()] == [None]


@on_loop
async def test_a_schedule_stays_where_its_session_is(tmp_path: Path) -> None:
    ready = asyncio.Event()

    @step(writes="big")
    async def work() -> str:
        await ready.wait()
        return "done"

    working = Workflow("working", state=Talk, steps=[work])
    async with Engine(":memory:", workflows=[working]) as here:
        await here.schedule("daily", working, cron="0 7 * * *")
        session_id = await here.schedules.trigger("daily")
        async with asyncio.timeout(PATIENCE):
            while session_id not in here.running:
                await asyncio.sleep(0.002)
        refused = await here.move(tmp_path / "there.db", timeout=0)
        assert (list(refused.refused), refused.schedules) == ([session_id, "schedule daily"], [])
        assert "was not moved, so another run could overlap" in refused.refused["schedule daily"]
        ready.set()
        await here.session(session_id).outcome()
        moved = await here.move(tmp_path / "there.db")
        assert (moved.moved, moved.schedules, moved.refused) == ([session_id], ["daily"], {})


@on_loop
async def test_a_move_says_which_folder_and_which_id_are_missing(tmp_path: Path) -> None:
    async with Engine(tmp_path / "here.db", workflows=ALL) as here:
        await (await here.start(calls, session_id="root")).outcome()
        session = await here.start(talk, session_id="own")
        await session.outcome()
        await session.files.add(b"squid", "squid.txt")
        [child] = await here.session("root").children()
        async with Engine(tmp_path / "there.db", workflows=ALL) as other:
            await other.start(talk, session_id=child.session_id, paused=True)
        refused = (await here.move(tmp_path / "there.db")).refused
        assert list(refused) == ["root"]
        assert f"has a session {child.session_id!r}, but not its parent 'root'" in refused["root"]
        for dry_run in (True, False):
            without_folder = SqliteStore(":memory:")
            refused = (await here.move(without_folder, dry_run=dry_run)).refused
            assert list(refused) == ["own"]
            assert "?files=/srv/files" in refused["own"]
