"""Yes and no in customers' own words, read without a model, and replies that are neither."""

from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pausepoint.apps.helpdesk.models import Call
from pausepoint.apps.helpdesk.readings import decision_by_rules
from tests.apps.helpdesk_kit import chatting, effects
from tests.support.loop import on_loop

DATA = Path(__file__).parent / "data"
FILES = ("helpdesk_replies_unseen.toml", "helpdesk_replies_held_out.toml")
TODAY = date(2030, 3, 4)
CALLS = {
    "refund": Call(tool="refund", given={"order": "B-2001", "reason": "damaged"}),
    "address": Call(
        tool="change_address",
        given={"order": "A-1002", "street": "Quay Road 7", "postcode": "24105", "city": "Kiel"},
    ),
}
REQUESTS = {
    "refund": "refund B-2001, it is damaged",
    "address": "change the address of A-1002 to Quay Road 7, 24105 Kiel",
}
CONDITIONS = (
    "if you pay the postage", "unless it was already sent", "but only half", "only if I can keep it", "but not today",
    "as long as it is free", "when it has arrived", "once I have the new one", "after my holidays", "except the fee",
    "provided you also pay the postage", "not this one", "don't do it yet", "wait", "never", "without the fee",
    "and send another one", "to my other card", "in case it was lost", "rather tomorrow", "and exchange it",
    "但是要换货", "如果今天能到账", "先别退", "除非免运费", "只要不扣钱", "等我确认了", "不过金额不对", "再等等",
)  # fmt: skip


def replies(file: str, kind: str) -> list[tuple[str, str]]:
    """Return sentences, each with the question that it replies to."""
    topics = tomllib.loads((DATA / file).read_text("utf-8"))
    return [(asked, text) for asked, kinds in topics.items() for text in kinds[kind]]


def verdicts(file: str, kind: str) -> list[str]:
    return [decision_by_rules(CALLS[asked], text, TODAY).verdict for asked, text in replies(file, kind)]


@pytest.mark.parametrize("file", FILES)
def test_ordinary_ways_to_agree_and_to_decline_are_understood(file: str) -> None:
    agreed, declined, reserved = (verdicts(file, kind) for kind in ("agree", "decline", "never_yes"))
    assert (len(agreed), len(declined), len(reserved)) == (60, 40, 20)
    assert agreed.count("yes") + declined.count("no") + declined.count("cancel") >= 95
    assert not {"no", "cancel"} & set(agreed)
    assert "yes" not in declined
    assert "yes" not in reserved


@pytest.mark.long
@given(
    st.sampled_from([reply for file in FILES for reply in replies(file, "agree")]), st.sampled_from(CONDITIONS),
    st.sampled_from(["{yes} {more}", "{yes}, {more}", "{more}, {yes}", "{yes}. {more}.", "{yes} and {more}"]),
)  # fmt: skip
def test_a_yes_with_a_condition_or_a_negation_is_none(reply: tuple[str, str], more: str, form: str) -> None:
    asked, text = reply
    said = form.format(yes=text.rstrip("!."), more=more)
    assert decision_by_rules(CALLS[asked], said, TODAY).verdict != "yes"


@pytest.mark.parametrize(
    ("asked", "text", "verdict"),
    [
        ("refund", "yes, if it hasn't been sent", "unclear"),
        ("refund", "yes, when it has arrived", "unclear"),
        ("refund", "yes please, it was broken when it arrived", "yes"),
        ("refund", "yes, and where is A-1001?", "yes"),
        ("refund", "I want my order", "other"),
        ("refund", "I need it", "unclear"),
        ("refund", "send it", "unclear"),
        ("refund", "yes, send a new one", "unclear"),
        ("refund", "yes, 20 €", "answer"),
        ("refund", "yes, refund order A-1001", "answer"),
        ("refund", "yes, refund B-2001", "yes"),
        ("refund", "No, I changed my mind", "no"),
        ("refund", "退吧", "yes"),
        ("refund", "寄吧", "unclear"),
        ("address", "refund it", "other"),
        ("address", "yes, the street is Quay 5", "answer"),
        ("address", "yes Quay Road 7 is right", "yes"),
        ("address", "send it to my address", "unclear"),
        ("address", "change it", "unclear"),
        ("address", "the street is wrong", "no"),
        ("address", "对，寄到公司", "unclear"),
    ],
)
def test_a_reply_is_read_with_its_question(asked: str, text: str, verdict: str) -> None:
    assert decision_by_rules(CALLS[asked], text, TODAY).verdict == verdict


def test_all_the_money_is_no_yes_to_a_part_of_it() -> None:
    everything = CALLS["refund"]
    part = Call(tool="refund", given=everything.given | {"amount": "20"})
    said = "yes, refund the full amount"
    assert [decision_by_rules(call, said, TODAY).verdict for call in (part, everything)] == ["unclear", "yes"]


@pytest.mark.long
@pytest.mark.parametrize("file", FILES)
@on_loop
async def test_a_reply_with_a_condition_or_a_negation_writes_nothing(tmp_path: Path, file: str) -> None:
    for number, (asked, text) in enumerate(replies(file, "never_yes")):
        async with chatting(tmp_path, f"c{number}") as chat:
            await chat.says(REQUESTS[asked])
            await chat.says(text)
            assert effects(chat.shop)["refunds"] == effects(chat.shop)["address_changes"] == 0, text


@on_loop
async def test_a_reply_with_a_reason_is_written(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.says(REQUESTS["refund"])
        assert "Done: 35.50 €" in await chat.says("Yes, I would like the refund please, it arrived broken.")
