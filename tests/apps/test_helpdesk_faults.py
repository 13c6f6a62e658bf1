"""The helpdesk as real processes: effects with a key, expired questions, several processes that talk to one chat.

`tests.apps.test_faults` kills, interrupts and pauses a conversation at every point.
"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pausepoint import Engine
from pausepoint.apps.helpdesk import conversation, errand, helpdesk
from pausepoint.testing import ManualClock
from tests.apps.helpdesk_kit import effects, rows
from tests.apps.programs import Helpdesk
from tests.cli.kit import Process
from tests.support.forkserver import Forks
from tests.support.loop import PATIENCE


@pytest.fixture
def chat(tmp_path: Path, forks: Forks) -> Iterator[Helpdesk]:
    with Helpdesk(tmp_path, forks) as found:
        yield found


@pytest.mark.long
def test_without_its_key_an_effect_would_be_had_twice(chat: Helpdesk) -> None:
    """That the kill comes between the effect and its record, and that the key is what helps."""
    shop = chat.folder / "shop.db"
    chat.start(at="after book")
    assert effects(shop)["appointments"] == 1
    with closing(sqlite3.connect(shop, isolation_level=None)) as db:
        db.execute("UPDATE appointments SET key = 'another', time = '10:00'")
    chat.resume()
    assert rows(shop, "SELECT time, key = 'another' FROM appointments ORDER BY 1") == [("10:00", 1), ("15:00", 0)]


@pytest.mark.long
@pytest.mark.covers("S2.18", "S2.32")
def test_a_confirmation_of_a_killed_process_expires_and_is_asked_again_on_return(tmp_path: Path) -> None:
    ours = ("-m", "pausepoint.apps.helpdesk")
    with Process("--session-id", "c1", "--store", "x.db", cwd=tmp_path, program=ours, tty=True) as process:
        process.until("> ")
        process.type("cancel my order A-1002\n")
        process.until("Yes or no?")
        process.child.send_signal(signal.SIGKILL)
        assert process.child.wait(PATIENCE) == -signal.SIGKILL

    async def come_back(minutes: int) -> str:
        clock = ManualClock(datetime.now(UTC) + timedelta(minutes=minutes))
        async with Engine(tmp_path / "x.db", workflows=[helpdesk, errand], signals=False, clock=clock) as engine:
            await conversation.come_back(engine, "c1")
            await engine.session("c1").outcome()
            return (await conversation.read(engine, "c1")).messages[-1].text

    asked = "Shall I cancel order A-1002 (Wool blanket) and pay back 79.00 €? Yes or no?"
    assert asyncio.run(come_back(28)) == asked
    assert asyncio.run(come_back(31)) == asked
    assert effects(tmp_path / "shop.db").total() == 0

    async def look() -> list[str]:
        async with Engine(tmp_path / "x.db", workflows=[helpdesk, errand], signals=False) as engine:
            texts = [message.text for message in (await conversation.read(engine, "c1")).messages]
            await conversation.send(engine, "c1", "yes")
            await engine.session("c1").outcome()
            return texts

    assert asyncio.run(look()) == [
        "cancel my order A-1002", asked,
        "The cancellation: I received no answer in time, so nothing was changed. I ask again when you are back.", asked,
    ]  # fmt: skip
    assert effects(tmp_path / "shop.db") == Counter(cancellations=1)


@pytest.mark.long
def test_two_processes_talk_to_one_chat_and_each_message_is_answered_once(chat: Helpdesk) -> None:
    chat.run("--session-id", "c1", "--say", "hello", code=3)
    numbers = ("A-1001", "A-1002", "B-2001", "B-2002")
    children = [chat.begin("--session-id", "c1", "--say", f"where is {number}?") for number in numbers]
    for child in children:
        chat.ends(child, 3)
    chat.run("--session-id", "c1", "--say", "bye")
    transcript, _ = chat.result()
    texts = [each["text"] for each in transcript]
    for number in numbers:
        assert texts.count(f"where is {number}?") == 1
        assert sum(text.startswith(f"Order {number}") for text in texts) == 1


@pytest.mark.long
def test_a_message_to_a_paused_chat_is_kept_and_answered_after_the_resume(chat: Helpdesk) -> None:
    chat.run("--session-id", "c1", "--say", "cancel my order A-1002", code=3)
    chat.run("pause", "c1", "--reason", "lunch")
    chat.run("--session-id", "c1", "--say", "yes", code=3)
    assert effects(chat.folder / "shop.db").total() == 0
    chat.run("resume", "c1", code=3)
    assert effects(chat.folder / "shop.db") == Counter(cancellations=1)
    chat.run("--session-id", "c1", "--say", "bye")
    assert [each["text"] for each in chat.result()[0]].count("yes") == 1
