"""The helpdesk with a language model, over real HTTP: it reads, and what it reads is checked like a person's words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pausepoint import Status
from tests.apps.helpdesk_kit import chatting, effects, rows
from tests.support.loop import on_loop
from tests.support.modelserver import COMPLETION_TOKENS, PROMPT_TOKENS, ModelServer, Refuses, Says
from tests.support.modelserver import Status as Answers


def says(**answer: Any) -> Says:
    return Says(json.dumps(answer))


def asks(tool: str, words: str) -> Says:
    return says(requests=[{"tool": tool, "words": words}])


def told(server: ModelServer, number: int) -> Any:
    return json.loads(server.requests[number]["messages"][1]["content"])


@on_loop
async def test_it_reads_what_no_rule_would_and_the_rest_goes_on_as_without(server: ModelServer, tmp_path: Path) -> None:
    server.will(
        asks("change_address", "I've moved! Parcel A-1002 should follow me."), says(order="A-1002"),
        says(street="Harbour Road 7", postcode="24105", city="Kiel"),
    )  # fmt: skip
    async with chatting(tmp_path) as chat:
        shown = await chat.says("I've moved! Parcel A-1002 should follow me.")
        assert shown.startswith("The new address: please tell me the street and house number, the postcode")
        assert "Done: order A-1002 goes to Harbour Road 7" in await chat.says("by the harbour, no. 7, in Kiel (24105)")
        assert told(server, 2)["asked_for"] == ["street", "postcode", "city"]
        assert "Today is 2030-03-04" in server.requests[1]["messages"][0]["content"]
        info = await chat.session.info()
        assert info.spent_tokens == 3 * (PROMPT_TOKENS + COMPLETION_TOKENS)


@on_loop
async def test_what_it_invents_is_refused_by_the_same_checks(server: ModelServer, tmp_path: Path) -> None:
    server.will(
        says(requests=[{"tool": "sing", "words": "x"}]), asks("appointment", "come round"),
        says(kind="party", day="soon", time="10:00", contact="ann@example.com"),
    )  # fmt: skip
    async with chatting(tmp_path) as chat:
        shown = await chat.says("come round")
        assert '"loc":["requests",0,"tool"],"msg":"Input should be' in server.requests[1]["messages"][-1]["content"]
        assert "We make no appointments for that. I cannot read that day." in shown
        server.will(says(kind="repair", day="2030-03-06"))
        assert "Done: repair on Wednesday, 6 March 2030 at 10:00" in await chat.says("my lamp, the day after tomorrow")
        assert effects(chat.shop)["appointments"] == 1


@on_loop
async def test_cancel_a_person_and_a_yes_need_no_model(server: ModelServer, tmp_path: Path) -> None:
    server.will(asks("refund", "x"), says(order="B-2001", reason="damaged"))
    async with chatting(tmp_path) as chat:
        await chat.says("the kettle B-2001 arrived in pieces")
        assert "Done: 35.50 €" in await chat.says("yes")
        server.will(asks("change_address", "x"), says())
        await chat.says("new address please")
        assert "cancelled" in await chat.says("cancel")
        assert len(server.requests) == 4


@on_loop
async def test_a_busy_model_is_asked_again_and_a_refusal_fails_the_chat_resumably(
    server: ModelServer, tmp_path: Path
) -> None:
    server.will(Answers(429, {"retry-after": "0"}), asks("order_status", "x"), says(order="A-1001"))
    async with chatting(tmp_path) as chat:
        assert (await chat.says("where?")).startswith("Order A-1001")
        server.will(Refuses("not that"))
        await chat.engine.send("c1", "something nasty")
        outcome = await chat.session.outcome()
        assert outcome.status is Status.FAILED
        assert outcome.failure is not None
        assert "not that" in outcome.failure.message
        server.will(says(unclear=["something nasty"]))
        await chat.session.resume()
        assert (await chat.shown()).startswith("I did not understand: something nasty")
        assert rows(chat.shop, "SELECT * FROM tickets") == []


@on_loop
async def test_an_answer_that_was_read_is_not_paid_for_again(server: ModelServer, tmp_path: Path) -> None:
    server.will(asks("refund", "x"), says(order="B-2001"), says(reason="damaged"))
    async with chatting(tmp_path) as chat:
        await chat.says("money for B-2001")
        assert "Shall I refund" in await chat.says("it rattles")
    async with chatting(tmp_path) as chat:
        await chat.session.resume()
        assert "Done: 35.50 €" in await chat.says("yes")
    assert len(server.requests) == 3
