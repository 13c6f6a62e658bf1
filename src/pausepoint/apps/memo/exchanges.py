"""Find figures and names that a claim has exchanged: it gives one figure or name where its passage gives another one.

Every year, every word and every “from” or “to” belongs to the figure that it stands next to, in the claim and in the
passage. A claim with two figures of the same unit has exchanged them if more of this belongs to the other figure in
the passage than to the same one. In a table, a figure belongs to the label of its row and the head of its column.

A claim gives a name to the wrong thing if the words around it are those of a sentence of the passage that begins with
another name; and it exchanges two names if a verb stands between them in the passage, but in the other order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from pausepoint.apps.memo.facts import Fact, facts, is_same_number, placed, plain
from pausepoint.apps.memo.prose import sentences, stems
from pausepoint.apps.memo.tables import spoken

APART = 4
"""How many words a comma or a conjunction between a word and a figure counts."""

ENOUGH = 2
"""How much has to belong to the other figure. A year or a “from” counts as much as two words."""

_OLD = re.compile(
    r"(?:\bfrom|\bthan|\bversus|\bvs\.?|\bagainst|\bcompared (?:to|with))\s(?:about |nearly |almost )?$", re.IGNORECASE
)
_NEW = re.compile(r"(?<!compared)\s(?:to|reached|at)\s(?:about |nearly |almost )?$", re.IGNORECASE)
BREAK = re.compile(
    r"[,;:()]|\b(?:and|but|while|whereas|to|from|compared|versus|than|up|down|after|before)\b", re.IGNORECASE
)
_OF_A_DATE = re.compile(
    r"\s?(?:(?:in|for|at|during|on|of|as|the|fiscal|year|years|end|ended|quarter)\s)*", re.IGNORECASE
)
_BASE = re.compile(r"\b(?:than|between|because) (?:in |at |for |during )?(?:the end of )?$", re.IGNORECASE)
"""What stands before a date with which a claim compares something: it has no figure of its own."""

_WORD = re.compile(r"[^\W\d_][\w’'-]*")
_OLDER, _NEWER = "older figure", "newer figure"
_ROLES = {_OLDER, _NEWER}


LEANS = re.compile(r"(?:[Ii]t|[Hh]e|[Ss]he|[Tt]hey|[Tt]his|[Tt]hat|[Hh]er|[Hh]is|[Ii]ts|[Tt]heir|[Tt]he company)\b")
"""The start of a sentence that is about the name of the sentence before it."""

_BEGINS = re.compile(r"(?:(?:The|In|On|At|Since|By|During|For)\s(?:[\w ]{1,30},\s)?)?$")
"""What may stand before the name that a sentence is about."""

_PASSIVE = re.compile(r"\b(?:is|are|was|were|be|been|being)\s(?:\w+\s)?\w+(?:ed|en|t|d|wn|ght)\sby\b")
_MUTUAL = re.compile(r"\b(?:with|and|or|between|like)\b|[,;]")
"""What makes the order of two names mean nothing."""


class Anchor(NamedTuple):
    """Something that belongs to a figure. ``outside``: it stands before or after all figures, and may belong to all."""

    figure: Fact
    outside: bool = False


def exchanged(claim: str, passage: str, company: str = "") -> str:
    """Return two figures that a claim has exchanged, or an empty string.

    >>> exchanged("Sales fell from 7 million to 5 million.", "Sales rose from 5 million to 7 million.")
    '7 million and 5 million'
    >>> exchanged("Sales were 7 million, up from 5 million.", "Sales rose from 5 million to 7 million.")
    ''
    """
    own = anchors(claim)
    its = {*stems(company)}
    if (pair := from_to(claim)) is not None and _is_against_time(*pair, passage):
        return f"{pair[0].text} and {pair[1].text}"
    for there in _places(passage):
        if (wrong := _of_another_role(own, there)) and not any(fact.kind == "date" for fact in facts(claim)):
            return wrong
        known = [figure for those in there.values() for figure, _ in those]
        mine = [fact for _, fact in placed(claim) if fact.kind == "number" and _is_among(fact, known)]
        for one, other in combinations(mine, 2):
            differ = one.value[1] == other.value[1] and not is_same_number(one, other)
            if differ and _crossed(own, there, one, other, its):
                return f"{one.text} and {other.text}"
        if len(mine) == 1 and (wrong := _of_another_year(own, there, mine[0])):
            return wrong
    return ""


def from_to(claim: str) -> tuple[Fact, Fact] | None:
    """Return the two figures between which a claim says that something has moved, the older one first, or None.

    >>> [fact.text for fact in from_to("Sales were 7 million, up from 5 million.") or ()]
    ['5 million', '7 million']
    """
    own = anchors(claim)
    older = [anchor.figure for anchor in own.get(_OLDER, ())]
    newer = [anchor.figure for anchor in own.get(_NEWER, ())]
    if older and not newer:
        numbers = [fact for _, fact in placed(claim) if fact.kind == "number" and fact not in older]
        newer = [fact for fact in numbers if _is_like(fact, older[0])]
    if not len(older) == len(newer) == 1 or not _is_like(older[0], newer[0]) or older[0].value == newer[0].value:
        return None
    return older[0], newer[0]


def _is_like(one: Fact, other: Fact) -> bool:
    """Return whether two figures have the same unit. Of the amounts of a table, only the first has a currency."""
    units = {one.value[1], other.value[1]}
    return len(units) == 1 or ("" in units and "%" not in units)


def _is_against_time(older: Fact, newer: Fact, passage: str) -> bool:
    """Return whether the rows of a table have the newer one of two figures only in years before the older one."""
    rows = _rows(passage)
    years = [max(map(int, re.findall(r"\b(?:19|20)\d\d\b", head)), default=0) for head in rows[0]] if rows else []
    orders: set[bool] = set()
    for row in rows[2:]:
        places: tuple[list[int], list[int]] = [], []
        for year, head, cell in zip(years[1:], rows[0][1:], row[1:], strict=False):
            figures = [fact for text in with_units(rows[0][0], head, cell) for fact in facts(text)] if year else []
            for figure, its in zip((older, newer), places, strict=True):
                its.extend([year] if _is_among(figure, [each for each in figures if each.kind == "number"]) else [])
        orders |= {before < after for before in places[0] for after in places[1] if before != after}
    return orders == {False}


def _of_another_role(own: dict[str, list[Anchor]], there: dict[str, list[Anchor]]) -> str:
    """Return a figure from which something moves in a claim, and to which it moves in the passage, or the reverse."""
    if not there.keys() >= _ROLES:
        return ""
    for role, other in ((_OLDER, _NEWER), (_NEWER, _OLDER)):
        for figure in (anchor.figure for anchor in own.get(role, ())):
            right, wrong = ([anchor.figure for anchor in there[each]] for each in (role, other))
            if _is_among(figure, wrong) and not _is_among(figure, right):
                return f"{figure.text} and {right[0].text}"
    return ""


def _rows(passage: str) -> list[list[str]]:
    """Return the cells of the rows of a table."""
    rows = [line for line in passage.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows]


def misnamed(claim: str, passage: str, names: Collection[str] = (), company: str = "") -> str:
    """Return a name of which the passage says what a claim says of another one, or an empty string.

    ``names`` are words that are names even at the start of a sentence.

    >>> both = "Bo Reed joined in 2027 as head of sales. Ann Lee was hired in May 2028 as head of research."
    >>> misnamed("Since May 2028, Bo Reed has been head of research.", both)
    'Ann Lee'
    >>> misnamed("Bo Reed is head of sales since 2027.", both)
    ''
    >>> misnamed("Bolt bought Acme in 2029.", "In 2029 Acme bought Bolt.", {"Acme", "Bolt"})
    'Acme'
    """
    own = [fact.text for fact in facts(claim, names) if fact.kind == "name"]
    units = list(_units(passage))
    if other := _of_another_row(claim, own, passage, units):
        return other
    for sentence in units:
        if first := _reversed(claim, sentence, own):
            return first
    words = {*stems(claim)} - {*stems(company)}
    for name in own:
        rest = words - {*stems(name)}
        its = [rest & {*stems(each)} for each in units if _has(each, name)]
        for sentence in units:
            other = _subject(sentence, names)
            if not other or _has(sentence, name) or any(_has(other, each) for each in own) or _is_own(claim, other):
                continue
            shared = rest & {*stems(sentence)} - {*stems(other)}
            straight = max((len(each - shared) for each in its), default=0)
            crossed = len(shared - {word for each in its for word in each})
            if crossed >= ENOUGH and crossed > straight and (its or _is_same(name, company)):
                return other
    return ""


def renamed(claim: str, passage: str) -> str:
    """Return the word that follows a figure in a passage, where a claim has a word that the passage lacks; or "".

    >>> renamed("It lost $3 million related to fern.", "A loss of $3 million related to moss hurt.")
    'moss'
    >>> renamed("It lost $3 million on moss.", "A loss of $3 million related to moss hurt.")
    ''
    """
    known, said = {*stems(passage)}, {*stems(claim)}
    tails = [(fact, _tail(passage, at + len(fact.text))) for at, fact in placed(passage)]
    for at, fact in placed(claim):
        own = _tail(claim, at + len(fact.text))
        its = [tail for other, tail in tails if fact.kind == other.kind == "number" and is_same_number(fact, other)]
        alike = [tail for tail in its if len(tail) == len(own) == 3 and tail[:2] == own[:2]]
        if alike and len(alike) == len(its) and stems(own[2]) and not {*stems(own[2])} & known:
            others = [tail[2] for tail in alike if stems(tail[2]) and not {*stems(tail[2])} & said]
            if len(others) == len(alike):
                return others[0]
    return ""


def _tail(text: str, at: int) -> list[str]:
    """Return the three words behind a figure, in the same part of its sentence."""
    return plain(re.split(r"[.,;:()|\n]", text[at:], maxsplit=1)[0]).split()[:3]


def _of_another_row(claim: str, own: list[str], passage: str, units: Sequence[str] = ()) -> str:
    """Return whose row of a table has an office or another name that a claim gives to the owner of another row.

    The sentences in ``units`` may give it to that owner, too.

    >>> table = "| Name | Post |\\n|---|---|\\n| Bo Reed | Chief Clerk |\\n| Ann Lee | Chief Cook and Bottle Washer |"
    >>> claims = ["Bo Reed is Chief Cook.", "Ann Lee is Chief Cook.", "Ann Lee and Bo Reed are Chief Clerk and Cook."]
    >>> [_of_another_row(claim, ["Bo Reed", "Ann Lee", "Chief Cook"], table) for claim in claims]
    ['Ann Lee', '', '']
    """
    rows = [(row[0], " | ".join(row[1:])) for row in _rows(passage)[2:]]
    present = [name for name in own if _has(claim, name)]
    for name in present:
        its = [rest for label, rest in rows if _has(label, name)]
        for other in present if its and not any(_has(rest, name) for _, rest in rows) else ():
            owners = [label.strip() for label, rest in rows if _has(rest, other)]
            is_its = any(_has(rest, other) for rest in its) or any(
                _has(unit, name) and _has(unit, other) for unit in units
            )
            if owners and not is_its and not any(_has(claim, each) for each in owners):
                return owners[0]
    return ""


def _is_own(claim: str, other: str) -> bool:
    """Return whether a claim has the name that a sentence begins with, or the sentence is about “the Company”."""
    return _has(claim, other) or plain(other) in ("company", "the company")


def _is_same(name: str, company: str) -> bool:
    return bool(company) and {*plain(name).split()} <= {*plain(company).split()}


def _units(passage: str) -> Iterator[str]:
    """Yield the sentences of a passage, each with those behind it that only have a pronoun for its name."""
    for line in passage.splitlines():
        unit = ""
        for sentence in sentences(line) if not line.startswith("|") else ():
            if unit and not LEANS.match(sentence):
                yield unit
                unit = ""
            unit = f"{unit} {sentence}".strip()
        if unit:
            yield unit


def _subject(sentence: str, names: Collection[str]) -> str:
    """Return the name that a sentence begins with, or an empty string."""
    for fact in facts(sentence, names):
        if fact.kind == "name":
            is_first = _BEGINS.fullmatch(sentence[: sentence.index(fact.text)]) and not fact.text.endswith("ly")
            return fact.text if is_first else ""
    return ""


def _has(text: str, name: str) -> bool:
    return f" {plain(name)} " in f" {plain(text)} "


def _reversed(claim: str, sentence: str, names: list[str]) -> str:
    """Return the first of two names that stand around a verb in the passage, if the claim has them in another order."""
    both = [name for name in names if name in sentence and name in claim]
    for one, other in combinations(both, 2):
        first, second = sorted((one, other), key=sentence.index)
        if claim.index(first) < claim.index(second):
            continue
        there = sentence[sentence.index(first) + len(first) : sentence.index(second)]
        here = claim[claim.index(second) + len(second) : claim.index(first)]
        same = {*stems(there)} & {*stems(here)}
        is_active = bool(_PASSIVE.search(there)) == bool(_PASSIVE.search(here))
        if same and is_active and not _MUTUAL.search(there) and not _MUTUAL.search(here):
            return first
    return ""


def _is_among(fact: Fact, known: list[Fact]) -> bool:
    return any(is_same_number(fact, other) for other in known)


def _crossed(
    own: dict[str, list[Anchor]], there: dict[str, list[Anchor]], one: Fact, other: Fact, its: set[str]
) -> bool:
    """Return whether more of what belongs to two figures of a claim belongs to the other one in the passage."""
    straight, crossed, around = 0, 0, 0
    for name in (own.keys() & there.keys()) - its:
        figure, outside = own[name][0]
        if not (is_same_number(figure, one) or is_same_number(figure, other)):
            continue
        theirs = [each.figure for each in there[name]]
        same = _is_among(figure, theirs)
        if same == _is_among(other if is_same_number(figure, one) else one, theirs):
            continue
        weight = 2 if name in _ROLES or name.isdigit() else 1
        if same:
            straight += weight
        elif outside and all(each.outside for each in there[name]):
            around = 1  # all words around the figures count as one: they may belong to both
        else:
            crossed += weight
    return crossed > 0 and crossed + around >= ENOUGH and crossed + around > straight


def _of_another_year(own: dict[str, list[Anchor]], there: dict[str, list[Anchor]], figure: Fact) -> str:
    """Return the year that a claim gives for its only figure, if the passage gives the figure for another one."""
    years = [name for name, those in own.items() if name.isdigit() and is_same_number(those[0].figure, figure)]
    theirs = [
        name for name, those in there.items() if name.isdigit() and _is_among(figure, [each.figure for each in those])
    ]
    if len(years) == 1 and theirs and years[0] in there and years[0] not in theirs:
        return f"{figure.text} and the figure of {years[0]}"
    return ""


def _places(passage: str) -> Iterator[dict[str, list[Anchor]]]:
    """Yield what belongs to the figures of the table of a passage, and of each sentence with several figures."""
    if rows := _rows(passage):
        yield _of_table(rows)
    for sentence in sentences("\n".join(line for line in passage.splitlines() if not line.startswith("|"))):
        if sum(fact.kind == "number" for _, fact in placed(sentence)) > 1:
            yield anchors(sentence)


def _of_table(cells: list[list[str]]) -> dict[str, list[Anchor]]:
    """Return what belongs to the figures of a table."""
    found: dict[str, list[Anchor]] = {}
    for row in cells[2:]:
        for column, cell in enumerate(row[1:], 1):
            head = cells[0][column] if column < len(cells[0]) else ""
            given = [
                fact for text in with_units(cells[0][0], head, cell) for fact in facts(text) if fact.kind == "number"
            ]
            for name in row_names(row[0], head):
                found.setdefault(name, []).extend(Anchor(fact) for fact in given)
    return found


def row_names(label: str, head: str) -> set[str]:
    """Return what belongs to a figure of a table: the words of its row's label, and of its column's head."""
    return {*stems(label), *stems(head), *re.findall(r"\b(?:19|20)\d\d\b", f"{label} {head}")}


def with_units(units: str, head: str, cell: str) -> list[str]:
    """Return a cell as it is, and with the units of its table or its column."""
    return [cell, *spoken(f"| {units} | {head} |\n| | {cell} |").splitlines()[2:]]


def anchors(text: str) -> dict[str, list[Anchor]]:
    """Return the words, years and roles of a sentence that belong to a figure. A word that repeats is left out."""
    points = placed(text)
    figures = [(at, fact) for at, fact in points if fact.kind == "number"]
    dates = [(at, fact) for at, fact in points if fact.kind == "date"]
    if not figures:
        return {}
    if re.search(r"\brespectively\b", text, re.IGNORECASE):
        pairs = zip(dates, figures, strict=True) if len(dates) == len(figures) else ()
        return {str(date.value[0]): [Anchor(figure)] for (_, date), (_, figure) in pairs}
    found: dict[str, list[Anchor]] = {}
    for at, fact in figures:
        for role, form in ((_OLDER, _OLD), (_NEWER, _NEW)):
            if form.search(text[:at]):
                found.setdefault(role, []).append(Anchor(fact))
    for at, date in dates:
        if _BASE.search(text[:at]):
            continue
        if (owner := _owner(text, at, at + len(date.text), figures, is_date=True)) is not None:
            found.setdefault(str(date.value[0]), []).append(owner)
    taken = [(at, at + len(fact.text)) for at, fact in points]
    for match in _WORD.finditer(text):
        inside = any(start <= match.start() < end for start, end in taken)
        if not inside and (owner := _owner(text, match.start(), match.end(), figures)) is not None:
            for word in stems(match[0]):
                found.setdefault(word, []).append(owner)
    return {name: those for name, those in found.items() if len(those) == 1}


def _owner(text: str, start: int, end: int, figures: list[tuple[int, Fact]], is_date: bool = False) -> Anchor | None:
    """Return the figure next to a part of a sentence, or None in doubt. A date belongs to the figure before it."""
    costs = []
    for at, fact in figures:
        over = at + len(fact.text)
        between = text[over:start] if over <= start else text[end:at]
        if is_date and over <= start and _OF_A_DATE.fullmatch(between):
            return Anchor(fact)
        costs.append((len(between.split()) + APART * len(BREAK.findall(between)), fact))
    costs.sort(key=lambda each: each[0])
    if len(costs) > 1 and costs[0][0] == costs[1][0]:
        return None
    return Anchor(costs[0][1], end <= figures[0][0] or start >= figures[-1][0] + len(figures[-1][1].text))
