"""Find the facts of a sentence (numbers, dates and names), and check whether another text contains them.

A number is compared by its value and its unit (4.2 million is 4,200,000; 12 % is not 12), a date by its parts, and a
name by its words.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from decimal import Decimal
from functools import lru_cache
from typing import Literal, NamedTuple

from pausepoint.apps.memo.models import FactKind

MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
          "december")  # fmt: skip
_MONTH = "|".join([*(month.capitalize() for month in MONTHS), r"(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.?"])
_DATE = re.compile(
    rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+(?P<month>{_MONTH})\s+(?P<year>(?:19|20)\d\d)\b"
    rf"|\b(?P<month2>{_MONTH})\s+(?P<day2>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<year2>(?:19|20)\d\d)\b"
    rf"|\b(?P<month3>{_MONTH})\s+(?P<year3>(?:19|20)\d\d)\b"
    r"|\b(?P<year4>(?:19|20)\d\d)-(?P<month4>\d\d)-(?P<day4>\d\d)\b"
    r"|\b(?P<day7>\d{1,2})\.(?P<month7>0?[1-9]|1[0-2])\.(?P<year7>(?:19|20)\d\d)\b"
    r"|\bQ(?P<quarter>[1-4])\s+(?P<year5>(?:19|20)\d\d)\b"
    r"|(?<![\w.,$€£])(?P<year6>(?:19|20)\d\d)(?![\w%]|[.,]\d|\s?(?:million|billion|percent|%))"
)
_SCALES = {
    "thousand": 1e3, "k": 1e3, "million": 1e6, "m": 1e6, "mn": 1e6, "mln": 1e6, "billion": 1e9, "bn": 1e9, "bln": 1e9,
    "b": 1e9, "trillion": 1e12,
}  # fmt: skip
_NUMBER = re.compile(
    r"(?<![\w.,])(?P<sign>[-−])?(?P<currency>[$€£]|USD\s|EUR\s|GBP\s)?(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)"
    r"\s?(?P<scale>(?i:thousand|million|billion|trillion|mln|bln|mn|bn)\b|[kKmMbB]\b)?"
    r"\s?(?P<percent>%|percent\b|per cent\b)?"
    r"\s?(?P<after>cents?\b|euros?\b|dollars?\b|pounds?\b|EUR\b|USD\b|GBP\b|(?:percentage )?points?\b|ppts?\b)?"
)
POINTS = "points"
"""The unit of a difference of two percentages."""

_CURRENCIES = {
    "$": "USD", "€": "EUR", "£": "GBP", "dollar": "USD", "cent": "USD", "euro": "EUR", "pound": "GBP",
    "point": POINTS, "percentage point": POINTS, "ppt": POINTS,
}  # fmt: skip
_UNITS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90
}  # fmt: skip
_IN_WORDS = re.compile(
    rf"\b(?:(?P<tens>{'|'.join(_TENS)})(?:[-\s](?P<unit>{'|'.join(_UNITS[1:10])}))?|(?P<small>{'|'.join(_UNITS)}))"
    r"(?P<hundred>\s+hundred)?\b",
    re.IGNORECASE,
)
_WORD = r"[A-ZÀ-ÖØ-Þ][\w’'&-]*"
_NAME = re.compile(rf"\b{_WORD}(?:\s+(?:of|de|van|von|&)\s+{_WORD}|\s+{_WORD})*")
_COMMON = {
    *re.findall(
        r"\w+",
        "The A An In On At By For From Since After Before With Its It This That These Those He She They We Our Their"
        " There And But Or If As When While Where What Which Who Why How No Not Only One Two Three Four Five Six Seven"
        " Eight Nine Ten All Both Each Every Most Many Some Such Other Over Under Up To Of Today Now Then Also Still"
        " Here Revenue Sales Customers Market Team Risk Risks Competition Table Chart Source Sources Figure Q1 Q2 Q3 Q4"
        " CEO CTO COO CFO USD EUR GBP SaaS B2B AI Nothing Growth Funding Round Series Seed",
    ),
    *(month.capitalize() for month in MONTHS),
}


Hedge = Literal["", "about", "over", "under"]
_HEDGES: dict[Hedge, re.Pattern[str]] = {
    "about": re.compile(
        r"\b(?:about|around|approximately|roughly|some|nearly|almost|close to|circa|just under)\s$",
        re.IGNORECASE,
    ),
    "over": re.compile(
        r"\b(?:more than|(?:just |a little )?over|above|exceed(?:s|ed|ing)?|at least|upwards of)\s$", re.IGNORECASE
    ),
    "under": re.compile(r"\b(?:less than|fewer than|under|below|at most)\s$", re.IGNORECASE),
}
"""The words before a number that say that it is rounded: to the nearest value, down or up."""


class Fact(NamedTuple):
    """Something that can be checked. ``value`` is used for comparisons. ``hedge`` says how a number is rounded."""

    kind: FactKind
    text: str
    value: tuple[object, ...]
    hedge: Hedge = ""


def facts(text: str, names: Collection[str] = ()) -> list[Fact]:
    """Return the numbers, dates and names of a text, each once.

    At the start of a sentence every word looks like a name. There, a single word is a name only if it is in ``names``.

    >>> [fact.text for fact in facts("In March 2029 Ada Moss sold 1,200 panels for $4.2 million.")]
    ['March 2029', '1,200', '$4.2 million', 'Ada Moss']
    """
    figures, rest = _figures(text)
    known: dict[object, Fact] = {}
    for fact in (*figures, *_names(rest, names)):
        known.setdefault((fact.kind, fact.value, fact.hedge), fact)
    return list(known.values())


@lru_cache(maxsize=1000)
def _figures(text: str) -> tuple[tuple[Fact, ...], str]:
    """Return the numbers and dates, and the text without them. The checks ask for those of a passage many times."""
    dates, rest = _dates(text)
    relative, rest = _relative(rest)
    return (*dates, *relative, *_numbers(in_digits(rest))), rest


def _dates(text: str) -> tuple[list[Fact], str]:
    """Return the dates, and the text without them, so that parts of a date do not count as numbers."""
    found: list[Fact] = []
    over = 0

    def take(match: re.Match[str]) -> str:
        nonlocal over
        parts = {name.rstrip("234567"): part for name, part in match.groupdict().items() if part}
        month = parts.get("month", "0")
        short = [each[:3] for each in MONTHS]
        number = int(month) if month.isdecimal() else short.index(month[:3].lower()) + 1
        value: tuple[object, ...] = int(parts["year"]), number, int(parts.get("day", 0)), int(parts.get("quarter", 0))
        if match["year6"] and found and re.fullmatch(r",?(?: and| or)? ?", text[over : match.start()]):
            value = value[0], *found[-1].value[1:]  # “January 31, 2030 and 2029”
        found.append(Fact("date", match[0], value))
        over = match.end()
        return ", ".ljust(len(match[0]))  # the places of all other words stay the same

    return found, _DATE.sub(take, text)


def placed(text: str) -> list[tuple[int, Fact]]:
    """Return the numbers and dates of a text in their order, each with its place. A number in words has none.

    >>> [(at, fact.text) for at, fact in placed("In 2029 it sold 12 of 30.")]
    [(3, '2029'), (16, '12'), (22, '30')]
    """
    dates, rest = _dates(text)
    found, at = list[tuple[int, Fact]](), 0
    for fact in dates:
        at = text.index(fact.text, at)
        found.append((at, fact))
        at += len(fact.text)
    found += [(match.start(), _number(match)) for match in _NUMBER.finditer(rest)]
    return sorted(found, key=lambda each: each[0])


RELATIVE = ("share", "times")
"""The units of a part of a whole in words, such as “two thirds” or “one in six”, and of a multiple, such as “twice”."""

_COUNTS = "|".join(_UNITS[1:13])
_PARTS_OF = {"half": 2, "third": 3, "quarter": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "tenth": 10}
_MULTIPLES = {"twice": 2, "doubled": 2, "tripled": 3, "quadrupled": 4}
_RELATIVE = re.compile(
    r"(?<!first )(?<!second )(?<!latter )(?<!other )\b(?P<half>half)\b(?![- ](?:years?|hours?|time|a)\b)"
    r"(?=\s(?:of|the|that|its|as|in|while|and)\b|[.,;]|$)"
    rf"|\b(?:an?|one|(?P<parts>{_COUNTS}))[- ](?P<part>{'|'.join([*_PARTS_OF][1:])})s?"
    r"(?=\s(?:of (?!20| *,)|in|from|to|less|more|while|and)\b|[.,;]|$)"
    rf"|\b(?P<some>{_COUNTS}) (?:in|out of)(?: every)? (?P<whole>{_COUNTS})\b"
    r"|\b(?P<multiple>twice(?= (?:the|as|that|what|its))|doubled|tripled|quadrupled)\b"
    rf"|\b(?P<many>{_COUNTS}) times(?! (?:an?|per|each|every|in|since|during|daily|weekly)\b)(?= [a-z])",
    re.IGNORECASE,
)


_SPELLED = re.compile(f"{_RELATIVE.pattern}|{_IN_WORDS.pattern}", re.IGNORECASE)


def _relative(text: str) -> tuple[list[Fact], str]:
    """Return the shares and multiples in words, and the text without them.

    >>> [fact.value for fact in _relative("Two thirds of it, about one in six, a fifth of them, or twice the rest.")[0]]
    [(0.6667, 'share'), (0.1667, 'share'), (0.2, 'share'), (2.0, 'times')]
    >>> _relative("In the second half of a third quarter, two quarters of 2029, it met twice a year.")[0]
    []
    """
    found: list[Fact] = []

    def take(match: re.Match[str]) -> str:
        before = text[max(match.start() - 20, 0) : match.start()]
        hedge: Hedge = next((name for name, form in _HEDGES.items() if form.search(before)), "")
        if match["multiple"] or match["many"]:
            value = _MULTIPLES[match["multiple"].lower()] if match["multiple"] else _UNITS.index(match["many"].lower())
            found.append(Fact("number", match[0], (float(value), RELATIVE[1]), hedge))
            return ", ".ljust(len(match[0]))
        some = _UNITS.index((match["parts"] or match["some"] or "one").lower())
        part = (match["half"] or match["part"] or "").lower()
        whole = _PARTS_OF[part] if part else _UNITS.index(match["whole"].lower())
        if some >= whole:
            return match[0]
        found.append(Fact("number", match[0], (round(some / whole, 4), RELATIVE[0]), hedge))
        return ", ".ljust(len(match[0]))

    return found, _RELATIVE.sub(take, text)


def in_digits(text: str) -> str:
    """Return a text with its numbers in digits. “One” stays, because it is rarely a number, and so do shares.

    >>> in_digits("Two of forty-five, or twelve million; one of them, or two thirds, in one of two hundred")
    '2 of 45, or 12 million; one of them, or two thirds, in one of 200'
    """

    def digits(match: re.Match[str]) -> str:
        small, tens, unit = (match[name] and match[name].lower() for name in ("small", "tens", "unit"))
        if not (small or tens) or (small == "one" and not match["hundred"]):
            return match[0]
        number = _UNITS.index(small) if small else _TENS[tens] + (_UNITS.index(unit) if unit else 0)
        return str(number * (100 if match["hundred"] else 1))

    return _SPELLED.sub(digits, text)


def _numbers(text: str) -> list[Fact]:
    return [_number(match) for match in _NUMBER.finditer(text)]


def _number(match: re.Match[str]) -> Fact:
    scale = Decimal(_SCALES.get((match["scale"] or "").lower(), 1.0))
    value = round(float(Decimal(match["digits"].replace(",", "")) * scale), 6) * (-1 if match["sign"] else 1)
    named = (match["currency"] or match["after"] or "").strip().rstrip("s")
    value = round(value / 100, 6) if named == "cent" else value
    unit = "%" if match["percent"] else _CURRENCIES.get(named, named.upper())
    before = match.string[max(match.start() - 20, 0) : match.start()]
    hedge: Hedge = next((name for name, form in _HEDGES.items() if form.search(before)), "")
    return Fact("number", match[0].strip(), (value, unit), hedge)


def _names(text: str, known: Collection[str]) -> list[Fact]:
    found = []
    for match in _NAME.finditer(text):
        words = match[0].split()
        begins = _begins_a_sentence(text, match.start())
        while words and (words[0] in _COMMON or words[0] in ("of", "&")):
            words, begins = words[1:], False
        while words and words[-1] in _COMMON:
            words = words[:-1]
        if not words or (begins and len(words) == 1 and words[0] not in known) or len(" ".join(words)) < 3:
            continue
        name = " ".join(words)
        found.append(Fact("name", name, (plain(name),)))
    return found


_STARTS = {
    *re.findall(
        r"\w+",
        "about above according across almost along alongside altogether although amid among analysts annual"
        " another any are around average based because backed below besides between beyond both builders can cash"
        " combined commercial core costs could current debt demand despite does due during early even fewer few"
        " finally first founded full further future given global gross had has have having high his however i"
        " income instead investors just key large last later less like long losses low main major margin margins may"
        " meanwhile memo moreover more much my near net new next none nor often once operating orders others our"
        " own past people per plans prices production products profit profits proceeds recent regardless same"
        " second several shares short should similarly since slightly small so somewhat strong supply taken than though"
        " through throughout thus today together total toward unless until upon us via was were whereas whether will"
        " within without would year years yet you your therefore hence",
    )
}
_PLAIN_ENDING = re.compile(r"(?:ly|ing|ed|tions?|ments?|ness|ity|ities|ers)$")


def begins_with_a_name(claim: str, vocabulary: Collection[str]) -> str:
    """Return the first word of a claim if it can only be a name: no source has the word, and it is not a common one.

    >>> begins_with_a_name("Zorblax invests.", {"acme"}), begins_with_a_name("However, Acme grew.", {"acme"})
    ('Zorblax', '')
    """
    found = re.match(rf"{_WORD}", claim)
    if found is None or found[0] in _COMMON or plain(found[0]) in vocabulary:
        return ""
    word = plain(found[0])
    one = {re.sub(rf"{ending}$", to, word) for ending, to in (("ies", "y"), ("es", ""), ("s", ""))} - {word}
    if any(other in vocabulary for other in one):
        return ""
    return "" if word in _STARTS or _PLAIN_ENDING.search(word) or " " in word or len(word) < 3 else found[0]


def _begins_a_sentence(text: str, at: int) -> bool:
    before = text[max(at - 50, 0) : at].rstrip(" \t*_\"“‘'(|[-")
    return not before or before[-1] in ".!?:;\n|#"


def plain(name: str) -> str:
    """Return a name for comparison: its words in lower case, without a possessive."""
    words = re.sub(r"[’']s\b", "", name).casefold()
    return " ".join(re.findall(r"\w+", words))


class Known:
    """A text to compare claims with. It is analyzed once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.facts = facts(text)
        self.plain = f" {plain(text)} "

    def lacks(self, claim: str, names: Collection[str] = ()) -> list[Fact]:
        """Return the facts of a claim that the text does not contain.

        >>> known = Known("In 2029 sales were 4,200,000.")
        >>> [fact.text for fact in known.lacks("Sales rose by 12 % to 4.2 million in 2029.")]
        ['12 %']
        """
        return [fact for fact in facts(claim, names) if not is_in(fact, self.facts, self.plain)]

    def names(self) -> set[str]:
        """Return the words that are names in this text: it never writes them in lower case."""
        small = set(re.findall(r"\b[a-zà-öø-þ][\w’'&-]*", self.text))
        words = {word for fact in self.facts if fact.kind == "name" for word in fact.text.split()}
        return {word for word in words if word[:1].isupper() and word.lower() not in small}


