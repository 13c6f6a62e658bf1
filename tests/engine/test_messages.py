"""Messages: they wake the session that they are for and no other, come in order, and are received exactly once."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from pydantic import BaseModel

from holdfast import (
    Append,
    BlockingContext,
    Context,
    Engine,
    Session,
    Status,
    Workflow,
    guard,
    route,
    step,
)
from holdfast.codec import Limits
from holdfast.errors import InputConflict, OversizedValue, SessionEnded, UnknownSession, ValueRefused
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import ManualClock, every_crash_point
from tests.support.chatting import Chatting, CountingStore, settled
from tests.support.children import child, run_child
from tests.support.loop import on_loop
from tests.support.pipeline import Gate


class Order(BaseModel):
    item: str
    count: int = 1
    due: datetime | None = None
    tags: set[str] = set()


class Mail(BaseModel):
    wanted: int = 1
    got: Annotated[list[Any], Append] = []
    ended: bool = False


def listening(kind: Any = str) -> Workflow[Mail]:
    """A workflow that receives ``wanted`` messages of a type in one visit, then ends."""

    @step(writes="got")
    async def listen(wanted: int, ctx: Context) -> list[Any]:
        return [plain(await ctx.receive(kind)) for _ in range(wanted)]

    @step(writes="ended")
    async def close() -> bool:
        return True

    return Workflow("mail", state=Mail, steps=[listen, close])


def plain(value: Any) -> Any:
    return value.model_dump() if isinstance(value, BaseModel) else value


listening_once = listening()


async def history(session: Session[Any]) -> list[str]:
    return [event.event_type async for event in session.events()]


# what a message can be


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (str, "hello"),
        (str, ""),
        (str, "ünïcode ✓ \x00 \N{PILE OF POO}"),
        (Order, Order(item="book", due=datetime(2024, 2, 29, tzinfo=UTC), tags={"a", "b"})),
        (Literal["yes", "no"], "no"),
        (dict[str, list[int]], {"a": [1, 2], "$set": []}),
        (int, 2**70),
        (bool, False),
        (datetime, datetime(2024, 2, 29, 12, tzinfo=UTC)),
        (str | None, None),
        (Any, {"free": [1, (2, 3)]}),
    ],
    ids=["text", "empty", "unicode", "model", "literal", "dict", "large int", "false", "datetime", "none", "anything"],
)
@on_loop
async def test_a_message_comes_as_a_value_of_the_type_that_is_received(kind: Any, value: Any) -> None:
    found: list[Any] = []

    @step
    async def listen(ctx: Context) -> None:
        found.append(await ctx.receive(kind))

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]))
        await settled(session)
        assert await session.send(value) is Status.RUNNING
        assert (await session.outcome()).status is Status.COMPLETED
    assert found == [value]
    assert type(found[0]) is type(value)


@on_loop
async def test_a_dict_is_received_as_a_model() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(listening(Order))
        await session.send({"item": "book", "count": 2})
        assert (await session.outcome()).state.got == [Order(item="book", count=2).model_dump()]


@pytest.mark.parametrize("kind", [Order, int, Literal["yes"]], ids=["model", "int", "literal"])
@on_loop
async def test_a_message_that_does_not_fit_is_an_event_and_the_wait_goes_on(kind: Any) -> None:
    right = {Order: {"item": "book"}, int: 7}.get(kind, "yes")
    async with Engine(":memory:") as engine:
        session = await engine.start(listening(kind))
        await settled(session)
        await session.send("nonsense", by="ann")
        await settled(session)
        assert (await session.info()).waiting == ("message",)
        refused = [event async for event in session.events() if event.event_type == "message.refused"]
        assert [event.data for event in refused] == [{"n": 1}]
        assert refused[0].summary.startswith("listen: ")
        assert "message 1" in refused[0].summary
        await session.send(right)
        outcome = await session.outcome()
        assert (outcome.status, len(outcome.state.got)) == (Status.COMPLETED, 1)


@pytest.mark.parametrize(
    "value",
    ["\ud800", {"a": "\udfff"}, object(), [Order(item="x")], print],
    ids=["lone surrogate", "one inside", "object", "list of models", "function"],
)
@on_loop
async def test_what_cannot_be_stored_is_refused_when_it_is_sent_and_leaves_nothing(value: Any) -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(listening())
        await settled(session)
        before = await session.info(), await history(session)
        with pytest.raises(ValueRefused, match="message"):
            await session.send(value)
        with pytest.raises(ValueRefused, match="message"):
            await engine.message("new", value, workflow=listening())
        assert (await session.info(), await history(session)) == before
        assert [info.session_id for info in await engine.sessions()] == [session.id]


@on_loop
async def test_a_number_that_json_lacks_arrives_as_what_it_is() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(listening(float), wanted=2)
        await session.send(math.nan)
        await session.send(-math.inf)
        first, second = (await session.outcome()).state.got
        assert math.isnan(first)
        assert second == -math.inf


@on_loop
async def test_a_huge_message_arrives_whole_and_one_above_the_limit_is_refused(tmp_path: Path) -> None:
    text = "0123456789" * 300_000
    async with Engine(tmp_path / "h.db", limits=Limits(value_bytes=4_000_000)) as engine:
        session = await engine.start(listening())
        await settled(session)
        with pytest.raises(OversizedValue):
            await session.send(text * 2)
        assert await session.status() is Status.WAITING
        await session.send(text)
        assert (await session.outcome()).state.got == [text]


# order, and who gets which


@on_loop
async def test_early_messages_are_kept_and_received_in_order_in_one_visit() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(listening(), wanted=5, paused=True)
        for n in range(3):
            assert await session.send(f"{n}") is Status.PAUSED
        await session.resume()
        await settled(session)
        for n in range(3, 5):
            await session.send(f"{n}")
        assert (await session.outcome()).state.got == [f"{n}" for n in range(5)]


@on_loop
async def test_a_message_is_received_once_however_often_the_step_begins_again() -> None:
    tops: list[int] = []

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        tops.append(len(tops))
        return [await ctx.receive() for _ in range(3)]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]))
        for n in range(3):
            await settled(session)
            await session.send(f"{n}")
        assert (await session.outcome()).state.got == ["0", "1", "2"]
    assert len(tops) == 4


@on_loop
async def test_branches_of_a_gather_share_the_messages_each_gets_its_own() -> None:
    async def branch(name: str, ctx: Context) -> list[str]:
        return [name, await ctx.receive(), await ctx.receive()]

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(*[branch(name, ctx) for name in "abc"]))

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]))
        for n in range(6):
            await settled(session)
            await session.send(f"{n}")
        got = (await session.outcome()).state.got
    assert [name for name, *_ in got] == ["a", "b", "c"]
    assert sorted(text for _, *texts in got for text in texts) == [f"{n}" for n in range(6)]
    assert all(first < second for _, first, second in got)


@on_loop
async def test_items_of_a_map_wait_for_a_message_each_and_keep_what_they_got() -> None:
    done: list[str] = []

    async def item(name: str, ctx: Context) -> str:
        text = await ctx.receive()
        done.append(name)
        return f"{name}{text}"

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        return await ctx.map(item, ["a", "b", "c"], concurrency=2)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]))
        for n in range(3):
            await settled(session)
            await session.send(f"{n}")
        got = (await session.outcome()).state.got
    assert [text[0] for text in got] == ["a", "b", "c"]
    assert sorted(text[1] for text in got) == ["0", "1", "2"]
    assert sorted(done) == ["a", "b", "c"]


@pytest.mark.covers("S2.33")
@on_loop
async def test_a_message_wakes_the_session_that_it_is_for_and_no_other(tmp_path: Path) -> None:
    tops: list[str] = []

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        tops.append(ctx.session_id)
        return [await ctx.receive()]

    workflow = Workflow("mail", state=Mail, steps=[listen])
    async with Engine(tmp_path / "h.db") as engine:
        one, other = [await engine.start(workflow, session_id=name) for name in ("one", "other")]
        await settled(one)
        await settled(other)
        row, told = await engine.store.get("other"), await history(other)
        await one.send("for one")
        assert (await one.outcome()).status is Status.COMPLETED
        await asyncio.sleep(0.1)  # the waker and the watcher have looked
        assert await engine.store.get("other") == row  # no record, no claim, nothing
        assert await history(other) == told
        assert tops == ["one", "other", "one"]
        await other.send("for the other")
        assert (await other.outcome()).state.got == ["for the other"]


# which session


@on_loop
async def test_a_message_to_an_unknown_session_is_refused_or_starts_it(tmp_path: Path) -> None:
    workflow = listening()
    async with Engine(tmp_path / "h.db") as engine:
        with pytest.raises(UnknownSession, match="nobody"):
            await engine.message("nobody", "hello")
        with pytest.raises(TypeError, match=r"wanted.*give workflow="):
            await engine.message("nobody", "hello", wanted=2)
        assert await engine.sessions() == []
        await engine.message("ann", "hello", workflow=workflow, wanted=2)
        await engine.message("ann", "again", workflow=workflow)
        outcome = await (await engine.session("ann")).outcome()
        assert (outcome.status, outcome.state.got) == (Status.COMPLETED, ["hello", "again"])
        assert len(await engine.sessions()) == 1
        with pytest.raises(SessionEnded):
            await engine.message("ann", "once more", workflow=workflow)


@on_loop
async def test_two_messages_at_once_to_a_session_that_is_not_there_start_it_once(tmp_path: Path) -> None:
    workflow = listening()
    async with Engine(tmp_path / "h.db") as engine, Engine(tmp_path / "h.db", signals=False) as other:
        sends = [each.message("ann", f"{n}", workflow=workflow, wanted=6) for n, each in enumerate((engine, other) * 3)]
        await asyncio.gather(*sends)
        session = await engine.session("ann")
        outcome = await session.outcome()
        while outcome.status is not Status.COMPLETED:
            outcome = await session.outcome()
        assert sorted(outcome.state.got) == [f"{n}" for n in range(6)]
        assert (await history(session)).count("session.created") == 1
        assert len(await engine.sessions()) == 1


@on_loop
async def test_the_fields_are_for_the_start_alone(tmp_path: Path) -> None:
    workflow = listening()
    async with Engine(tmp_path / "h.db") as engine:
        await engine.message("ann", "1", workflow=workflow, wanted=2)
        await engine.message("ann", "2", workflow=workflow, wanted=9)
        assert (await (await engine.session("ann")).outcome()).state.got == ["1", "2"]
        with pytest.raises(InputConflict):
            await engine.start(workflow, session_id="ann", wanted=9)


# every status


class Stage(NamedTuple):
    """A session in a certain status that receives one message after its first step."""

    engine: Engine
    session: Session[Mail]
    gate: Gate
    clock: ManualClock


def staged(gate: Gate, status: str) -> Workflow[Mail]:
    troubles = [RuntimeError("no paper left")] if status == "failed" else []

    @step
    async def prepare(ctx: Context) -> None:
        if status == "sleeping":
            await ctx.sleep(60)
        elif status in ("ready", "running", "pausing"):
            await gate.hold()
        if troubles:
            raise troubles.pop()

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        return [] if status == "completed" else [await ctx.receive()]

    return Workflow("mail", state=Mail, steps=[prepare, listen])


@asynccontextmanager
async def in_status(status: str, path: Path) -> AsyncIterator[Stage]:
    gate, clock = Gate(), ManualClock()
    workflow = staged(gate, status)
    if status == "ready":
        async with Engine(path, clock=clock) as earlier:
            await earlier.start(workflow, session_id="one")
            await gate.reached.wait()
    async with Engine(path, clock=clock, workflows=[workflow]) as engine:
        if status == "ready":
            session: Session[Any] = await engine.session("one")
        else:
            session = await engine.start(workflow, session_id="one", paused=status == "created")
        if status == "created":
            await engine.store.unpause("one", None, 0)
        elif status in ("running", "pausing"):
            await gate.reached.wait()
        if status == "pausing":
            await session.pause()
        elif status in ("paused", "cancelled"):
            await settled(session)
            await (session.pause() if status == "paused" else session.cancel())
        if status not in ("ready", "running", "pausing", "created"):
            await settled(session, Status(status))
        assert await session.status() == status
        yield Stage(engine, session, gate, clock)


KEPT = ("created", "ready", "pausing", "paused", "sleeping", "failed")


@pytest.mark.parametrize("status", KEPT)
@on_loop
async def test_a_message_is_kept_while_the_session_is(status: str, tmp_path: Path) -> None:
    async with in_status(status, tmp_path / "h.db") as stage:
        assert await stage.session.send("hello") == status
        await asyncio.sleep(0.02)
        assert await stage.session.status() == status
        stage.gate.opened.set()
        if status == "sleeping":
            stage.clock.advance(60)
        elif status == "pausing":
            await settled(stage.session, Status.PAUSED)
        if status != "sleeping":
            await stage.session.resume()
        outcome = await stage.session.outcome()
        assert (outcome.status, outcome.state.got) == (Status.COMPLETED, ["hello"])


@on_loop
async def test_a_message_is_delivered_to_a_running_session(tmp_path: Path) -> None:
    async with in_status("running", tmp_path / "h.db") as stage:
        assert await stage.session.send("hello") is Status.RUNNING
        stage.gate.opened.set()
        outcome = await stage.session.outcome()
        assert (outcome.status, outcome.state.got) == (Status.COMPLETED, ["hello"])
        assert "session.waiting" not in await history(stage.session)  # it never had to wait


@on_loop
async def test_a_message_to_a_waiting_session_has_it_run_here(tmp_path: Path) -> None:
    async with in_status("waiting", tmp_path / "h.db") as stage:
        assert await stage.session.send("hello") is Status.RUNNING
        assert (await stage.session.outcome()).state.got == ["hello"]


@on_loop
async def test_a_message_to_a_waiting_session_whose_workflow_is_not_known_here_makes_it_ready(tmp_path: Path) -> None:
    workflow = listening()
    async with Engine(tmp_path / "h.db") as engine:
        await settled(await engine.start(workflow, session_id="one"))
    async with Engine(tmp_path / "h.db") as engine:
        assert await engine.message("one", "hello") is Status.READY
        await asyncio.sleep(0.05)
        assert (await engine.info("one")).status is Status.READY
    async with Engine(tmp_path / "h.db", workflows=[workflow]) as engine:  # nobody has to ask it to
        assert (await (await engine.session("one")).outcome()).state.got == ["hello"]


@pytest.mark.parametrize("status", ["completed", "cancelled"])
@on_loop
async def test_a_session_that_has_ended_takes_no_message(status: str, tmp_path: Path) -> None:
    async with in_status(status, tmp_path / "h.db") as stage:
        before = await stage.session.info(), await history(stage.session)
        with pytest.raises(SessionEnded, match=status):
            await stage.session.send("hello")
        assert (await stage.session.info(), await history(stage.session)) == before


# waiting


@pytest.mark.covers("S2.31")
@on_loop
async def test_a_waiting_session_holds_no_task_no_thread_and_no_hold(tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        tasks, threads = len(asyncio.all_tasks()), threading.active_count()
        sessions = [await engine.start(listening_once) for _ in range(20)]
        for session in sessions:
            await settled(session)
        info = await sessions[0].info()
        assert (info.status, info.holder, info.waiting, info.step) == ("waiting", None, ("message",), "listen")
        assert engine.driver.runs == {}
        assert len(asyncio.all_tasks()) <= tasks + 1
        assert threading.active_count() <= threads + 1


@pytest.mark.covers("S2.32")
@on_loop
async def test_a_message_that_came_while_nobody_was_there_is_received_by_the_next_engine(tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        await settled(await engine.start(listening_once, session_id="one", wanted=2))
        await engine.message("one", "1")
        await settled(await engine.session("one"))
    run_child('async with Engine(args[0]) as engine: await engine.message("one", "2", by="child")', tmp_path / "h.db")
    async with Engine(tmp_path / "h.db", workflows=[listening_once]) as engine:
        assert (await (await engine.session("one")).outcome()).state.got == ["1", "2"]


@on_loop
async def test_a_message_from_another_process_is_picked_up_here(tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(listening_once, session_id="one")
        await settled(session)
        program = 'async with Engine(args[0]) as engine: say(await engine.message("one", "hello", by="child"))'
        assert await asyncio.to_thread(run_child, program, tmp_path / "h.db") in ("ready", "running", "completed")
        while await session.status() is not Status.COMPLETED:
            await asyncio.sleep(0.01)
        assert (await session.state()).got == ["hello"]


@on_loop
async def test_of_two_engines_one_takes_a_message(tmp_path: Path) -> None:
    chatting = Chatting()
    async with (
        Engine(tmp_path / "h.db", workflows=[chatting.workflow]) as one,
        Engine(tmp_path / "h.db", workflows=[chatting.workflow], signals=False) as two,
        Engine(tmp_path / "h.db", signals=False) as sender,
    ):
        session = await one.start(chatting.workflow, session_id="chat")
        for n in range(10):
            await sender.message("chat", f"{n}")
        await sender.message("chat", "bye")
        while await session.status() is not Status.COMPLETED:
            await asyncio.sleep(0.01)
        state: Any = await two.state("chat")
    said = [message.text for message in state.messages if message.role == "user"]
    assert said == [*(f"{n}" for n in range(10)), "bye"]
    assert chatting.calls == said


@on_loop
async def test_a_plain_def_step_receives_as_well() -> None:
    @step(writes="got")
    def listen(wanted: int, ctx: BlockingContext) -> list[Any]:
        return [ctx.receive(Order).item for _ in range(wanted)]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]), wanted=2)
        for item in ("book", "pen"):
            await settled(session)
            await session.send(Order(item=item))
        assert (await session.outcome()).state.got == ["book", "pen"]


# what comes of it


@on_loop
async def test_the_history_says_who_sent_what_came_and_when_it_was_taken_in() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(listening(), wanted=2)
        await settled(session)
        await session.send("a secret", by="ann")
        await settled(session)
        await session.send("another")
        await session.outcome()
        events = [event async for event in session.events()]
    came = [event for event in events if event.event_type == "message.received"]
    assert [(event.agent_name, event.summary, event.data) for event in came] == [
        ("ann", "a message came from ann", {"n": 1}),
        ("", "a message came from somebody", {"n": 2}),
    ]
    assert [event.event_type for event in events if event.event_type != "step.completed"] == [
        "session.created", "session.waiting", "message.received", "operation.completed", "session.waiting",
        "message.received", "operation.completed", "session.completed",
    ]  # fmt: skip
    assert not any("secret" in event.summary for event in events)


@on_loop
async def test_steps_before_a_wait_are_not_run_again_and_a_guard_and_a_route_follow_what_came(tmp_path: Path) -> None:
    calls: list[str] = []

    @step(writes="wanted")
    async def before() -> int:
        calls.append("before")
        return 3

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        return [await ctx.receive()]

    @guard(after=listen)
    def polite(got: list[Any]) -> str | None:
        return "that was rude" if got[-1] == "rude" else None

    @route(after=listen)
    def chosen(got: list[Any]) -> Literal["listen", "close"]:
        return "close" if got[-1] == "close" else "listen"

    @step(writes="ended")
    async def close() -> bool:
        calls.append("close")
        return True

    workflow = Workflow("mail", state=Mail, steps=[before, listen, close], guards=[polite], routes=[chosen])
    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(workflow, session_id="one")
        await settled(session)
        await session.send("more")
        await settled(session)
    async with Engine(tmp_path / "h.db", workflows=[workflow]) as engine:
        session = await engine.session("one")
        await session.send("rude")
        outcome = await session.outcome()
        assert (outcome.status, [pause.reason for pause in outcome.pauses]) == (Status.PAUSED, ["that was rude"])
        assert await session.send("close") is Status.PAUSED  # kept, as everything while paused
        await session.edit({"got": ["more", "sorry"]}, by="ann")
        await session.resume()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.got, outcome.state.ended) == (
            Status.COMPLETED, ["more", "sorry", "close"], True,
        )  # fmt: skip
    assert calls == ["before", "close"]


# exactly once


async def converse(session: Session[Any]) -> None:
    """Send what was not sent before the crash."""
    for n, text in enumerate(("one", "two", "bye")):
        sent = (await history(session)).count("message.received")
        if n >= sent:
            await session.send(text)


def test_a_crash_at_any_write_neither_loses_nor_doubles_a_message() -> None:
    points = every_crash_point(Chatting().workflow, play=converse)
    assert len(points) > 10


_CHAT = """
import os, signal
from holdfast.stores.sqlite import SqliteStore
from tests.support.chatting import Chatting
from tests.support.otherstores import ProxyStore

