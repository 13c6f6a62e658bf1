"""Questions are sent once: over restarts, with several senders, without a cursor, and while services are down."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Workflow, step
from pausepoint.engine.remembered import RequestKeys
from pausepoint.integrations import Notice, notify, send_questions, services
from pausepoint.integrations.messages import AGAIN
from pausepoint.model.changes import Change
from pausepoint.model.remembered import Remembered
from pausepoint.testing import ManualClock
from tests.support.children import outside_sql
from tests.support.loop import PATIENCE, on_loop
from tests.support.webhook import Webhook, webhook

CURSORS = "digest = X'6e6f74696679' AND CAST(answer AS TEXT) LIKE '{\"mark\"%'"
RECORDS = "digest = X'6e6f74696679' AND CAST(answer AS TEXT) = 'sent'"


class Refund(BaseModel):
    topic: str
    secret: str = "4111-1111"
    answer: str = ""


@step(writes="answer")
async def decide(ctx: Context, topic: str, secret: str) -> str:
    return await ctx.ask(f"Refund {topic}?", choices=["yes", "no"], payload={"card": secret}, expires=timedelta(days=1))


refund = Workflow("refund", state=Refund, steps=[decide])


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as found:
        yield found


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "FIRST_DELAY", 0.02)
    monkeypatch.setattr(notify, "LONGEST_DELAY", 0.1)
    monkeypatch.setattr(notify, "LOOK_EVERY", 0.05)


async def asked(engine: Engine, topic: str, owner: str | None = None) -> str:
    """Start a session, and return the id of its question."""
    session = await engine.start(refund, topic=topic, session_id=topic, owner=owner)
    await session.outcome()
    (question,) = await session.questions()
    return question.id


@asynccontextmanager
async def sending(engine: Engine, *urls: str, **how: Any) -> AsyncIterator[list[Notice]]:
    """Send questions until the block ends."""
    said: list[Notice] = []
    async with asyncio.TaskGroup() as group:  # an error ends the block
        work = group.create_task(send_questions(engine, *urls, report=said.append, **how))
        yield said
        work.cancel()


async def noted(said: list[Notice], status: str, count: int = 1) -> None:
    async with asyncio.timeout(PATIENCE):
        while sum(each.status == status for each in said) < count:
            await asyncio.sleep(0.01)


@pytest.mark.long
@on_loop
async def test_each_question_is_sent_once_over_restarts(tmp_path: Path, hook: Webhook) -> None:
    async with Engine(tmp_path / "s.db", workflows=[refund]) as engine:
        await asked(engine, "before")
        async with sending(engine, hook.url()) as said:
            await asked(engine, "during")
            await hook.has(2)
            await noted(said, "sent", 2)
        await asked(engine, "between")
        for _ in range(2):
            assert await send_questions(engine, hook.url(), follow=False) == 0
    async with Engine(tmp_path / "s.db", workflows=[refund]) as engine, sending(engine, hook.url()):
        await asked(engine, "after")
        await hook.has(4)
    assert hook.texts == ["Refund before?", "Refund during?", "Refund between?", "Refund after?"]


@pytest.mark.long
@pytest.mark.parametrize(("lost", "count"), [("cursor", 2), ("records", 2), ("both", 4)])
@on_loop
async def test_the_cursor_and_the_records_each_prevent_a_second_message(
    lost: str, count: int, tmp_path: Path, hook: Webhook
) -> None:
    """Without both, which is how a sender without a memory behaves, the test sees every message twice."""
    async with Engine(tmp_path / "s.db", workflows=[refund]) as engine:
        for topic in ("one", "two"):
            await asked(engine, topic)
        await send_questions(engine, hook.url(), follow=False)
    for name, where in (("cursor", CURSORS), ("records", RECORDS)):
        if lost in (name, "both"):
            (found,) = outside_sql(tmp_path / "s.db", f"SELECT count(*) AS n FROM remembered WHERE {where}")
            assert found["n"] == (1 if name == "cursor" else 2)
            outside_sql(tmp_path / "s.db", f"DELETE FROM remembered WHERE {where}", "SELECT 1")
    async with Engine(tmp_path / "s.db", workflows=[refund]) as engine:
        await send_questions(engine, hook.url(), follow=False)
    assert len(hook.got) == count


@pytest.mark.long
@on_loop
async def test_a_lost_mark_neither_loses_nor_doubles_a_question(tmp_path: Path, hook: Webhook) -> None:
    async with Engine(tmp_path / "s.db", workflows=[refund]) as engine:
        await asked(engine, "one")
        await asked(engine, "last")
        await send_questions(engine, hook.url(), follow=False)
        (row,) = outside_sql(
            tmp_path / "s.db", f"SELECT CAST(answer AS TEXT) AS answer FROM remembered WHERE {CURSORS}"
        )
        mark = row["answer"].split('"')[3]
        await engine.session("last").cancel()
        await engine.session("last").remove()
        await asked(engine, "new")
        first: Change = await anext(engine.changes(mark))
        assert first.reset, "the mark was not lost"
        await send_questions(engine, hook.url(), follow=False)
    assert hook.texts == ["Refund one?", "Refund last?", "Refund new?"]


@pytest.mark.long
@on_loop
async def test_several_senders_send_each_question_once(tmp_path: Path, hook: Webhook) -> None:
    async with Engine(tmp_path / "s.db", workflows=[refund]) as one, Engine(tmp_path / "s.db") as two:
        async with sending(one, hook.url()) as said, sending(two, hook.url()) as others:
            for n in range(10):
                await asked(one, f"case-{n}")
            await hook.has(10)
            async with asyncio.timeout(PATIENCE):
                while len(said) + len(others) < 10:
                    await asyncio.sleep(0.01)
        assert await send_questions(two, hook.url(), hook.url(), follow=False) == 0
    assert sorted(hook.texts) == [f"Refund case-{n}?" for n in range(10)]
    assert AGAIN not in str(hook.got)


@on_loop
async def test_senders_without_records_are_caught(
    tmp_path: Path, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def remember(self: RequestKeys, key: str, digest: bytes, answer: bytes | None = None, **_: Any) -> Remembered:
        return Remembered(key, digest, answer, 0, claimed=answer is None)

    async with Engine(tmp_path / "s.db", workflows=[refund]) as one, Engine(tmp_path / "s.db") as two:
        await asked(one, "case")
        monkeypatch.setattr(RequestKeys, "remember", remember)
        hook.answers.clear()
        async with sending(one, hook.url()), sending(two, hook.url()):
            await hook.has(2)
            hook.answers.set()


@on_loop
async def test_the_message_of_a_sender_that_died_is_taken_over_and_says_so(tmp_path: Path, hook: Webhook) -> None:
    async with Engine(tmp_path / "s.db", workflows=[refund]) as engine:
        await asked(engine, "case")
        async with Engine(tmp_path / "s.db") as other:
            (service,) = services.services([hook.url()])
            id = await service.id(await notify._salt(engine))
            (question,) = await engine.questions()
            assert (await other.keys.remember(f"notify {id} {question.id} 1", notify.DIGEST)).claimed
            async with sending(engine, hook.url()) as said:
                await asked(engine, "another")
                await noted(said, "sent")
                assert hook.texts == ["Refund another?"], "a live sender keeps its message"
                await other.close()
                await hook.has(2)
                await noted(said, "sent", 2)
    assert [AGAIN in each["message"] for each in hook.got] == [False, True]


@on_loop
async def test_another_round_is_another_message(tmp_path: Path, hook: Webhook) -> None:
    async with Engine(tmp_path / "s.db", workflows=[refund]) as engine:
        id = await asked(engine, "case")
        async with sending(engine, hook.url()) as said:
            await hook.has(1)
            await engine.session("case").send("perhaps, card 4111-1111")
            await hook.has(2)
            await noted(said, "sent", 2)
        await send_questions(engine, hook.url(), follow=False)
    assert [(each.round, each.question_id) for each in said] == [(1, id), (2, id)]
    assert [each["title"] for each in hook.got] == ["refund asks a question", "refund asks again"]
    assert "round 2. The last answer was not accepted." in hook.got[1]["message"]
    assert "4111-1111" not in str(hook.got), "neither the state, nor the payload, nor an answer is sent"
    assert "perhaps" not in str(hook.got)


def test_a_service_has_time_to_answer() -> None:
    addresses = ["json://127.0.0.1/a", "json://127.0.0.1/b?rto=3"]
    assert [each._plugin.socket_read_timeout for each in services.services(addresses)] == [services.READ_FOR, 3]


@on_loop
async def test_a_round_that_begins_while_a_message_is_on_its_way_is_not_lost(
    tmp_path: Path, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = asyncio.Event()
    note = notify._Courier._note

    def noticing(self: notify._Courier, id: str) -> None:
        if id in self.waiting:
            renewed.set()
        note(self, id)

    monkeypatch.setattr(notify._Courier, "_note", noticing)
    async with Engine(tmp_path / "s.db", workflows=[refund]) as engine:
        await asked(engine, "case")
        hook.answers.clear()
        async with sending(engine, hook.url()) as said:
            await hook.has(1)
            await engine.session("case").send("perhaps")
            await renewed.wait()
            hook.answers.set()
            await noted(said, "sent", 2)
    assert [each.round for each in said] == [1, 2]


@on_loop
async def test_only_wanted_and_open_questions_are_sent(tmp_path: Path, hook: Webhook) -> None:
    clock = ManualClock()
    async with Engine(tmp_path / "s.db", workflows=[refund], clock=clock) as engine:
        await asked(engine, "hers", owner="ann")
        await asked(engine, "his", owner="bob")
        await engine.answer(await asked(engine, "answered", owner="ann"), "yes")
        await asked(engine, "cancelled", owner="ann")
        await engine.session("cancelled").cancel()
        assert await send_questions(engine, hook.url(), owner="ann", follow=False) == 0
        assert hook.texts == ["Refund hers?"]
        assert await send_questions(engine, hook.url(), workflow="another", follow=False) == 0
        assert len(hook.got) == 1
        clock.jump(timedelta(days=2))
        assert await send_questions(engine, hook.url(), follow=False) == 0
        assert len(hook.got) == 1, "the question of bob has expired"


@pytest.mark.long
@on_loop
async def test_a_service_that_is_down_gets_its_messages_later_and_delays_no_other(
    tmp_path: Path, hook: Webhook
) -> None:
    hook.refuses = "Refund"
    async with Engine(tmp_path / "s.db", workflows=[refund]) as engine:
        with webhook() as other:
            async with sending(engine, hook.url(), other.url()) as said:
                await asked(engine, "one")
                answered = await asked(engine, "answered")
                await other.has(2)
                await hook.has(0, refused=6)
                await engine.answer(answered, "yes")
                await engine.session("answered").outcome()
                hook.refuses = None
                await hook.has(1)
                await asked(engine, "two")
                await hook.has(2)
                await noted(said, "sent", 5)
    assert hook.texts == ["Refund one?", "Refund two?"]
    failed = [each for each in said if each.status == "failed"]
    assert {(each.service, each.number, each.reason) for each in failed} == {
        ("JSON", 1, "it answered with the status 503")
    }
    delays = [each.retry_in or 0.0 for each in failed]
    assert delays[:3] == [0.02, 0.04, 0.08]
    assert max(delays) == 0.1
    assert AGAIN not in str(hook.got), "a refused message was not sent"


@pytest.mark.long
@on_loop
async def test_a_question_that_a_service_never_accepts_does_not_stop_the_others(tmp_path: Path, hook: Webhook) -> None:
    hook.refuses = "poison"
    async with Engine(tmp_path / "s.db", workflows=[refund]) as engine:
        await asked(engine, "poison")
        await asked(engine, "food")
        assert await send_questions(engine, hook.url(), follow=False) == 1
        async with sending(engine, hook.url()) as said:
            await asked(engine, "water")
            await hook.has(2, refused=3)
            await noted(said, "sent")
        hook.refuses = None
        assert await send_questions(engine, hook.url(), follow=False) == 0
    assert hook.texts == ["Refund food?", "Refund water?", "Refund poison?"]


@pytest.mark.long
@on_loop
async def test_a_message_on_its_way_is_recorded_before_the_sender_ends(tmp_path: Path, hook: Webhook) -> None:
    async with Engine(tmp_path / "s.db", workflows=[refund]) as engine:
        await asked(engine, "case")
        hook.answers.clear()
        work = asyncio.ensure_future(send_questions(engine, hook.url()))
        await hook.has(1)
        work.cancel()
        await asyncio.sleep(0)
        assert not work.done()
        hook.answers.set()
        with pytest.raises(asyncio.CancelledError):
            await work
        await send_questions(engine, hook.url(), follow=False)
    assert len(hook.got) == 1
    assert AGAIN not in str(hook.got)


@on_loop
async def test_a_sender_ends_when_its_engine_closes(tmp_path: Path, hook: Webhook) -> None:
    async with Engine(tmp_path / "s.db", workflows=[refund]) as engine:
        await asked(engine, "case")
        said: list[Notice] = []
        work = asyncio.ensure_future(send_questions(engine, hook.url(), report=said.append))
        await noted(said, "sent")
    assert await work == 0


@on_loop
async def test_addresses_are_checked_before_anything_is_sent(tmp_path: Path, hook: Webhook) -> None:
    async with Engine(tmp_path / "s.db", workflows=[refund]) as engine:
        await asked(engine, "case")
        for wrong in ("slack://top-secret", "top-secret", "json://", "carrier-pigeon://top-secret"):
            with pytest.raises(ValueError, match=r"^URL 2 .*is not an address that apprise accepts") as refused:
                await send_questions(engine, hook.url(), wrong)
            assert "secret" not in str(refused.value)
        with pytest.raises(ValueError, match="no address"):
            await send_questions(engine)
    assert hook.got == []


@pytest.mark.long
@on_loop
async def test_a_link_that_does_not_fit_is_replaced_by_the_command(
    tmp_path: Path, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(tmp_path / "s.db", workflows=[refund]) as engine:
        await asked(engine, "one")
        await send_questions(engine, hook.url(), follow=False, link=lambda question: f"https://x/{'y' * 300}")
        small = services.services

        def with_little_room(urls: Sequence[str]) -> list[services.Service]:
            found = small(urls)
            found[0].room = 200
            return found

        monkeypatch.setattr(notify, "services", with_little_room)
        two = await asked(engine, "two")
        await send_questions(engine, hook.url(), follow=False, link=lambda question: f"https://x/{'y' * 300}")
    assert [each["message"].partition("Answer: ")[2].splitlines()[0] for each in hook.got] == [
        f"https://x/{'y' * 300}",
        f"pausepoint answer {two}",
    ]


@pytest.mark.long
@on_loop
async def test_no_log_contains_an_address(tmp_path: Path, hook: Webhook, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    hook.refuses = "Refund"
    async with Engine(tmp_path / "s.db", workflows=[refund]) as engine:
        await asked(engine, "one")
        await send_questions(engine, hook.url("top-secret", "ann:top-secret@"), follow=False)
        await send_questions(engine, "json://127.0.0.1:1/top-secret", follow=False)
        hook.refuses = None
        await send_questions(engine, hook.url("top-secret", "ann:top-secret@"), follow=False)
    assert len(hook.got) == 1
    assert "top-secret" not in caplog.text


@on_loop
async def test_without_apprise_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    async with Engine(tmp_path / "s.db") as engine:
        with pytest.raises(ImportError, match=r"pip install 'pausepoint\[notify\]'"):
            await send_questions(engine, "json://127.0.0.1")
