"""Values in people's words: written in any way that is supported they come out the same, and garbage never raises."""

from __future__ import annotations

from datetime import date, time, timedelta
from decimal import Decimal
from time import process_time
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pausepoint.apps.helpdesk.dates import DAYS, HAN_DAYS, HAN_DIGITS, MONTHS, WORDS, dates, number, times
from pausepoint.apps.helpdesk.decisions import is_cancel, yes_or_no
from pausepoint.apps.helpdesk.extraction import LONGEST, address, amounts, choice, emails, normal, orders, phones, place
from pausepoint.apps.helpdesk.intents import language_of, meaning, wants_person
from pausepoint.apps.helpdesk.models import ToolName
from pausepoint.apps.helpdesk.parameters import (
    CHOICES,
    MODELS,
    AddressChange,
    Refund,
    answered,
    corrected,
    found_in,
    is_correction,
)

TODAY = date(2030, 3, 5)  # a Tuesday
MONDAY = TODAY - timedelta(days=TODAY.weekday())

DAYS_AHEAD = st.dates(TODAY, TODAY + timedelta(days=300))
HOURS = st.builds(time, st.integers(0, 23), st.integers(0, 59))
AROUND = st.sampled_from(["{}", "on {} please", "what about {}?", "我想{}去", "那就{}吧", "{}, thanks", "（{}）"])


def han(value: int) -> str:
    """A number below 100 in Chinese."""
    tens, ones = divmod(value, 10)
    if not tens:
        return HAN_DIGITS[ones]
    return ("" if tens == 1 else HAN_DIGITS[tens]) + "十" + (HAN_DIGITS[ones] if ones else "")


def wide(text: str) -> str:
    """The same in the wide letters of East Asian keyboards."""
    return "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text)


def written(day: date) -> list[str]:
    """A day in every way that needs no other day."""
    month = MONTHS[day.month - 1]
    return [
        day.isoformat(), f"{day:%Y/%m/%d}", f"{day:%d.%m.%Y}", f"{day.day}.{day.month}.{day.year}",
        f"{day.day} {month.title()} {day.year}", f"{day.day}th of {month} {day.year}",
        f"{month[:3]} {day.day}, {day.year}", f"{month.title()} {day.day}", f"{day.day} {month[:3]}",
        f"{day.year}年{day.month}月{day.day}日",
        f"{day.month}月{day.day}号", f"{han(day.month)}月{han(day.day)}日", wide(day.isoformat()),
    ]  # fmt: skip


@given(DAYS_AHEAD, st.data())
def test_a_day_written_in_any_way_is_that_day(day: date, data: st.DataObject) -> None:
    around = data.draw(AROUND)
    text = around.format(data.draw(st.sampled_from(written(day))))
    assert [found.value for found in dates(normal(text), TODAY)] == [day], text


@given(st.integers(1, 99), st.data())
def test_so_many_days_or_weeks_ahead_are_counted_from_the_day_that_is_given(count: int, data: st.DataObject) -> None:
    words = [str(count), *([WORDS[count - 1]] if count <= 12 else [])]
    day, week = TODAY + timedelta(days=count), TODAY + timedelta(weeks=count)
    ways = [(f"in {word} days", day) for word in words] + [(f"in {word} weeks", week) for word in words]
    ways += [
        (f"{count} days from now", day),
        (f"{count}天后", day),
        (f"{han(count)}天之后", day),
        (f"{count}周后", week),
    ]
    ways += [(f"{han(count)}个星期后", week)]
    text, expected = data.draw(st.sampled_from(ways))
    assert [found.value for found in dates(text, TODAY)] == [expected], text


@pytest.mark.parametrize(
    ("text", "ahead"),
    [
        ("today", 0), ("tomorrow", 1), ("day after tomorrow", 2), ("今天", 0), ("明天", 1), ("后天", 2), ("大后天", 3),
        ("Wednesday", 1), ("on wed", 1), ("Tuesday", 7), ("next Monday", 6), ("next Sunday", 12), ("周三", 1),
        ("星期二", 7), ("下周一", 6), ("下周日", 12), ("本周五", 3), ("礼拜天", 5), ("in a week", 7),
    ],
)  # fmt: skip
def test_relative_days(text: str, ahead: int) -> None:
    assert [found.value for found in dates(text, TODAY)] == [TODAY + timedelta(days=ahead)]


