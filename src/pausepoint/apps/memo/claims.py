"""Check whether a passage supports a claim beyond its numbers, dates and names.

The check compares words. A claim that is a sentence of the passage is supported. Any other claim is doubtful if the
passage contains less than half of its words, or hardly any word of one of its clauses; if it denies something that the
passage does not deny, or the reverse; if something falls in one and rises in the other; if it has a figure above zero
that a table has below zero; if it exchanges two figures or two names; or if it gives a figure to another name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from pausepoint.apps.memo.contradictions import contradiction
from pausepoint.apps.memo.exchanges import exchanged, from_to, misnamed, renamed
from pausepoint.apps.memo.facts import Fact, facts, in_digits, is_in, is_same_number, placed, plain
from pausepoint.apps.memo.owners import misgiven
from pausepoint.apps.memo.prose import sentences, stems
from pausepoint.apps.memo.sums import follows
from pausepoint.apps.memo.tables import below_zero_in, spoken
from pausepoint.apps.memo.wording import FORMS, PARTS, directions, topic_of, words_of

SHARED = 0.5
"""The minimum share of a claim's words that its passage must contain."""

SHARED_ALONE = 0.6
"""The same for a claim without a number, a date or a name: its words are all that can be compared."""

SHARED_BY_CLAUSE = 0.3
"""The minimum share of the words of each clause, so that a true half does not cover for an invented one."""

_DENIES = re.compile(
    r"\b(?:not|none|never|cannot|no longer|no|nor|fail(?:s|ed)? to|unable to)\b|n[’']t\b", re.IGNORECASE
)
_LACKS = re.compile(rf"{_DENIES.pattern}|\b(?:without|lacks?|free of)\b", re.IGNORECASE)
"""How a passage says that there is none of something. A claim may say the same with a “not”."""

_STEP = re.compile(r",(?!\d)|[;:()—–]|\b(?:but|and|while|whereas|because|although|when|as)\b")
_CLAUSE = re.compile(r"[.,;:!?()]|\b(?:but|and|because|although)\b", re.IGNORECASE)
_LEANS = re.compile(r"\W*(?:its?|they|their)\b")
"""The start of a clause that is about the clause before it."""

_TOTAL = re.compile(r"total\b|consolidated\b", re.IGNORECASE)
"""The label of a row that is about what the heading above its table says."""

_SCOPE = 3
"""The number of words that a denial covers."""

_RESULT = re.compile(r"\b(?:income|profits?|earnings|loss(?:es)?|margin|ebitda|cash)\b", re.IGNORECASE)
_COST = re.compile(r"\b(?:expenses?|costs?|tax(?:es)?|interest|paid|payments?|purchases?|used)\b", re.IGNORECASE)
"""What the label of a row is about whose figures in brackets are losses, and about which they are only costs."""

_BELOW_ZERO = re.compile(
    r"\b(?:loss(?:es)?|lost|loses?|negative|deficit|used|spent|outflows?|minus|below zero)\b|[-−–(]\s?[$€£]?\d",
    re.IGNORECASE,
)
"""How a claim says that a figure is below zero."""

_BETTER = re.compile(r"\b(?:improv|worsen)\w*", re.IGNORECASE)
"""Words for a rise or a fall that mean the reverse of costs and of ratios that are better if they are lower."""

_BY = re.compile(
    rf"\b((?!{_BETTER.pattern})[a-z]+)\s(?:(?:by|of|an?|about|around|some|nearly|almost|roughly|approximately)\s)*$"
)
_CLAUSE_BY = re.compile(r"([^.,;:()]*)\bby\s(?:about |around |some |nearly |almost |roughly |approximately )?$")
_THEN = re.compile(rf"\s((?!{_BETTER.pattern})[a-z]+)\b")
"""What stands before and behind a figure by which something rises or falls."""


def doubt(claim: str, passage: str, heading: str = "", company: str = "", names: Collection[str] = ()) -> str:
    """Return why a passage that contains the facts of a claim does not support it, or an empty string.

    ``names`` are words that are names even at the start of a sentence.

    >>> doubt("Acme did not raise $3 million.", "Acme raised $3 million from Harbour Capital.")
    'the claim denies something that the passage does not deny'
    >>> doubt("Acme raised $3 million.", "Acme raised $3 million from Harbour Capital.")
    ''
    """
    return next(doubts(claim, passage, heading, company, names), "")


