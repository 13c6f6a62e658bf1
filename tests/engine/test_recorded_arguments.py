"""The recorded arguments of operations are redacted with a field, exported with a session, and deleted with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.codec.arguments import arguments_of
from pausepoint.errors import VerbRefused
from pausepoint.log.replay import KeyBody, OperationBody, body_of
from tests.engine.case import SECRET, bytes_of
from tests.support.loop import on_loop
from tests.support.postgres import schema_of


class Visit(BaseModel):
    name: str
    room: str = ""
    length: int = 0
    letter: str = ""


calls: list[str] = []


async def count(text: str) -> int:
    calls.append(text)
    return len(text)


async def reserve(room: str) -> str:
    calls.append(room)
    return room.upper()


@step(writes="room")
async def book(ctx: Context) -> str:
    return await ctx.do(reserve, "blue")


@step(writes="length")
async def measure(name: str, ctx: Context) -> int:
    return await ctx.do(count, name)


@step(writes="letter")
async def talk(name: str, ctx: Context) -> str:
    seat = await ctx.do(reserve, "seat")
    length = await ctx.do(count, f"Dear {name}")
    return f"{seat}{length}{await ctx.receive(str)}"


visits = Workflow("visits", state=Visit, steps=[book, measure, talk])


async def arguments(engine: Engine, session_id: str) -> list[dict[str, Any] | None]:
    """Return the arguments of the operations in the log, and of those in the memory of open visits."""
    row = await engine._service.row(session_id)
    records = await engine._service.store.records(row.key, 1, row.seq)
    bodies = [body_of(record) for record in records if not record.redacted]
    inside = [body.journal.operations for body in bodies if isinstance(body, KeyBody) and body.journal is not None]
    operations = [body for body in bodies if isinstance(body, OperationBody)]
    every = [*operations, *(operation for some in inside for operation in some)]
    return [arguments_of(body.arguments) for body in every if body.name != "receive"]


async def check_redaction(store: str | Path) -> None:
    """Redact a field while a visit that reads it is open, and finish the session."""
    calls.clear()
    async with Engine(store, workflows=[visits]) as engine:
        session = await engine.start(visits, session_id="v1", name=SECRET)
        assert (await session.outcome()).status is Status.WAITING
        before = [{"room": "blue"}, {"text": SECRET}, {"room": "seat"}, {"text": f"Dear {SECRET}"}]
        assert await arguments(engine, "v1") == before
        done = await session.redact(field="name", value="N. N.")
        assert await arguments(engine, "v1") == [{"room": "blue"}, None, None]
        assert len(done.records) >= 4
        row = await engine._service.row("v1")
        kept = await engine._service.store.records(row.key, 1, row.seq)
        assert not any(SECRET.encode() in record.payload for record in kept)
        await session.send("!")
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.letter) == (Status.COMPLETED, "SEAT10!")
        assert calls == ["blue", SECRET, "seat", f"Dear {SECRET}", "Dear N. N."]
        report = await session.verify()
        assert report.ok, report.problems


@on_loop
async def test_a_redacted_field_is_gone_from_the_arguments_of_the_steps_that_read_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await check_redaction(path)
    assert SECRET.encode() not in bytes_of(path)


@pytest.mark.long
@on_loop
async def test_a_redacted_field_is_gone_from_the_arguments_on_postgres_too() -> None:
    with schema_of() as url:
        await check_redaction(url)


@on_loop
async def test_without_the_version_that_ran_every_operation_with_arguments_is_emptied() -> None:
    async with Engine(":memory:", workflows=[visits]) as engine:
        session = await engine.start(visits, session_id="v1", name=SECRET)
        await session.outcome()
        newer = Workflow("visits", state=Visit, steps=[book, measure, talk], version=2, migrations=[])
        engine._service.workflows["visits"] = newer
        await session.redact(field="name", value="N. N.")
        assert await arguments(engine, "v1") == [None, None]


@on_loop
async def test_the_record_of_an_operation_is_redacted_with_its_arguments() -> None:
    async with Engine(":memory:", workflows=[visits]) as engine:
        session = await engine.start(visits, session_id="v1", name=SECRET)
        await session.outcome()
        events = [event async for event in session.events() if event.event_type == "operation.completed"]
        await session.redact(event=events[1].cursor)
        assert {"text": SECRET} not in await arguments(engine, "v1")
        assert {"room": "blue"} in await arguments(engine, "v1")
        with pytest.raises(VerbRefused, match="the open visit"):
            await session.redact(event=events[-1].cursor)


@on_loop
async def test_arguments_travel_with_an_export_and_are_deleted_with_the_session(tmp_path: Path) -> None:
    async with Engine(":memory:", workflows=[visits]) as engine:
        session = await engine.start(visits, session_id="v1", name=SECRET)
        await session.outcome()
        before = await arguments(engine, "v1")
        await engine.session("v1").export(tmp_path / "v1.jsonl")
    path = tmp_path / "store.db"
    async with Engine(path, workflows=[visits]) as engine:
        await engine.import_session(tmp_path / "v1.jsonl")
        assert await arguments(engine, "v1") == before
        assert SECRET.encode() in bytes_of(path)
        await engine.session("v1").cancel()
        await engine.session("v1").remove()
        await engine.gc(apply=True)
        assert SECRET.encode() not in bytes_of(path)
        assert (await engine.verify()).ok


@on_loop
async def test_the_arguments_of_kept_operations_stay_after_a_rewind() -> None:
    async with Engine(":memory:", workflows=[visits]) as engine:
        session = await engine.start(visits, session_id="v1", name=SECRET)
        await session.outcome()
        await session.send("!")
        await session.outcome()
        await session.rewind(to="talk", reuse=True)
        assert (await arguments(engine, "v1"))[-1] == {"text": f"Dear {SECRET}"}
