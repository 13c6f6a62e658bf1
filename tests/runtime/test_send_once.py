"""A message with a key is delivered once, however often the call is repeated, and whenever the sender dies."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from pausepoint import Context, Engine, Session, Status, Workflow, step
from pausepoint.errors import AnswerConflict, QuestionClosed, SessionEnded
from pausepoint.model.questions import Answer, Answered
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.stores.sqlite.sql import QUERIES
from pausepoint.testing import ManualClock
from tests.questions.kit import Asking, held, waits
from tests.support.chat import Mail, history, listening
from tests.support.children import child
from tests.support.loop import on_loop
from tests.support.otherstores import ProxyStore
from tests.support.status import settled

twice = listening()


async def delivered(engine: Engine, session_id: str = "one") -> int:
    return (await history(engine.session(session_id))).count("message.received")


@on_loop
async def test_a_key_delivers_its_message_once_and_the_status_is_returned_each_time() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(twice, session_id="one", wanted=2, paused=True)
        for _ in range(3):
            assert await session.send("hello", key="m1") is Status.PAUSED
        assert await session.send("hello", key=2) is Status.PAUSED
        assert await delivered(engine) == 2
        await session.resume()
        assert (await session.outcome()).state.got == ["hello", "hello"]
        assert await session.send("hello", key="m1") is Status.COMPLETED  # also after the end
        with pytest.raises(SessionEnded):
            await session.send("hello", key="m3")


@on_loop
async def test_another_value_with_the_same_key_is_refused() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(twice, session_id="one", paused=True)
        await session.send("hello", key="m1", by="ann")
        with pytest.raises(AnswerConflict, match=r"different message with the key 'm1', sent by ann.*another key"):
            await session.send("goodbye", key="m1")
        with pytest.raises(ValueError, match="key must not be empty"):
            await session.send("hello", key="")
        assert await delivered(engine) == 1


@on_loop
async def test_a_session_that_the_message_starts_gets_it_once() -> None:
    async with Engine(":memory:") as engine:
        for _ in range(3):
            await engine.session("one", twice).send("hello", key="m1", start={"wanted": 2})
        session = engine.session("one")
        await settled(session)
        await session.send("bye", key="m2")
        assert (await session.outcome()).state.got == ["hello", "bye"]


@on_loop
async def test_a_message_that_answered_a_question_is_not_a_message_when_it_is_repeated() -> None:
    async with held(asking := Asking().workflow) as (engine, _):
        session = await engine.start(asking)
        await waits(session)
        await session.send("so", key="m1")
        assert (await session.outcome()).status is Status.COMPLETED
        assert await session.send("so", key="m1") is Status.COMPLETED
        kinds = await history(session)
        assert (kinds.count("question.answered"), kinds.count("message.received")) == (1, 0)


@on_loop
async def test_a_call_that_was_refused_has_not_used_up_its_key() -> None:
    clock = ManualClock()

    @step(writes="got")
    async def ask(ctx: Context) -> list[Any]:
        await ctx.ask("Well?", default="", expires=timedelta(seconds=1), on_expiry="default")
        return [await ctx.receive()]

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("ask", state=Mail, steps=[ask]))
        await settled(session)
        clock.advance(1)
        while "operation.completed" not in await history(session):
            await asyncio.sleep(0.001)
        await settled(session)
        with pytest.raises(QuestionClosed):  # it may be a late answer
            await session.send("hello", key="m1")
        await session.send("hello", key="m1")
        assert (await session.outcome()).state.got == ["hello"]


# crashes

_SENDER = """
import os, signal
from pausepoint.stores.sqlite import SqliteStore
from tests.support.otherstores import ProxyStore

class Mortal(ProxyStore):
    async def answer(self, given):
        if args[1] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        await self._inner.answer(given)
        os.kill(os.getpid(), signal.SIGKILL)

async with Engine(Mortal(SqliteStore(args[0])), drives="none") as engine:
    await engine.session("one").send("hello", key="m1")
"""


@pytest.mark.parametrize("when", ["before", "after"])
@on_loop
async def test_a_sender_that_was_killed_repeats_the_call(when: str, tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        await settled(await engine.start(twice, session_id="one"))
    with child(_SENDER, tmp_path / "h.db", when) as dying:
        assert await asyncio.to_thread(dying.ended) == -9
    async with Engine(tmp_path / "h.db", drives="none") as engine:
        assert await delivered(engine) == (when == "after")  # the process died at the intended point
        await engine.session("one").send("hello", key="m1")
        assert await delivered(engine) == 1
    async with Engine(tmp_path / "h.db", workflows=[twice]) as engine:
        session: Session[Any] = engine.session("one")
        assert (await session.outcome()).state.got == ["hello"]


class ForgetfulStore(ProxyStore):
    """A broken twin: it delivers a message without noting its key."""

    async def answer(self, given: Answer) -> Answered:
        return await self._inner.answer(replace(given, once=""))


@on_loop
async def test_a_store_that_forgets_keys_delivers_twice() -> None:
    async with Engine(ForgetfulStore(SqliteStore(":memory:"))) as engine:
        session = await engine.start(twice, session_id="one", paused=True)
        for _ in range(2):
            await session.send("hello", key="m1")
        assert await delivered(engine) == 2


async def changed(path: Path, sql: str) -> list[str]:
    """Send two messages with keys, change the database, and return what a verification reports."""
    async with Engine(path) as engine:
        session = await engine.start(twice, session_id="one", paused=True)
        for key in ("m1", "m2"):
            await session.send("hello", key=key)
        assert (await engine.verify()).ok
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()
    async with Engine(path) as engine:
        return [str(problem) for problem in (await engine.verify()).problems]


@on_loop
async def test_a_verification_finds_keys_and_messages_that_do_not_match(tmp_path: Path) -> None:
    (found,) = await changed(tmp_path / "a.db", "DELETE FROM sent WHERE once = 'm1'")
    assert "the list of messages with a key does not match signal 2" in found
    both = await changed(tmp_path / "b.db", "UPDATE sent SET n = 9 WHERE once = 'm1'")
    assert [each.partition("does not match ")[2][:8] for each in both] == ["signal 2", "signal 9"]


@on_loop
async def test_a_verification_reports_a_damaged_message_that_has_a_key(tmp_path: Path) -> None:
    cut = """UPDATE signals SET payload = CAST('{"value":1,"once":"m' AS BLOB) WHERE n = 2"""
    (found,) = await changed(tmp_path / "s.db", cut)
    assert "signal 2 is missing or does not match its digest" in found


@on_loop
async def test_the_check_of_keys_looks_at_each_message_once(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with Engine(path) as engine:
        await engine.start(twice, session_id="one", paused=True)
    plan = [str(row[3]) for row in apsw.Connection(str(path)).execute(f"EXPLAIN QUERY PLAN {QUERIES['stray_sent']}")]
    assert plan
    assert not [each for each in plan if "CORRELATED" in each]