def doubts(
    claim: str, passage: str, heading: str = "", company: str = "", names: Collection[str] = ()
) -> Iterator[str]:  # fmt: skip
    """Yield all reasons why a passage does not support a claim."""
    if plain(claim) in map(plain, sentences(passage)):
        return
    own, said, its = words_of(claim), words_of(f"{passage} {heading}"), words_of(company)
    pair = from_to(claim)
    subject = topic_of(claim, own) - its - ({"up", "down"} - said)
    share = SHARED if facts(claim, names) else SHARED_ALONE
    if not _shares(subject, said, share) or (len(subject) == 1 and _is_new(claim, subject, f"{passage} {heading}")):
        yield "the passage is about something else"
    for clause in PARTS.split(claim):
        told = topic_of(clause, words_of(clause)) - its - {"up", "down"}
        if len(told) > 1 and not _shares(told, said, SHARED_BY_CLAUSE):
            yield f"the passage does not say “{clause.strip(' .')}”"
    if figure := _misplaced(claim, subject, its, passage, heading):
        yield f"the passage gives {figure} for something else"
    if figure := _turned(claim, passage):
        yield f"the passage has {figure} below zero"
    if figures := exchanged(claim, passage, company):
        yield f"the claim exchanges {figures}"
    if (other := misgiven(claim, passage, names, company)) and not follows(other[0], claim, passage):
        yield f"the passage gives {other[0].text} for {other[1]}"
    if name := misnamed(claim, passage, names, company):
        yield f"the passage says this of {name}"
    if name := renamed(claim, passage):
        yield f"the passage says this of {name}"
    if why := contradiction(claim, passage):
        yield why
    nearest = _nearest(own, passage)
    denied, theirs = _denied(claim), _denied(nearest)
    if denied and not denied & _denied(passage, _LACKS):
        yield "the claim denies something that the passage does not deny"
    if not denied and theirs & own:
        yield "the passage denies the claim"
    ways, theirs = directions(claim), directions(nearest)
    if _is_turned_round(claim, passage, pair) or (ways and theirs and not ways & theirs and pair is None):
        yield "something rises in the claim and falls in the passage, or the reverse"


def _is_new(claim: str, subject: set[str], said: str) -> bool:
    """Return whether the only word of a claim without figures is not in the passage, in exactly this form."""
    words = [word for word in plain(claim).split() if {*stems(word)} & subject]
    has_figure = any(fact.kind != "name" for fact in facts(claim))
    return not has_figure and not {*words} & {*plain(said).split()}


def _misplaced(claim: str, subject: set[str], its: set[str], passage: str, heading: str) -> str:
    """Return a figure of the claim that the passage has only where it is about something else, or an empty string.

    That is a sentence or a row of a table that shares neither enough words with the claim nor a name.
    """
    those = [(words_of(about), facts(text), about != text) for about, text in _told(passage, heading)]
    clauses = PARTS.split(claim)
    for fact in facts(claim) if len(those) > 1 else ():
        clause = next((each for each in clauses if fact.text in each), claim)
        leans = len(topic_of(clause, words_of(clause)) - its) < 2 or _LEANS.match(clause)
        clause = claim if leans else clause
        named = {word for other in facts(clause) if other.kind == "name" for word in stems(other.text)} - its
        told = subject if clause == claim else topic_of(clause, words_of(clause)) - its
        around = [(words, is_row) for words, known, is_row in those if fact.kind == "number" and is_in(fact, known)]
        near = [
            words
            for words, is_row in around
            if named & words or (told & words if is_row else _shares(told, words, SHARED_BY_CLAUSE))
        ]
        if around and told and not near and not follows(fact, claim, passage):
            return fact.text
    return ""


def _turned(claim: str, passage: str) -> str:
    """Return a figure of the claim that a table has only in brackets, where the claim has a gain or a rise; or "".

    >>> table = "| In millions | 2029 | Change |\\n|---|---|---|\\n| Net income | (41) | (3)% |\\n| Rent | (12) | 5% |"
    >>> [_turned(each, table) for each in ("Net income was 41 million.", "It lost 41 million.", "Rent was 12 million.")]
    ['41 million', '', '']
    >>> _turned("Net income rose 3%.", table), _turned("Net income fell 3%.", table)
    ('3%', '')
    """
    head, *rows = [line for line in passage.splitlines() if line.startswith("|")] or [""]
    those = [[cell.strip() for cell in row.strip("| ").split("|")] for row in rows]
    if not any(below_zero_in(cell) for row in those for cell in row):
        return ""
    known = facts(spoken("\n".join(line if line not in rows else _above_zero(line) for line in passage.splitlines())))
    for fact in facts(claim):
        if fact.kind != "number" or is_in(fact, known):
            continue
        labels = [
            row[0] for row, line in zip(those, rows, strict=True) if is_in(fact, facts(spoken(f"{head}\n{line}")))
        ]
        falls = "down" in directions(claim) or _BELOW_ZERO.search(claim) is not None
        is_result = any(_RESULT.search(label) and not _COST.search(label) for label in labels)
        rises = fact.value[1] == "%" and "up" in directions(claim)
        if labels and not falls and (is_result or rises):
            return fact.text
    return ""


