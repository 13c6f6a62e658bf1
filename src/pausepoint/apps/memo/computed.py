"""Find the figures of a claim that its passage does not contain, but that follow from two of its figures.

A claim may say a growth, a share, a ratio or a difference that it has computed. It counts only if both figures are of
the same row, the same column or the same sentence, if the claim is about this row or sentence, if it says what it
computes (grew, fell, of, times, more than), and if the direction is right. Of a row with years, only the year of the
claim and the one before it are compared; in a column, only figures of that year.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

from pausepoint.apps.memo.facts import POINTS, RELATIVE, Fact, facts, is_about, is_rounded, is_same_number, step_of
from pausepoint.apps.memo.figures import YEAR, Figure
from pausepoint.apps.memo.prose import STOP, stems
from pausepoint.apps.memo.wording import PARTS, directions

MOST_FIGURES = 6
"""The maximum number of figures of a unit in a sentence. With more, some would give any figure by chance."""

MISSING = 0.4
"""How much a word of a label that a claim does not have counts against the row, if a word that it has counts 1."""

_YEARS_AGO = re.compile(r"\b(?:in|within|over|past|last|than) (\d) years")
_OF = re.compile(r"\s(?:of|out of)\b")
_MORE = re.compile(r"\s(?:more|higher|above|larger|greater)\b")
_LESS = re.compile(r"\s(?:less|fewer|lower|below|smaller)\b")
_MOVES = re.compile(
    r"\b(?:by|(?<!made )(?<!make )(?<!makes )up|down|rose|grew|fell|added|lost|gained|shrank|climbed|increased|declined"
    r"|dropped|decreased|risen|grown|fallen)\b[^,;]{0,25}$",
    re.IGNORECASE,
)
_TIMES = re.compile(r"(?:doubl|tripl|quadrupl)ed$")
_TOTAL = re.compile(r"\b(?:total|consolidated)\b", re.IGNORECASE)
_CHANGE = re.compile(r"\bchange\b|\bvs\b|\bvariance\b|\bgrowth\b|%(?! of\b)", re.IGNORECASE)
"""The heading of a column whose figures are computed themselves."""


class Pair(NamedTuple):
    """Two figures that a claim may compare: the newer one with the older one, or a part with its whole."""

    one: Figure
    other: Figure
    in_time: bool = False


def is_computed(fact: Fact, claim: str, figures: Sequence[Figure]) -> bool:
    """Return whether a number of a claim is a growth, share, ratio or difference of two figures of the passage.

    ``figures`` are those of the passage.
    """
    at = claim.lower().find(fact.text.lower())
    if at < 0:
        return False
    before, after = claim[:at], claim[at + len(fact.text) :]
    clause = _clause(claim, at)
    compares = _MORE.match(after) or _LESS.match(after)
    ways = ({"up"} if _MORE.match(after) else {"down"}) if compares else directions(_unhedged(clause))
    moves = bool(compares or _MOVES.search(before) or _TIMES.search(fact.text))
    is_share = bool(_OF.match(after)) or " in " in fact.text or " out of " in fact.text
    is_share = is_share or (fact.value[1] == "%" and any(RELATIVE[0] in each.value for each in facts(claim)))
    for pair in _pairs(claim, clause, figures):
        one, other = abs(pair.one.value), abs(pair.other.value)
        if not one or not other or (pair.one.label and moves and not (pair.in_time or compares)):
            continue
        is_right = ways == {"up" if one > other else "down"}
        unit, change = pair.one.fact.value[1], abs(one - other)
        if moves and is_right and (_says(fact, 100 * change / other, "%") or _says(fact, change, unit)):
            return True
        if moves and is_right and unit == "%" and fact.value[1] == POINTS and _says(fact, change, POINTS):
            return True
        if (pair.in_time or not _TIMES.search(fact.text)) and _says(fact, one / other, RELATIVE[1]):
            return True
        if is_share and not moves and not pair.in_time and one < other and _says(fact, 100 * one / other, "%"):
            return True
    return False


def _unhedged(clause: str) -> str:
    return re.sub(r"\b(?:more|less) than\b|\bover\b", "", clause)


def _says(fact: Fact, value: float, unit: object) -> bool:
    """Return whether a figure of a claim is a computed value, within the rounding that its words allow."""
    if fact.value[1] == RELATIVE[0] and unit == "%":
        return is_about(fact, value / 100)
    if fact.value[1] == RELATIVE[1]:
        return unit == RELATIVE[1] and is_about(fact, value)
    has_unit = unit == fact.value[1] or (unit == "" and fact.value[1] != "%")
    hedge = fact.hedge or ("about" if unit == "%" else "")
    exact = abs(float(str(fact.value[0])) - value) < 1e-6
    step = step_of(float(str(fact.value[0])))
    if unit in ("%", POINTS) and step <= 1 and fact.hedge in ("", "about"):
        return has_unit and abs(float(str(fact.value[0])) - value) <= step / 2
    return has_unit and (exact or is_rounded(fact.value[0], round(value, 6), hedge))


def _clause(claim: str, at: int) -> str:
    """Return the part of a claim that has a figure at this place."""
    cuts = [0, *(match.end() for match in PARTS.finditer(claim) if not claim[match.end() : match.end() + 1].isdigit())]
    start = max(cut for cut in cuts if cut <= at)
    return claim[start : min((cut for cut in cuts if cut > at), default=len(claim))]


def _pairs(claim: str, clause: str, figures: Sequence[Figure]) -> Iterator[Pair]:
    """Yield the pairs of figures that a claim is about."""
    years = sorted(map(int, {*YEAR.findall(claim)}))
    table = [each for each in figures if each.label and not _CHANGE.search(each.head)]
    newest = years[-1] if years else max((each.year for each in table), default=0)
    spans = _YEARS_AGO.findall(claim)
    texts = (clause, _with_the_one_before(claim, clause), claim)
    rows = {row for text in texts for row in best_rows(text, table)}
    its = [each for each in table if row_of(each) in rows]
    for one in its:
        for other in table:
            if one is other or not _are_like(one, other):
                continue
            same_row, is_total = row_of(one) == row_of(other), _TOTAL.search(other.label)
            if same_row and one.year and other.year:
                older = {years[0] if len(years) > 1 else newest - 1, *(newest - int(count) for count in spans)}
                if one.year == newest and other.year in older:
                    yield Pair(one, other, in_time=True)
                continue
            of_row = same_row and _TOTAL.search(other.head) and {*stems(one.head)} & {*stems(claim)}
            is_its = one.year == newest if one.year else bool({*stems(one.head)} & {*stems(claim)})
            of_column = one.groups & other.groups and is_its and (is_total or row_of(other) in rows)
            if of_row or of_column:
                yield Pair(one, other)
    for text in (clause, claim):
        yield from _of_sentences(text, claim, [each for each in figures if not each.label], years)


def row_of(figure: Figure) -> str:
    return next((name for name in figure.groups if name.startswith("row ")), "")


def _are_like(one: Figure, other: Figure) -> bool:
    """Return whether two figures have the same unit. Only the first amounts of a table have a currency sign."""
    units = {one.fact.value[1], other.fact.value[1]}
    return len(units) == 1 or (bool(one.label) and "" in units and "%" not in units)


def best_rows(text: str, table: Sequence[Figure]) -> set[str]:
    """Return the rows whose labels have the most words in common with a text."""
    said = {*stems(text)}
    labels = {row_of(figure): figure.label for figure in table}
    scores: dict[str, float] = {}
    for figure in table:
        words = {*stems(figure.label)}
        if words & said:
            scores[row_of(figure)] = len(words & said) - MISSING * len(words - said)
    parts = {row_of(figure) for figure in table if not _TOTAL.search(figure.label)}
    if any(row in parts and {*stems(label)} <= said for row, label in labels.items() if {*stems(label)}):
        scores = {row: score for row, score in scores.items() if row in parts}
    best = [max((score for row, score in scores.items() if row in those), default=0.0) for those in (parts, {*scores})]
    return {row for row, score in scores.items() if score == best[row not in parts]}


def _with_the_one_before(claim: str, clause: str) -> str:
    """Return a clause with the one before it, which may have its subject: “in Peru, almost 3%”."""
    before = PARTS.split(claim[: claim.index(clause)].rstrip(" ,"))
    return f"{before[-1]} {clause}"


def _of_sentences(text: str, claim: str, figures: Sequence[Figure], years: Sequence[int]) -> Iterator[Pair]:
    """Yield the pairs of the sentences that have the most words of a claim, if it names both figures."""
    said = {*stems(claim), *YEAR.findall(claim)}
    shown = [other for other in facts(claim) if other.kind == "number"]
    about = {*stems(text), *YEAR.findall(text)}
    shared = {each.place: len(about & {*stems(each.place)}) for each in figures}
    near = [each for each in figures if shared[each.place] >= max(2, max(shared.values()) - 1)]
    counts = Counter((each.place, name) for each in near for name in each.names)
    units = Counter((each.place, each.fact.value[1]) for each in near)
    named = {
        each for each in near
        if any(is_same_number(other, each.fact) for other in shown)
        or any(counts[each.place, name] == 1 and {*name.split()} <= said and name not in STOP for name in each.names)
    }  # fmt: skip
    for one, other in permutations(near, 2):
        if one.place != other.place or not _are_like(one, other) or units[one.place, one.fact.value[1]] > MOST_FIGURES:
            continue
        if one.year and other.year and one.year != other.year:
            newest = years[-1] if years else max(each.year for each in near)
            older = [years[0]] if len(years) > 1 else [newest - 1, newest - 2]
            if one.year == newest and other.year in older:
                yield Pair(one, other, in_time=True)
        elif (one in named or other in named) and (units[one.place, one.fact.value[1]] == 2 or {one, other} <= named):
            yield Pair(one, other)
