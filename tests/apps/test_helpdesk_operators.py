"""Operators: which chats wait for a person, the command, and the question in the inbox."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections import Counter
from pathlib import Path

import pytest

from pausepoint import Status
from pausepoint.apps.helpdesk import conversation
from pausepoint.apps.helpdesk.models import Notice
from pausepoint.apps.helpdesk.operators import attend, cases, person
from tests.apps.calls import Forked
from tests.apps.helpdesk_kit import Chatting, chatting, effects
from tests.cli.kit import Process
from tests.support.forkserver import Forks
from tests.support.loop import on_loop


async def _asked(chat: Chatting) -> list[str]:
    """Attend the chat, and return the sessions that ask a person."""
    await chat.session.outcome()
    chat.engine.register(person)
    await attend(chat.engine, "c1")
    return [each.session_id for each in await chat.engine.questions(workflow=person.name)]


async def _answer(chat: Chatting, session_id: str, **answer: str) -> None:
    [question] = await chat.engine.session(session_id).questions()
    await chat.engine.answer(question.id, answer, by="Mia", channel="http")
    assert (await chat.engine.session(session_id).outcome()).status is Status.COMPLETED
    await chat.session.outcome()


@on_loop
async def test_a_ticket_asks_a_person_and_the_answer_reaches_the_chat_once(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says("where is A-1001?")
        assert await _asked(chat) == []
        await chat.says("a human please")
        [asked] = await _asked(chat)
        assert await _asked(chat) == [asked]  # it is asked once
        [question] = await chat.engine.session(asked).questions()
        assert question.next_question == "Ticket 1 from ann@example.com: “a human please” What do you reply?"
        newest, *_, oldest = question.payload.splitlines()
        assert (newest.partition(":")[0], oldest) == ("bot", "customer: where is A-1001?")
        # The chat has no question of its own, so what the customer writes meanwhile answers nothing.
        await chat.says("where is A-1002?")
        assert await _asked(chat) == [asked]
        await _answer(chat, asked, reply="Hello, I am Mia.", then="keep the chat")
        read = await conversation.read(chat.engine, "c1")
        assert (read.operator, read.messages[-1].text, read.messages[-1].by) == ("Mia", "Hello, I am Mia.", "Mia")
        assert await _asked(chat) == []
        # The bot is silent, and the customer's next message asks the person again.
        assert await chat.says("where is A-1001?") == "Hello, I am Mia."  # shown only now; the bot says nothing
        [again] = await _asked(chat)
        assert again != asked
        await _answer(chat, again, reply="It is on its way.", then="hand back to the bot")
        assert (await conversation.read(chat.engine, "c1")).operator is None
        assert await _asked(chat) == []
        assert "Order A-1002" in await chat.says("where is A-1002?")
        texts = [each.text for each in (await chat.session.state()).messages if each.role == "operator"]
        assert texts == ["Hello, I am Mia.", "It is on its way."]


@on_loop
async def test_a_question_is_withdrawn_if_an_operator_deals_with_the_chat_elsewhere(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says("refund B-2001, it is damaged")
        await conversation.take_over(chat.engine, "c1", by="Ben")
        [asked] = await _asked(chat)
        await conversation.say(chat.engine, "c1", "I look into it.", by="Ben")
        assert await _asked(chat) == []
        assert (await chat.engine.session(asked).outcome()).status is Status.COMPLETED
        read = await conversation.read(chat.engine, "c1")
        assert [each.text for each in read.messages if each.role == "operator"] == ["I look into it."]
        assert [(case.chat, case.operator, case.waits) for case in await cases(chat.engine)] == [("c1", "Ben", False)]
        await conversation.hand_back(chat.engine, "c1", by="Ben")
        await chat.session.outcome()
        assert await cases(chat.engine) == []


@on_loop
async def test_an_answer_takes_over_at_once_even_if_the_bot_has_just_asked_something(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says("a human please")
        [asked] = await _asked(chat)
        # The answer comes in the middle of the bot's turn: it is a message that waits behind the bot's question.
        notice = Notice(kind="say", by="Mia", text="Hello, I am Mia.", seen=2)
        queued = conversation.notify(chat.engine, "c1", notice, f"{asked}-say")
        await asyncio.gather(conversation.send(chat.engine, "c1", "refund B-2001, it is damaged"), queued)
        [question] = await chat.engine.session(asked).questions()
        await chat.engine.answer(question.id, {"reply": "Hello, I am Mia.", "then": "keep the chat"}, by="Mia")
        await chat.engine.session(asked).outcome()
        await chat.session.outcome()
        assert len(await chat.session.questions()) == 1  # so it did wait
        assert await attend(chat.engine, "c1")
        await chat.session.outcome()
        assert not await attend(chat.engine, "c1")
        read = await conversation.read(chat.engine, "c1")
        assert (read.operator, read.question, read.messages[-1].text) == ("Mia", None, "Hello, I am Mia.")
        assert [each.role for each in read.messages] == ["user", "assistant", "user", "assistant", "operator"]
        await conversation.send(chat.engine, "c1", "yes")  # the question is withdrawn
        await chat.session.outcome()
        assert effects(chat.shop) == Counter(tickets=1)


@on_loop
async def test_a_person_who_keeps_the_chat_without_a_word_is_asked_again_about_the_next_message(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says("a human please")
        [asked] = await _asked(chat)
        await _answer(chat, asked, reply="", then="keep the chat")
        assert await _asked(chat) == []
        await chat.says("hello?")
        [again] = await _asked(chat)
        assert again != asked


@pytest.mark.long
@on_loop
@pytest.mark.parametrize("then", ["keep the chat", "hand back to the bot"])
async def test_a_message_that_the_operator_has_not_read_asks_again(tmp_path: Path, then: str) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says("a human please")
        await _answer(chat, *await _asked(chat), reply="Hello, I am Mia.", then="keep the chat")
        await chat.says("it arrived broken")
        [asked] = await _asked(chat)
        await chat.says("and I have moved to 5 Mill Lane")
        assert await _asked(chat) == [asked]
        await _answer(chat, asked, reply="I am sorry. I send another one.", then=then)
        [again] = await _asked(chat)
        [question] = await chat.engine.session(again).questions()
        assert question.next_question.startswith("A message for you from c1: “and I have moved to 5 Mill Lane”")
        await _answer(chat, again, reply="To that address.", then="hand back to the bot")
        assert await _asked(chat) == []
        assert "Order A-1002" in await chat.says("where is A-1002?")


@on_loop
async def test_an_answer_to_a_chat_that_has_ended_is_not_delivered_and_says_so(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says("a human please")
        [asked] = await _asked(chat)
        await chat.says("bye")
        assert await _asked(chat) == [asked]
        [question] = await chat.engine.session(asked).questions()
        await chat.engine.answer(question.id, {"reply": "Hello"}, by="Mia")
        assert (await chat.engine.session(asked).outcome()).state.delivered is False


@pytest.mark.long
def test_the_command_lists_shows_answers_takes_over_and_hands_back(tmp_path: Path, forks: Forks) -> None:
    desk = Forked("helpdesk", tmp_path, forks)
    assert desk("operator").code == 4  # there is no store yet
    desk("--session-id", "c1", "--say", "where is A-1001?")
    assert desk("operator").stdout == "No chat waits for a person.\n"
    desk("--session-id", "c1", "--say", "a human please")
    listed = desk("operator")
    assert listed.stdout.startswith("c1  ticket 1, waits for a person  ann@example.com\n    a human please\n")
    assert _typed_as_printed(desk, listed.stdout.splitlines()[-1]) == 0
    assert "Ticket 1 from ann@example.com" in desk("inbox").stdout
    answered = desk("operator", "c1", "--say", "Hello, I am Mia.", "--by", "Mia", "--json")
    document = json.loads(answered.stdout)
    assert (answered.code, document["operator"], document["waits_for_person"]) == (0, "Mia", False)
    assert document["messages"][-1] == {"author": "operator", "by": "Mia", "text": "Hello, I am Mia.", "ticket": None}
    assert "Ticket 1" not in desk("inbox").stdout
    silent = desk("--session-id", "c1", "--say", "where is A-1002?")
    assert "Order A-1002" not in silent.stdout
    assert silent.stdout.splitlines()[0] == "  Mia: Hello, I am Mia."  # said while the customer was away
    assert silent.stdout.splitlines()[-1] == "  A person has this chat and will answer here."
    [case] = json.loads(desk("operator", "--json").stdout)["chats"]
    assert (case["chat"], case["operator"], case["waits_for_person"]) == ("c1", "Mia", True)
    back = desk("operator", "c1", "--hand-back")
    assert "Mia: Hello, I am Mia.\ncustomer: where is A-1002?" in back.stdout
    assert "\nc1: with the bot\n" in back.stdout
    assert "Order A-1002" in desk("--session-id", "c1", "--say", "where is A-1002?").stdout
    taken = desk("operator", "c1", "--take-over", "--by", "Mia")
    assert "c1: with Mia, waits for a person" in taken.stdout
    for line in [*shown_commands(back.stdout), *shown_commands(taken.stdout)]:
        assert _typed_as_printed(desk, line) == 0, line


def shown_commands(text: str) -> list[str]:
    """The lines that name a command."""
    return [line for line in text.splitlines() if "-m pausepoint.apps.helpdesk" in line]


def _typed_as_printed(desk: Forked, line: str) -> int:
    """Run a printed command as an operator would, and return its exit code."""
    words = shlex.split(line.partition("pausepoint.apps.helpdesk")[2])
    return desk(*words).code


@pytest.mark.long
def test_a_customer_who_is_back_at_a_terminal_reads_what_was_said_meanwhile(tmp_path: Path, forks: Forks) -> None:
    desk = Forked("helpdesk", tmp_path, forks)
    desk("--session-id", "c1", "--say", "a human please")
    for text in ("Hello, I am Mia.", "Which order is it?"):
        desk("operator", "c1", "--say", text, "--by", "Mia")
    ours = ("-m", "pausepoint.apps.helpdesk")
    with Process("--session-id", "c1", cwd=tmp_path, program=ours, tty=True) as process:
        process.until("Which order is it?")
        process.until("Press Enter to see new messages.")
        desk("operator", "c1", "--say", "Are you there?", "--by", "Mia")
        process.type("\n")
        process.until("Mia: Are you there?")
        process.type("\x04")
        shown = process.wait().stdout
    assert shown.index("Mia: Hello, I am Mia.") < shown.index("Mia: Which order is it?")


@pytest.mark.long
def test_bad_calls_of_the_commands_are_refused(tmp_path: Path, forks: Forks) -> None:
    desk = Forked("helpdesk", tmp_path, forks)
    desk("--session-id", "c1", "--say", "refund A-1001")
    errand = json.loads(desk("inbox", "--json").stdout)["questions"][0]["sub_chain_id"]
    for args, code, said in [
        (["operator", "--say", "hi"], 2, "--say needs a chat"),
        (["operator", "c1", "--all"], 2, "Pass only one of them"),
        (["operator", "c1", "--take-over", "--hand-back"], 2, "cannot be combined"),
        (["operator", "c1", "--say", " "], 2, "The message is empty"),
        (["operator", "c2"], 4, "c2"),
        (["operator", errand], 2, "is not a chat but a session of workflow errand"),
        (["serve", "--time-zone", "Mars"], 2, "--time-zone: There is no time zone 'Mars'"),
        (["link", "nobody@example.com"], 2, "has no customer 'nobody@example.com'"),
        (["link", "ann@example.com", "--days", "0"], 2, "--days"),
    ]:
        done = desk(*args)
        assert (done.code, said in done.stderr) == (code, True), done
    link = json.loads(desk("link", "ann@example.com", "--url", "https://shop.example/", "--json").stdout)
    assert link["address"].startswith("https://shop.example/chat/#link=")
    assert desk("link", "ann@example.com", "--revoke").stdout == "All links of ann@example.com are revoked.\n"
