"""How applications write what others have named: on one line, in Markdown, and in numbers."""

from __future__ import annotations

import re


def one_line(text: str) -> str:
    """As it can be shown anywhere: on one line, without what steers a terminal or turns the direction of what follows.

    >>> one_line("An\\n\\x1b[2Jessay \\u202eabout")
    'An [2Jessay about'
    """
    return " ".join(re.sub(r"[\u202a-\u202e\u2066-\u2069]", "", re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text)).split())


def plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line.

    >>> plain("2 * 3 <b> | `x`")
    '2 \\\\* 3 \\\\<b\\\\> \\\\| \\\\`x\\\\`'
    >>> plain("1. Algebra"), plain("- x")
    ('1\\\\. Algebra', '\\\\- x')
    """
    escaped = re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", " ".join(text.split()))
    return re.sub(r"^(\d*)([-+=.)])", r"\1\\\2", escaped)  # at its beginning these would make a list or a heading


def many(count: int, noun: str) -> str:
    """A number with its noun.

    >>> many(1, "piece"), many(2000, "piece")
    ('1 piece', '2,000 pieces')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