@pytest.mark.parametrize(
    "text", ["03/04/2030", "30 February 2031", "2030-13-01", "99.99.2030", "13月1日", "二月三十号"]
)
def test_a_day_that_does_not_exist_or_can_be_read_in_two_ways_is_not_taken(text: str) -> None:
    assert dates(text, TODAY) == []


def test_of_weekdays_all_are_known_in_both_languages() -> None:
    for ahead, (name, sign) in enumerate(zip(DAYS, HAN_DAYS, strict=True)):
        expected = MONDAY + timedelta(days=7 + ahead)
        assert [found.value for found in dates(f"next {name}", TODAY)] == [expected]
        assert [found.value for found in dates(f"下周{sign}", TODAY)] == [expected]


@given(HOURS, st.data())
def test_a_time_written_in_any_way_is_that_time(at: time, data: st.DataObject) -> None:
    hour, half = at.hour % 12 or 12, "pm" if at.hour >= 12 else "am"
    ways = [f"{at:%H:%M}", f"{at.hour}:{at:%M}", f"{hour}:{at:%M} {half}", f"{hour}:{at:%M}{half}", wide(f"{at:%H:%M}")]
    ways += [f"{at.hour}点{at.minute}分", f"{at.hour}时{at.minute}分"]
    if 13 <= at.hour <= 22:
        ways.append(f"下午{han(at.hour - 12)}点{han(at.minute)}分" if at.minute else f"下午{han(at.hour - 12)}点")
    if not at.minute:
        ways += [f"{hour} {half}", f"{hour}{half}", f"{at.hour}点"]
    text = normal(data.draw(AROUND).format(data.draw(st.sampled_from(ways))))
    assert [found.value for found in times(text)] == [at], text


@given(st.sampled_from("ABCXZ"), st.integers(0, 9999), AROUND)
def test_an_order_number_written_in_any_way_is_that_number(letter: str, count: int, around: str) -> None:
    expected = f"{letter}-{count:04}"
    for text in (expected, expected.lower(), expected.replace("-", ""), f"{letter} {count:04}", f"#{expected}",
                 wide(expected), f"订单号{expected}"):  # fmt: skip
        assert [found.value for found in orders(normal(around.format(text)))] == [expected], text


@pytest.mark.long
@given(st.from_regex(r"[a-z][a-z0-9._+-]{0,15}[a-z0-9]", fullmatch=True), AROUND)
def test_an_email_address_is_found_between_any_words(name: str, around: str) -> None:
    text = normal(around.format(f"{name}@Mail.Example.COM"))
    assert [found.value for found in emails(text)] == [f"{name}@mail.example.com"]
    assert phones(text, TODAY) == []


@given(st.integers(10**8, 10**11 - 1), st.booleans(), st.sampled_from(["", " ", "-"]), AROUND)
def test_a_telephone_number_is_its_digits(digits: int, plus: bool, gap: str, around: str) -> None:
    text = str(digits)
    grouped = gap.join((text[:3], text[3:6], text[6:]))
    sign = "+" if plus else ""
    found = phones(normal(around.format(sign + grouped)), TODAY)
    assert [each.value for each in found] == [sign + text], around.format(sign + grouped)


@given(st.decimals(Decimal("0.01"), Decimal(99999), places=2), AROUND)
def test_an_amount_is_the_same_with_any_sign_and_point(amount: Decimal, around: str) -> None:
    comma = str(amount).replace(".", ",")
    for text in (f"€{amount}", f"{amount} €", f"{comma} euros", f"{amount}元", f"¥{amount}", f"{amount} EUR"):
        assert [found.value for found in amounts(normal(around.format(text)))] == [amount], text


