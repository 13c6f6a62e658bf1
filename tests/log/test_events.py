"""The history of a session: a closed list of event types, one order, exact cursors, and live updates."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Session, Status, Workflow, guard, step
from pausepoint.model import Event
from pausepoint.model.events import ENGINE_EVENTS
from pausepoint.testing import ManualClock
from tests.support.loop import on_loop
from tests.support.pipeline import Gate


class State(BaseModel):
    done: list[str] = []
    text: str = ""


async def chunk(name: str) -> str:
    return name


@step(writes="done", retry=2)
async def collect(ctx: Context) -> list[str]:
    ctx.emit("found", "two sources", sources=["a", "b"])
    done = await ctx.map(chunk, ["a", "b"], concurrency=1)
    ctx.spend(usd=0.5, tokens=3)
    if ctx.attempt == 1:
        raise ConnectionError("down")
    return done


@step(writes="text")
async def write(done: list[str]) -> str:
    return ",".join(done)


@step
async def extra() -> None: ...


def never(text: str) -> bool:
    return False


@step(when=never)
async def skipped() -> None: ...


workflow = Workflow("sources", state=State, steps=[collect, skipped, write, extra], events=["found"])


async def told(session: Session[Any], after: str = "") -> list[Event]:
    return [event async for event in session.events(after)]


async def eventful(engine: Engine) -> Session[Any]:
    """Return a session with many kinds of events in its history."""
    session = await engine.start(workflow, paused=True, reason="later", by="ann")
    await session.resume(by="bob")
    await session.outcome()
    return session


@pytest.mark.covers("S3.42", "S3.43")
@on_loop
async def test_the_history_tells_everything_in_order_with_time_agent_type_and_summary() -> None:
    clock = ManualClock(auto=True)
    async with Engine(":memory:", clock=clock) as engine:
        session = await eventful(engine)
        events = await told(session)
    lines = [(event.agent_name, event.event_type, event.summary) for event in events]
    assert [line for line in lines if line[1] not in ("step.retried",)] == [
        ("ann", "session.created", "created"),
        ("ann", "pause.requested", "ann asked to pause: later"),
        ("bob", "resume.requested", "bob asked to resume"),
        ("collect", "session.resumed", "resumed by bob at collect#1"),
        ("collect", "found", "two sources"),
        ("collect", "map.started", "chunk: 2 items"),
        ("collect", "operation.completed", "chunk"),
        ("collect", "operation.completed", "chunk"),
        ("collect", "spent", "$0.5000, 3 tokens"),
        ("collect", "step.completed", "collect#1 done"),
        ("skipped", "step.skipped", "skipped#1 skipped: never is false"),
        ("write", "step.completed", "write#1 done"),
        ("extra", "step.completed", "extra#1 done"),
        ("extra", "session.completed", "completed"),
    ]
    assert [event.event_type for event in events].count("step.retried") == 1
    assert {event.session_id for event in events} == {session.id}
    assert [event.created_at for event in events] == sorted(event.created_at for event in events)
    assert events[4].data == {"sources": ["a", "b"]}
    assert all(event.event_type in ENGINE_EVENTS | {"found"} for event in events)


@pytest.mark.covers("S3.43")
@on_loop
async def test_the_history_is_only_appended_to() -> None:
    gate = Gate()

    @step
    async def wait(ctx: Context) -> None:
        await gate.hold()

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("waits", state=State, steps=[wait, extra]))
        await gate.reached.wait()
        before = await told(session)
        await session.pause(by="ann")
        longer = await told(session)
        gate.opened.set()
        await session.outcome()
        await session.resume()
        await session.outcome()
        after = await told(session)
        assert longer[: len(before)] == before
        assert after[: len(longer)] == longer
        assert len(before) < len(longer) < len(after)


@on_loop
async def test_reading_in_pieces_of_any_length_equals_reading_at_once() -> None:
    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await eventful(engine)
        everything = await told(session)
        cursors = [event.cursor for event in everything]
        assert len(set(cursors)) == len(cursors)
        for position, cursor in enumerate(cursors):
            assert await told(session, cursor) == everything[position + 1 :]
        for length in (1, 2, 3, 5):
            pieces: list[Event] = []
            cursor = ""
            while True:
                piece: list[Event] = []
                async for event in session.events(cursor):
                    piece.append(event)
                    if len(piece) == length:
                        break
                if not piece:
                    break
                pieces += piece
                cursor = piece[-1].cursor
            assert pieces == everything


@on_loop
async def test_a_cursor_taken_while_a_session_runs_stays_exact_however_signals_and_records_mix() -> None:
    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(workflow, paused=True)
        seen = await told(session)
        for act in range(6):
            await (session.resume(by=f"r{act}") if act % 2 == 0 else session.pause(by=f"p{act}", mode="abort"))
            seen += await told(session, seen[-1].cursor)
            await asyncio.sleep(0)
        await session.resume() if await session.status() in (Status.PAUSED, Status.PAUSING) else None
        await session.outcome()
        seen += await told(session, seen[-1].cursor)
        assert seen == await told(session)


@on_loop
async def test_signals_stand_between_the_records_where_they_arrived() -> None:
    gate = Gate()

    @step
    async def wait() -> None:
        await gate.hold()

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("waits", state=State, steps=[extra, wait, write]))
        await gate.reached.wait()
        await session.pause(by="ann")
        await session.resume(by="bob")
        await session.pause(by="cid")
        gate.opened.set()
        await session.outcome()
        assert [(event.event_type, event.agent_name) for event in await told(session)] == [
            ("session.created", ""),
            ("step.completed", "extra"),
            ("pause.requested", "ann"),
            ("resume.requested", "bob"),
            ("pause.requested", "cid"),
            ("step.completed", "wait"),
            ("session.paused", "write"),
        ]


@pytest.mark.parametrize("wrong", ["x", "1", "1.2", "1.2.3.4", "a.b.c"])
@on_loop
async def test_what_is_no_cursor_is_refused(wrong: str) -> None:
    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await eventful(engine)
        with pytest.raises(ValueError, match="is not a cursor"):
            await told(session, wrong)


# live


@on_loop
async def test_a_follower_sees_everything_live_with_progress_until_the_session_ends() -> None:
    gate = Gate()
    seen: list[Event] = []

    @step
    async def long(ctx: Context) -> None:
        for done in range(3):
            ctx.progress(done, 3)
            while not any(event.data.get("done") == done for event in seen):
                await asyncio.sleep(0)  # continue after the follower has seen the event
        await gate.hold()

    async def follow(session: Session[Any]) -> None:
        async for event in session.events(follow=True):
            seen.append(event)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("long", state=State, steps=[extra, long]))
        follower = asyncio.create_task(follow(session))
        await gate.reached.wait()
        await session.pause(by="ann")
        await session.resume(by="ann")
        gate.opened.set()
        await follower  # the follower ends on its own
        shown = [event for event in seen if event.event_type == "progress"]
        assert [(event.summary, event.agent_name, event.cursor) for event in shown] == [
            (f"{done}/3", "long", "") for done in range(3)
        ]
        assert [event for event in seen if event.event_type != "progress"] == await told(session)
        assert seen[-1].event_type == "session.completed"


@on_loop
async def test_a_follower_in_another_engine_sees_what_this_one_does(tmp_path: Any) -> None:
    async with Engine(tmp_path / "h.db") as one, Engine(tmp_path / "h.db") as two:
        session = await one.start(Workflow("short", state=State, steps=[extra, write]), paused=True)
        other = two.session(session.id)
        seen: list[str] = []

        async def follow() -> None:
            async for event in other.events(follow=True):
                seen.append(event.event_type)

        follower = asyncio.create_task(follow())
        await session.resume()
        await follower
        assert seen == [event.event_type for event in await told(session)]


@on_loop
async def test_the_progress_of_a_map_is_shown_and_stored() -> None:
    gate = Gate()

    async def item(name: str) -> str:
        if name == "c":
            await gate.hold()
        return name

    @step(writes="done")
    async def work(ctx: Context) -> list[str]:
        return await ctx.map(item, list("abc"), concurrency=1)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("maps", state=State, steps=[work]))
        await gate.reached.wait()
        await session.pause(mode="abort")
        await session.outcome()
        assert (await session.info()).progress == (2, 3)


# custom event types


@pytest.mark.covers("S3.43")
@pytest.mark.parametrize(
    ("wrong", "hint"), [("fuond", "Did you mean 'found'?"), ("session.completed", "one of the engine's own events")]
)
@on_loop
async def test_an_event_that_the_workflow_does_not_declare_is_refused_with_the_nearest_name(
    wrong: str, hint: str
) -> None:
    @step
    async def tell(ctx: Context) -> None:
        ctx.emit(wrong, "oops")

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("tells", state=State, steps=[tell], events=["found"]))
        outcome = await session.outcome()
        assert outcome.failure is not None
        assert outcome.failure.type == "EventRefused"
        assert repr(wrong) in outcome.failure.message
        assert hint in outcome.failure.message
        assert wrong not in [event.event_type for event in await told(session)][:-1]


@on_loop
async def test_an_operation_is_kept_when_an_event_is_declared_afterwards(tmp_path: Path) -> None:
    paid: list[str] = []

    async def pay() -> None:
        paid.append("once")

    @step
    async def tell(ctx: Context) -> None:
        await ctx.do(pay)
        name = "found"
        ctx.emit(name, "after paid work")

    def tells(*events: str) -> Workflow[State]:
        return Workflow("tells", state=State, steps=[tell], events=events)

    async with Engine(tmp_path / "s.db") as engine:
        outcome = await (await engine.start(tells("lost"), session_id="s")).outcome()
        assert (outcome.status, outcome.failure and outcome.failure.type) == (Status.FAILED, "EventRefused")
        assert "Then resume the session" in str(outcome.failure)
    async with Engine(tmp_path / "s.db", workflows=[tells("lost", "found")]) as engine:
        session = await engine.session("s").resume()
        assert (await session.outcome()).status is Status.COMPLETED
        assert "found" in [event.event_type for event in await told(session)]
    assert paid == ["once"]


@on_loop
async def test_an_event_is_told_once_however_often_its_step_runs() -> None:
    gate = Gate()

    async def act() -> None: ...

    @step(retry=2)
    async def tell(ctx: Context) -> None:
        ctx.emit("found", "first")
        await ctx.do(act)
        ctx.emit("found", "second")
        if ctx.attempt == 1 and not gate.reached.is_set():
            raise ConnectionError
        await gate.hold()
        await ctx.safe_point()

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(Workflow("tells", state=State, steps=[tell], events=["found"]))
        await gate.reached.wait()
        await session.pause()
        gate.opened.set()
        await session.outcome()
        await session.resume()
        await session.outcome()
        assert [event.summary for event in await told(session) if event.event_type == "found"] == ["first", "second"]


@on_loop
async def test_a_guard_that_refuses_and_passes_is_told() -> None:
    closed = True

    @guard(after="extra")
    def hours(text: str) -> str | None:
        return "closed" if closed else None

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("guarded", state=State, steps=[extra], guards=[hours]))
        await session.outcome()
        closed = False
        await session.resume()
        await session.outcome()
        types = [event.event_type for event in await told(session)]
        assert types == [
            "session.created", "step.completed", "guard.refused", "session.paused",
            "session.resumed", "guard.passed", "session.completed",
        ]  # fmt: skip
