"""The words of claims and passages: which of them mean the same, which say nothing, and which say a direction."""

from __future__ import annotations

import re

from pausepoint.apps.memo.facts import facts
from pausepoint.apps.memo.prose import stem, stems

_GENERAL = {
    stem(word)
    for word in re.findall(
        r"\w+",
        "company companies firm business year years annual quarter period fiscal earlier ago previous prior last"
        " report reports reported according state states stated note notes show shows shown say says said"
        " describe total amount number level about approximately around nearly roughly almost over more than"
        " compared reach reached stand stands stood amounted include includes including also both now today"
        " another additional additionally added adds went go goes come comes came"
        " part main major key new first while such other some point points percentage"
        " between during under per each one own because since"
        " before after however notably overall moreover slightly somewhat just only well"
        " two three four five six seven eight nine ten eleven twelve half hundred"
        " still yet even end same fewer less bring brings brought next large largest did so far them",
    )
}
"""Words that say nothing by themselves. A claim may use them even if its passage does not."""

PARTS = re.compile(
    r",(?!\d\d\d)|[;:()—–]|\b(?:but|and|while|whereas|because|although|which|who|as well as)\b", re.IGNORECASE
)
"""What stands between the clauses of a claim."""

_SYNONYMS = {
    "fall": "fell fallen", "rise": "rose risen raised raise lifted lift", "grow": "grew grown", "lose": "lost",
    "shrink": "shrank shrunk shrinking", "drop": "dropped dropping", "make": "made", "win": "won", "lead": "led",
    "hold": "held", "build": "built", "meet": "met", "remain": "left leave leaves remaining rest",
    "sell": "sold sale sales revenue revenues turnover", "pay": "paid payment payments spend spends spent spending",
    "buy": "bought buys buying acquire acquired acquires acquisition acquisitions purchase purchased purchases"
    " repurchase repurchases repurchased buyback buybacks",
    "employ": "employed employs employees employee workforce staff worker workers worked headcount associates",
    "people": "persons person individuals individual", "income": "earnings profit profits", "attack": "cyberattack",
    "lawyer": "legal counsel attorney", "fx": "currency currencies", "expect": "anticipate anticipated anticipates",
    "facility": "line lines facilities", "decline": "slid slipped slip slips slide cut cuts narrow narrowed",
    "increase": "widen widened edged", "affect": "impacted impact touched hit",
}  # fmt: skip
FORMS = {word: meant for meant, those in _SYNONYMS.items() for word in those.split()}
"""Words that mean about the same in a report, such as “revenue” and “sales”, and irregular forms of verbs."""

_BUY_BACK = re.compile(r"\b(?:bought|buy(?:s|ing)?)[ -]?backs?\b", re.IGNORECASE)
_GAVE_UP = re.compile(r"\bg[ai]v(?:e|es|en|ing) up\b", re.IGNORECASE)
_WROTE_DOWN = re.compile(r"\b(writ\w+|wrote|br[eo]ak\w*)[ -]down\b", re.IGNORECASE)
"""Words with “up” and “down” that do not say this direction."""

_UP = {stem(word) for word in ("rise", "grow", "increase", "gain", "climb", "double", "improve", "expand", "higher")}
_DOWN = {stem(word) for word in ("fall", "decline", "decrease", "drop", "shrink", "lose", "worsen", "halve", "lower")}


def words_of(text: str) -> set[str]:
    """Return the significant words of a text. All words for a rise are one word, and all words for a fall another."""
    plain = _BUY_BACK.sub("buy", _GAVE_UP.sub("lose", _WROTE_DOWN.sub(r"\1", text)))
    plain = re.sub(r"\w+", lambda match: FORMS.get(match[0].casefold(), match[0]), plain)
    found = set(stems(plain))
    return found | {name for name, those in (("up", _UP), ("down", _DOWN)) if found & those}


def topic_of(claim: str, own: set[str]) -> set[str]:
    """Return the words of a claim without its facts, and without words that say nothing by themselves."""
    facts_of_it = {word for fact in facts(claim) for word in stems(fact.text)}
    moved = _UP | _DOWN if own & {"up", "down"} else set()
    return own - facts_of_it - _GENERAL - moved


def directions(text: str) -> set[str]:
    """Return “up” if something rises in a text, and “down” if something falls."""
    return words_of(text) & {"up", "down"}
