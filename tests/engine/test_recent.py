"""Pages of a session's history, read backwards: together they are the history."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Workflow, step
from pausepoint.engine.recent import recent_events
from pausepoint.stores.sqlite import SqliteStore
from tests.support.loop import on_loop


class Talk(BaseModel):
    heard: list[str] = []
    text: str = ""


async def look_up(n: int) -> str:
    return f"fact {n}"


@step(writes="heard")
async def hear(ctx: Context) -> list[str]:
    ctx.emit("talk.begun", "it begins")
    ctx.emit("talk.further", "it goes further")
    return [await ctx.receive(str) for _ in range(4)]


@step(writes="text")
async def write(ctx: Context) -> str:
    return " ".join([await ctx.do(look_up, n) for n in range(30)])


talk = Workflow("talk", state=Talk, steps=[hear, write], events=["talk.begun", "talk.further"])


@pytest.mark.long
@on_loop
async def test_pages_backwards_add_up_to_the_history_with_its_messages() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(talk)
        for n in range(4):
            await session.outcome()
            await session.send(f"message {n}")
        await session.outcome()
        await session.rewind("write")
        await (await session.resume()).outcome()
        whole = [event async for event in session.events()]
        assert len(whole) > 70
        for limit in (1, 2, 7, 1000):
            found: list[Any] = []
            before = ""
            while page := await recent_events(engine, session.id, before=before, limit=limit):
                assert len(page) <= limit
                found, before = page + found, page[0].cursor
            assert found == whole, limit
        at = await recent_events(engine, session.id, before="6.0.0", limit=1000)
        assert at == whole[: len(at)]
        assert await recent_events(engine, session.id, limit=0) == []
        with pytest.raises(ValueError, match="is not a cursor"):
            await recent_events(engine, session.id, before="yesterday")


@on_loop
async def test_a_page_backwards_does_not_read_the_whole_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(talk, heard=[])
        for n in range(4):
            await session.outcome()
            await session.send(f"message {n}")
        await session.outcome()
        read = 0
        records = SqliteStore.records

        async def counted(self: SqliteStore, *args: Any) -> Any:
            nonlocal read
            found = await records(self, *args)
            read += len(found)
            return found

        monkeypatch.setattr(SqliteStore, "records", counted)
        assert len(await recent_events(engine, session.id, limit=3)) == 3
        assert read <= 12