@given(st.decimals(Decimal(1000), Decimal(9_999_999), places=2), AROUND)
def test_thousands_may_be_set_apart_in_any_way(amount: Decimal, around: str) -> None:
    english = f"{amount:,}"
    german = english.translate(str.maketrans(",.", ".,"))
    for text in (f"${english}", f"€{german}", f"{german} €", f"{english} euros", f"{german.replace('.', ' ')} EUR"):
        assert [found.value for found in amounts(normal(around.format(text)))] == [amount], text


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("reason", "it was broken", "damaged"), ("reason", "杯子碎了", "damaged"), ("reason", "发错了货", "wrong_item"),
        ("reason", "I don't want it", "unwanted"), ("reason", "不想要了", "unwanted"),
        ("reason", "it never arrived", "late"), ("reason", "没收到", "late"), ("kind", "please fix it", "repair"),
        ("kind", "修一下", "repair"), ("kind", "自提", "pickup"),
        ("reason", "broken and wrong", None), ("reason", "because", None),
    ],
)  # fmt: skip
def test_choices_are_known_by_their_synonyms_and_two_are_none(name: str, text: str, expected: str | None) -> None:
    assert choice(text, CHOICES[name]) == expected


@pytest.mark.parametrize("name", CHOICES)
def test_every_choice_of_a_parameter_is_known_by_its_own_name(name: str) -> None:
    model = next(model for model in MODELS.values() if name in model.model_fields)
    for value in get_args(model.model_fields[name].annotation):
        assert choice(f"it is {value.replace('_', ' ')}", CHOICES[name]) == value


@given(st.integers(1, 999), st.integers(10000, 999999))
def test_an_address_is_found_by_its_form_or_by_the_names_of_its_parts(house: int, postcode: int) -> None:
    expected = {"street": f"Quay Street {house}", "postcode": str(postcode), "city": "Bad Homburg"}
    for text in (
        f"change it to Quay Street {house}, {postcode} Bad Homburg",
        f"Quay Street {house}, {postcode} Bad Homburg",
        f"the street is Quay Street {house}, the postcode is {postcode} and the city is Bad Homburg",
        f"city: Bad Homburg; street: Quay Street {house}; zip {postcode}",
    ):
        assert address(normal(text)) == expected, text
    assert place(f"Quay Street {house}, {postcode} Bad Homburg") == expected


@given(st.integers(1, 999), st.integers(100000, 999999))
def test_a_chinese_address_is_found_too(house: int, postcode: int) -> None:
    expected = {"street": f"中山路{house}号", "postcode": str(postcode), "city": "南京市"}
    for text in (
        f"改成江苏省南京市中山路{house}号，邮编{postcode}",
        f"南京市中山路{house}号 {postcode}",
        f"城市是南京市，街道是中山路{house}号，邮编是{postcode}",
    ):
        assert address(normal(text)) == expected, text


@pytest.mark.parametrize(
    ("text", "street", "postcode", "city"),
    [
        ("send it to 10 Downing Street, London SW1A 2AA please", "10 Downing Street", "SW1A 2AA", "London"),
        ("send it to 24 Sussex Drive, Ottawa K1M 1M4", "24 Sussex Drive", "K1M 1M4", "Ottawa"),
        ("ship it to Keizersgracht 5, 1015 CJ Amsterdam", "Keizersgracht 5", "1015 CJ", "Amsterdam"),
        ("deliver it to Ring 12, 1010 Wien instead", "Ring 12", "1010", "Wien"),
        ("改寄南京市鼓楼区中山路5号，邮编210008", "鼓楼区中山路5号", "210008", "南京市"),
    ],
)
def test_addresses_of_other_countries(text: str, street: str, postcode: str, city: str) -> None:
    expected = {"street": street, "postcode": postcode, "city": city}
    assert address(normal(text)) == expected
    assert AddressChange(order="A-1001", **expected).postcode == postcode


@pytest.mark.parametrize("code", ["24103", "210008", "sw1a 2aa", "K1M 1M4", "1015 CJ", "100-0001", "00-950", "2000"])
def test_postcodes_of_all_countries_are_accepted(code: str) -> None:
    assert AddressChange(order="A-1001", street="Quay 5", postcode=code, city="Kiel").postcode == code.upper()


