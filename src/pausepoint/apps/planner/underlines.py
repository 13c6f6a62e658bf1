"""Find titles by the line of punctuation below them, as reStructuredText and plain text have them.

The style of its lines says its level, by the order in which a book first uses the styles. So the style is kept until
the whole book has been read (`levels`).
"""

from __future__ import annotations

import re
import unicodedata

_RULE = re.compile(r"([!-/:-@\[-`{-~])\1*")
SHORTEST = 4
"""A shorter line below a longer title is text, as docutils reads it."""

SLACK = 3
"""So many columns a line of plain text may be longer or shorter than its title, or a third of the title."""

_LITERAL = re.compile(r"(``.+?``)")
_ROLE = re.compile(r"(?::[\w+.:-]+:)?`(?P<text>[^`]+)`(?::[\w+.:-]+:|_{0,2})")
_TARGET = re.compile(r"(?<=\S)\s*<[^<>]*>$")
_EMPHASIS = re.compile(r"(?<![\w*\\])(\*{1,2})(?=[^\s*])(.+?)(?<=[^\s\\])\1(?![\w*])")
_SUBSTITUTED = re.compile(r"(?<![\w|])\|(?=\S)([^|]+)(?<=\S)\|_{0,2}(?!\w)")


def columns(text: str) -> int:
    """Return how many columns a text takes in a terminal.

    >>> columns("Eels"), columns("鰻の本"), columns("e\u0301")
    (4, 6, 1)
    """
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)


def is_rule(line: str) -> bool:
    """Return whether a line has one mark of punctuation only.

    >>> is_rule("===="), is_rule("=-"), is_rule("")
    (True, False, False)
    """
    return _RULE.fullmatch(line) is not None


def is_as_long(rule: str, title: str) -> bool:
    """Return whether a line of punctuation is about as long as a title.

    >>> is_as_long("======", "Eels"), is_as_long("======", "鰻の本"), is_as_long("=" * 40, "Eels")
    (True, True, False)
    """
    return abs(len(rule) - columns(title)) <= max(SLACK, columns(title) / 3)


def style_in_markup(above: str, line: str, below: str) -> str:
    """Return the style of a title of reStructuredText: its character, twice if it is above the title as well; or nothing.

    >>> style_in_markup("", "Eels", "----"), style_in_markup("====", "Eels", "===="), style_in_markup("and", "Eels", "----")
    ('-', '==', '')
    >>> style_in_markup("", "    Eels", "    ===="), style_in_markup(".. _eels:", "Eels", "==="), style_in_markup("", "Eels", "::")
    ('', '', '')
    """  # noqa: E501
    title, rule = line.rstrip(), below.rstrip()
    if not title or not is_rule(rule) or is_rule(title) or len(rule) < min(SHORTEST, columns(title)):
        return ""
    if above.rstrip() == rule:
        return 2 * rule[0]
    starts = not above.strip() or above[0].isspace() or above.startswith("..")  # a paragraph has no title in it
    return "" if not starts or title[0].isspace() or title.startswith((".. ", ">>> ")) else rule[0]


def without_markup(title: str) -> str:
    """Return a title of reStructuredText as it is shown: without roles, the targets of links, and emphasis.

    >>> without_markup("The ``**rows`` of :ref:`a table <tables>`"), without_markup("*All* of :class:`~db.Table` and `more`_")
    ('The **rows of a table', 'All of Table and more')
    """  # noqa: E501
    parts = _LITERAL.split(title)
    parts[::2] = [_without_roles(part) for part in parts[::2]]
    return "".join(part[2:-2] if at % 2 else part for at, part in enumerate(parts)).strip()


def _without_roles(text: str) -> str:
    def shown(found: re.Match[str]) -> str:
        inner = _TARGET.sub("", found["text"])
        return inner.rpartition(".")[2] if inner.startswith("~") else inner

    text = _SUBSTITUTED.sub(r"\1", _EMPHASIS.sub(r"\2", _ROLE.sub(shown, text)))
    return re.sub(r"\\(?:\s|(\S))", r"\1", text)