class Mortal(ProxyStore):
    async def commit(self, commit):
        if commit.consume and args[1] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        flags = await super().commit(commit)
        if commit.consume:
            os.kill(os.getpid(), signal.SIGKILL)
        return flags

async with Engine(Mortal(SqliteStore(args[0])), workflows=[Chatting().workflow]) as engine:
    session = await engine.session("chat")
    await session.send("hello", by="child")
    await asyncio.sleep(20)
"""


@pytest.mark.parametrize("when", ["before", "after"])
@on_loop
async def test_kill_9_around_the_commit_that_takes_a_message_in_leaves_it_received_once(
    when: str, tmp_path: Path
) -> None:
    chatting = Chatting()
    async with Engine(tmp_path / "h.db") as engine:
        await settled(await engine.start(chatting.workflow, session_id="chat"))
    with child(_CHAT, tmp_path / "h.db", when) as dying:
        assert await asyncio.to_thread(dying.ended) == -9
    async with Engine(tmp_path / "h.db", workflows=[chatting.workflow]) as engine:
        session = await engine.session("chat")
        received = [event async for event in session.events() if event.event_type == "operation.completed"]
        assert len(received) == (when == "after")  # so it died where it should
        assert await session.status() is Status.READY
        await session.resume()
        await settled(session)
        assert [message.text for message in (await session.state()).messages] == ["hello", "re: hello"]
        await session.send("bye")
        outcome = await session.outcome()
        assert [message.text for message in outcome.state.messages][2:] == ["bye", "re: bye"]
        assert (await history(session)).count("operation.completed") == 2


@on_loop
async def test_what_waits_behind_a_message_is_not_read_to_receive_it() -> None:
    chatting = Chatting()
    store = CountingStore(SqliteStore(":memory:"))
    async with Engine(store) as engine:
        session = await engine.start(chatting.workflow, paused=True)
        for n in range(100):
            await session.send(f"{n}")
        await session.send("bye")
        await session.resume()
        outcome = await session.outcome()
    assert (outcome.status, len(outcome.state.messages)) == (Status.COMPLETED, 202)
    assert chatting.calls == [*(f"{n}" for n in range(100)), "bye"]
    assert 101 <= store.signals_read <= 101 * 8


@on_loop
async def test_branches_that_are_busy_with_the_first_messages_do_not_hide_the_others() -> None:
    @step(writes="got")
    async def listen(wanted: int, ctx: Context) -> list[Any]:
        return list(await asyncio.gather(*[ctx.receive() for _ in range(wanted)]))

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]), wanted=30, paused=True)
        for n in range(30):
            await session.send(f"{n}")
        await session.resume()
        assert sorted(map(int, (await session.outcome()).state.got)) == list(range(30))