@pytest.mark.parametrize("code", ["soon", "12", "12345678901", "AB CD", "24103 Kiel am See", "-50"])
def test_other_words_are_no_postcode(code: str) -> None:
    with pytest.raises(ValidationError):
        AddressChange(order="A-1001", street="Quay 5", postcode=code, city="Kiel")


@pytest.mark.parametrize("text", ["-50 €", "€ -50", "-€50", "minus 50 euros", "−50€", "负50元"])
def test_a_negative_amount_stays_negative_and_is_refused(text: str) -> None:
    assert [found.value for found in amounts(normal(text))] == [Decimal(-50)]
    given = found_in("refund", f"refund {text} for B-2001, damaged", TODAY)
    with pytest.raises(ValidationError):
        Refund.model_validate(given)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("übermorgen", "2030-03-07"), ("le 7 mars", "2030-03-07"), ("mañana", "2030-03-06"), ("7 marzo", "2030-03-07"),
        ("in a fortnight", "2030-03-19"), ("whenever", "whenever"), ("03/04/2030", "03/04/2030"), ("5", "5"),
    ],
)  # fmt: skip
def test_a_day_in_another_language_is_read_where_a_day_was_asked_for(text: str, day: str) -> None:
    assert answered("appointment", text, ["day"], TODAY) == {"day": day}


# meanings


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        ("Where's my parcel A-1001?", ["order_status"]), ("track A-1001", ["order_status"]),
        ("I want my money back", ["refund"]), ("My address is wrong", ["change_address"]),
        ("please deliver it to another place", ["change_address"]), ("Can I book a repair?", ["appointment"]),
        ("let me talk to a human", ["hand_over"]), ("我的订单到哪了", ["order_status"]), ("我要退钱", ["refund"]),
        ("地址写错了", ["change_address"]), ("约个时间维修", ["appointment"]), ("找人工客服", ["hand_over"]),
        ("where is A-1001 and B-2001", ["order_status", "order_status"]),
        ("查一下C-3001，另外退款C-3003", ["order_status", "refund"]), ("tell me a joke", []), ("", []),
        ("Please cancel my order A-1002", ["cancel_order"]), ("取消订单C-3002", ["cancel_order"]),
        ("I'd like to send the kettle B-2001 back, I want to return it", ["refund"]),
        ("I do NOT want a refund", []), ("please don't cancel my order", []), ("我不要退款", []), ("别取消订单", []),
        ("no refund, just tell me where A-1001 is", ["order_status"]),
        ("can you ask an agent whether A-1001 has been shipped, and where it is", ["order_status"]),
        ("how much is the cancellation fee for an order?", []), ("what is your refund policy?", []),
        ("I forgot my password", []), ("where is my invoice?", []),
        ("My parcel still has not come, B-2002", ["order_status"]), ("Any news on my refund?", ["order_status"]),
        ("I moved, A-1002 has to go somewhere else", ["change_address"]),
        ("put me through to a supervisor", ["hand_over"]), ("I want to make a complaint", ["hand_over"]),
        ("快递什么时候能到", ["order_status"]), ("我要投诉", ["hand_over"]),
        ("refund B-2001 and A-1001, both arrived broken", ["refund", "refund"]),
        ("cancel order A-1002; refund B-2001, it is broken", ["cancel_order", "refund"]),
        ("hi, my kettle B-2001 came broken, can i send it back?", ["refund"]),
        ("i want a refudn for B-2001", ["refund"]), ("trak my pacakge", ["order_status"]),
        ("I am still waiting for my refund of 40 dollars", ["order_status"]),
        ("I don't know how to ask for a reimbursement", ["refund"]), ("I don't want order A-1002", ["cancel_order"]),
        ("could you help me submit a delivery address?", ["change_address"]),
        ("how do I get in touch with an assistant?", ["hand_over"]), ("do you ship to Norway?", []),
        ("under which circumstances do you refund?", []),
    ],
)  # fmt: skip
def test_what_a_message_asks_for(text: str, tools: list[str]) -> None:
    assert [call.tool for call in meaning(text).calls] == tools


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("yes", True), ("Y", True), ("Sure!", True), ("好的。", True), ("是", True), ("no", False),
        ("No, thanks", False), ("不", False), ("别", False), ("cancel", False), ("取消", False), ("yes or no", None),
        ("maybe", None), ("", None),
        *((text, True) for text in (
            "yes please", "yeah sure", "Yep, go ahead", "ok do it", "okay", "alright then", "that's correct",
            "That is right.", "sounds good", "Of course", "absolutely!", "I confirm", "please do so", "fine by me",
            "go for it", "perfect, thanks", "Yes, that's what I want", "👍", "对的", "没问题", "可以的", "嗯，好",
            "好的，谢谢", "确认", "就这样吧",
        )),
        *((text, False) for text in (
            "nope", "no way", "I'd rather not", "not now", "please don't", "don't do it", "I do not want that",
            "never mind", "I changed my mind", "that's wrong", "No, leave it as it is", "hold on", "👎", "不用了",
            "不要", "算了", "先不", "不对", "我不想要", "不需要，谢谢", "等等",
        )),
        *((text, None) for text in (
            "yes, but not now", "yes and no", "what would that cost?", "is that right?", "ok, but to another address",
            "好像不太对吧？",
        )),
    ],
)  # fmt: skip
def test_a_yes_is_a_yes_and_a_no_a_no(text: str, said: bool | None) -> None:
    assert yes_or_no(text) is said


