"""A message whose wait was cancelled, or whose step failed before it was committed, is still in the mailbox."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Context, Engine, Retry, Session, Status, Workflow, step
from pausepoint.model.commits import Commit, Flags
from pausepoint.model.records import SignalRecord
from pausepoint.runtime.messages import Receiving
from pausepoint.runtime.pending import Done
from pausepoint.runtime.visit import Wait
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import every_crash_point
from tests.support.chat import Mail, history
from tests.support.children import child
from tests.support.loop import on_loop
from tests.support.otherstores import ProxyStore
from tests.support.status import settled

TURNS = 16
"""More loop turns than a wait for a message that has arrived takes in the store below."""


class LongStore(ProxyStore):
    """A store whose reads and writes take several turns of the loop, before and after they take effect."""

    async def commit(self, commit: Commit) -> Flags | None:
        await turns(2)
        flags = await super().commit(commit)
        await turns(2)
        return flags

    async def mail(
        self, key: int, limit: int | None = None, kind: str | None = None, about: str | None = None
    ) -> list[SignalRecord]:
        await turns(2)
        found = await self._inner.mail(key, limit, kind, about)
        await turns(2)
        return found


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def stopped(session: Session[Any]) -> list[Any]:
    """Return the messages that the session has received when it ends, or waits for another one."""
    while await session.status() not in (Status.COMPLETED, Status.WAITING, Status.FAILED):
        await asyncio.sleep(0.001)
    outcome = await session.outcome()
    return list(outcome.state.got)


# cancelled waits


async def received_when_cancelled(cancelled: list[bool]) -> list[list[Any]]:
    """Return what sessions receive whose first wait is cancelled, each one turn of the loop later than the last."""

    @step(writes="got")
    async def listen(wanted: int, ctx: Context) -> list[Any]:
        waiting = asyncio.create_task(ctx.receive())
        await turns(wanted)
        waiting.cancel()
        try:
            return [await waiting]
        except asyncio.CancelledError:
            cancelled.append(True)
        return [await ctx.receive()]

    listening = Workflow("mail", state=Mail, steps=[listen])
    found = []
    async with Engine(LongStore(SqliteStore(":memory:"))) as engine:
        for turn in range(TURNS):
            session = await engine.start(listening, session_id=f"at-{turn}", wanted=turn, paused=True)
            await session.send("hello")
            await session.resume()
            found.append(await stopped(session))
    return found


@pytest.mark.no_always_replay("counts the turns of the loop")
@on_loop
async def test_a_wait_that_is_cancelled_at_any_turn_of_the_loop_loses_no_message() -> None:
    cancelled: list[bool] = []
    assert await received_when_cancelled(cancelled) == [["hello"]] * TURNS
    assert 3 < len(cancelled) < TURNS  # the first waits were cancelled, the last ones were not


@pytest.mark.no_always_replay("counts the turns of the loop")
@on_loop
async def test_a_wait_that_awaits_after_it_has_taken_the_message_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Receiving.look

    async def slow(self: Receiving) -> Done | Wait | None:
        found = await look(self)
        if isinstance(found, Done):
            await turns(2)
        return found

    monkeypatch.setattr(Receiving, "look", slow)
    assert [] in await received_when_cancelled([])


@pytest.mark.no_always_replay("counts the turns of the loop")
@on_loop
async def test_a_timeout_block_around_the_wait_loses_no_message_either() -> None:
    @step(writes="got")
    async def listen(wanted: int, ctx: Context) -> list[Any]:
        try:
            async with asyncio.timeout(None) as limit:
                loop = asyncio.get_running_loop()
                loop.call_soon(_reschedule_later, limit, wanted)
                got = [await ctx.receive()]
        except TimeoutError:
            got = [await ctx.receive()]
        return got

    listening = Workflow("mail", state=Mail, steps=[listen])
    async with Engine(LongStore(SqliteStore(":memory:"))) as engine:
        for turn in range(TURNS):
            session = await engine.start(listening, session_id=f"at-{turn}", wanted=turn, paused=True)
            await session.send("hello")
            await session.resume()
            assert await stopped(session) == ["hello"], f"timed out after {turn} turns"


def _reschedule_later(limit: asyncio.Timeout, turn: int) -> None:
    loop = asyncio.get_running_loop()
    if turn:
        loop.call_soon(_reschedule_later, limit, turn - 1)
    else:
        limit.reschedule(loop.time())


@on_loop
async def test_other_branches_get_what_a_cancelled_branch_waited_for(tmp_path: Path) -> None:
    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        first = asyncio.create_task(ctx.receive())
        await asyncio.sleep(0)
        if first.cancel():
            return list(await asyncio.gather(ctx.receive(), ctx.receive()))
        return list(await asyncio.gather(first, ctx.receive()))  # it had the message already

    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]), paused=True)
        await session.send("1")
        await session.send("2")
        await session.resume()
        assert sorted((await session.outcome()).state.got) == ["1", "2"]


# before the commit


@on_loop
async def test_a_step_that_fails_right_after_a_message_leaves_it_to_the_next_attempt() -> None:
    received: list[str] = []

    @step(writes="got", retry=Retry(attempts=2, first=0))
    async def listen(ctx: Context) -> list[Any]:
        received.append(await ctx.receive())
        if len(received) == 1:
            raise OSError("try again")
        return [received[-1]]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]), paused=True)
        await session.send("hello")
        await session.resume()
        assert (await session.outcome()).state.got == ["hello"]
        assert received == ["hello", "hello"]
        assert (await history(session)).count("operation.completed") == 1


@on_loop
async def test_a_step_that_fails_for_good_leaves_the_message_in_the_mailbox() -> None:
    fails = [True]

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        text = await ctx.receive()
        if fails:
            raise ValueError(text)
        return [text]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]), paused=True)
        await session.send("hello")
        await session.resume()
        assert (await session.outcome()).status is Status.FAILED
        [mail] = await engine.store.mail((await engine.store.get(session.id)).key)  # type: ignore[union-attr]
        assert mail.kind == "message"
        fails.clear()
        await session.rewind("listen")
        await session.resume()
        assert (await session.outcome()).state.got == ["hello"]


@on_loop
async def test_a_message_is_committed_before_the_next_operation_starts() -> None:
    seen: list[int] = []

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        first = await ctx.receive()

        async def look() -> str:
            seen.append(len(await engine.store.mail(1)))
            return first

        return [await ctx.do(look)]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]), paused=True)
        await session.send("hello")
        await session.resume()
        assert (await session.outcome()).state.got == ["hello"]
    assert seen == [0]


@on_loop
async def test_a_message_that_an_operation_received_is_committed_before_the_operation() -> None:
    calls: list[str] = []

    async def fetch(ctx: Context) -> str:
        calls.append(await ctx.receive())
        return calls[-1]

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        first = await ctx.do(fetch)
        return [first, await ctx.receive()]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]))
        await settled(session)
        await session.send("1")
        await settled(session)
        await session.send("2")
        assert (await session.outcome()).state.got == ["1", "2"]
        assert calls == ["1"]
        completed = [event.data["id"] async for event in session.events() if event.event_type == "operation.completed"]
        assert len(completed) == 3
        assert completed[0].endswith("/receive#1")
        assert completed[0].startswith(completed[1])  # the inner one comes first


@pytest.mark.no_always_replay("a plain await lasts until another branch has waited")
@on_loop
async def test_a_received_message_does_not_wake_a_session_whose_other_branch_waits() -> None:
    runs: list[str] = []
    over = asyncio.Event()

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        runs.append("run")

        async def busy() -> str:
            text = await ctx.receive()
            await over.wait()
            return text

        one, _ = await asyncio.gather(busy(), ctx.ask("Well?"))
        return [one]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]))
        await settled(session)
        # A message from `session.send` would be the answer to the open question.
        await engine.store.send(session.id, None, 1, b'{"value":"hello"}')
        while len(runs) < 2:
            await asyncio.sleep(0.001)
        await settled(session)
        row = await engine._service.row(session.id)
        assert await engine.store.mail(row.key) == []  # nothing is left that would wake it
        over.set()
        await session.answer("yes")
        assert (await session.outcome()).state.got == ["hello"]
        assert runs == ["run"] * 3


# unused results


@pytest.mark.no_always_replay("the task that nobody waits for ends with the step")
@on_loop
async def test_a_message_for_a_task_that_nobody_waits_for_is_an_event() -> None:
    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        forgotten = asyncio.create_task(ctx.receive())
        while not forgotten.done():
            await ctx.do(turns, 1, key=1)
            await asyncio.sleep(0.001)
        return []

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]), paused=True)
        await session.send("hello")
        await session.resume()
        await session.outcome()
        [event] = [event async for event in session.events() if event.event_type == "wait.unused"]
        assert event.data["n"] == 2  # the first signal is the pause
        assert "ctx.first()" in event.summary


@on_loop
async def test_a_message_that_is_awaited_is_no_such_event() -> None:
    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        async def inside() -> str:
            return await ctx.receive()

        async with asyncio.TaskGroup() as group:
            group.create_task(inside())
            group.create_task(ctx.receive())
        return [await ctx.receive(), *await asyncio.gather(ctx.receive())]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[listen]), paused=True)
        for n in range(4):
            await session.send(f"{n}")
        await session.resume()
        assert (await session.outcome()).status is Status.COMPLETED
        assert "wait.unused" not in await history(session)


# crashes


def test_a_crash_at_any_write_delivers_every_message_once() -> None:
    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        first = await ctx.receive()
        second = await ctx.receive(timeout=3600)
        await ctx.do(len, first)
        return [first, second]

    async def play(session: Session[Any]) -> None:
        for text in ("1", "2"):
            await session.send(text, key=text)

    def compare(state: Mail) -> None:
        assert state.got == ["1", "2"]

    points = every_crash_point(Workflow("mail", state=Mail, steps=[listen]), play=play, compare=compare)
    assert len(points) > 5


_KILLED = """
import os, signal
from pausepoint import Context, Workflow, step
from tests.support.chat import Mail

@step(writes="got")
async def listen(ctx: Context) -> list:
    text = await ctx.receive()
    os.kill(os.getpid(), signal.SIGKILL)  # after the hand-over, before its commit
    return [text]

async with Engine(args[0], workflows=[Workflow("mail", state=Mail, steps=[listen])]) as engine:
    session = await engine.start(engine.workflows["mail"], session_id="one")
    await session.send("hello", by="child")
    await asyncio.sleep(60)
"""


@on_loop
async def test_kill_9_between_the_hand_over_and_its_commit_leaves_the_message(tmp_path: Path) -> None:
    with child(_KILLED, tmp_path / "h.db") as dying:
        assert await asyncio.to_thread(dying.ended) == -9

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        return [await ctx.receive()]

    async with Engine(tmp_path / "h.db", workflows=[Workflow("mail", state=Mail, steps=[listen])]) as engine:
        session: Session[Any] = engine.session("one")
        kinds = await history(session)
        assert (kinds.count("message.received"), kinds.count("operation.completed")) == (1, 0)
        await session.resume(code="accept")
        assert (await session.outcome()).state.got == ["hello"]
