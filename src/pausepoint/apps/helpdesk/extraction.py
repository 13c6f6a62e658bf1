"""Find typed values in people's words: order numbers, e-mail addresses, telephone numbers, amounts, choices, addresses.

Text is made `normal` first, so that ２０３０ is 2030. No function here raises; values that are not found are omitted.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal

from pausepoint.apps.helpdesk.dates import FLAGS, Found, dates, times

LONGEST = 1_000
"""The number of characters of a message that the patterns read. More would take too long, and people write less."""

_ORDER = re.compile(r"(?<![A-Za-z0-9])(?:([A-Za-z])-?|([A-Z]) )(\d{4})(?!\d)")
_EMAIL = re.compile(r"[A-Za-z0-9._%+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24}(?![A-Za-z0-9])")
_PHONE = re.compile(r"(?<![A-Za-z0-9@.+])\+?\(?\d[\d ()/.-]{5,22}\d(?![A-Za-z0-9])")
_SLASHED = re.compile(r"(?<!\d)\d{1,2}/\d{1,2}/\d{2,4}(?!\d)")
_SUM = r"(?:\d{1,3}(?:[., ]\d{3})+|\d{1,12})(?:[.,]\d{1,2})?"
_SIGN = r"(?:(?<![\w)])[-\u2212\u2013]\s?|\bminus\s|负)?"
_AMOUNT = re.compile(
    rf"(?P<sign>{_SIGN})(?:(?:€|\$|£|¥|EUR\b|USD\b|GBP\b)\s?(?P<inner>[-\u2212]?)(?P<after>{_SUM})(?![.,]?\d)"
    rf"|(?<![\d.,])(?P<before>{_SUM})\s?(?:€|£|\$|EUR\b|USD\b|GBP\b|euros?\b|dollars?\b|pounds?\b|bucks\b|元|块))",
    FLAGS,
)
_LETTERED = (
    r"[A-Z]{1,2}\d[A-Z\d]?\s?\d[A-Z]{2}|[A-Z]\d[A-Z]\s?\d[A-Z]\d|[A-Z]\d{2}\s?[A-Z\d]{4}|\d{4}\s?[A-Z]{2}(?![A-Za-z])"
    r"|[A-Z]{1,2}-\d{4,5}|\d{3}-\d{4}|\d{5}-\d{3,4}|\d{2}-\d{3}|\d{3}\s\d{2,3}"
)
"""The shapes of postcodes with letters, hyphens or spaces, such as SW1A 1AA, K1A 0B1, 1012 AB, 100-0001 and 00-950."""

_CODE = rf"(?:{_LETTERED}|\d{{4,6}})"
_POSTCODE = re.compile(rf"(?<![\dA-Za-z+-])({_LETTERED}|\d{{5,6}})(?![\dA-Za-z-])")

_IS = r"\s*(?:should\s+be|has\s+to\s+be|is\s+now|is|was|to|=|:|应该是|改成|改为|是|为)\s*"
_JUDGED = (
    r"(?!\s*(?:(?:not|all|very|totally|completely|quite|still|also|spel\w+|mis\w+|wrong|incorrect|right|correct|fine"
    r"|good"
    r"|ok(?:ay)?|old|new|different|missing|false|true|the same)\b|错|不对|对的|没错|正确))"
)
"""A street that is wrong or right is not called so."""

_STOP = r"(?=[,;。!?\n]|\s+and\s+(?:the\s+|my\s+)?(?:post|zip|city|town|street|order)|$)"
_LABELLED = {
    "street": re.compile(
        rf"(?:street|road|街道|路名"
        rf"|地址){_IS}{_JUDGED}(?P<value>[^,;。!?\n]{{1,80}}?){_STOP}",
        re.IGNORECASE,
    ),
    "postcode": re.compile(
        r"(?:post\s?code|postal\s+code|zip(?:\s+code)?|邮编|邮政编码)(?:\s*(?:is|:|=|是|为|改成))?\s*(?P<value>"
        + _CODE
        + r")(?![A-Za-z\d])",
        re.IGNORECASE,
    ),
    "city": re.compile(rf"(?:city|town|城市){_IS}{_JUDGED}(?P<value>[^,;。!?\d\n]{{1,60}}?)\s*{_STOP}", re.IGNORECASE),
}
_TAIL = re.compile(
    rf",\s*+(?:(?P<code>{_CODE})\s+(?P<city>[^\d,;.!?\n]{{2,60}})"
    rf"|(?!(?:and|the|my|post|zip|city|street"
    rf"|order)\b)(?P<place>[^\d,;.!?\n]{{2,60}}?),?\s+(?P<last>{_CODE})(?![\dA-Za-z]))"
)
_LEADS = re.compile(r"\b(?:to|at|is)\b|[,;:\n]", FLAGS)
_STREET = re.compile(r"[^\d@]{3,60}\s\d{1,4}\s?[a-z]?|\d{1,4}\s?[a-z]?\s[^\d@]{3,60}", re.IGNORECASE)
_PLACE = re.compile(rf"(?P<code>{_CODE})\s*(?P<city>[^\d@]{{2,60}})|(?P<place>[^\d@]{{2,60}}?)\s+(?P<last>{_CODE})")
_HAN_STREET = re.compile(
    r"((?:(?:(?![市省])[\u4e00-\u9fff]){1,4}[区县镇])?[^市区县省,;。:\s到成为是在]{1,12}?(?:大道|路|街|巷"
    r"|弄)\s*\d+\s*号[^,;。\s]{0,20})"
)
_HAN_VERBS = re.compile("^(?:请|改|寄|送|发|到|成|为|是|在|换|往|搬|去|我|住|给|帮|把|的|地址)+")
_AFTER_CITY = re.compile(
    r"\s+(?:please|thanks|thank you|instead|now|from now on|asap|as soon as possible|if possible)\b.*$", re.IGNORECASE
)
_HAN_CITY = re.compile(r"(?:^|[省,;:\s到成为是在寄送发往])((?:(?!省)[\u4e00-\u9fff]){2,6}?市)")


def normal(text: str) -> str:
    """Return the first `LONGEST` characters of a text, with digits and wide letters as ASCII, at the same positions.

    >>> normal("订单Ａ-１００１，谢谢！ ٣")
    '订单A-1001,谢谢! 3'
    """
    read = text[:LONGEST]
    return read if read.isascii() else "".join(map(_plain, read))


def _plain(char: str) -> str:
    if "\uff01" <= char <= "\uff5e":  # the wide forms of ASCII
        return chr(ord(char) - 0xFEE0)
    if char.isspace() and char != "\n":
        return " "
    return str(unicodedata.decimal(char, char))


def orders(text: str) -> list[Found]:
    """Return order numbers as the shop writes them.

    >>> [found.value for found in orders("a1001, #B-2002 and C 3003")]
    ['A-1001', 'B-2002', 'C-3003']
    """
    return [Found(f"{(m[1] or m[2]).upper()}-{m[3]}", *m.span()) for m in _ORDER.finditer(text)]


def emails(text: str) -> list[Found]:
    """Return e-mail addresses, with the domain in lower case."""
    found = []
    for match in _EMAIL.finditer(text):
        name, _, domain = match[0].rpartition("@")
        found.append(Found(f"{name}@{domain.lower()}", *match.span()))
    return found


def phones(text: str, today: date = date(2000, 1, 1)) -> list[Found]:
    """Return telephone numbers as digits, with a leading + if there is one.

    >>> [found.value for found in phones("+49 (431) 12-34-56 or 138 0013 8000, on 2030-03-07")]
    ['+49431123456', '13800138000']
    """
    hidden = blanked(text, [*orders(text), *emails(text), *dates(text, today), *times(text), *amounts(text)])
    found = []
    for match in _PHONE.finditer(_SLASHED.sub(lambda found: " " * len(found[0]), hidden)):
        digits = re.sub(r"\D", "", match[0])
        if 7 <= len(digits) <= 15:
            found.append(Found(("+" if match[0].startswith("+") else "") + digits, *match.span()))
    return found


def amounts(text: str) -> list[Found]:
    """Return amounts of money: numbers with a currency.

    >>> [str(found.value) for found in amounts("€49.90, 20,5 euros, 30元, $1,234.50, 1.234 € or -50 €")]
    ['49.90', '20.5', '30', '1234.50', '1234', '-50']
    """
    found = []
    for match in _AMOUNT.finditer(text):
        amount = _sum(match["after"] or match["before"])
        found.append(Found(-amount if match["sign"] or match["inner"] else amount, *match.span()))
    return found


def _sum(written: str) -> Decimal:
    """Read a number with points, commas and spaces. Three digits after the last separator are thousands."""
    cents = re.search(r"[.,](\d{1,2})$", written)
    whole = written[: cents.start()] if cents else written
    return Decimal(re.sub(r"\D", "", whole) + (f".{cents[1]}" if cents else ""))


def choice(text: str, synonyms: Mapping[str, Iterable[str]]) -> str | None:
    """Return the choice that a text names, or None if it names none or several."""
    named = {
        name for name, words in synonyms.items()
        if any(re.search(word, text, re.IGNORECASE) for word in (re.escape(name.replace("_", " ")), *words))
    }  # fmt: skip
    return named.pop() if len(named) == 1 else None


def address(text: str) -> dict[str, str]:
    """Return the parts of an address in a text: labelled parts, or a whole address.

    >>> address("send it to 5 Quay Street, 24103 Kiel")
    {'street': '5 Quay Street', 'postcode': '24103', 'city': 'Kiel'}
    >>> address("改寄南京市鼓楼区中山路5号,邮编210008")
    {'street': '鼓楼区中山路5号', 'postcode': '210008', 'city': '南京市'}
    >>> address("please send it to 10 Downing Street, London SW1A 2AA instead")
    {'street': '10 Downing Street', 'postcode': 'SW1A 2AA', 'city': 'London'}
    """
    whole = _in_one(text)
    found = dict(whole)
    if not found and (street := _HAN_STREET.search(text)) is not None:
        found["street"] = street[1].strip()
    for name, pattern in _LABELLED.items():
        if name not in whole and (match := pattern.search(text)) is not None:
            found[name] = match["value"].strip()
    if "city" not in found and (city := _HAN_CITY.search(text)) is not None:
        found["city"] = _HAN_VERBS.sub("", city[1])
    if "postcode" not in found:
        bare = blanked(text, [*orders(text), *phones(text), *amounts(text)])
        if (code := _POSTCODE.search(bare)) is not None:
            found["postcode"] = code[1].upper()
    return {name: found[name] for name in ("street", "postcode", "city") if found.get(name)}


def _in_one(text: str) -> dict[str, str]:
    """Return a whole address: the words before ", 24103 Kiel", back to the word that introduces them."""
    tail = _TAIL.search(text)
    street = "" if tail is None else _LEADS.split(text[: tail.start()])[-1].strip()
    if tail is None or not 3 <= len(street) <= 80:
        return {}
    return {"street": street, **_code_and_city(tail)}


def _code_and_city(match: re.Match[str]) -> dict[str, str]:
    """Return a postcode and a city in either order."""
    city = _AFTER_CITY.sub("", match["city"] or match["place"]).strip()
    return {"postcode": (match["code"] or match["last"]).upper(), "city": city}


def place(text: str) -> dict[str, str]:
    """Return the parts of an address in an answer that contains nothing else, so they need no labels.

    >>> place("Harbour Road 7")
    {'street': 'Harbour Road 7'}
    >>> place("12b Mill Lane, 20095 Bad Homburg")
    {'street': '12b Mill Lane', 'postcode': '20095', 'city': 'Bad Homburg'}
    """
    found: dict[str, str] = {}
    for piece in (part.strip(" .") for part in re.split(r"[,;]", text)):
        if _STREET.fullmatch(piece):
            found["street"] = piece
        elif (match := _PLACE.fullmatch(piece)) is not None:
            found |= _code_and_city(match)
    return found


def blanked(text: str, found: Iterable[Found]) -> str:
    """Replace values in a text with spaces, so that no part of them is read as something else."""
    for each in found:
        text = text[: each.start] + " " * (each.end - each.start) + text[each.end :]
    return text
