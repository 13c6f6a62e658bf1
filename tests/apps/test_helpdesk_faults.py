"""The helpdesk as real processes: killed, interrupted and paused at every point of a conversation, then gone on with.

The transcript and the shop are those of an undisturbed conversation, and every effect is had once.
"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine, Status
from pausepoint.apps.helpdesk import helpdesk
from tests.apps.helpdesk_kit import contents, effects, rows
from tests.apps.helpdesk_watched import TOOLS
from tests.support.forkserver import Child, Forks
from tests.support.held import Held

LINES = (
    "Where is A-1001, and change the address of A-1002",
    "Harbour Road 7",
    "24105 Kiel",
    "退款 B-2001，坏了",
    "yes",
    "book a repair next Monday at 3pm, ann@example.com",
    "a human please 🐙",
    "bye",
)
ONCE = Counter({"address_changes": 1, "refunds": 1, "appointments": 1, "tickets": 1})
CALLS = [f"{when} {tool}" for tool in TOOLS for when in ("before", "after")]
SAID = [f"said {line}" for line in LINES]

Left = tuple[list[dict[str, Any]], dict[str, Any]]


class Talking(Held):
    """One chat."""

    job = "tests.apps.helpdesk_watched:job"

    def __init__(self, folder: Path, forks: Forks) -> None:
        super().__init__(folder, forks)
        self.script = folder / "script.txt"
        self.script.write_text("\n".join(LINES), "utf-8")

    def play(self, at: str = "", new: bool = False) -> Child:
        """Begin the conversation, or go on with it."""
        now = ["--now", "2030-03-04T09:00", "--time-zone", "UTC"] if new else []
        return self.begin("--session-id", "c1", "--play", str(self.script), *now, at=at)

    def finish(self) -> None:
        """Go on, to the end."""
        self.ends(self.play(), 0)

    def left(self) -> Left:
        """All that a chat leaves: what was said, and the shop."""

        async def look() -> list[dict[str, Any]]:
            async with Engine(self.store, workflows=[helpdesk], signals=False) as engine:
                assert (await engine.info("c1")).status is Status.COMPLETED
                assert (await engine.verify()).ok
                state: Any = await engine.state("c1")
                return [message.model_dump() for message in state.messages]

        return asyncio.run(look()), contents(self.folder / "shop.db")


@pytest.fixture
def chat(tmp_path: Path, forks: Forks) -> Iterator[Talking]:
    with Talking(tmp_path, forks) as found:
        yield found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> Left:
    with Talking(tmp_path_factory.mktemp("undisturbed"), forks) as found:
        found.ends(found.play(new=True), 0)
    assert found.calls == Counter([*CALLS, *SAID])
    assert effects(found.folder / "shop.db") == ONCE
    return found.left()


@pytest.mark.long
@pytest.mark.covers("S2.40", "S2.55")
@pytest.mark.parametrize("point", [*CALLS, *SAID])
def test_a_kill_at_any_point_changes_neither_the_transcript_nor_the_shop(
    chat: Talking, point: str, undisturbed: Left
) -> None:
    chat.kill(chat.play(at=point, new=True))
    chat.finish()
    assert chat.left() == undisturbed
    assert effects(chat.folder / "shop.db") == ONCE
    again = chat.calls - Counter([*CALLS, *SAID])
    # The tool that was running, or had ended without a record, ran once more; its effect was had before, or is now.
    # After a line was said, its tool may have begun before the kill.
    tools = {each.split()[-1] for each in again}
    assert tools == {point.split()[-1]} if point in CALLS else len(tools) <= 1
    assert max(again.values(), default=0) <= 1
    assert point not in CALLS or again[f"before {tools.pop()}"] == 1


@pytest.mark.long
@pytest.mark.parametrize("tool", TOOLS)
def test_ctrl_c_in_any_tool_leaves_a_chat_that_goes_on_where_it_was(
    chat: Talking, tool: str, undisturbed: Left
) -> None:
    child = chat.play(at=f"before {tool}", new=True)
    child.signal(signal.SIGINT)
    chat.release()
    said = chat.ends(child, 130)
    assert f"--session-id c1 --store {chat.store}" in said
    assert said.splitlines()[-1].startswith("Continue: ")
    chat.finish()
    assert chat.left() == undisturbed
    assert chat.calls == Counter([*CALLS, *SAID])


@pytest.mark.long
@pytest.mark.parametrize("point", ["before change_address", "after pay_refund", "before book", f"said {LINES[1]}"])
def test_a_pause_at_any_point_stands_still_says_how_to_go_on_and_loses_nothing(
    chat: Talking, point: str, undisturbed: Left
) -> None:
    child = chat.play(at=point, new=True)
    chat.run("pause", "c1", "--reason", "lunch")
    chat.release()
    said = chat.ends(child, 3)
    assert "paused: lunch" in said
    assert said.splitlines()[-1].endswith(f"resume c1 --store {chat.store}")
    assert "lunch" in chat.ends(chat.play(), 3)  # as long as it is paused, nobody gets an answer
    chat.run("resume", "c1", code=3)
    chat.finish()
    assert chat.left() == undisturbed
    assert chat.calls == Counter([*CALLS, *SAID])


@pytest.mark.long
def test_a_second_kill_changes_nothing_either(chat: Talking, undisturbed: Left) -> None:
    chat.kill(chat.play(at="after change_address", new=True))
    chat.kill(chat.play(at="after change_address"))
    chat.kill(chat.play(at="after pay_refund"))
    chat.finish()
    assert chat.left() == undisturbed
    assert effects(chat.folder / "shop.db") == ONCE
    assert chat.calls["after change_address"] == 3


@pytest.mark.long
def test_without_its_key_an_effect_would_be_had_twice(chat: Talking) -> None:
    """That the kill comes between the effect and its record, and that the key is what helps."""
    shop = chat.folder / "shop.db"
    chat.kill(chat.play(at="after book", new=True))
    assert effects(shop)["appointments"] == 1
    with closing(sqlite3.connect(shop, isolation_level=None)) as db:
        db.execute("UPDATE appointments SET key = 'another', time = '10:00'")
    chat.finish()
    assert rows(shop, "SELECT time, key = 'another' FROM appointments ORDER BY 1") == [("10:00", 1), ("15:00", 0)]


@pytest.mark.long
def test_two_processes_talk_to_one_chat_and_each_message_is_answered_once(chat: Talking) -> None:
    chat.run("--session-id", "c1", "--say", "hello", code=3)
    numbers = ("A-1001", "A-1002", "B-2001", "B-2002")
    children = [chat.begin("--session-id", "c1", "--say", f"where is {number}?") for number in numbers]
    for child in children:
        chat.ends(child, 3)
    chat.run("--session-id", "c1", "--say", "bye")
    transcript, _ = chat.left()
    texts = [each["text"] for each in transcript]
    for number in numbers:
        assert texts.count(f"where is {number}?") == 1
        assert sum(text.startswith(f"Order {number}") for text in texts) == 1