def is_in(fact: Fact, there: list[Fact], plain: str = "") -> bool:
    """Return whether a fact is among others. A name is looked for in a plain text."""
    if fact.kind == "name":
        return f" {fact.value[0]} " in plain or _is_derived(str(fact.value[0]), plain) or not strange_in(fact, plain)
    same = [other for other in there if other.kind == fact.kind]
    if fact.kind == "number":
        return any(is_same_number(fact, other) for other in same)
    return any(all(part in (0, theirs) for part, theirs in zip(fact.value, other.value, strict=True)) for other in same)


def strange_in(name: Fact, text: str) -> list[str]:
    """Return the parts of a name around a possessive that a plain text does not have: “Acme's Tern” is two names.

    >>> [strange_in(fact, " acme sells in the u s ") for fact in facts("It is Acme's Tern in the United States.")]
    [['tern'], []]
    """
    parts = [plain(part) for part in re.split(r"(?<=[’']s)\s", name.text)]
    known = [_ALIASES.get(part, part) for part in parts]
    return [part for part in known if len(part) > 2 and f" {part} " not in text]


_ALIASES = {"united states": "u s"}


def _is_derived(name: str, plain: str) -> bool:
    """Return whether a name is the adjective of another one, as European is of Europe.

    >>> [_is_derived(name, " in europe and asia by ada moss ") for name in ("european", "asian", "mossian", "eurasian")]
    [True, True, True, False]
    """
    roots = {re.sub(rf"{ending}$", "", name) for ending in ("(?<=a)n", "i?an", "ese", "ish")} - {name}
    return f" {name}s " in plain or any(
        len(root) > 3 and re.search(rf" {re.escape(root)}\w{{0,2}} ", plain) for root in roots
    )


