"""Conversations with the helpdesk, over a real engine, store and shop."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from pausepoint import Status
from pausepoint.apps.helpdesk import conversation, errand
from pausepoint.apps.helpdesk.__main__ import script
from pausepoint.errors import AnswerConflict, QuestionClosed
from pausepoint.model.sessions import QuestionStatus
from pausepoint.testing import ManualClock
from tests.apps.helpdesk_kit import Chatting, chatting, effects, rows
from tests.support.loop import on_loop

ASK_ADDRESS = "Where is A-1001, and change the address of A-1002"


# what it does


@pytest.mark.covers("S2.64")
@pytest.mark.parametrize(
    ("sample", "counts", "said"),
    [
        ("english", (1, 1, 1, 0, 1), "Goodbye!"),
        ("chinese", (1, 1, 1, 0, 1), "再见！"),
    ],
)
@on_loop
async def test_the_samples_go_to_their_end_with_each_effect_once(
    tmp_path: Path, sample: str, counts: tuple[int, ...], said: str
) -> None:
    async with chatting(tmp_path) as chat:
        lines = script(sample)
        assert (await chat.all_of(lines)).endswith(said)
        assert await chat.session.status() is Status.COMPLETED
        assert tuple(effects(chat.shop).values()) == counts
        heard = [text for role, text in await chat.transcript() if role == "user"]
        assert heard == lines


@pytest.mark.long
@on_loop
async def test_an_order_is_looked_up_and_one_that_nobody_knows_is_asked_for_again(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        shown = await chat.says("where is a1001?")
        assert shown.startswith("Order A-1001 (Storm lantern): on its way.")
        assert await chat.says("and B-2001, where is it?") == (
            "Order B-2001 (Tea kettle) was delivered on Thursday, 14 February 2030 to Mill Road 12, 20095 Hamburg."
        )
        assert (await chat.says("track Z-9999")).startswith(
            "I cannot find order Z-9999. Please tell me the order number"
        )
        assert (await chat.says("sorry, A-1001")).startswith("Order A-1001")
        assert (await chat.says("status of A-1001 and B-2002?")).count("Order ") == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("change the address of A-1001 to 7 Quay, 24103 Kiel", "has already been shipped"),
        ("send B-2001 to 7 Quay Road, 24103 Kiel", "has already been delivered"),
        ("修改C-3001的地址,改成南京市中山路6号,邮编210008", "已发货,无法修改".replace(",", "，")),
    ],
)
@on_loop
async def test_what_the_shop_refuses_is_told_and_changes_nothing(tmp_path: Path, request_: str, said: str) -> None:
    async with chatting(tmp_path) as chat:
        assert said in await chat.says(request_)
        assert effects(chat.shop).total() == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("2030-03-01 at 10:00", "That time has already passed."),
        ("2031-03-03 at 10:00", "too far ahead"),
        ("next Sunday at 10:00", "closed on Sundays"),
        ("tomorrow at 22:00", "open from 9:00 to 18:00"),
        ("tomorrow at 17:31", "an appointment takes half an hour"),
        ("tomorrow at 10:00", "That time is taken."),
        ("tomorrow at 10:29", "That time is taken."),
        ("tomorrow at 9:31", "That time is taken."),
    ],
)
@on_loop
async def test_an_appointment_that_cannot_be_is_asked_for_again_with_the_reason(
    tmp_path: Path, when: str, said: str
) -> None:
    async with chatting(tmp_path) as chat:
        await chat.all_of(["book advice tomorrow at 10:00, ann@example.com", "yes"])
        assert said in await chat.says(f"book a repair {when}, +49 431 123456")
        assert effects(chat.shop)["appointments"] == 1
        await chat.says("day after tomorrow at 11:30")
        assert "Done: repair" in await chat.says("that's fine")
        assert rows(chat.shop, "SELECT day, time, contact FROM appointments WHERE kind = 'repair'") == [
            ("2030-03-06", "11:30", "+49431123456")
        ]


@pytest.mark.long
@on_loop
async def test_appointments_may_follow_one_another_and_end_with_the_day(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        for at in ("10:00", "10:30", "9:30", "17:30"):
            await chat.says(f"book a repair tomorrow at {at}, ann@example.com")
            assert "Done: repair" in await chat.says("yes")
        assert effects(chat.shop)["appointments"] == 4


@pytest.mark.parametrize("amount", ["10 € of the 35.50 €", "€12345678901"])
@on_loop
async def test_an_amount_that_nobody_can_tell_is_asked_for_and_not_taken_for_all_of_it(
    tmp_path: Path, amount: str
) -> None:
    async with chatting(tmp_path) as chat:
        shown = await chat.says(f"refund {amount} for B-2001, it is damaged")
        assert shown == "That is not a valid amount. Please tell me the amount (such as 20.00 €)."
        assert "Shall I refund 10.00 €" in await chat.says("10 €")


@on_loop
async def test_a_message_without_a_word_is_not_understood_either(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        assert "I did not understand: 🐙?!" in await chat.says("🐙?!")


@on_loop
async def test_a_shop_whose_file_is_gone_is_named_and_the_chat_goes_on_when_it_is_back(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says("refund B-2001, it is damaged")
        kept = chat.shop.rename(tmp_path / "elsewhere.db")
        await chat.engine.session(chat.session.id).send("yes")
        failure = (await chat.session.outcome()).failure
        assert failure is not None
        assert f"The shop's file {chat.shop} is missing. Put it back" in failure.message
        assert not chat.shop.exists(), "no empty shop takes its place"
        kept.rename(chat.shop)
        await chat.session.resume()
        await chat.session.outcome()
        assert effects(chat.shop)["refunds"] == 1


# missing, wrong, corrected


@pytest.mark.covers("S2.48", "S2.50")
@pytest.mark.parametrize("nothing", ["null", "NULL", "  null "])
@on_loop
async def test_what_is_missing_is_asked_for_and_null_is_no_value(tmp_path: Path, nothing: str) -> None:
    async with chatting(tmp_path) as chat:
        shown = await chat.says("change the address of A-1002, the city is Kiel")
        assert shown == "The new address: please tell me the street and house number and the postcode."
        await chat.says("Harbour Road 7")
        question = await chat.question()
        assert json.loads(question.collected_params_json or "") == {
            "order": "A-1002", "city": "Kiel", "street": "Harbour Road 7",
        }  # fmt: skip
        assert "the postcode" in await chat.says(nothing)
        assert (await chat.question()).current_round == 3
        assert await chat.says("24105") == (
            "Shall I send order A-1002 (Wool blanket) to Harbour Road 7, 24105 Kiel? Yes or no?"
        )
        assert await chat.says("go ahead") == "Done: order A-1002 goes to Harbour Road 7, 24105 Kiel."


@pytest.mark.covers("S2.50")
@pytest.mark.parametrize("nothing", ["", None, "null"])
@on_loop
async def test_a_form_that_leaves_something_empty_is_asked_again(tmp_path: Path, nothing: str | None) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says("change the address of A-1002")
        await chat.session.answer({"street": nothing, "postcode": "24103", "city": "Kiel"})
        assert await chat.shown() == "The new address: please tell me the street and house number."
        await chat.session.answer({"street": "Harbour Road 7"})
        assert (await chat.shown()).startswith("Shall I send order A-1002")
        await chat.session.answer({"approved": True})
        assert "Done: order A-1002" in await chat.shown()


@pytest.mark.long
@pytest.mark.covers("S2.56")
@on_loop
async def test_a_wrong_type_or_choice_is_asked_for_again_with_the_reason(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says("refund for B-2001 please")
        assert (await chat.says("because of the weather")).startswith("That is not one of the reasons.")
        await chat.says("it was damaged")
        await chat.says("no")
        await chat.says("book a repair at 10:00, ann@example.com")
        assert (await chat.says("someday")).startswith("I cannot read that day.")
        assert "Wednesday, 6 March 2030" in await chat.says("day after tomorrow")


@on_loop
async def test_an_earlier_answer_is_corrected_in_the_middle_and_afterwards(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.all_of(["change the address of A-1002", "Harbour Road 7"])
        await chat.says("no, the street is Harbour Road 9 and the order is B-2002")
        collected = json.loads((await chat.question()).collected_params_json or "")
        assert (collected["street"], collected["order"]) == ("Harbour Road 9", "B-2002")
        assert "order B-2002 (Rope, 20 m) to Harbour Road 9, 24105 Kiel?" in await chat.says("24105 Kiel")
        assert "to Harbour Road 10, 24105 Kiel?" in await chat.says("no, the street is Harbour Road 10")
        assert "order B-2002 goes to Harbour Road 10, 24105 Kiel" in await chat.says("yes")
        assert "to Harbour Road 11, 24105 Kiel?" in await chat.says("No, the street is Harbour Road 11")
        await chat.says("correct")
        assert rows(chat.shop, "SELECT street FROM orders WHERE number LIKE '_-_002' ORDER BY number") == [
            ("Quay Street 5",), ("Harbour Road 11",), ("中山路5号",)
        ]  # fmt: skip


@on_loop
async def test_what_cannot_be_taken_back_is_not_done_a_second_time_by_a_correction(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.all_of(["book a repair tomorrow at 10:00, ann@example.com", "yes"])
        assert (await chat.says("no, the day after tomorrow")).startswith("I did not understand")
        assert effects(chat.shop)["appointments"] == 1


@pytest.mark.parametrize(("request_", "word", "said"), [
    ("change the address of A-1002", "cancel", "The new address: cancelled, nothing was changed."),
    ("我要改地址", "取消", "修改地址：已取消，没有任何更改。"),
    ("refund B-2001, it is damaged", "cancel", "Nothing was refunded."),
])  # fmt: skip
@on_loop
async def test_cancel_in_the_middle_ends_the_request_and_the_chat_goes_on(
    tmp_path: Path, request_: str, word: str, said: str
) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says(request_)
        assert await chat.says(word) == said
        assert effects(chat.shop).total() == 0
        assert (await chat.says("where is A-1001?")).startswith("Order A-1001")
        assert await chat.session.questions() == []


@pytest.mark.parametrize(("request_", "word", "said", "written"), [
    ("change the address of A-1002", "I have to go, bye!", "The new address: cancelled, nothing was changed.", {}),
    ("我要改地址", "谢谢，再见", "修改地址：已取消，没有任何更改。", {}),
    ("where is my order?", "Tschüss", "", {}),
    ("refund B-2001, it is damaged", "bye", "The refund: cancelled, nothing was changed.", {}),
    ("refund B-2001, it is damaged", "no thanks, bye", "Nothing was refunded.", {}),
    ("refund B-2001, it is damaged", "Yes please. Thanks, bye!", "Done: 35.50 € for order B-2001 is on its way back to"
     " you.", {"refunds": 1}),
    ("refund B-2001, it is damaged, and change the address of A-1002", "goodbye",
     "The refund: cancelled, nothing was changed.\nThe new address: cancelled, nothing was changed.", {}),
])  # fmt: skip
@on_loop
async def test_a_goodbye_to_an_open_question_ends_the_chat_and_says_what_was_not_written(
    tmp_path: Path, request_: str, word: str, said: str, written: dict[str, int]
) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says(request_)
        farewell = "再见！" if said.startswith("修改") else "Goodbye!"
        assert await chat.says(word) == "\n".join(filter(None, [said, farewell]))
        assert await chat.session.status() is Status.COMPLETED
        assert effects(chat.shop) == Counter(written)


@on_loop
async def test_a_yes_and_goodbye_with_another_open_request_does_not_end_the_chat(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says("refund B-2001, it is damaged, and change the address of A-1002")
        assert (await chat.says("yes, bye")).splitlines()[1].startswith("The new address: please tell me")
        assert effects(chat.shop) == Counter(refunds=1)


@pytest.mark.parametrize("first", ["change the address of A-1002", "change an address"])
@on_loop
async def test_a_question_in_between_is_answered_and_another_change_takes_the_place(tmp_path: Path, first: str) -> None:
    async with chatting(tmp_path) as chat:
        asked = await chat.says(first)
        shown = await chat.says("where is B-2001?")
        assert shown.startswith("Order B-2001 (Tea kettle) was delivered")
        assert shown.endswith(asked)
        shown = await chat.says("refund B-2001, it is damaged")
        assert shown.startswith("The new address: cancelled, nothing was changed.\nShall I refund 35.50 €")
        await chat.says("no")
        assert [text for role, text in await chat.transcript() if role == "user"] == [
            first, "where is B-2001?", "refund B-2001, it is damaged", "no",
        ]  # fmt: skip


@on_loop
async def test_an_answer_that_sounds_like_another_request_is_an_answer(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says("refund please, it is damaged")
        assert (await chat.says("the one that arrived last week, B-2001")).startswith("Shall I refund 35.50 €")


@pytest.mark.parametrize(
    ("other", "shown"),
    [
        ("change the address of B-2002", "The new address: please tell me"),
        ("我想预约明天下午三点半维修", "预约：请告诉我"),
        ("where is A-1001", "Order A-1001 (Storm lantern)"),
    ],
)
@on_loop
async def test_another_request_is_no_answer_even_if_one_word_was_all_that_lacked(
    tmp_path: Path, other: str, shown: str
) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says("I want a refund for B-2001")
        assert "That is not one of the reasons." in await chat.says("it arrived smashed")
        assert shown in await chat.says(other)
        assert (await chat.says("cancel")).startswith(
            ("The new address: cancelled", "预约：已取消", "The refund: cancelled")
        )


@on_loop
async def test_it_is_honest_about_what_it_did_not_understand(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        shown = await chat.says("Where is A-1001? Sing me a song!")
        assert shown.startswith("Order A-1001")
        assert shown.endswith("I did not understand: Sing me a song!")
        shown = await chat.says("🐙 שלום עליכם")
        assert shown.startswith("I did not understand: 🐙 שלום עליכם\nI can look up, change")
        assert await chat.says("cancel") == "There is nothing to cancel."


# confirmation


@pytest.mark.parametrize(("answer", "paid"), [("yes", ["35.50"]), ("no", []), ("不要", []), ("好的", ["35.50"])])
@on_loop
async def test_money_is_paid_back_only_after_a_yes(tmp_path: Path, answer: str, paid: list[str]) -> None:
    async with chatting(tmp_path) as chat:
        shown = await chat.says("refund B-2001, it is damaged")
        assert shown == "Shall I refund 35.50 € for order B-2001 (Tea kettle)? Yes or no?"
        question = await chat.question()
        assert (question.kind, question.pending_tool_name) == ("confirm", "Shop.pay_refund")
        assert await chat.says("yes but only half") == f"I did not understand that. {shown}"
        await chat.says(answer)
        assert [amount for (amount,) in rows(chat.shop, "SELECT amount FROM refunds")] == paid


@pytest.mark.long
@on_loop
async def test_no_more_is_paid_back_than_was_paid(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        assert "only 35.50 € can be refunded" in await chat.says("refund 99 € for B-2001, damaged")
        assert "Shall I refund 20.00 €" in await chat.says("refund 20 € for B-2001, damaged")
        await chat.says("yes")
        await chat.all_of(["refund B-2001 it is damaged", "yes"])
        assert "has already been refunded" in await chat.says("refund B-2001 it is damaged")
        assert rows(chat.shop, "SELECT amount FROM refunds ORDER BY 1") == [("15.50",), ("20.00",)]


# rounds, expiry, a person


@pytest.mark.long
@on_loop
async def test_after_the_last_round_a_person_takes_over_with_everything_that_was_collected(tmp_path: Path) -> None:
    async with chatting(tmp_path, rounds=3) as chat:
        await chat.all_of(["where is A-1002?", "change its address", "the order is A-1002", "hm"])
        shown = await chat.says("hm hm")
        assert shown.startswith("The new address: I could not complete this in 3 questions, so a person takes over.")
        assert "ticket 1. They can see everything that you told me." in shown
        [(about,)] = rows(chat.shop, "SELECT about FROM tickets")
        ticket = json.loads(about)
        assert ticket["customer"] == "ann@example.com"
        assert ticket["results"][0]["parameters"] == {"order": "A-1002"}
        assert [each["text"] for each in ticket["conversation"] if each["role"] == "user"] == [
            "where is A-1002?", "change its address", "the order is A-1002", "hm", "hm hm",
        ]  # fmt: skip
        assert (await chat.says("where is A-1001?")).startswith("Order A-1001")


@on_loop
async def test_who_asks_for_a_person_in_the_middle_gets_one(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says("修改C-3002的地址")
        assert (
            await chat.says("转人工！") == "修改地址：将由人工继续处理。\n已转接人工，工单号1。您提供的信息都已转交。"
        )
        [(about,)] = rows(chat.shop, "SELECT about FROM tickets")
        assert json.loads(about)["results"][0]["parameters"] == {"order": "C-3002"}


@on_loop
async def test_a_person_or_another_request_instead_of_a_yes_pays_nothing(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says("refund B-2001, it is damaged, and change the address of A-1002")
        shown = await chat.says("I want to talk to a human")
        assert shown.splitlines()[:2] == [
            "The refund: a person will take over.", "The new address: a person will take over.",
        ]  # fmt: skip
        [(about,)] = rows(chat.shop, "SELECT about FROM tickets")
        assert [each["parameters"] for each in json.loads(about)["results"]] == [
            {"order": "B-2001", "reason": "damaged", "amount": "35.50"}, {"order": "A-1002"},
        ]  # fmt: skip
        await chat.says("refund B-2001, it is damaged")
        shown = await chat.says("where is A-1001?")
        assert shown.startswith("Order A-1001")
        assert shown.endswith("Shall I refund 35.50 € for order B-2001 (Tea kettle)? Yes or no?")
        assert effects(chat.shop) == Counter(tickets=1)


async def _passes(chat: Chatting, clock: ManualClock, minutes: int) -> None:
    await clock.asleep()
    clock.advance(minutes * 60)
    while await chat.session.questions(QuestionStatus.RESUMED) or (await chat.session.status()) is not Status.WAITING:
        await asyncio.sleep(0.001)


@pytest.mark.long
@pytest.mark.covers("S2.18", "S2.59")
@pytest.mark.parametrize("confirming", [False, True])
@on_loop
async def test_a_late_answer_is_told_so_and_never_taken_for_a_new_request(tmp_path: Path, confirming: bool) -> None:
    clock = ManualClock()
    async with chatting(tmp_path, clock=clock) as chat:
        await chat.says("refund B-2001, it is damaged" if confirming else "refund B-2001")
        await _passes(chat, clock, 31)
        with pytest.raises(QuestionClosed, match="EXPIRED"):
            await chat.says("where is A-1001?")
        assert "I received no answer in time, so nothing was changed." in await chat.shown()
        assert effects(chat.shop).total() == 0
        assert "where is A-1001?" not in [text for _, text in await chat.transcript()]
        assert (await chat.says("where is A-1001?")).startswith("Order A-1001")


@pytest.mark.long
@pytest.mark.covers("S2.18", "S2.57", "S2.59")
@pytest.mark.parametrize(("request_", "confirms", "table"), [
    ("refund B-2001, it is damaged", "Shall I refund 35.50 €", "refunds"),
    ("change the address of A-1002 to Quay Road 7, 24105 Kiel", "Shall I send order A-1002", "address_changes"),
    ("cancel my order A-1002", "Shall I cancel order A-1002 (Wool blanket) and pay back 79.00 €", "cancellations"),
    ("book a repair tomorrow at 10:00, ann@example.com", "Shall I book repair on Tuesday", "appointments"),
])  # fmt: skip
@on_loop
async def test_a_confirmation_expires_after_30_minutes_and_is_asked_again_on_return(
    tmp_path: Path, request_: str, confirms: str, table: str
) -> None:
    clock = ManualClock()
    async with chatting(tmp_path, clock=clock) as chat:
        asked = await chat.says(request_)
        assert asked.startswith(confirms)
        question = await chat.question()
        assert question.expired_at is not None
        assert question.expired_at - question.created_at == timedelta(minutes=30)
        await _passes(chat, clock, 29)
        assert (await chat.question()).id == question.id
        await _passes(chat, clock, 2)
        assert not await conversation.send(chat.engine, "c1", "yes")  # too late: it is not used
        shown = await chat.shown()
        assert shown.startswith(f"{await _expired(chat)}")
        assert shown.endswith(asked)
        assert effects(chat.shop).total() == 0
        await chat.says("yes")
        assert effects(chat.shop) == Counter({table: 1})


async def _expired(chat: Chatting) -> str:
    state = await chat.session.state()
    [text] = [each.text for each in state.messages if "I received no answer in time" in each.text]
    return text


@on_loop
async def test_a_message_that_comes_while_it_is_paused_is_kept_and_answers_what_was_asked(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says("refund B-2001")
        await chat.session.pause(reason="lunch")
        await chat.engine.session("c1").send("it is damaged")
        assert await chat.session.status() is Status.PAUSED
        assert len(rows(chat.shop, "SELECT * FROM refunds")) == 0
        await chat.session.resume()
        assert (await chat.shown()).startswith("Shall I refund 35.50 €")


# the record, the sub-chain


@pytest.mark.covers("S2.4", "S2.13", "S2.28", "S2.40", "S2.42")
@on_loop
async def test_the_record_of_a_pause_has_the_sub_chain_the_history_and_all_that_is_known(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says("where is A-1002?")
        shown = await chat.says("and change the address, please")
        first = await chat.question()
        [child] = [info for info in await chat.session.children() if info.status is Status.WAITING]
        assert (first.session_id, first.sub_chain_id, first.workflow_id) == ("c1", child.session_id, "helpdesk")
        assert (child.workflow, first.llm_node_id) == (errand.name, "gather")
        history = json.loads(first.chat_history_json or "")
        assert [each["text"] for each in history][::2] == ["where is A-1002?", "and change the address, please"]
        known = json.loads(first.context_json or "")
        assert (known["customer"], known["request"]) == ("ann@example.com", "and change the address, please")
        assert [call["tool"] for call in known["calls"]] == ["change_address"]
        await chat.says("A-1002, the street is Harbour Road 7")
        second = await chat.question()
        history = json.loads(second.chat_history_json or "")
        assert [each["text"] for each in history][-2:] == [shown, "A-1002, the street is Harbour Road 7"]
        assert (second.current_round, second.max_rounds, second.pending_tool_id) == (
            2, 4, "helpdesk.change_address",
        )  # fmt: skip
        confirm = await chat.says("24105 Kiel")
        await chat.says("yes, please")
        assert (await chat.transcript())[-5:] == [
            ("assistant", second.next_question), ("user", "24105 Kiel"),
            ("assistant", confirm), ("user", "yes, please"),
            ("assistant", "Done: order A-1002 goes to Harbour Road 7, 24105 Kiel."),
        ]  # fmt: skip
        assert (await chat.session.info()).step == "intent"  # back in the outer chain, waiting for what comes next


@pytest.mark.covers("S2.4")
@on_loop
async def test_outside_of_a_sub_chain_there_is_none(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        session = await chat.engine.start(
            errand, session_id="alone", desk=(await chat.session.state()).desk, language="en",
            now="2030-03-04T09:00:00Z", request="refund", calls=[{"tool": "refund"}],
        )  # fmt: skip
        await session.outcome()
        [question] = await session.questions()
        assert (question.session_id, question.sub_chain_id) == ("alone", None)


@pytest.mark.long
@pytest.mark.covers("S2.28", "S2.55")
@on_loop
async def test_of_several_requests_in_one_message_the_finished_ones_keep_their_results(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        asked = "Where is A-1001, and change the address of A-1002, and refund B-2001 because it is damaged"
        shown = await chat.says(asked)
        assert shown.startswith("Order A-1001 (Storm lantern): on its way.")
        assert "\nThe new address: please tell me the street" in shown
        question = await chat.question()
        known = json.loads(question.context_json or "")
        assert [(each["tool"], each["facts"]["item"]) for each in known["results"]] == [
            ("order_status", "Storm lantern")
        ]  # fmt: skip
        assert [each["tool"] for each in known["calls"]] == ["change_address", "refund"]
    async with chatting(tmp_path) as chat:  # another engine, as after a restart
        assert (await chat.says("Harbour Road 7, 24105 Kiel")).startswith("Shall I send order A-1002")
        assert (await chat.says("yes")).startswith("Done: order A-1002 goes to Harbour Road 7, 24105 Kiel.\nShall I")
        assert await chat.says("yes") == "Done: 35.50 € for order B-2001 is on its way back to you."
        assert effects(chat.shop) == Counter(address_changes=1, refunds=1)


# several channels, any letters


@on_loop
async def test_two_channels_talk_to_one_chat_and_one_answer_counts(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says("refund B-2001 it is damaged")
        question = await chat.question()
        await chat.engine.answer(question.id, {"approved": True}, by="ann", channel="web", seen=question.digest)
        with pytest.raises(AnswerConflict, match="ann through web"):
            await chat.engine.answer(question.id, {"approved": False}, by="ben", channel="mail")
        assert "Done: 35.50 €" in await chat.shown()
        assert effects(chat.shop)["refunds"] == 1
        messages = [chat.engine.session("c1").send(f"where is {number}?") for number in ("A-1001", "A-1002", "B-2001")]
        await asyncio.gather(*messages)
        shown = ""
        while shown.count("Order ") < 3:
            shown += await chat.shown()
        assert shown.count("Order ") == 3


@pytest.mark.long
@pytest.mark.parametrize(
    "street", ["上海路 5", "Straße der Œuvre 7", "רחוב הרצל 12", "شارع الملك 9", "🐙 Lane 3", "Ǆ́ Road 1"]
)
@on_loop
async def test_any_letters_go_the_whole_way(tmp_path: Path, street: str) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says("change the address of A-1002, the postcode is 24103, the city is קיל 基尔 🏙")
        assert street in await chat.says(street)
        assert street in await chat.says("👍 yes")
        [(stored, city)] = rows(chat.shop, "SELECT street, city FROM orders WHERE number = 'A-1002'")
        assert city == "קיל 基尔 🏙"
        assert stored == street
        assert ("user", street) in await chat.transcript()
