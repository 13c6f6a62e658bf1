"""A pause of everything also stops sessions started later, in every process, until it is lifted."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import apsw
import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step, workflow
from pausepoint.errors import DamagedRecord
from pausepoint.model.sessions import Pause
from pausepoint.stores.pause_flag import PauseFlag
from tests.support.loop import on_loop


class Doc(BaseModel):
    topic: str = ""
    text: str = ""
    parts: list[str] = []


runs: list[str] = []


@pytest.fixture(autouse=True)
def forgotten() -> None:
    runs.clear()


@step(writes="text")
async def write(topic: str) -> str:
    runs.append(topic)
    return f"about {topic}"


@step(writes="text")
async def wait(ctx: Context) -> str:
    return await ctx.receive(str)


@step(writes="parts")
async def gather(topic: str, ctx: Context) -> list[str]:
    first = await ctx.receive(str)
    return [first, (await ctx.call(brief, topic=f"a part of {topic}")).text]


@workflow
async def nap(before: str, ctx: Context) -> str:
    runs.append(before)
    if before == "failed":
        raise ConnectionError("down")
    return await ctx.receive(str)


brief = Workflow("brief", state=Doc, steps=[write])
chat = Workflow("chat", state=Doc, steps=[wait])
book = Workflow("book", state=Doc, steps=[gather])
ALL: list[Workflow[Any]] = [brief, chat, book]


async def still(path: Path) -> None:
    """Pause everything from a process that has ended since."""
    async with Engine(path) as other:
        await other.pause_all(reason="fire drill", by="ann")


async def until(engine: Engine, session_id: str, status: Status) -> None:
    while (await engine.session(session_id).info()).status is not status:
        await asyncio.sleep(0.001)


@on_loop
async def test_a_session_that_is_started_meanwhile_is_stored_paused_and_does_not_run(tmp_path: Path) -> None:
    await still(tmp_path / "hold.db")
    async with Engine(tmp_path / "hold.db", workflows=ALL) as engine:
        session = await engine.start(brief, topic="otters")
        assert await session.status() is Status.PAUSED
        [pause] = (await session.outcome()).pauses
        assert (pause.reason, pause.by, pause.standing) == ("fire drill", "ann", True)
        assert [event.event_type async for event in session.events()] == ["session.created", "pause.requested"]
        standing = await engine.standing_pause()
        assert standing is not None
        assert (standing.by, standing.reason) == ("ann", "fire drill")
        assert standing.created_at < pause.created_at
        assert runs == []


@on_loop
async def test_lifting_it_lets_all_go_on_that_it_stopped_and_leaves_alone_what_was_paused_by_itself(
    tmp_path: Path,
) -> None:
    async with Engine(tmp_path / "hold.db", workflows=ALL) as engine:
        own = await engine.start(brief, topic="own", paused=True, reason="not yet")
        talk = await engine.start(chat)
        await talk.outcome()
        await engine.pause_all(by="ann")
        new = await engine.start(brief, topic="new")
        later = await engine.start(brief, topic="later", paused=True)
        both = await engine.start(brief, topic="both")
        await both.pause(by="cid")
        found = await engine.lift_pause(by="ben")
        assert {info.session_id for info in found} == {new.id, talk.id}
        assert (await new.outcome()).state.text == "about new"
        statuses = {await session.status() for session in (own, later, both)}
        assert (statuses, await talk.status(), runs) == ({Status.PAUSED}, Status.WAITING, ["new"])
        assert await engine.standing_pause() is None
        assert await engine.lift_pause() == []
        assert (await (await engine.start(brief, topic="after")).outcome()).status is Status.COMPLETED


@on_loop
async def test_what_is_lifted_elsewhere_goes_on_in_the_process_that_knows_its_workflow(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db", workflows=ALL) as engine, Engine(tmp_path / "hold.db") as other:
        await other.pause_all()
        session = await engine.start(brief, topic="otters")
        [info] = await other.lift_pause(by="ben")
        assert info.session_id == session.id
        await until(engine, session.id, Status.COMPLETED)
        assert runs == ["otters"]


@on_loop
async def test_starting_an_id_again_is_no_resume_while_everything_stands_still(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db", workflows=ALL) as engine:
        session = await engine.start(chat, session_id="mine")
        await session.outcome()
        await engine.pause_all()
        for name in ("mine", "new", "new"):
            assert await (await engine.start(chat, session_id=name)).status() is Status.PAUSED


@pytest.mark.parametrize(
    ("before", "moment"),
    [(before, "start") for before in ("failed", "waiting", "paused")]
    + [(before, "unpause") for before in ("failed", "waiting", "paused")]
    + [("failed", "claim"), ("paused", "claim")],
)
@on_loop
async def test_no_start_of_an_existing_session_lets_it_run_once_everything_is_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, moment: str
) -> None:
    path = tmp_path / "hold.db"
    async with Engine(path, workflows=[nap]) as engine:
        await (await engine.start(nap, session_id="mine", before=before, paused=before == "paused")).outcome()

        async def pause() -> None:
            monkeypatch.undo()
            await still(path)
            runs.clear()

        if moment == "start":
            await pause()
        else:
            verb = getattr(engine.store, moment)

            async def late(*args: Any, **options: Any) -> Any:
                await pause()
                return await verb(*args, **options)

            monkeypatch.setattr(engine.store, moment, late)
        session = await engine.start(nap, session_id="mine", before=before)
        await session.outcome()
        assert await engine.standing_pause() is not None
        assert (runs, await session.status()) == ([], Status.FAILED if before == "failed" else Status.PAUSED)


@on_loop
async def test_a_start_does_not_retry_what_a_person_has_resumed_while_everything_is_paused(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db", workflows=[nap]) as engine:
        session = await engine.start(nap, session_id="mine", before="failed")
        await session.outcome()
        await engine.pause_all()
        await (await session.resume()).outcome()
        assert runs == ["failed", "failed"]
        assert (await (await engine.start(nap, session_id="mine", before="failed")).outcome()).status is Status.FAILED
        assert runs == ["failed", "failed"]


@on_loop
async def test_a_session_that_is_resumed_by_itself_runs_and_what_it_calls_follows_it(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db", workflows=ALL) as engine:
        session = await engine.start(book, topic="otters")
        await session.outcome()
        await engine.pause_all()
        await session.resume(by="ann")
        assert await session.status() is Status.WAITING
        await session.send("hello")
        assert (await session.outcome()).state.parts == ["hello", "about a part of otters"]
        assert await engine.standing_pause() is not None
        assert await (await engine.start(brief, topic="new")).status() is Status.PAUSED
        await engine.lift_pause()


@on_loop
async def test_asked_again_everything_stops_what_was_resumed_by_itself(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db", workflows=ALL) as engine:
        await engine.pause_all(by="ann")
        session = await engine.start(chat)
        await session.resume()
        await session.outcome()
        await engine.pause_all(by="ben")
        assert await session.status() is Status.PAUSED
        standing = await engine.standing_pause()
        assert standing is not None
        assert standing.by == "ann", "who asked first"


@on_loop
async def test_a_fork_stands_still(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db", workflows=ALL) as engine:
        session = await engine.start(brief, topic="otters")
        await session.outcome()
        await engine.pause_all()
        copy = await session.fork(at_step="write", topic="squid")
        assert await copy.status() is Status.PAUSED
        await engine.lift_pause()
        assert (await copy.outcome()).state.text == "about squid"


@on_loop
async def test_a_session_that_had_ended_and_is_rewound_stands_still(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db", workflows=ALL) as engine:
        session = await engine.start(brief, topic="otters")
        await session.outcome()
        await engine.pause_all()
        assert await session.status() is Status.COMPLETED
        await session.rewind("write")
        assert await session.status() is Status.PAUSED
        await engine.lift_pause()
        await session.outcome()
        assert runs == ["otters", "otters"]


@on_loop
async def test_an_imported_session_stands_still_and_one_that_stood_elsewhere_is_paused_by_itself(
    tmp_path: Path,
) -> None:
    async with Engine(tmp_path / "there.db", workflows=ALL) as there:
        await (await there.start(chat, session_id="waits")).outcome()
        await there.session("waits").export(tmp_path / "waits.jsonl")
        await there.pause_all(reason="theirs")
        await there.session("waits").export(tmp_path / "stands.jsonl")
    async with Engine(tmp_path / "here.db", workflows=ALL) as here:
        await here.pause_all(reason="ours")
        await here.import_session(tmp_path / "waits.jsonl")
        await here.import_session(tmp_path / "stands.jsonl", session_id="stood")
        found = {name: (await here.session(name).pauses())[0] for name in ("waits", "stood")}
        assert [(each.reason, each.standing) for each in found.values()] == [("ours", True), ("theirs", False)]
        await here.lift_pause()
        assert [(await here.session(name).info()).status for name in found] == [Status.WAITING, Status.PAUSED]


@on_loop
async def test_a_message_that_starts_a_session_is_kept_while_that_stands_still(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db", workflows=ALL) as engine:
        await engine.pause_all()
        await engine.session("desk", chat).send("hello", start={})
        assert (await engine.session("desk").info()).status is Status.PAUSED
        await engine.lift_pause()
        await until(engine, "desk", Status.COMPLETED)
        assert (await engine.session("desk").outcome()).state.text == "hello"


@on_loop
async def test_what_runs_on_while_it_is_pausing_runs_on_when_that_is_lifted(tmp_path: Path) -> None:
    reached, opened = asyncio.Event(), asyncio.Event()

    @step(writes="text")
    async def slow() -> str:
        reached.set()
        await opened.wait()
        return "done"

    @step(writes="topic")
    async def after(text: str) -> str:
        return text

    async with Engine(tmp_path / "hold.db") as engine:
        session = await engine.start(Workflow("slow", state=Doc, steps=[slow, after]))
        await reached.wait()
        await engine.pause_all()
        assert await session.status() is Status.PAUSING
        [info] = await engine.lift_pause()
        assert info.status is Status.RUNNING
        opened.set()
        assert (await session.outcome()).state.topic == "done"


def test_blocking_code_has_it_too(tmp_path: Path) -> None:
    with Engine(tmp_path / "hold.db", workflows=ALL) as engine:
        engine.pause_all(by="ann")
        session = engine.start(brief, topic="otters")
        assert session.status() is Status.PAUSED
        standing = engine.standing_pause()
        assert standing is not None
        assert standing.by == "ann"
        assert [info.session_id for info in engine.lift_pause()] == [session.id]
        assert session.outcome().state.text == "about otters"


@on_loop
async def test_a_damaged_pause_of_everything_starts_nothing_and_can_be_lifted(tmp_path: Path) -> None:
    await still(tmp_path / "hold.db")
    connection = apsw.Connection(str(tmp_path / "hold.db"))
    connection.execute("UPDATE standing_pause SET reason = 'another'")
    connection.close()
    async with Engine(tmp_path / "hold.db", workflows=ALL) as engine:
        with pytest.raises(DamagedRecord, match=r"lift_pause\(\)"):
            await engine.start(brief, topic="otters")
        report = await engine.verify()
        assert [(problem.what, "pause of everything" in problem.text) for problem in report.problems] == [
            ("store", True)
        ]
        await engine.lift_pause()
        assert (await (await engine.start(brief, topic="otters")).outcome()).status is Status.COMPLETED
        assert (await engine.verify()).ok


@on_loop
async def test_a_session_that_stops_before_the_pause_is_stored_says_who_asked(tmp_path: Path) -> None:
    """The flag file is written first, and a session may park before the pause itself is in the database."""
    began = asyncio.Event()

    @step
    async def spin(ctx: Context) -> None:
        while True:
            began.set()
            await ctx.safe_point()
            await asyncio.sleep(0.001)

    async with Engine(tmp_path / "hold.db") as engine:
        session = await engine.start(Workflow("spin", state=Doc, steps=[spin]))
        await began.wait()
        pause = Pause("p", "operator", "fire drill", "ann", time.time_ns() // 1000, standing=True)
        PauseFlag(tmp_path / "hold.db-paused").ask(pause)
        assert (await session.outcome()).status is Status.PAUSED
        paused = await engine.session(session.id).last_event("session.paused")
        assert paused is not None
        assert paused.summary == "paused by ann: fire drill"


@on_loop
async def test_a_damaged_pause_of_everything_is_replaced_by_the_next_one(tmp_path: Path) -> None:
    await still(tmp_path / "hold.db")
    connection = apsw.Connection(str(tmp_path / "hold.db"))
    connection.execute("UPDATE standing_pause SET reason = 'another'")
    connection.close()
    async with Engine(tmp_path / "hold.db", workflows=ALL) as engine:
        await engine.pause_all(by="ben", reason="again")
        standing = await engine.standing_pause()
        assert standing is not None
        assert (standing.by, standing.reason) == ("ben", "again")
        assert await (await engine.start(brief, topic="otters")).status() is Status.PAUSED
        assert (await engine.verify()).ok
