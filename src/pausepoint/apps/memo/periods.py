"""Find the numbers of a claim that count periods or names: “in two years”, “the last three years”, “three products”.

A period follows from two dates of a sentence or a table, a count from a list of so many years or names in a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations

from pausepoint.apps.memo.facts import Fact, facts
from pausepoint.apps.memo.prose import sentences

_PERIOD = re.compile(
    r"(?P<half> and a half)?[ -](?:(?:full|fiscal|consecutive|straight|calendar)[ -])?(?P<unit>year|month|week|day)s?\b"
)
_DAYS = {"year": 365.25, "month": 30.44, "week": 7.0, "day": 1.0}
_LISTED = re.compile(
    r"((?:[A-Z][\w’'&-]*(?: [A-Z][\w’'&-]*)*, )+)(?:[A-Z][\w’'&-]*(?: [A-Z][\w’'&-]*)*,? )?and (?=[A-Z])"
)
MOST_LISTED = 12

Day = tuple[float, bool]
"""A date as a number of days, and whether it is a year without a month."""


def is_counted(fact: Fact, claim: str, passage: str) -> bool:
    """Return whether a number of a claim is a count of years between dates, or of years or names in a list.

    >>> past = "She led Acme from March 2022 to June 2029, with Oak, Elm and Ash, after losses in 2020, 2019 and 2018."
    >>> claims = ["She led it for over 7 years.", "She led it for 5 years.", "All 3 brands grew.", "4 brands grew."]
    >>> [is_counted(facts(claim)[0], claim, past) for claim in claims]
    [True, False, True, False]
    """
    value, at = float(str(fact.value[0])), claim.find(fact.text)
    if at < 0 or fact.value[1] or not value.is_integer():
        return False
    period = _PERIOD.match(claim, at + len(fact.text))
    return any(
        _is_between(fact, value + 0.5 * bool(period["half"]), _DAYS[period["unit"]], days)
        or (period["unit"] == "year" and len({day for day, is_year in days if is_year}) == value)
        for days in _days(passage)
    ) if period else 1 < value <= MOST_LISTED and value in _listed(passage)  # fmt: skip


def _is_between(fact: Fact, value: float, unit: float, days: list[Day]) -> bool:
    """Return whether two dates are so far apart, within the rounding that the words of a claim allow."""
    for (one, is_year), (other, is_other_year) in combinations(days, 2):
        years = abs(int(one / 365.25) - int(other / 365.25)) if is_year != is_other_year else 0
        more = (years * 365.25 or abs(one - other)) / unit - value
        if -0.05 <= more <= 0.5 if fact.hedge == "over" else abs(more) <= (0.5 if fact.hedge else 0.15):
            return True
    return False


def _days(passage: str) -> Iterator[list[Day]]:
    """Yield the dates of the sentences and of the headings of tables."""
    lines = passage.splitlines()
    heads = [line for line, below in zip(lines, [*lines[1:], ""], strict=True) if below.startswith("|---")]
    for text in [*heads, *sentences("\n".join(line for line in lines if not line.startswith("|")))]:
        yield [_day(fact) for fact in facts(text) if fact.kind == "date"]


def _day(date: Fact) -> Day:
    year, month, day = (int(str(part)) for part in date.value[:3])
    return 365.25 * year + 30.44 * ((month or 1) - 1) + (day or 15), not month


def _listed(passage: str) -> set[int]:
    """Return how many names the lists of a passage have."""
    return {match[0].count(",") + 1 + (not re.search(r", and $", match[0])) for match in _LISTED.finditer(passage)}
