"""The chat of docs/chat.md: a message whose program was killed is sent again, delivered once and answered once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.programs import NEVER, Folder

HELLO = ("chat.py", "ann", "1", "Hello!")
REFUND = ("chat.py", "ann", "2", "refund A-17")
YES = ("chat.py", "ann", "3", "yes")
PAID = "payments: refund for A-17"


def said(folder: Folder) -> list[str]:
    """Return the conversation."""
    with folder.desk() as desk:
        state: dict[str, Any] = desk.session("ann").stored().values
    return [message["content"] for message in state["messages"]]


UNDISTURBED = ["Hello!", "You said 'Hello!'. I see 1 messages.", "refund A-17", "done, refund for A-17"]


def killed_while_paying(folder: Folder) -> list[str]:
    """Kill the program after the service has paid and before it answers. Return what the repeated call prints."""
    folder.set(takes=NEVER)
    with folder.running(*YES) as program:
        program.until(PAID)
        program.killed()
    folder.set()
    return folder.python(*YES)


@pytest.mark.long
def test_a_killed_chat_continues_with_the_repeated_message(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.set(pace=NEVER)
    with folder.running(*HELLO) as program:
        folder.until_words("ann")
        program.killed()
    folder.set()
    assert folder.python(*HELLO) == [UNDISTURBED[1]]
    assert folder.python(*REFUND) == ["Refund A-17?"]
    assert killed_while_paying(folder) == [PAID, UNDISTURBED[3]]  # the fault fired: the service was called again
    assert folder.orders("payments") == ["refund for A-17"]
    assert said(folder) == UNDISTURBED


@pytest.mark.long
def test_a_chat_without_an_idempotency_key_is_caught(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.replace("chat.py", "key=current().idempotency_key", "key=__import__('uuid').uuid4().hex")
    folder.python(*REFUND)
    killed_while_paying(folder)
    assert folder.orders("payments") == ["refund for A-17"] * 2


@pytest.mark.long
def test_a_chat_without_message_ids_is_caught(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.replace("chat.py", "key=message_id, ", "")
    for _ in range(2):
        folder.python(*HELLO)
    assert said(folder) == [
        "Hello!",
        "You said 'Hello!'. I see 1 messages.",
        "Hello!",
        "You said 'Hello!'. I see 3 messages.",
    ]


@pytest.mark.long
def test_silence_ends_a_chat(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.replace("chat.py", "timedelta(days=7)", "timedelta(milliseconds=1)")
    folder.python(*HELLO)
    folder.python("-m", "pausepoint", "worker", "--once", "--target", "chat.py:chat")
    with folder.desk() as desk:
        assert desk.session("ann").info().status == "completed"
        assert desk.session("ann").stored().values["closed"] == "nobody wrote in time"