def is_same_number(one: Fact, other: Fact) -> bool:
    """Return whether two numbers are the same, or the first is the second one rounded.

    A unit that only one of them has does not matter, unless it is a percentage.
    """
    units = {one.value[1], other.value[1]}
    if units & {*RELATIVE}:
        scale = 100.0 if units == {RELATIVE[0], "%"} else 1.0
        return (len(units) == 1 or scale > 1) and is_about(one, float(str(other.value[0])) / scale)
    if len(units) > 1 and ("" not in units or "%" in units) and (one.value[1], other.value[1]) != (POINTS, "%"):
        return False
    return one.value[0] == other.value[0] or is_rounded(one.value[0], other.value[0], one.hedge)


def is_rounded(one: object, other: object, hedge: Hedge = "") -> bool:
    """Return whether a number is another one rounded: to two or more digits, or as its ``hedge`` says.

    Whole numbers below 1,000 are not rounded without a hedge.

    >>> is_rounded(39.0e9, 39_000_966_000.0), is_rounded(39.1e9, 39_000_966_000.0), is_rounded(1100.0, 1049.0)
    (True, False, False)
    >>> is_rounded(12.0, 12.41), is_rounded(4e6, 4.2e6)
    (True, False)
    >>> is_rounded(4e6, 4.2e6, "about"), is_rounded(5e6, 4.2e6, "about")
    (True, False)
    >>> is_rounded(60.0, 63.0, "over"), is_rounded(70.0, 63.0, "over"), is_rounded(70.0, 63.0, "under")
    (True, False, True)
    """
    if not isinstance(one, float) or not isinstance(other, float) or not one or one * other < 0:
        return False
    step, size = step_of(one), float(10 ** (Decimal(repr(abs(one))).adjusted() - 1))
    away = abs(one) - abs(other)
    if hedge in ("over", "under"):
        return 0 <= (away if hedge == "under" else -away) < step
    if hedge == "about":
        return abs(away) <= min(step / 2, ROUGH * abs(other))
    can_be = abs(one) >= 1000 or not other.is_integer()
    return can_be and step_of(other) < (used := min(step, size)) and abs(away) <= used / 2


def is_about(fact: Fact, value: float) -> bool:
    """Return whether a share or a multiple in words is a value, within the rounding that its words allow.

    >>> half, over = facts("About half of it.")[0], facts("More than half of it.")[0]
    >>> [is_about(half, value) for value in (0.47, 0.6)], [is_about(over, value) for value in (0.47, 0.6, 0.9)]
    ([True, False], [False, True, False])
    """
    part = value / float(str(fact.value[0])) - 1
    if fact.hedge in ("over", "under"):
        return -1e-9 <= (part if fact.hedge == "over" else -part) <= WIDE
    return -ROUGH - (0.03 if fact.hedge else 0) <= part <= ROUGH


WIDE = 0.25
"""The share by which a value may be above “more than half”, and below “less than half”."""

ROUGH = 0.07
"""The share of a number by which “about” may differ from it: about 8 of 7.5, and about 40 of 38."""


def step_of(number: float) -> float:
    """Return the place of the last digit of a number: 0.1 for 4.2, and 1,000 for 38,000."""
    exponent = Decimal(repr(number)).normalize().as_tuple().exponent
    assert isinstance(exponent, int)
    return float(Decimal(10) ** exponent)
