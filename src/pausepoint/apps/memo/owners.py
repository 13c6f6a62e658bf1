"""Find figures that a claim gives to another name than its passage does: a region, a product or a row of a table.

In a table, a figure belongs to the label of its row and the head of its column. In a sentence, it belongs to the names
and words of its part. A comma or a conjunction ends the part of one figure and begins that of the next one; what stands
between two of them may belong to both.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from pausepoint.apps.memo.exchanges import LEANS, with_units
from pausepoint.apps.memo.facts import Fact, facts, is_same_number, placed, plain
from pausepoint.apps.memo.prose import sentences, stems

_BREAK = re.compile(r"[,;:()]|\b(?:and|but|while|whereas|compared|versus|than)\b|\bto\s(?=[$€£\d])", re.IGNORECASE)
_SAME = re.compile(r"\s?\(\s?(?:or |about )?")
"""What stands between a figure and the same figure in another unit: 2,700 (19%)."""

_GENERAL = frozenset({"company", "item", "part", "note"})
"""Names that tell nothing from anything else."""

_SAYS = frozenset(stems("accounted represented made contributed amounted totaled reached approximately"))
"""Words of a sentence that tell no figure from another one."""

Span = tuple[int, int]


class Place(NamedTuple):
    """A figure, and the names and words that belong to it. A sentence without figures is one place.

    ``title`` is what a message calls the owner.
    """

    figure: Fact | None
    names: frozenset[str]
    words: frozenset[str]
    title: str


def misgiven(claim: str, passage: str, names: Collection[str] = (), company: str = "") -> tuple[Fact, str] | None:
    """Return a figure that a claim gives to another owner than its passage does, and that owner, or None.

    ``names`` are words that are names even at the start of a sentence.

    >>> sales = "Sales in Europe were $9 million. Sales in Asia were $12 million."
    >>> (misgiven("Sales in Europe were $12 million.", sales) or "  ")[1]
    'Asia'
    >>> misgiven("Asian sales were about $12 million, and those in Europe $9 million.", sales)
    """
    its = _GENERAL.union(plain(company).split())
    names = {*names, *(word for fact in facts(claim) if fact.kind == "name" for word in fact.text.split())}
    there = list(_places(passage, names, its))
    for mine in _places(claim, names, its):
        same = [place for place in there if _is_same(mine.figure, place.figure)]
        others = [place for place in there if place not in same]
        if mine.figure and same and all(any(_is_of(mine, other, place) for other in others) for place in same):
            return mine.figure, same[0].title
    return None


def _is_same(one: Fact | None, other: Fact | None) -> bool:
    return one is not None and other is not None and is_same_number(one, other)


def _is_of(mine: Place, other: Place, place: Place) -> bool:
    """Return whether a claim has what belongs only to another figure, and nothing that belongs only to its own one.

    If no name tells the two apart, what belongs to them has to be alike.
    """
    if place.names - other.names:
        is_of_place = any(_has(mine, name) for name in place.names - other.names)
        if is_of_place or any(_has(mine, name) for name in other.names - place.names):
            return not is_of_place
    lacking, having = _told_apart(place.words, other.words), _told_apart(other.words, place.words)
    if not (other.figure and lacking and having and place.words & other.words):
        return False
    return all(_has(mine, word) for word in having) and not any(_has(mine, word) for word in lacking)


def _told_apart(words: frozenset[str], others: frozenset[str]) -> set[str]:
    """Return the words that only one of two figures has. A number tells nothing: a claim may leave out the year."""
    return {word for word in words - others - _SAYS if not word[0].isdigit()}


def _has(mine: Place, name: str) -> bool:
    """Return whether a name or a word, or an adjective of it, belongs to a figure of a claim."""
    return all(
        any(own == word or (len(word) > 3 and own.startswith(word)) for own in mine.words) for word in name.split()
    )


def _places(text: str, names: Collection[str], its: frozenset[str]) -> Iterator[Place]:
    """Yield the figures of a text, each with what belongs to it. Names of words of ``its`` belong to nothing."""
    lines = text.splitlines()
    yield from _cells([line for line in lines if line.startswith("|")])
    for line in lines:
        context: list[str] = []
        for sentence in sentences(line) if not line.startswith("|") else ():
            spans = _spans(sentence, names, its)
            context = context if LEANS.match(sentence) else []
            yield from _parts(sentence, spans, context)
            context += [sentence[start:end] for start, end in spans]


def _cells(rows: list[str]) -> Iterator[Place]:
    """Yield the figures of a table."""
    cells = [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows]
    for row in cells[2:]:
        for head, cell in zip(cells[0][1:], row[1:], strict=False):
            words = frozenset(stems(f"{row[0]} {head}"))
            told = [fact for each in with_units(cells[0][0], head, cell) for fact in facts(each)]
            figures = [fact for fact in told if fact.kind == "number"]
            yield from (Place(figure, frozenset(), words, f"{row[0]}, {head}") for figure in figures)


def _parts(sentence: str, spans: list[Span], context: list[str]) -> Iterator[Place]:
    """Yield the figures of a sentence. The names of the ``context`` belong to all of them.

    A part with fewer names than the one before it has the same subject: “Acme sold 5 in Europe and 7 in Asia”.
    """
    before, words = list[str](), frozenset[str]()
    for figures, start, end in _cut(sentence, spans):
        own = [sentence[first:last] for first, last in spans if start <= first < end]
        before = before[: len(before) - len(own)] + own if len(own) < len(before) else own
        part = sentence[start:end]
        for figure in figures:
            part = part.replace(figure.text, " ")
        is_led = not figures or stems(sentence[start : sentence.index(figures[0].text, start)])
        words = frozenset(stems(part)) | (frozenset() if is_led else words)  # “grew 12% to $28 million”
        called = frozenset(" ".join(stems(name)) for name in (*context, *before)) - {""}
        title = " and ".join(own or before or context[-1:]) or "something else"
        yield from (Place(figure, called, words, title) for figure in (figures or (None,)))


def _cut(sentence: str, spans: list[Span]) -> Iterator[tuple[list[Fact], int, int]]:
    """Yield the figures of a sentence, one or the same one in several units, with the start and end of their part."""
    numbers = [(at, fact) for at, fact in placed(sentence) if fact.kind == "number"]
    if re.search(r"\brespectively\b", sentence, re.IGNORECASE):
        is_paired = len(spans) == len(numbers)
        yield from (
            ([fact], *(spans[place] if is_paired else (0, len(sentence)))) for place, (_, fact) in enumerate(numbers)
        )
        return
    figures: list[Fact] = []
    start, over = 0, 0
    for at, fact in numbers:
        if figures and not _SAME.fullmatch(sentence, over, at):
            breaks = [
                match
                for match in _BREAK.finditer(sentence, over, at - sentence.startswith("(", at - 1))
                if not any(first <= match.start() < last for first, last in spans)
            ]
            yield figures, start, breaks[-1].start() if breaks else at
            start, figures = breaks[0].end() if breaks else over, []
        figures.append(fact)
        over = at + len(fact.text)
        over += sentence.startswith(")", over)
    yield figures, start, len(sentence)


def _spans(sentence: str, names: Collection[str], its: frozenset[str]) -> list[Span]:
    """Return where the names in a sentence start and end, without those that consist of words of ``its``."""
    called = {fact.text for fact in facts(sentence, names) if fact.kind == "name"}
    others = [name for name in called if not {*plain(name).split()} <= its]
    return sorted(
        match.span() for name in others for match in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", sentence)
    )
