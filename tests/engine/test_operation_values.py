"""What operations received and returned is read from the log: by the engine, in events, and in visits."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, workflow
from pausepoint.engine.spans import operation, operations
from pausepoint.errors import UnknownOperation
from pausepoint.model.views import OperationInfo
from tests.support.loop import on_loop


class Report(BaseModel):
    topic: str
    day: datetime


async def look_up(topic: str, password: str = "") -> Report:
    return Report(topic=topic, day=datetime(2024, 2, 29))


async def think(messages: list[str]) -> str:
    return "é" * 20_000


async def spend(n: int, ctx: Context) -> int:
    ctx.spend(usd=0.5, tokens=7)
    return n


@workflow
async def brief(topic: str, ctx: Context) -> int:
    await ctx.map(look_up, [topic, "squid"])
    await ctx.map(spend, [1], key=lambda n: f"row {n}")
    await ctx.do(think, ["x" * 9000])
    await ctx.do(look_up, "again", key="k-1", password="4711")
    return await ctx.do(spend, 2, key="only")


async def written(engine: Engine) -> list[OperationInfo]:
    await (await engine.start(brief, session_id="b1", topic="octopus")).outcome()
    return await operations(engine, "b1")


@on_loop
async def test_each_operation_says_what_it_received_and_returned() -> None:
    async with Engine(":memory:") as engine:
        rows = await written(engine)
        assert [(row.name, row.label, row.step, row.visit) for row in rows] == [
            ("look_up", "octopus", "brief", 1), ("look_up", "squid", "brief", 1), ("spend", "row 1", "brief", 1),
            ("think", f"[\"{'x' * 45}…{'x' * 17}… ‹9,004 bytes›", "brief", 1),
            ("look_up", "again, ‹masked›", "brief", 1), ("spend", "2", "brief", 1),
        ]  # fmt: skip
        assert rows[0].arguments == {"topic": "octopus"}
        assert rows[0].result == {"topic": "octopus", "day": "2024-02-29T00:00:00"}
        assert rows[3].arguments == {"messages": f'["{"x" * 998}… ‹9,004 bytes›'}
        assert (rows[3].result, rows[3].bytes) == ("… ‹40,002 bytes›", 40_002)
        assert rows[4].arguments == {"topic": "again", "password": "‹masked›"}
        assert [(row.usd, row.tokens) for row in rows[-2:]] == [(0.0, 0), (0.5, 7)]
        assert rows[0].seq < rows[1].seq
        assert timedelta(0) <= rows[0].took < timedelta(minutes=1)


@on_loop
async def test_one_operation_has_its_whole_result() -> None:
    async with Engine(":memory:") as engine:
        rows = await written(engine)
        assert (await operation(engine, "b1", rows[3].id)).result == "é" * 20_000
        assert (await operations(engine, "b1", whole=True))[3].result == "é" * 20_000
        with pytest.raises(UnknownOperation, match="--operations"):
            await operation(engine, "b1", "/look_up#9")


@on_loop
async def test_operations_are_listed_in_pages() -> None:
    async with Engine(":memory:") as engine:
        rows = await written(engine)
        last = await operations(engine, "b1", limit=2)
        assert last == rows[-2:]
        assert await operations(engine, "b1", before=last[0].seq, limit=3) == rows[1:4]
        assert await operations(engine, "b1", before=rows[0].seq) == []
        assert await operations(engine, "b1", limit=None) == rows
        with pytest.raises(ValueError, match="number of operations"):
            await operations(engine, "b1", limit=-1)


@on_loop
async def test_events_and_visits_tell_them_too() -> None:
    async with Engine(":memory:") as engine:
        rows = await written(engine)
        events = [event async for event in engine.session("b1").events() if event.event_type == "operation.completed"]
        assert [event.data["arguments"] for event in events] == [row.arguments for row in rows]
        assert [event.data["result"] for event in events] == [row.result for row in rows]
        (span,) = await engine.session("b1").spans()
        labels = [(part.name, part.label) for part in span.operations]
        assert labels == [(row.name, row.label) for row in rows]


@on_loop
async def test_operations_of_older_versions_and_redacted_ones_are_read() -> None:
    @workflow(arguments=False)
    async def silent(ctx: Context) -> int:
        return await ctx.do(spend, 2)

    async with Engine(":memory:") as engine:
        session = await engine.start(silent, session_id="s1")
        await session.outcome()
        (row,) = await operations(engine, "s1")
        assert (row.arguments, row.result, row.label) == (None, 2, "")
        (event,) = [event async for event in engine.session("s1").events() if event.event_type == "operation.completed"]
        assert "arguments" not in event.data
        await session.redact(seq=row.seq)
        assert await operations(engine, "s1") == []
        with pytest.raises(UnknownOperation):
            await operation(engine, "s1", row.id)
