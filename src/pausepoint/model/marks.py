"""Draw characters that a reader's program obeys or hides as visible marks.

A text of a stranger (an agent, a model, a web page) may contain characters that move the cursor of a terminal, turn the
rest of a line around, or have no width. A person who approves something must see them. The page has the same table in
``server/page/marks.js``.
"""

from __future__ import annotations

import re

HIDDEN = (
    "0-8 b-c e-1f 7f-9f ad 34f 61c 115f-1160 17b4-17b5 180b-180f 200b 200e-200f 2028-202e 2060-206f 3164 d800-dfff "
    "fe00-fe0d feff ffa0 fff0-fffb 1bca0-1bca3 1d173-1d17a e0000-e0fff"
)
"""The marked characters, as ranges of hexadecimal numbers: C0 (without tab and line feed), DEL and C1, soft hyphens and
fillers, zero-width characters, marks of writing direction, line separators, lone surrogates, variants without a visible
form, the byte order mark, and tags. A carriage return is marked unless a line feed follows. A joiner is marked unless
it joins two characters of a script or an emoji that may need it."""

JOINED = "300-1fff 2190-d7ff e000-10ffff"
"""The characters between which a joiner (U+200C, U+200D) is not marked."""


def _class(ranges: str) -> str:
    bounds = (part.split("-") for part in ranges.split())
    return "".join(f"{chr(int(bound[0], 16))}-{chr(int(bound[-1], 16))}" for bound in bounds)


_MARKED = re.compile(
    f"[{_class(HIDDEN)}]|\r(?!\n)|(?<![{_class(JOINED)}])[\u200c\u200d]|[\u200c\u200d](?![{_class(JOINED)}])"
)


def marked(text: str) -> str:
    """Return a text with visible marks instead of characters that a reader's program obeys or hides.

    >>> marked("rm\\u202e x\\x1b[2J\\r\\n"), marked("a\\u200bb\\u2028c\\x7f\\x9b")
    ('rm‹U+202E› x␛[2J\\r\\n', 'a‹U+200B›b‹U+2028›c␡‹U+009B›')
    >>> marked("r\\u200dm 👩\\u200d🚀") == "r‹U+200D›m 👩\\u200d🚀"
    True
    """
    return text if text.isascii() and text.isprintable() else _MARKED.sub(lambda match: _mark(match[0]), text)


def marked_line(line: str) -> str:
    """Return a line with marks, also for line ends. A tab becomes four spaces, so that its width is known.

    >>> marked_line("a\\tb\\n")
    'a    b␊'
    """
    return marked(line).translate({9: "    ", 10: "␊", 13: "␍"})


def _mark(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"‹U+{code:04X}›"
