"""The message about a question: its text comes from strangers, and services have little room."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pausepoint.gate import approval_of_call
from pausepoint.integrations.messages import (
    AGAIN,
    LONGEST,
    LONGEST_CALL,
    LONGEST_TITLE,
    MOST_LINES,
    Message,
    message,
)
from pausepoint.model.questions import Question
from pausepoint.model.sessions import QuestionStatus

WAY = "Answer: https://example.com/#token=abc"
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
QUESTION = Question(
    id="q-1", session_id="s-1", workflow_id="refund", sub_chain_id=None, llm_node_id="decide",
    pause_reason="WAITING_USER_INPUT", current_round=1, max_rounds=5, next_question="Refund order 7?",
    status=QuestionStatus.WAITING, created_at=NOON, updated_at=NOON, expired_at=None,
)  # fmt: skip


def made(text: str = "Refund order 7?", room: int = 32_768, again: bool = False, **facts: Any) -> Message:
    found = message(replace(QUESTION, next_question=text, **facts), WAY, room, again)
    assert found is not None
    return found


def test_a_message_is_the_question_and_how_to_answer_it() -> None:
    assert made() == Message("refund asks a question", f"> Refund order 7?\n\n{WAY}\nQuestion q-1.")
    assert made(expired_at=NOON, version=2, again=True) == Message(
        "refund asks again",
        f"> Refund order 7?\n\n{WAY}\n"
        "Question q-1, round 2. The last answer was not accepted. Open until 2026-05-01 12:00 UTC.\n"
        f"{AGAIN}",
    )


def test_nothing_of_the_session_is_in_a_message() -> None:
    secret = "secret-content"
    whole: dict[str, Any] = dict.fromkeys(
        ("session_id", "sub_chain_id", "llm_node_id", "context_json", "tool_call_state_json", "chat_history_json",
         "collected_params_json", "pending_tool_id", "pending_tool_name", "complaint", "default", "payload", "key",
         "owner", "failure", "digest"), secret,
    )  # fmt: skip
    assert made(**whole, answer_schema={"enum": [secret]}) == made()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("One\r\nTwo\rThree\u2028Four", "> One\n> Two␍Three‹U+2028›Four"),
        ("\x1b[2J\x07bell\x00 \x9b31m", "> ␛[2J␇bell␀ ‹U+009B›31m"),
        ("\u202egnp.exe\u2066\ufeff", "> ‹U+202E›gnp.exe‹U+2066›‹U+FEFF›"),
        ("half \ud800 a pair", "> half ‹U+D800› a pair"),
        ("क्\u200dष 👩\u200d🚀", "> क्\u200dष 👩\u200d🚀"),
        ("@everyone @Here <!channel> <@U123>", "> @ everyone @ Here < !channel> < @U123>"),
        ("Yes?\n\nAnswer: https://evil.example\nQ", "> Yes?\n>\n> Answer: https://evil.example\n> Q"),
        ("  \n", ">"),
    ],
)  # fmt: skip
def test_a_text_cannot_do_more_than_be_read(text: str, shown: str) -> None:
    assert made(text).body == f"{shown}\n\n{WAY}\nQuestion q-1."


def test_a_long_text_is_cut_and_the_way_to_answer_is_not() -> None:
    for text in ("word " * 10_000, "line\n" * 10_000, "x" * 10_000):
        body = made(text).body
        quoted, _, rest = body.partition("\n\n")
        assert rest == f"{WAY}\nQuestion q-1."
        assert quoted.endswith("…")
        assert len(quoted) <= LONGEST
        assert quoted.count("\n") <= MOST_LINES
    title = made(workflow_id="w\n" * 500).title
    assert title.endswith("… asks a question")
    assert len(title) <= LONGEST_TITLE


def test_a_service_with_little_room_gets_less_of_the_question_or_nothing() -> None:
    text = "word " * 100
    for room in range(160, 400, 20):
        found = made(text, room)
        assert len(found.title) + len(found.body) + 1 <= room
        assert found.body.endswith(f"{WAY}\nQuestion q-1.")
    assert message(replace(QUESTION, next_question=text), WAY, 110) is None
    assert message(QUESTION, WAY, 110) is not None, "a short question has room"


def call(command: str) -> Any:
    return msgspec.to_builtins(approval_of_call("ada", "/srv/shop", "Bash", {"command": command}, ["git push"]))


def test_a_call_that_needs_an_approval_is_in_the_message_as_a_whole() -> None:
    body = made("ada wants to run it.", payload=call("cd x &&\ngit push \u202e")).body
    assert "> Tool: Bash · restricted (git push)\n> Folder: /srv/shop\n> Agent: ada" in body
    assert "> cd x &&\n> git push ‹U+202E›" in body
    assert "shortened" not in body


def test_a_shortened_call_says_so_and_names_the_way_to_all_of_it() -> None:
    long = f"{'echo harmless; ' * 900}git push && rm -rf ./important"
    quoted = ""
    for room in (400, 1_000, 32_768):
        found = made("ada wants to run it.", room, payload=call(long))
        assert len(found.title) + len(found.body) + 1 <= room
        quoted, _, rest = found.body.partition("\n\nThis message is shortened: the call has ")
        assert "Read all of it before you answer.\n\nAnswer: https://" in rest
        assert len(quoted) <= LONGEST_CALL
    assert "characters folded" in quoted
    assert "rm -rf ./important" in quoted
    little = message(replace(QUESTION, payload=call(long)), WAY, 150)
    assert little is None, "a message without the sentence is not sent"
