"""What a turn of a chat costs, counted: statements, hand-overs to the writer's thread, commits, reads of the log."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import apsw
import pytest
from pydantic import BaseModel

from pausepoint import Append, Context, Engine, Session, Workflow, route, step
from pausepoint.stores.sqlite import SqliteStore, writer
from pausepoint.stores.sqlite.work import Work
from pausepoint.stores.sqlite.writer import Writer
from tests.support.loop import on_loop

TURNS = 10


class Chat(BaseModel):
    said: Annotated[list[str], Append] = []


@step(writes="said")
async def answer(ctx: Context) -> list[str]:
    return [await ctx.receive()]


@route(after="answer")
def once_more() -> Literal["answer"]:
    return "answer"


chatting = Workflow("chatting", state=Chat, steps=[answer], routes=[once_more])


class Counts:
    """What was counted since `begin`."""

    def __init__(self) -> None:
        self.on = False
        self.statements: Counter[str] = Counter()
        self.handed_over = 0

    def begin(self) -> None:
        self.on = True

    def trace(self, cursor: object, sql: str, bindings: object) -> bool:
        if self.on:
            self.statements[" ".join(sql.split())] += 1
        return True

    def of(self, beginning: str) -> int:
        return sum(count for sql, count in self.statements.items() if sql.startswith(beginning))


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counts]:
    """Count on a machine whose disk is fast, whatever it really is: a slow one makes every write go to the thread."""
    found, run = Counts(), Writer._run_threaded

    def counted(self: Writer, batch: list[Work]) -> None:
        found.handed_over += found.on
        run(self, batch)

    def hook(connection: apsw.Connection) -> None:
        connection.set_exec_trace(found.trace)

    monkeypatch.setattr(writer, "CHEAP", 3600.0)
    monkeypatch.setattr(writer, "TICK", 3600.0)
    monkeypatch.setattr(Writer, "_run_threaded", counted)
    apsw.connection_hooks.append(hook)
    yield found
    apsw.connection_hooks.remove(hook)


async def turn(engine: Engine, session: Session[Chat], text: str = "hello") -> None:
    await session.send(text)
    await engine.idle("chat")


async def begun(engine: Engine) -> Session[Chat]:
    session = await engine.start(chatting, session_id="chat")
    await engine.idle("chat")
    for _ in range(TURNS):
        await turn(engine, session)
    return session


@on_loop
async def test_a_turn_needs_few_statements_and_no_thread(tmp_path: Path, counts: Counts) -> None:
    async with Engine(SqliteStore(tmp_path / "store.db", poll=3600.0), signals=False) as engine:
        session = await begun(engine)
        counts.begin()
        for _ in range(TURNS):
            await turn(engine, session)
        counts.on = False
    assert counts.handed_over == 0
    assert counts.of("COMMIT") == 5 * TURNS  # the message, the claim, the receipt, the checkpoint, the wait
    assert counts.of("WITH RECURSIVE chain") == 0  # no record is read again
    assert counts.of("BEGIN") - counts.of("BEGIN IMMEDIATE") <= 2 * TURNS  # mail, the waker
    assert sum(counts.statements.values()) <= 65 * TURNS, counts.statements.most_common()


@on_loop
async def test_a_follower_of_a_turn_reads_only_what_is_new(tmp_path: Path, counts: Counts) -> None:
    async with Engine(SqliteStore(tmp_path / "store.db", poll=3600.0), signals=False) as engine:
        session = await begun(engine)
        last = [event async for event in session.events()][-1]
        events = session.events(last.cursor, follow=True)
        types: list[str] = []
        counts.begin()
        for _ in range(TURNS):
            await session.send("hello")
            async for event in events:
                types.append(event.event_type)
                if event.event_type == "session.waiting":
                    break
        counts.on = False
    assert types == ["message.received", "operation.completed", "step.completed", "session.waiting"] * TURNS
    assert counts.handed_over == 0
    assert counts.of("SELECT n, after, kind") <= 2 * TURNS  # the signals: once for the step, once for the follower
    assert counts.of("WITH RECURSIVE chain") <= 3 * TURNS  # the records, after the commits of the drive
    assert sum(counts.statements.values()) <= 90 * TURNS, counts.statements.most_common()


@on_loop
async def test_statements_are_not_prepared_again_for_every_new_value(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    async with Engine(store, signals=False):
        for connection in (store._read, store._writer.inline.connection, store._writer.threaded.connection):
            assert connection is not None
            assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) == 1


@on_loop
async def test_a_message_waits_on_the_thread_while_another_program_writes(tmp_path: Path, counts: Counts) -> None:
    path = tmp_path / "store.db"
    async with Engine(SqliteStore(path, poll=3600.0), signals=False) as engine:
        session = await begun(engine)
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        counts.begin()
        sending = asyncio.create_task(session.send("hello"))
        while not counts.handed_over:
            await asyncio.sleep(0)
        for _ in range(100):  # the loop is free meanwhile
            await asyncio.sleep(0)
        assert not sending.done()
        other.execute("ROLLBACK")
        other.close()
        await sending
        await engine.idle("chat")
        assert (await session.state()).said == ["hello"] * (TURNS + 1)


@on_loop
async def test_a_message_goes_to_the_thread_on_a_slow_disk(
    tmp_path: Path, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(SqliteStore(tmp_path / "store.db", poll=3600.0), signals=False) as engine:
        session = await begun(engine)
        monkeypatch.setattr(writer, "CHEAP", 0.0)
        counts.begin()
        await turn(engine, session)
        assert counts.handed_over == 5


@on_loop
async def test_a_large_message_is_written_on_the_thread(tmp_path: Path, counts: Counts) -> None:
    async with Engine(SqliteStore(tmp_path / "store.db", poll=3600.0), signals=False) as engine:
        session = await begun(engine)
        counts.begin()
        await session.send("x" * 100_000)
        assert counts.handed_over >= 1
        await engine.idle("chat")
