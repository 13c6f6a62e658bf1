"""Find what a claim says the reverse of: another year or row, an opposite word, a wrong comparison."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pausepoint.apps.memo.computed import best_rows, row_of
from pausepoint.apps.memo.exchanges import anchors
from pausepoint.apps.memo.facts import Fact, facts, is_same_number
from pausepoint.apps.memo.figures import YEAR, Figure, figures_of
from pausepoint.apps.memo.prose import sentences, stems
from pausepoint.apps.memo.sums import follows
from pausepoint.apps.memo.wording import directions

_OPPOSITES = [
    (re.compile(rf"\b(?:{one})\b", re.IGNORECASE), re.compile(rf"\b(?:{other})\b", re.IGNORECASE))
    for one, other in (
        ("quarterly|(?:every|each|per|a) quarter", r"annual\w*|full[- ]year|yearly|per year"),
        (r"\w*[ -]?inflows?", r"\w*[ -]?outflows?"), (r"tax benefits?", r"tax (?:charges?|expenses?|costs?)"),
        ("secured", "unsecured"), ("interest-free", "interest-bearing"),
        ("grant(?:s|ed|ing)?", "den(?:y|ies|ied|ying)|dismiss(?:ed|es)|reject(?:ed|s)"),
        ("upheld|uphold(?:s|ing)?|affirm(?:s|ed|ing)", "vacat(?:ed|es|ing)|revers(?:ed|es|ing)|overturn(?:ed|s|ing)"),
        ("alone|by itself", "in (?:the )?aggregate|together|combined"),
        ("(?:substantially|nearly|almost) all|most|majority", "small (?:part|share)|minority|few|hardly any"),
    )
]  # fmt: skip
"""Words that cannot both be true of the same figure, or in the same sentence."""

_COMPARES = re.compile(
    r"\b(?:(lower|smaller|less|fewer)|larger|higher|greater|more|bigger)\b(.*?)\bthan\b", re.IGNORECASE
)
_DENIES = re.compile(r"\b(?:not|never|no|none)\b|n[’']t\b", re.IGNORECASE)
_OFFSET = re.compile(r"\boffset (?:in part )?by\b", re.IGNORECASE)
_HELPED = re.compile(
    r"\b(?:add(?:s|ed) to|help(?:s|ed)?|boost\w*|lift(?:s|ed)|contribut\w+|support(?:s|ed))\b", re.IGNORECASE
)
_HURT = re.compile(r"\b(?:drags?|dragged|hurts?|weigh(?:s|ed)|reduced|held back|burden\w*)\b", re.IGNORECASE)
ENOUGH = 3
"""The minimum number of words that a claim and what offsets a change have in common."""


def contradiction(claim: str, passage: str) -> str:
    """Return what a claim says the reverse of, or an empty string.

    >>> contradiction("It lost $5 million in 2029.", "It lost $5 million in 2028. In 2029, it lost nothing.")
    'the passage gives $5 million for another year'
    >>> contradiction("The loan is secured.", "The loan is unsecured.")
    'the passage says “unsecured”'
    >>> contradiction("The loan is secured.", "The old loan was unsecured, the new one is secured.")
    ''
    """
    there = figures_of(passage)
    if fact := _of_another_year(claim, passage, there):
        return f"the passage gives {fact.text} for another year"
    if fact := _of_another_row(claim, passage, there):
        return f"the passage gives {fact.text} for another row"
    if word := _opposite(claim, passage):
        return f"the passage says “{word}”"
    if _is_compared_wrongly(claim, there) or _is_offset(claim, passage):
        return "the passage says the reverse"
    return ""


def _same(fact: Fact, there: Sequence[Figure]) -> list[Figure]:
    return [figure for figure in there if is_same_number(fact, figure.fact)] if fact.kind == "number" else []


def _of_another_year(claim: str, passage: str, there: Sequence[Figure]) -> Fact | None:
    """Return a figure that stands beside a year in a claim, if the passage has it only for other years."""
    for name, those in anchors(claim).items():
        same = _same(those[0].figure, there) if YEAR.fullmatch(name) and name in passage else []
        is_other = all(
            figure.year not in (0, int(name)) and (name not in figure.place or "respectively" in figure.place)
            for figure in same
        )
        if same and is_other:
            return those[0].figure
    return None


def _of_another_row(claim: str, passage: str, there: Sequence[Figure]) -> Fact | None:
    """Return a figure of a claim that names one row of a table, if only other rows have it, which it does not name."""
    said = {*stems(claim)}
    is_named = any(figure.label and {*stems(figure.label)} and {*stems(figure.label)} <= said for figure in there)
    for fact in facts(claim) if is_named else ():
        same = _same(fact, there)
        others = [figure for figure in same if {*stems(figure.label)} and not {*stems(figure.label)} & said]
        if same and others == same and not follows(fact, claim, passage):
            return fact
    return None


def _opposite(claim: str, passage: str) -> str:
    """Return the word of a passage that is the opposite of one of a claim, for the same figure or in one sentence."""
    texts = sentences("\n".join(line for line in passage.splitlines() if not line.startswith("|"))) or [""]
    figures = [fact for fact in facts(claim) if fact.kind == "number"]
    own = {*stems(claim)}
    for one, other in (pair for both in _OPPOSITES for pair in (both, both[::-1])):
        if not one.search(claim) or other.search(claim):
            continue
        having = [(text, _at(figure, text)) for text in texts for figure in figures if _at(figure, text) >= 0]
        text, at = max(having or [(text, -1) for text in texts], key=lambda each: len(own & {*stems(each[0])}))
        words = [(match.start(), match[0], form) for form in (one, other) for match in form.finditer(text)]
        before = [word for word in words if word[0] < at] or words
        if (
            before
            and not _DENIES.search(claim + text)
            and (max(before)[2] is other if at >= 0 else all(form is other for _, _, form in words))
        ):
            return max(before)[1]
    return ""


def _at(fact: Fact, text: str) -> int:
    """Return where a sentence has a figure of a claim, or -1."""
    return next(
        (text.find(other.text) for other in facts(text) if other.kind == "number" and is_same_number(fact, other)), -1
    )


def _is_compared_wrongly(claim: str, there: Sequence[Figure]) -> bool:
    """Return whether a claim says that a row is more than another one, or than in another year, but it is less."""
    match = _COMPARES.search(claim)
    table = [figure for figure in there if figure.label]
    if not match or not table or any(fact.kind == "number" for fact in facts(claim)):
        return False
    left, right = claim[: match.start()] + match[2], claim[match.end() :]
    years = [int(year) for text in (left, right) for year in YEAR.findall(text)]
    rows = best_rows(left, table), best_rows(right, table)
    pairs = [
        (one.value, other.value)
        for one in table
        for other in table
        if row_of(one) in rows[0]
        and (
            row_of(one) == row_of(other) and [one.year, other.year] == years
            if len(years) == 2
            else row_of(other) in rows[1] - rows[0] and one.head == other.head
        )
    ]  # fmt: skip
    return bool(pairs) and all((one > other) if match[1] else (one < other) for one, other in pairs)


def _is_offset(claim: str, passage: str) -> bool:
    """Return whether a claim says that something helped what it offset in the passage, or hurt what it helped."""
    before, *tails = _OFFSET.split(passage)
    ways = [way for word in re.findall(r"\w+", before) for way in directions(word)]
    tail = {*stems(tails[0].split(". ")[0])} if tails else set()
    is_in_tail = len({*stems(claim)} & tail - {*stems(before)}) >= ENOUGH
    form = {"up": _HELPED, "down": _HURT}[ways[0]] if ways else None
    return is_in_tail and form is not None and form.search(claim) is not None and not _OFFSET.search(claim)
