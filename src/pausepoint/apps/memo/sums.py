"""Find the figures of a claim that its passages do not contain, but that follow from theirs: sums.

Growth, shares and ratios are in `computed`, periods and counts in `periods`.

A sum counts if the claim says what it adds: each part of it is in the claim, as a figure or as a year or a word that
belongs to this figure alone in its sentence or table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from pausepoint.apps.memo.computed import is_computed
from pausepoint.apps.memo.facts import Fact, facts, in_digits, is_rounded, is_same_number
from pausepoint.apps.memo.figures import YEAR, Figure, figures_of
from pausepoint.apps.memo.periods import is_counted
from pausepoint.apps.memo.prose import stems

MOST_PARTS = 4
"""The maximum number of figures that a claim adds up by naming them."""

MOST_FIGURES = 24
"""The maximum number of figures that are tried. With more, some would add up to any figure by chance."""

_WHOLE = re.compile(
    r"\b(?:together|combined|total(?:s|ed|led|ling)?|in all|altogether|sum|adds? up|added up|over (?:the|these|all))\b",
    re.IGNORECASE,
)
"""How a claim says that it adds up all figures of a kind."""


def follows(fact: Fact, claim: str, passage: str) -> bool:
    """Return whether a number of a claim is a sum or a change of figures of the passage.

    >>> staff = "Acme had 63 employees, of whom 14 are engineers and 31 work in the plant."
    >>> claims = ["Engineers and people in the plant are 45.", "Engineers and people in the plant are 46."]
    >>> [follows(facts(claim)[0], claim, staff) for claim in claims]
    [True, False]
    >>> claim = "Sales rose by 2 million to 7 million."
    >>> follows(facts(claim)[0], claim, "Sales rose from 5 million to 7 million.")
    True
    """
    if fact.kind != "number":
        return False
    known, claim = figures_of(passage), in_digits(claim)
    figures = [each for each in known if not is_same_number(fact, each.fact)]
    if is_counted(fact, claim, passage):
        return True
    return _is_sum(fact, claim, figures) or is_computed(fact, claim, known)


def _is_sum(fact: Fact, claim: str, figures: Sequence[Figure]) -> bool:
    """Return whether a number is the sum of figures that the claim names, or of all figures of a row or a column."""
    like = [each for each in figures if _has_unit(fact, each.fact.value[1])]
    said = {*stems(claim), *YEAR.findall(claim)} - set(stems(fact.text))
    shown = [other for other in facts(claim) if other.kind == "number" and other != fact]
    counts = Counter((each.place, name) for each in like for name in each.names)
    parts = [
        each
        for each in like
        if any(is_same_number(other, each.fact) for other in shown)
        or any(counts[each.place, name] == 1 and {*name.split()} <= said for name in each.names)
    ]
    if len(parts) <= MOST_FIGURES and any(
        _adds_up(fact, those) for size in range(2, MOST_PARTS + 1) for those in combinations(parts, size)
    ):
        return True
    groups = {name for each in like for name in each.groups}
    return (
        bool(_WHOLE.search(claim))
        and not {*YEAR.findall(claim)} - {fact.text}
        and any(
            len(those) > 1 and all(each.names & said for each in those) and _adds_up(fact, those)
            for those in ([each for each in like if name in each.groups] for name in groups)
        )
    )


def _has_unit(fact: Fact, unit: object) -> bool:
    """Return whether a number of a claim has a unit. Only the first amounts of a table have a currency sign."""
    return unit == fact.value[1] or (unit == "" and fact.value[1] != "%")


def _adds_up(fact: Fact, parts: Sequence[Figure]) -> bool:
    return _is_near(fact, sum(float(str(each.fact.value[0])) for each in parts))


def _is_near(fact: Fact, value: float) -> bool:
    return abs(float(str(fact.value[0])) - value) < 1e-6 or is_rounded(fact.value[0], round(value, 6), fact.hedge)
