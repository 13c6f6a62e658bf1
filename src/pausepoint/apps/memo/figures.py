"""The figures of a passage, each with what belongs to it: the words of its sentence, or of its row and its column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pausepoint.apps.memo.exchanges import BREAK, row_names, with_units
from pausepoint.apps.memo.facts import Fact, facts, placed
from pausepoint.apps.memo.prose import sentences, stems
from pausepoint.apps.memo.tables import with_percentages

YEAR = re.compile(r"\b(?:19|20)\d\d\b")


class Figure(NamedTuple):
    """A figure of a passage, what belongs to it, and the rows and columns, or the sentence, that it is a part of.

    To a figure of a table belong words of its row and of its column, and pairs of both, such as “revenu 2029”. A figure
    of a sentence has no ``label``.
    """

    fact: Fact
    names: frozenset[str]
    groups: frozenset[str]
    place: str = ""
    year: int = 0
    label: str = ""
    head: str = ""

    @property
    def value(self) -> float:
        return float(str(self.fact.value[0]))


_OF_A_WHOLE = re.compile(r"% of\b|\bpercent(?:age)? of\b", re.IGNORECASE)
"""The heading of a column of shares. It is of the same year as the column before it."""

_OF_THESE = re.compile(r"Of (?:these|those|this|that|the (?:total|latter))\b")
APART = 30
"""How many letters a comma or a conjunction between a word and a figure counts."""


def figures_of(passage: str) -> list[Figure]:
    """Return the figures of the tables and the sentences of a passage."""
    lines = passage.splitlines()
    rows = [line for line in lines if line.startswith("|")]
    text = "\n".join(line for line in lines if not line.startswith("|"))
    return [*_of_table(rows), *(each for sentence in _whole_sentences(text) for each in _of_sentence(sentence))]


def _whole_sentences(text: str) -> list[str]:
    """Return the sentences of a text. One that begins with “of these” belongs to the one before it.

    >>> _whole_sentences("Acme has 90 plants. Of these, 50 are new. It grows.")
    ['Acme has 90 plants. Of these, 50 are new.', 'It grows.']
    """
    found: list[str] = []
    for sentence in sentences(text):
        if found and _OF_THESE.match(sentence):
            found[-1] += f" {sentence}"
        else:
            found.append(sentence)
    return found


def _of_sentence(sentence: str) -> Iterator[Figure]:
    places = [(at, fact) for at, fact in placed(sentence) if fact.kind == "number"]
    years = _years(sentence, [fact for _, fact in places])
    named = {*map(int, YEAR.findall(sentence))}
    only = named.pop() if len(named) == 1 else 0
    for at, fact in places:
        alike = [(place, len(other.text)) for place, other in places if other.value[1] == fact.value[1]]
        names = frozenset(_nearest(sentence, at, alike))
        its = [int(name) for name in names if YEAR.fullmatch(name)]
        year = years.get(fact) or (its[0] if len(its) == 1 else only)
        yield Figure(fact, names, frozenset([sentence]), sentence, year)
    shown = [fact for _, fact in places]
    in_words = [fact for fact in facts(sentence) if fact.kind == "number" and fact not in shown]
    yield from (Figure(fact, frozenset(), frozenset([sentence]), sentence) for fact in in_words)


def _years(sentence: str, figures: Sequence[Fact]) -> dict[Fact, int]:
    """Return the years of the figures of a sentence that lists both in the same order (“respectively”)."""
    found: dict[Fact, int] = {}
    years = list(dict.fromkeys(map(int, YEAR.findall(sentence))))
    for unit in {fact.value[1] for fact in figures} if re.search(r"\brespectively\b", sentence) else ():
        its = [fact for fact in figures if fact.value[1] == unit]
        found |= dict(zip(its, years, strict=True)) if len(its) == len(years) else {}
    return found


def _nearest(sentence: str, at: int, places: list[tuple[int, int]]) -> set[str]:
    """Return the words, pairs of words and years that are nearer to a figure than to others of its unit."""
    found: set[str] = set()
    before = ""
    for match in re.finditer(r"[^\W_]+", sentence):
        if min(places, key=lambda place: _gap(sentence, place[0], place[1], match))[0] != at:
            before = ""
            continue
        words = stems(match[0])
        found |= {*words, *YEAR.findall(match[0]), *(f"{before} {word}" for word in words if before)}
        before = words[0] if words else ""
    return found


def _gap(sentence: str, at: int, length: int, match: re.Match[str]) -> int:
    between = sentence[match.end() : at] if match.end() <= at else sentence[at + length : match.start()]
    return len(between) + APART * len(BREAK.findall(between))


def _of_table(rows: list[str]) -> Iterator[Figure]:
    cells = [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows]
    for number, row in enumerate(with_percentages(cells[2:])):
        year = 0
        for column, cell in enumerate(row[1:], 1):
            head = cells[0][column] if column < len(cells[0]) else ""
            given = with_units(cells[0][0], head, cell)[1:2] or [cell]
            for fact in (fact for text in given for fact in facts(text) if fact.kind == "number"):
                own, its = row_names(row[0], ""), row_names("", head)
                pairs = {f"{one} {other}" for one in own for other in its}
                groups = frozenset([f"row {number}", f"column {column}"])
                own_year = max(map(int, YEAR.findall(head) or YEAR.findall(row[0])), default=0)
                year = own_year or (year if _OF_A_WHOLE.search(head) else 0)
                yield Figure(fact, frozenset(own | its | pairs), groups, "", year, row[0], head)