@pytest.mark.parametrize(
    ("tool", "text", "names", "expected"),
    [
        ("change_address", "no, the street is Quay 5", ["city"], {"street": "Quay 5"}),
        ("change_address", "it's Kiel", ["city"], {"city": "Kiel"}),
        ("change_address", "24105 Kiel", ["postcode", "city"], {"postcode": "24105", "city": "Kiel"}),
        ("refund", "不是A-1001，是A-1002", ["reason"], {"order": "A-1002"}),
        ("refund", "A-1001 or A-1002", ["order"], {"order": "A-1001 or A-1002"}),  # which one? asked again
        ("appointment", "whenever", ["day"], {"day": "whenever"}),
        ("appointment", "well", ["day", "time"], {}),
    ],
)  # fmt: skip
def test_an_answer_gives_what_was_asked_for_or_corrects(
    tool: ToolName, text: str, names: list[str], expected: dict[str, Any]
) -> None:
    assert answered(tool, text, names, TODAY) == expected


@given(st.text(max_size=80) | st.text("0123456789-/.:年月日点 amp@+", max_size=40), st.sampled_from(list(MODELS)))
def test_garbage_never_raises_and_what_is_found_has_its_type(text: str, tool: ToolName) -> None:
    said = normal(text)
    assert len(said) == min(len(text), LONGEST)
    meaning(text), language_of(text, "en"), is_cancel(text), wants_person(text), yes_or_no(text)
    corrected(said), is_correction(text), place(said), address(said)
    model = MODELS[tool]
    found = found_in(tool, text, TODAY)
    assert answered(tool, text, list(model.model_fields), TODAY).keys() <= model.model_fields.keys()
    try:
        model.model_validate(found)
    except ValidationError as error:
        wrong = {str(each["loc"][0]) for each in error.errors() if each["type"] != "missing"}
        assert wrong <= {"street", "city", "amount"}, (found, wrong)


@pytest.mark.parametrize(
    "piece", ["a ", "to ", "1 ", "deliver ", "x, 1234 ", "1.1.", "改地址", "a@", "1,", "street is "]
)
def test_a_long_message_is_read_in_part_and_that_is_said(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    began = process_time()
    assert meaning(text).unclear[-1].startswith("… ")
    for tool in MODELS:
        answered(tool, text, ["order"], TODAY)
    assert process_time() - began < 5  # patterns that go wrong take minutes


def test_numbers_in_words_and_signs() -> None:
    for value in range(1, 100):
        assert number(str(value)) == number(han(value)) == value
    assert [number(word) for word in WORDS] == list(range(1, 13))
