"""The helpdesk with a language model, over real HTTP: an agent with tools reads, and the shop asks before it writes."""

from __future__ import annotations

import json
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Status
from pausepoint.apps.helpdesk import agent
from tests.apps.helpdesk_kit import Chatting, chatting, effects, rows
from tests.support.loop import on_loop
from tests.support.modelserver import Act, Calls, ModelServer, Refuses, Says, Stalls
from tests.support.modelserver import Status as Answers


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no outage, and the outage of one test is none of the next."""
    import_module("pausepoint.apps.model.run")  # it takes long on a busy machine, and no test waits for it
    monkeypatch.setattr(agent, "PATIENCE", 60.0)
    monkeypatch.setattr(agent, "_failed_at", {})


def calls(*each: tuple[str, dict[str, Any]]) -> Calls:
    return Calls(each)


def replies(text: str = "") -> Says:
    return Says(json.dumps({"reply": text}))


def told(server: ModelServer, number: int) -> Any:
    """The data of a request."""
    return json.loads(server.requests[number]["messages"][1]["content"])


async def _failures(chat: Chatting) -> list[str]:
    found = [event.summary async for event in chat.session.events() if event.event_type == agent.MODEL_FAILED]
    for child in await chat.session.children():
        found += [
            e.summary
            async for e in chat.engine.session(child.session_id).events()
            if e.event_type == agent.MODEL_FAILED
        ]
    return found


@pytest.mark.long
@on_loop
async def test_it_reads_several_requests_in_any_language_and_every_change_is_confirmed(
    server: ModelServer, tmp_path: Path
) -> None:
    async with chatting(tmp_path) as chat:
        server.will(
            calls(("order_status", {"order": "A-1001"}), ("change_address", {"order": "A-1002", "city": "Kiel"})),
            replies(),
        )
        shown = await chat.says("Wo bleibt A-1001? Und A-1002 soll nach Kiel, ich bin umgezogen.")
        assert shown.startswith("Order A-1001 (Storm lantern)")
        assert shown.endswith("please tell me the street and house number and the postcode.")
        names = {tool["function"]["name"] for tool in server.requests[0]["tools"]}
        assert {"order_status", "refund", "cancel_order", "hand_over", "look_up_order"} <= names
        assert "confirm" not in names
        server.will(calls(("change_address", {"street": "Hafenstraße 7", "postcode": "24105"})), replies())
        shown = await chat.says("Hafenstraße sieben, vierundzwanzig-eins-null-fünf")
        assert shown == "Shall I send order A-1002 (Wool blanket) to Hafenstraße 7, 24105 Kiel? Yes or no?"
        assert told(server, 2)["chat"][0]["text"].startswith("Wo bleibt A-1001?")
        assert told(server, 2)["open_question"]["asked_for"] == ["street", "postcode"]
        assert effects(chat.shop).total() == 0
        server.will(calls(("confirm", {})), replies())
        assert await chat.says("Ja, gerne!") == "Done: order A-1002 goes to Hafenstraße 7, 24105 Kiel."
        asked = len(server.requests)
        assert await chat.says("where is A-1002?") != ""  # the server's own answer is no valid reading
        assert len(server.requests) > asked
        assert rows(chat.shop, "SELECT street FROM address_changes") == [("Hafenstraße 7",)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("answer", "act"),
    [
        ("no, don't do that", [calls(("confirm", {})), replies()]),  # a clear no needs no model
        ("I do not think so", [calls(("confirm", {})), replies()]),
        ("nein danke", [calls(("confirm", {})), replies()]),
        ("ja, wenn das Porto dabei ist", [calls(("confirm", {})), replies()]),
        ("Yes if it goes back to PayPal", [calls(("confirm", {})), replies()]),
        ("let me see", [replies("I have refunded 35.50 €.")]),
    ],
)
@on_loop
async def test_whatever_a_model_says_nothing_is_written_without_the_customers_yes(
    server: ModelServer, tmp_path: Path, answer: str, act: list[Act]
) -> None:
    async with chatting(tmp_path) as chat:
        refund = ("refund", {"order": "B-2001", "reason": "damaged"})
        server.will(calls(("confirm", {}), refund), calls(refund), replies("Done, I have paid 35.50 €."))
        shown = await chat.says("the kettle B-2001 arrived in pieces, I want my money")
        assert shown.startswith("Shall I refund 35.50 € for order B-2001")
        server.will(*act)
        shown = await chat.says(answer)
        assert "Done" not in shown
        assert "paid" not in shown
        assert effects(chat.shop).total() == 0


@pytest.mark.long
@on_loop
async def test_it_answers_questions_from_the_shop_and_figures_that_it_invents_are_not_shown(
    server: ModelServer, tmp_path: Path
) -> None:
    async with chatting(tmp_path) as chat:
        server.will(calls(("look_up_order", {"order": "A-1001"})), replies("La lanterne (A-1001) coûte 49.90 €."))
        assert await chat.says("Combien coûte ma lanterne, A-1001 ?") == "La lanterne (A-1001) coûte 49.90 €."
        server.will(replies("Vous recevez 1000 € !"))
        assert "1000" not in await chat.says("Et un rabais ?")
        server.will(calls(("goodbye", {})), replies("Au revoir !"))
        assert await chat.says("au revoir") == "Au revoir !"
        assert await chat.session.status() is Status.COMPLETED


@pytest.mark.long
@on_loop
async def test_corrections_and_other_requests_during_a_confirmation(server: ModelServer, tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        server.will(calls(("refund", {"order": "B-2001", "reason": "damaged"})), replies())
        await chat.says("B-2001 ist kaputt, Geld zurück bitte")
        server.will(calls(("refund", {"amount": "20"})), replies())
        assert "Shall I refund 20.00 €" in await chat.says("lieber nur zwanzig Euro")
        server.will(calls(("order_status", {"order": "A-1001"})), replies())
        shown = await chat.says("Moment, was macht A-1001?")
        assert shown.startswith("Order A-1001")
        assert shown.endswith("Shall I refund 20.00 € for order B-2001 (Tea kettle)? Yes or no?")
        server.will(calls(("confirm", {}), ("order_status", {"order": "A-1002"})), replies())
        shown = await chat.says("Ja. Und A-1002?")
        assert [line.split()[0] for line in shown.splitlines()] == ["Done:", "Order"]
        server.will(calls(("cancel_order", {"order": "A-1002"})), replies())
        assert "Shall I cancel order A-1002" in await chat.says("A-1002 storniere ich")
        server.will(calls(("drop_request", {}), ("goodbye", {})), replies())
        assert (await chat.says("ich muss los, vergiss es")) == "No order was cancelled.\nGoodbye!"
        assert await chat.session.status() is Status.COMPLETED
        assert effects(chat.shop) == Counter(refunds=1)


@on_loop
async def test_a_model_passes_an_open_request_on_to_a_person(server: ModelServer, tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        server.will(calls(("refund", {"order": "B-2001", "reason": "damaged"})), replies())
        await chat.says("B-2001 ist kaputt, Geld zurück bitte")
        server.will(calls(("hand_over", {})), replies())
        assert "ticket 1" in await chat.says("das bringt so alles wenig")
        assert effects(chat.shop) == Counter(tickets=1)


@pytest.mark.long
@pytest.mark.parametrize(("fault", "failures"), [
    ([Answers(503)], 1), ([Answers(401)], 1), ([Answers(429, {"retry-after": "3600"})], 1), ([Stalls()], 1),
    ([Refuses("not that")], 2), ([Says("no JSON")] * 3, 2),
    ([calls(("refund", {"reason": "weather"}))] * agent.TURNS, 2),
], ids=["503", "401", "429", "stall", "refusal", "invalid", "endless"])  # fmt: skip
@on_loop
async def test_in_an_outage_the_rules_answer_at_once_and_the_customer_sees_nothing_of_it(
    server: ModelServer, tmp_path: Path, fault: list[Act], failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == [Stalls()]:
        monkeypatch.setattr(agent, "PATIENCE", 1.0)
    async with chatting(tmp_path) as chat:
        server.will(*fault)
        shown = await chat.says("I want a refund for B-2001")
        assert shown == "The refund: please tell me the reason (damaged, wrong item, unwanted or late)."
        server.will(*fault)
        shown = await chat.says("it is damaged")
        assert shown == "Shall I refund 35.50 € for order B-2001 (Tea kettle)? Yes or no?"
        assert "Done: 35.50 €" in await chat.says("yes")
        assert len(await _failures(chat)) == failures  # an outage is found out once, for a minute
        assert effects(chat.shop) == Counter(refunds=1)


@pytest.mark.long
@on_loop
async def test_a_minute_after_an_outage_the_model_is_asked_again(
    server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chatting(tmp_path) as chat:
        server.will(Answers(503))
        await chat.says("where is A-1001?")
        asked = len(server.requests)
        assert (await chat.says("where is A-1002?")).startswith("Order A-1002")
        assert len(server.requests) == asked
        monkeypatch.setattr(agent, "_failed_at", {key: at - agent.REST for key, at in agent._failed_at.items()})
        server.will(replies("Bonjour !"))
        assert await chat.says("salut") == "Bonjour !"


@pytest.mark.long
@on_loop
async def test_an_answer_that_was_read_is_not_paid_for_again(server: ModelServer, tmp_path: Path) -> None:
    server.will(calls(("refund", {"order": "B-2001"})), replies(), calls(("refund", {"reason": "damaged"})), replies())
    async with chatting(tmp_path) as chat:
        await chat.says("money for B-2001")
        assert "Shall I refund" in await chat.says("it rattles")
        assert (await chat.session.info()).spent_tokens > 0
    async with chatting(tmp_path) as chat:
        await chat.session.resume()
        assert "Done: 35.50 €" in await chat.says("yes")
    assert len(server.requests) == 4
