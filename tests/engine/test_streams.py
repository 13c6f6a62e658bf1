"""The verb ``stream``: where it begins and ends, in this process and in another, and how long a stream is kept."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Session, Status, Workflow, step
from pausepoint.engine.retention import clear_streams
from pausepoint.errors import StoreClosed, StoreUnavailable, UnknownSession
from pausepoint.model import StreamChunk, StreamText
from pausepoint.stores.places import StreamFolder
from tests.support.loop import PATIENCE, excused, on_loop


class Talk(BaseModel):
    out: str = ""


async def answer(question: str, ctx: Context) -> str:
    for word in question.split():
        ctx.stream(word.upper())
    return question.upper()


@step(writes="out")
async def talk(ctx: Context) -> str:
    said = ""
    while (question := await ctx.receive()) != "bye":
        said = await ctx.do(answer, question)
    return said


chat = Workflow("chat", state=Talk, steps=[talk])


def rings(path: Path) -> list[str]:
    folder = Path(f"{path}-streams")
    return sorted(os.listdir(folder)) if folder.exists() else []


async def said(session: Session[Any], after: int | None = 0, **how: Any) -> tuple[list[str | bytes], int]:
    """Return the chunks of a stream, and the number of the last item."""
    items = [item async for item in session.stream(after, **how)]
    chunks = [item.data for item in items if isinstance(item, StreamChunk)]
    return chunks, items[-1].n if items else after or 0


@on_loop
async def test_each_turn_of_a_chat_is_one_stream_that_ends_when_the_session_waits(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db") as engine:
        session = await engine.start(chat)
        await session.outcome()
        assert await said(session) == ([], 0)
        await session.send("what is it")
        first, last = await said(session)
        assert first == ["WHAT", "IS", "IT"]
        await session.send("and now")
        assert (await said(session, last))[0] == ["AND", "NOW"]
        assert (await said(session, None))[0] == []
        assert (await said(session))[0] == ["WHAT", "IS", "IT", "AND", "NOW"]


@on_loop
async def test_a_stream_until_the_end_continues_over_waits(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db") as engine:
        session = await engine.start(chat)
        following = asyncio.create_task(said(session, until="ended"))
        for question in ("one", "two"):
            await session.send(question)
            await session.outcome()
        assert not following.done()
        await session.send("bye")
        assert (await following)[0] == ["ONE", "TWO"]
        assert await session.status() is Status.COMPLETED


@on_loop
async def test_without_following_a_stream_ends_with_what_is_there(tmp_path: Path) -> None:
    go = asyncio.Event()

    @step(writes="out")
    async def slow(ctx: Context) -> str:
        ctx.stream("a")
        await go.wait()
        return "done"

    async with Engine(tmp_path / "s.db") as engine:
        session = await engine.start(Workflow("slow", state=Talk, steps=[slow]))
        found: list[str | bytes] = []
        while not found:
            found, _ = await said(session, follow=False)
            await asyncio.sleep(0)
        assert found == ["a"]
        assert await session.status() is Status.RUNNING
        go.set()


@on_loop
async def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db") as engine:
        with pytest.raises(UnknownSession):
            await anext(aiter(engine.session("nobody").stream()))
        session = await engine.start(chat)
        with pytest.raises(ValueError, match="until must be 'ended' or 'parked', not 'later'"):
            await anext(aiter(session.stream(until="later")))  # type: ignore[arg-type]


@on_loop
async def test_closing_the_engine_ends_a_stream(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db") as engine:
        session = await engine.start(chat)
        await session.outcome()
        following = asyncio.create_task(said(session, until="ended"))
        await session.send("one")
        await session.outcome()
    with pytest.raises(StoreClosed, match="The engine is not open"):
        await following


# another process

PROGRAM = """
import asyncio, sys
from pathlib import Path
from pydantic import BaseModel
from pausepoint import Context, Engine, Workflow, step

class Talk(BaseModel):
    out: str = ""

@step(writes="out")
async def count(ctx: Context) -> str:
    n = 0
    while not Path("go").exists():
        n += 1
        ctx.stream(f"{n} ")
        await asyncio.sleep(0.005)
    ctx.stream("end")
    return str(n)

async def main():
    async with Engine("s.db") as engine:
        await (await engine.start(Workflow("count", state=Talk, steps=[count]), session_id="s")).outcome()

