"""Find the sentences of a source that no memo quotes: asides, pieces, and what is true only of a part or of the past.

A quoted sentence stands alone. It must not depend on the one before it, be about the document itself, or say of a
segment or of an older year what a reader would take for the company and the present.
"""

from __future__ import annotations

import re
from collections import Counter

from pausepoint.apps.memo.models import Passage, Source
from pausepoint.apps.memo.prose import sentences, stems

BACKWARD = re.compile(
    r"(?:It|He|She|They|This|That|These|Those|Her|His|Its|Their|Before|After|As|And|But|Such|Also|Finally"
    r"|Additionally|Accordingly|Therefore|However|Moreover|Further|In addition|In particular|Following this)\b"
)
"""The start of a sentence that depends on the sentence before it."""

_TORN = re.compile(
    r"(?:The|This|That) (?:increase|decrease|decline|change|growth|rise)s?(?: for (?:fiscal )?\d{4})?"
    r" (?:is|was|were|are)\b|In (?:that|this|such) (?:case|event|regard)"
    r"|(?:Provides|Offers|Includes|Serves|Manages|Delivers|Represents|Helps)\b"
    r"|(?:(?:Prior|Before|Since|From|In|At|Previously|Until|After|During|Then)\b[^.]{0,80}?\s)?(?:he|she)\b"
    r"|.*\bdescribed (?:above|below)\b"
)
"""A sentence that cannot stand alone: it lacks its subject, or what has changed, or a person's name."""

METHOD = re.compile(
    r"\b(?:assumptions?|estimat(?:es?|ing)|actuar\w+|variables|(?:tax|patent) law|patent term|extension|methods?"
    r"|legislation|risk factors|cannot exceed)\b",
    re.IGNORECASE,
)
"""A sentence about how figures are estimated, or about law: it is no argument."""

_GROUP = re.compile(r"([A-Z][\w’'&/ -]{2,40}?) [–—-] ")
"""How a paragraph begins that is about one group of products or one part of the business."""

_ABOUT_ITSELF = re.compile(
    r"\bthis (?:annual )?report\b|\bannual report on form\b|\bfollowing (?:risk|table|graph|chart|discussion|is a)"
    r"|\bcheck mark\b|\bnot the only (?:risks?|ones?)\b|\bconsider carefully\b|\bcarefully consider\b"
    r"|\bnot (?:currently|presently) known\b|\btables? above\b|\bthe registrant\b|\bPart I+\b|\bItem \d"
    r"|\bnumerous risks\b|\brisk factors\b"
    r"|\bsections? titled\b|\bundue reliance\b|\bfor (?:a|further) discussion of\b",
    re.IGNORECASE,
)
_POLICY = re.compile(
    r"\b(?:we|the company) (?:also |do not )?(?:recogni[sz]|record|capitali[sz]|amorti[sz]|measur|classif|account|match"
    r"|defin|calculat)\w*"
    r"|\b(?:is|are|was|were|be) (?:\w+ )?(?:recogni[sz]ed|recorded|capitali[sz]ed|amorti[sz]ed|measured|depreciated"
    r"|classified|accounted for|carried at|stated at|included in|assigned to|deferred)\b"
    r"|^\D*\b(?:expenses?|costs?|revenues?)\b[^.\d]{0,40} (?:consists?|includes?|comprises?)\b\D*$"
    r"|\b(?:significant judgment|in evaluating|fair value|deferred tax|insider trading|one operating segment)\b"
    r"|\b(?:has|have) adopted an?\b|\b401\(k\)|\blaw, a corporation\b|\b(?:should note|for further information)\b"
    r"|\b(?:our audit|critical audit|disclosure controls)\b"
    r"|\b(?:trademarks?|patents?|copyrights?|trade secrets?), "
    r"|\b(?:we|the company) (?:aims?|strives?|seeks?|looks?|wants?|encourages?|cares?|regards?|(?:is|are) committed)\b",
    re.IGNORECASE,
)
"""A sentence about how the books are kept, what an item consists of, what law says or what a company strives for."""

LEADING = 90
"""The number of characters of a sentence that say whether it speaks against an investment."""

