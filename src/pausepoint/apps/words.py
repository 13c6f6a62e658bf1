"""Format text and numbers for display: on one line, escaped for Markdown, or with a noun."""

from __future__ import annotations

import re

from pausepoint.model import marked


def one_line(text: str) -> str:
    """Return text that is safe to show anywhere: on one line, without control or text-direction characters.

    >>> one_line("An\\n\\x1b[2Jessay \\u202eabout")
    'An [2Jessay about'
    """
    return " ".join(re.sub(r"[\u202a-\u202e\u2066-\u2069]", "", re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text)).split())


def display_line(text: str) -> str:
    """Return text of an agent or a command on one line, with visible marks instead of what a terminal obeys or hides.

    >>> display_line("An\\n\\x1b[2Jessay \\u202eabout")
    'An ␛[2Jessay ‹U+202E›about'
    """
    return " ".join(marked(text).split())


def plain(text: str) -> str:
    """Escape text so that Markdown shows it unchanged, on one line.

    >>> plain("2 * 3 <b> | `x`")
    '2 \\\\* 3 \\\\<b\\\\> \\\\| \\\\`x\\\\`'
    >>> plain("1. Algebra"), plain("- x")
    ('1\\\\. Algebra', '\\\\- x')
    """
    escaped = re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", " ".join(text.split()))
    return re.sub(r"^(\d*)([-+=.)])", r"\1\\\2", escaped)  # at the start of a line these make a list or a heading


def many(count: int, noun: str) -> str:
    """Return a number with its noun.

    >>> many(1, "piece"), many(2000, "piece")
    ('1 piece', '2,000 pieces')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
