"""Find the figures of a claim that its passages do not contain, but that follow from theirs: sums and changes.

Growth, shares and ratios are in `computed`.

A sum counts if the claim says what it adds: each part of it is in the claim, as a figure or as a year or a word that
belongs to this figure alone in its sentence or table. A change, absolute or in percent, counts if the claim contains
one of its two figures, and both belong to the same thing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

from pausepoint.apps.memo.computed import Figure, is_computed
from pausepoint.apps.memo.exchanges import row_names, with_units
from pausepoint.apps.memo.facts import Fact, facts, is_rounded, is_same_number, placed
from pausepoint.apps.memo.prose import sentences, stems
from pausepoint.apps.memo.tables import with_percentages

MOST_PARTS = 4
"""The maximum number of figures that a claim adds up by naming them."""

MOST_FIGURES = 24
"""The maximum number of figures that are tried. With more, some would add up to any figure by chance."""

_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_WHOLE = re.compile(
    r"\b(?:together|combined|total(?:s|ed|led|ling)?|in all|altogether|sum|adds? up|added up|over (?:the|these|all))\b",
    re.IGNORECASE,
)
"""How a claim says that it adds up all figures of a kind."""

_CHANGE = re.compile(
    r"\b(?:by|up|down|increase of|rise of|growth of|gain of|decrease of|decline of|drop of|fall of|(?:rose|grew|fell"
    r"|increased|declined|dropped|decreased|gained|risen|grown|fallen))\s(?:by\s)?(?:an?\s)?"
    r"(?:about |around |some |nearly |almost |roughly |more than |over |approximately )?$",
    re.IGNORECASE,
)
"""What stands before a figure that says how much something has changed."""


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
    known = _figures(passage)
    figures = [each for each in known if not is_same_number(fact, each.fact)]
    return _is_sum(fact, claim, figures) or _is_change(fact, claim, figures) or is_computed(fact, claim, known)


def _is_sum(fact: Fact, claim: str, figures: Sequence[Figure]) -> bool:
    """Return whether a number is the sum of figures that the claim names, or of all figures of a row or a column."""
    like = [each for each in figures if _has_unit(fact, each.fact.value[1])]
    said = {*stems(claim), *_YEAR.findall(claim)} - set(stems(fact.text))
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
        and not {*_YEAR.findall(claim)} - {fact.text}
        and any(
            len(those) > 1 and all(each.names & said for each in those) and _adds_up(fact, those)
            for those in ([each for each in like if name in each.groups] for name in groups)
        )
    )


def _is_change(fact: Fact, claim: str, figures: Sequence[Figure]) -> bool:
    """Return whether a number is the difference of two figures, or how many percent one is more than the other."""
    if not any(_CHANGE.search(claim[: match.start()]) for match in re.finditer(re.escape(fact.text), claim)):
        return False
    shown = [other for other in facts(claim) if other.kind == "number" and other != fact]
    for one in figures:
        for other in figures:
            pair = one.fact.value, other.fact.value
            if pair[0][1] != pair[1][1] or not one.groups & other.groups or not float(str(pair[1][0])):
                continue
            if not any(is_same_number(each, figure.fact) for each in shown for figure in (one, other)):
                continue
            change = float(str(pair[0][0])) - float(str(pair[1][0]))
            percent = 100 * change / float(str(pair[1][0]))
            in_points = pair[0][1] == "%" and re.search(rf"{re.escape(fact.text)}\s(?:percentage\s)?points?\b", claim)
            if (in_points or _has_unit(fact, pair[0][1])) and _is_near(fact, abs(change)):
                return True
            if fact.value[1] == "%" and _is_near(fact, abs(percent)):
                return True
    return False


def _has_unit(fact: Fact, unit: object) -> bool:
    """Return whether a number of a claim has a unit. Only the first amounts of a table have a currency sign."""
    return unit == fact.value[1] or (unit == "" and fact.value[1] != "%")


def _adds_up(fact: Fact, parts: Sequence[Figure]) -> bool:
    return _is_near(fact, sum(float(str(each.fact.value[0])) for each in parts))


def _is_near(fact: Fact, value: float) -> bool:
    return abs(float(str(fact.value[0])) - value) < 1e-6 or is_rounded(fact.value[0], round(value, 6), fact.hedge)


def _figures(passage: str) -> list[Figure]:
    """Return the figures of the tables and the sentences of a passage."""
    lines = passage.splitlines()
    rows = [line for line in lines if line.startswith("|")]
    text = "\n".join(line for line in lines if not line.startswith("|"))
    return [*_of_table(rows), *(each for sentence in sentences(text) for each in _of_sentence(sentence))]


def _of_sentence(sentence: str) -> Iterator[Figure]:
    places = [(at, fact) for at, fact in placed(sentence) if fact.kind == "number"]
    years = _years(sentence, [fact for _, fact in places])
    for at, fact in places:
        alike = [(place, len(other.text)) for place, other in places if other.value[1] == fact.value[1]]
        names = frozenset(_nearest(sentence, at, alike))
        its = [int(name) for name in names if _YEAR.fullmatch(name)]
        year = years.get(fact) or (its[0] if len(its) == 1 else 0)
        yield Figure(fact, names, frozenset([sentence]), sentence, year)
    shown = [fact for _, fact in places]
    in_words = [fact for fact in facts(sentence) if fact.kind == "number" and fact not in shown]
    yield from (Figure(fact, frozenset(), frozenset([sentence]), sentence) for fact in in_words)


def _years(sentence: str, figures: Sequence[Fact]) -> dict[Fact, int]:
    """Return the years of the figures of a sentence that lists both in the same order (“respectively”)."""
    found: dict[Fact, int] = {}
    years = list(dict.fromkeys(map(int, _YEAR.findall(sentence))))
    for unit in {fact.value[1] for fact in figures} if re.search(r"\brespectively\b", sentence) else ():
        its = [fact for fact in figures if fact.value[1] == unit]
        found |= dict(zip(its, years, strict=True)) if len(its) == len(years) else {}
    return found


def _nearest(sentence: str, at: int, places: list[tuple[int, int]]) -> set[str]:
    """Return the words and years that stand nearer to a figure than to others of its unit in the sentence."""
    found: set[str] = set()
    for match in re.finditer(r"[^\W_]+", sentence):
        if min(places, key=lambda place: _gap(place[0], place[1], match))[0] == at:
            found |= {*stems(match[0]), *_YEAR.findall(match[0])}
    return found


def _gap(at: int, length: int, match: re.Match[str]) -> int:
    return at - match.end() if match.end() <= at else match.start() - at - length


def _of_table(rows: list[str]) -> Iterator[Figure]:
    cells = [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows]
    for number, row in enumerate(with_percentages(cells[2:])):
        for column, cell in enumerate(row[1:], 1):
            head = cells[0][column] if column < len(cells[0]) else ""
            given = with_units(cells[0][0], head, cell)[1:2] or [cell]
            for fact in (fact for text in given for fact in facts(text) if fact.kind == "number"):
                own, its = row_names(row[0], ""), row_names("", head)
                pairs = {f"{one} {other}" for one in own for other in its}
                groups = frozenset([f"row {number}", f"column {column}"])
                year = max(map(int, _YEAR.findall(head)), default=0)
                yield Figure(fact, frozenset(own | its | pairs), groups, "", year, row[0], head)