asyncio.run(main())
"""


@pytest.mark.long
@on_loop
async def test_another_process_sees_the_chunks_while_the_step_runs(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db", drives="none") as engine:
        process = subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=tmp_path)
        try:
            while not [info async for info in _found(engine)]:
                await asyncio.sleep(0.01)
            first, second = StreamText(), StreamText()
            other = asyncio.create_task(_fold(engine, second))
            async for item in engine.session("s").stream():
                first.apply(item)
                if isinstance(item, StreamChunk) and item.n >= 50:  # the process waits for this
                    (tmp_path / "go").touch()
            await other
            info = await engine.session("s").info()
            with excused():
                assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            process.wait()
        assert info.status is Status.COMPLETED
        count = int((await engine.session("s").stored()).values["out"])
    expected = "".join(f"{n} " for n in range(1, count + 1)) + "end"
    assert str(first) == str(second) == expected


async def _found(engine: Engine) -> Any:
    for info in await engine.sessions(prefix="s"):
        yield info


async def _fold(engine: Engine, text: StreamText) -> None:
    async for item in engine.session("s").stream():
        text.apply(item)


# how long a stream is kept


async def one_turn(engine: Engine, session_id: str) -> Session[Any]:
    session = await engine.start(chat, session_id=session_id)
    await session.send("swordfish")
    await session.outcome()
    return session


@on_loop
async def test_a_stream_is_deleted_with_its_session(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with Engine(path) as engine:
        for session_id in ("one", "two"):
            await one_turn(engine, session_id)
        assert rings(path) == ["1.ring", "2.ring"]
        await engine.session("one").remove()
        assert rings(path) == ["2.ring"]


@on_loop
async def test_a_redaction_deletes_the_stream(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with Engine(path) as engine:
        session = await one_turn(engine, "one")
        assert b"SWORDFISH" in (Path(f"{path}-streams") / "1.ring").read_bytes()
        await session.redact(signal=1)
        assert rings(path) == []
        await session.send("again")
        await session.outcome()
        assert (await said(session))[0] == ["AGAIN"]


@on_loop
async def test_a_clean_up_deletes_the_streams_of_ended_and_of_unknown_sessions(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with Engine(path) as engine:
        await one_turn(engine, "waits")
        ended = await one_turn(engine, "ended")
        await ended.send("bye")
        await ended.outcome()
        (Path(f"{path}-streams") / "99.ring").touch()
        assert (await engine.gc()).streams == 2
        assert rings(path) == ["1.ring", "2.ring", "99.ring"]
        assert (await engine.gc(apply=True)).streams == 2
        assert rings(path) == ["1.ring"]


@on_loop
async def test_old_rings_are_deleted_without_holding_up_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tidied, go = asyncio.Event(), threading.Event()
    loop, tidy = asyncio.get_running_loop(), StreamFolder.tidy

    def slow(folder: StreamFolder) -> None:
        on_the_loop.append(threading.current_thread() is threading.main_thread())
        if not on_the_loop[0]:
            go.wait(PATIENCE)
        tidy(folder)
        loop.call_soon_threadsafe(tidied.set)

    on_the_loop: list[bool] = []
    monkeypatch.setattr(StreamFolder, "tidy", slow)
    old = tmp_path / "s.db-streams" / "99.ring"
    old.parent.mkdir()
    old.touch()
    os.utime(old, (0, 0))
    async with Engine(tmp_path / "s.db") as engine:
        await one_turn(engine, "one")  # while the clean-up is still busy
        assert (on_the_loop, old.exists()) == ([False], True)
        go.set()
        await tidied.wait()
    assert not old.exists()


@on_loop
async def test_a_clean_up_of_many_streams_lets_other_tasks_run(tmp_path: Path) -> None:
    path, turns = tmp_path / "s.db", 0

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with Engine(path) as engine:
        await one_turn(engine, "one")
        for key in range(1_000, 1_200):
            (Path(f"{path}-streams") / f"{key}.ring").touch()
        ticking = asyncio.create_task(tick())
        assert (await clear_streams(engine._service, apply=True), turns >= 200) == (200, True)
        ticking.cancel()


@on_loop
async def test_a_new_store_in_the_place_of_another_shows_nothing_of_it(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with Engine(path) as engine:
        session = await one_turn(engine, "theirs")
        await session.send("pelican")
        await session.outcome()  # its ring has a higher fence than a new session
    for ending in ("", "-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)
    async with Engine(path) as engine:
        session = await engine.start(chat, session_id="ours")
        await session.outcome()
        assert await said(session) == ([], 0)
        await session.send("heron")
        await session.outcome()
        assert (await said(session))[0] == ["HERON"]


@on_loop
async def test_what_a_killed_process_left_of_a_ring_is_deleted_with_the_session(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with Engine(path) as engine:
        for session_id in ("removed", "redacted"):
            await one_turn(engine, session_id)
        session = await one_turn(engine, "ended")
        await session.send("bye")
        await session.outcome()
        for key in (1, 2, 3, 99):
            Path(f"{path}-streams/{key}.part").write_bytes(b"SWORDFISH")  # killed before the rename
        await engine.session("removed").remove()
        await engine.session("redacted").redact(signal=1)
        assert rings(path) == ["3.part", "3.ring", "99.part"]
        assert (await engine.gc(apply=True)).streams == 2
        assert rings(path) == []


@on_loop
async def test_a_stream_that_cannot_be_deleted_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with Engine(path) as engine:
        await one_turn(engine, "one")
        Path(f"{path}-streams").rename(tmp_path / "elsewhere")
        Path(f"{path}-streams").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StoreUnavailable, match="The live stream of session 'one' cannot be deleted"):
            await engine.session("one").remove()
        Path(f"{path}-streams").unlink()
        (tmp_path / "elsewhere").rename(f"{path}-streams")
        assert (await engine.gc(apply=True)).completed == ["one"]
        assert rings(path) == []


@on_loop
async def test_if_the_stream_cannot_be_deleted_nothing_is_redacted(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with Engine(path) as engine:
        session = await one_turn(engine, "one")
        Path(f"{path}-streams").rename(tmp_path / "elsewhere")
        Path(f"{path}-streams").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StoreUnavailable, match="Nothing was redacted"):
            await session.redact(signal=1)
        Path(f"{path}-streams").unlink()
        (tmp_path / "elsewhere").rename(f"{path}-streams")
        assert (await session.redact(signal=1)).signals == (1,)
        assert rings(path) == []


@on_loop
async def test_a_session_that_sends_nothing_makes_no_file(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db") as engine:
        session = await engine.start(chat)
        await session.send("bye")
        await session.outcome()
        assert (await said(session))[0] == []
    assert not Path(f"{tmp_path / 's.db'}-streams").exists()
