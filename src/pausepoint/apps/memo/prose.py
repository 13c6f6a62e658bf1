"""Plain text: split it into sentences, find its significant words, and remove Markdown."""

from __future__ import annotations

import re

_SHORT = r"(?:Dr|Mr|Ms|Mrs|Prof|Inc|Ltd|Co|Corp|No|vs|approx|e\.g|i\.e|U\.S|St|Jr|Sr|Nr)"
_INITIAL = re.compile(r"(?:^|\b(?!Series|Class|Customer|Type|Schedule|Appendix|Part|Plan)[A-Z][a-z]+ )[A-Z]\.$")
"""The end of a piece that is the initial of a person, as in Ada M. Moss."""

_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"”’)]))\s+(?=[\"“‘(\[*]*[A-Z0-9À-ÖØ-Þ])")
_LINK = re.compile(r"!?\[([^\]]*)\]\((?:[^()\s]|\([^()]*\))*(?:\s\"[^\"]*\")?\)")
KEY = re.compile(r"\s?\[@([A-Za-z0-9._-]+)\]")
"""How a sentence of a section names its passage: ``[@annual-report-4]``."""

FOOTNOTE = re.compile(r"\s?\[\^(\d+)\]")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_MEANT = re.compile(r"<!--.*?-->|```|\[[@^][^\]\n]*\]", re.DOTALL)
STOP = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be been but by for from had has have he her his in into is it its more most of on or our"
        " she so than that the their there these they this to was we were which who will with would",
    )
)


def sentences(text: str) -> list[str]:
    """Return the sentences of a paragraph.

    >>> sentences("Dr. Ada M. Moss left Acme Inc. in 2029. She sold 4.2 million panels! Why?")
    ['Dr. Ada M. Moss left Acme Inc. in 2029.', 'She sold 4.2 million panels!', 'Why?']
    """
    found: list[str] = []
    for piece in _END.split(" ".join(text.split())):
        if found and (re.search(rf"\b{_SHORT}\.$", found[-1]) or _INITIAL.search(found[-1])):
            found[-1] += f" {piece}"
        elif piece:
            found.append(piece)
    return found


def stems(text: str) -> list[str]:
    """Return the significant words of a text, cut to a common stem.

    >>> stems("The company's customers were paying")
    ['compan', 'custom', 'pay']
    """
    words = (word for word in re.findall(r"[a-zà-öø-þ0-9]+", text.casefold()) if word not in STOP and len(word) > 1)
    return [stem(word) for word in words]


def stem(word: str) -> str:
    """Cut one word to its stem.

    >>> stem("markets"), stem("pricing"), stem("prices")
    ('market', 'pric', 'pric')
    """
    for ending in ("ing", "ies", "es", "ed", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    return word[:6]


def unlinked(text: str) -> str:
    """Remove links and pictures from Markdown, and keep their text.

    >>> unlinked("See [the report](https://example.com/r) and ![chart](c.png).")
    'See the report and chart.'
    """
    return _LINK.sub(r"\1", text)


def bare(text: str) -> str:
    """Return Markdown as plain text: without links, citations, emphasis, comments and list markers.

    >>> bare("- **Fernstone** grew by 12 % [@report-2].")
    'Fernstone grew by 12 %.'
    """
    text = unlinked(_COMMENT.sub("", text))
    text = FOOTNOTE.sub("", KEY.sub("", text))
    text = re.sub(r"^\s*(?:[-*+]|\d+\.|#{1,6}|>)\s+", "", text)
    return re.sub(r"(\*\*|__|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)|`)", "", text).strip()


def quoted(text: str) -> str:
    """Return a source's text without markup that would have a meaning in the memo, and with HTML tags escaped.

    >>> quoted("<b>Up</b> [by 4](https://x.example) [^1]. <!-- viz: x -->")
    '&lt;b>Up&lt;/b> by 4 . '
    """
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", unlinked(_MEANT.sub("", text)))


def slug(text: str) -> str:
    """Return a text as a part of a key.

    >>> slug("Annual Report, 2029.pdf")
    'annual-report-2029-pdf'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.casefold()).strip("-")[:40].strip("-") or "source"
