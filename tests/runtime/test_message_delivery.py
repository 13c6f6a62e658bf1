"""Messages are kept in every status and received exactly once, even across engines and crashes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pausepoint import BlockingContext, Context, Engine, Session, Status, Workflow, step
from pausepoint.errors import SessionEnded
from pausepoint.name import NAME
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock, every_crash_point
from tests.support.chat import Chatting, CountingStore, Mail, Message, history, listening
from tests.support.children import child, run_child
from tests.support.loop import on_loop
from tests.support.pipeline import Gate
from tests.support.status import settled
from tests.support.threads import started_threads

listening_once = listening()


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
            session: Session[Any] = engine.session("one")
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
        assert await engine.session("one").send("hello") is Status.READY
        await asyncio.sleep(0.05)
        assert (await engine.session("one").info()).status is Status.READY
    async with Engine(tmp_path / "h.db", workflows=[workflow]) as engine:  # the engine picks up the session on its own
        assert (await engine.session("one").outcome()).state.got == ["hello"]


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
async def test_a_waiting_session_holds_no_task_no_thread_and_no_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        tasks = len(asyncio.all_tasks())
        started = started_threads(monkeypatch)
        sessions = [await engine.start(listening_once) for _ in range(20)]
        for session in sessions:
            await settled(session)
        info = await sessions[0].info()
        assert (info.status, info.holder, info.waiting, info.step) == ("waiting", None, ("message",), "listen")
        assert engine._service.driver.runs == {}
        assert len(asyncio.all_tasks()) <= tasks + 1
        assert started
        assert [thread.name for thread in started if thread.is_alive()] in ([], [f"{NAME}-loop-watch"])


@pytest.mark.covers("S2.32")
@on_loop
async def test_a_message_that_came_while_nobody_was_there_is_received_by_the_next_engine(tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        await settled(await engine.start(listening_once, session_id="one", wanted=2))
        await engine.session("one").send("1")
        await settled(engine.session("one"))
    run_child(
        'async with Engine(args[0]) as engine: await engine.session("one").send("2", by="child")', tmp_path / "h.db"
    )
    async with Engine(tmp_path / "h.db", workflows=[listening_once]) as engine:
        assert (await engine.session("one").outcome()).state.got == ["1", "2"]


@on_loop
async def test_a_message_from_another_process_is_picked_up_here(tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(listening_once, session_id="one")
        await settled(session)
        program = 'async with Engine(args[0]) as engine: say(await engine.session("one").send("hello", by="child"))'
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
            await sender.session("chat").send(f"{n}")
        await sender.session("chat").send("bye")
        while await session.status() is not Status.COMPLETED:
            await asyncio.sleep(0.01)
        state: Any = await two.session("chat").state()
    said = [message.text for message in state.messages if message.role == "user"]
    assert said == [*(f"{n}" for n in range(10)), "bye"]
    assert chatting.calls == said


@on_loop
async def test_a_plain_def_step_receives_as_well() -> None:
    @step(writes="got")
    def listen(wanted: int, ctx: BlockingContext) -> list[Any]:
        return [ctx.receive(Message).text for _ in range(wanted)]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]), wanted=2)
        for item in ("book", "pen"):
            await settled(session)
            await session.send(Message(role="user", text=item))
        assert (await session.outcome()).state.got == ["book", "pen"]


# exactly once


async def converse(session: Session[Any]) -> None:
    """Send the messages that were not sent before the crash."""
    for n, text in enumerate(("one", "two", "bye")):
        sent = (await history(session)).count("message.received")
        if n >= sent:
            await session.send(text)


@pytest.mark.long
def test_a_crash_at_any_write_neither_loses_nor_doubles_a_message() -> None:
    points = every_crash_point(Chatting().workflow, play=converse)
    assert len(points) > 10


_CHAT = """
import os, signal
from pausepoint.stores.sqlite import SqliteStore
from tests.support.chat import Chatting
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
    session = engine.session("chat")
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
        session = engine.session("chat")
        received = [event async for event in session.events() if event.event_type == "operation.completed"]
        assert len(received) == (when == "after")  # the process died at the intended point
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