DOWN = re.compile(r"\b(?:decreas|declin|unfavorabl|adverse|fell\b|reduc|lower\b|drop)", re.IGNORECASE)
UP = re.compile(
    r"\b(?:increas|grew\b|grow(?:n|s|ing|th)?\b|rose\b|improv|higher\b|record\b|doubl|exceed)", re.IGNORECASE
)
_NOTE_MARK = re.compile(r"\(?\d{1,2}\)?\s?[A-Z][a-z]")
"""The start of a footnote, with its mark."""

_TITLED = r"(?:[A-Z][\w’'-]*|and|of|the|in|for|to|our|a|an|on|or|by|with|from|&)"
_HEADING = re.compile(rf"{_TITLED}(?:,? {_TITLED})+[.!]")
_JOINED = re.compile(rf"(?:{_TITLED} ){{3,}}(?:We|Our|The|This|These|It|They|As) [a-z]")
"""A heading without a sentence, and one with a sentence joined to it."""

_MEASURE = re.compile(
    r"\b(?:costs?|expenses?|sales|revenues?|income|earnings|loss(?:es)?|compensation|cash|assets?|total|other)\b|\d"
)
"""A label that a table has several times and that is no segment."""


def segments_of(source: Source) -> set[str]:
    """Return the segments of a company: the labels that a table has several times, once for each measure."""
    tables = [passage.text.splitlines()[2:] for passage in source.passages if passage.table]
    counts = [Counter(row.split("|")[1].strip().casefold() for row in rows if row.count("|") > 2) for rows in tables]
    repeated = {label for count in counts for label, often in count.items() if often > 1}
    return {label for label in repeated if label and not _MEASURE.search(label)}


def is_of_a_segment(sentence: str, passage: Passage, segments: set[str]) -> bool:
    """Return whether a sentence stands below the name of a segment, and does not name it."""
    heading = re.sub(r"\s+segments?$", "", passage.heading.casefold())
    is_segment = heading in segments or heading != passage.heading.casefold()
    return is_segment and heading not in sentence.casefold()


def is_outdated(sentence: str, text: str) -> bool:
    """Return whether a sentence says how something moved in a year, and the passage has the reverse for a later one.

    >>> text = "Cash flow of 2029 decreased by 2%. Cash flow of 2028 increased by 3%. Rent of 2028 fell."
    >>> [is_outdated(sentence, text) for sentence in sentences(text)]
    [False, True, False]
    """
    year, ways = _moved(sentence)
    others = (each for each in sentences(text) if each != sentence and ways)
    return any(
        _moved(each)[0] > year > 0
        and {*ways}.isdisjoint(_moved(each)[1])
        and _moved(each)[1]
        and _same_measure(each, sentence)
        for each in others
    )


def _moved(sentence: str) -> tuple[int, str]:
    """Return the latest year of a sentence, and whether something rises in it (“u”) or falls (“d”)."""
    year = max(map(int, re.findall(r"\b20\d\d\b", sentence)), default=0)
    return year, "u" * bool(UP.search(sentence[:LEADING])) + "d" * bool(DOWN.search(sentence[:LEADING]))


def _same_measure(one: str, other: str) -> bool:
    return stems(one)[:2] == stems(other)[:2]


def is_aside(sentence: str) -> bool:
    """Return whether a sentence is about the document itself, a footnote, an address, a heading, or a piece of one."""
    cut = sentence.count("(") != sentence.count(")")
    headed = _HEADING.fullmatch(sentence) or _JOINED.match(sentence)
    aside = (
        _TORN.match(sentence)
        or _NOTE_MARK.match(sentence)
        or _ABOUT_ITSELF.search(sentence)
        or _POLICY.search(sentence)
    )
    return cut or "://" in sentence or bool(headed or aside)


def is_of_a_group(sentence: str, text: str) -> bool:
    """Return whether a sentence is about the group that its paragraph begins with, and does not name it.

    >>> text = "Bulk – Bulk is grain. Volumes fell by 1 %. Volumes of bulk fell."
    >>> [is_of_a_group(sentence, text) for sentence in sentences(text)]
    [False, True, False]
    """
    group = _GROUP.match(text)
    return group is not None and not {*stems(group[1])} & {*stems(sentence)}