def _above_zero(row: str) -> str:
    """Return a row of a table without its figures in brackets."""
    return "|".join("" if below_zero_in(cell.strip()) else cell for cell in row.split("|"))


def _told(passage: str, heading: str) -> Iterator[tuple[str, str]]:
    """Yield the sentences of a passage, and the rows of its tables: what each is about, and its text with units."""
    lines = passage.splitlines()
    rows = [line for line in lines if line.startswith("|")]
    above = ""
    for row in rows[2:]:
        first, second = (cell.strip() for cell in row.split("|")[1:3])
        above, heads = first or above, rows[0].split("|", 2)[-1]
        label = f"{above} {second} {heading if _TOTAL.match(first or second) else ''}"
        yield f"{label} {heads}", spoken(f"{rows[0]}\n{row}").split("\n", 1)[1]
    yield from ((each, each) for each in sentences("\n".join(line for line in lines if not line.startswith("|"))))


def _is_turned_round(claim: str, passage: str, pair: tuple[Fact, Fact] | None = None) -> bool:
    """Return whether something rises in a claim by what it falls in the passage, or from a figure to a smaller one.

    ``pair`` are the figures from which and to which it moves in the claim.

    >>> [_is_turned_round("Sales fell 3%.", each) for each in ("Sales rose 3%; costs fell 4%.", "Sales fell 3%.")]
    [True, False]
    >>> claim = "The margin rose from 36% to 31%."
    >>> _is_turned_round(claim, "The margin was 31% after 36%.", from_to(claim))
    True
    """
    ways = directions(_BETTER.sub("", _moving(claim, pair[0]))) if pair is not None else set()
    if pair is not None and len(ways) == 1:
        return ways != {"up" if float(str(pair[0].value[0])) < float(str(pair[1].value[0])) else "down"}
    its = list(_moves(passage))
    for fact, way in _moves(claim):
        others = {other for figure, other in its if is_same_number(fact, figure)}
        if others and way not in others:
            return True
    return False


def _moving(claim: str, older: Fact) -> str:
    """Return the clause of a claim that says from which figure something moves, with what it moves by before a comma.

    >>> _moving("As costs rose, it fell by 5 points, from 36% to 31%.", facts("36%")[0])
    ' it fell by 5 points from 36% to 31%.'
    """
    parts = _STEP.split(claim)
    at = next((at for at, part in enumerate(parts) if older.text in part), 0)
    return parts[at - 1] + parts[at] if at and parts[at].lstrip().startswith("from") else parts[at]


def _moves(text: str) -> Iterator[tuple[Fact, str]]:
    """Yield the figures of a text that say by how much something rises or falls, with “up” or “down”."""
    text = in_digits(text)
    for at, fact in ((at, fact) for at, fact in placed(text) if fact.kind == "number"):
        words = [_BY.search(text[:at]), _THEN.match(text, at + len(fact.text)), _CLAUSE_BY.search(text[:at])]
        for way in next((ways for word in words if word and len(ways := directions(word[1])) == 1), ()):
            yield fact, way


def _shares(own: set[str], said: set[str], share: float) -> bool:
    """Return whether enough words are shared. A single word beside a figure may be a synonym and does not count."""
    return len(own) < 2 or len(own & said) >= max(1, share * len(own))


def _nearest(own: set[str], passage: str) -> str:
    """Return the sentence of a passage, or the label of a row, that shares the most words with a claim.

    >>> _nearest({"rent", "rose"}, "| 2029 | $ |\\n|---|---|\\n| Net income (loss) | 4 |\\n| Rent (note 4) | 5 |")
    'Rent'
    """
    lines = passage.splitlines()
    labels = [re.sub(r"\([^)]*\)", "", line.split("|")[1]).strip() for line in lines if line.startswith("|")]
    prose = sentences("\n".join(line for line in lines if not line.startswith("|")))
    return max([*prose, *labels], key=lambda each: len(words_of(each) & own), default="")


def _denied(text: str, form: re.Pattern[str] = _DENIES) -> set[str]:
    """Return the words that a text denies: the first few after a denial, within its clause."""
    found: set[str] = set()
    for match in form.finditer(text):
        clause = _CLAUSE.split(text[match.end() :], maxsplit=1)[0]
        plain = [FORMS.get(word.casefold(), word) for word in re.findall(r"\w+", clause)]
        found.update(stems(" ".join(plain))[:_SCOPE])
    return found
