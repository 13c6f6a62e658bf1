"""Check whether a passage supports a claim beyond its numbers, dates and names.

The check compares words. A claim is doubtful if it denies something that the passage does not deny, or the reverse; if
something falls in one and rises in the other; or if the passage contains hardly any of its words.
"""

from __future__ import annotations

import re

from pausepoint.apps.memo.facts import facts
from pausepoint.apps.memo.prose import sentences, stem, stems

SHARED = 0.25
"""The minimum share of a claim's words that its passage must contain."""

_DENIES = re.compile(r"\b(?:not|never|cannot|no longer|no|nor|fail(?:s|ed)? to|unable to)\b|n[’']t\b", re.IGNORECASE)
_CLAUSE = re.compile(r"[.,;:!?()]|\b(?:but|and|because|although)\b", re.IGNORECASE)
_SCOPE = 3
"""The number of words that a denial covers."""

_FORMS = {
    "fell": "fall", "fallen": "fall", "rose": "rise", "risen": "rise", "grew": "grow", "grown": "grow", "lost": "lose",
    "shrank": "shrink", "shrunk": "shrink", "made": "make", "sold": "sell", "bought": "buy", "won": "win",
    "paid": "pay", "left": "leave", "led": "lead", "held": "hold", "built": "build", "met": "meet",
}  # fmt: skip
_UP = {stem(word) for word in ("rise", "grow", "increase", "gain", "climb", "double", "improve", "expand", "higher")}
_DOWN = {stem(word) for word in ("fall", "decline", "decrease", "drop", "shrink", "lose", "worsen", "halve", "lower")}


def doubt(claim: str, passage: str, heading: str = "", company: str = "") -> str:
    """Return why a passage that contains the facts of a claim does not support it, or an empty string.

    >>> doubt("Acme did not raise $3 million.", "Acme raised $3 million from Harbour Capital.")
    'the claim denies something that the passage does not deny'
    >>> doubt("Acme raised $3 million.", "Acme raised $3 million from Harbour Capital.")
    ''
    """
    own = _words(claim)
    if not _shares(_about(claim, own) - _words(company), _words(f"{passage} {heading}")):
        return "the passage is about something else"
    nearest = _nearest(own, passage)
    denied, theirs = _denied(claim), _denied(nearest)
    if denied and not denied & _denied(passage):
        return "the claim denies something that the passage does not deny"
    if not denied and theirs & own:
        return "the passage denies the claim"
    if _directions(claim) and _directions(nearest) and not _directions(claim) & _directions(nearest):
        return "something rises in the claim and falls in the passage, or the reverse"
    return ""


def _directions(text: str) -> set[str]:
    words = _words(text)
    return {name for name, those in (("up", _UP), ("down", _DOWN)) if words & those}


def _words(text: str) -> set[str]:
    plain = re.sub(r"\w+", lambda match: _FORMS.get(match[0].casefold(), match[0]), text)
    return set(stems(plain))


def _about(claim: str, own: set[str]) -> set[str]:
    """Return the words of a claim without its facts."""
    return own - {word for fact in facts(claim) for word in stems(fact.text)}


def _shares(own: set[str], said: set[str]) -> bool:
    """Return whether enough words are shared. A single word may be a synonym and does not count."""
    return len(own) < 2 or len(own & said) >= max(1, SHARED * len(own))


def _nearest(own: set[str], passage: str) -> str:
    """Return the sentence of a passage that shares the most words with a claim."""
    return max(sentences(passage), key=lambda each: len(_words(each) & own), default="")


def _denied(text: str) -> set[str]:
    """Return the words that a text denies: the first few after a denial, within its clause."""
    found: set[str] = set()
    for match in _DENIES.finditer(text):
        clause = _CLAUSE.split(text[match.end() :], maxsplit=1)[0]
        plain = [_FORMS.get(word.casefold(), word) for word in re.findall(r"\w+", clause)]
        found.update(stems(" ".join(plain))[:_SCOPE])
    return found
