"""The text of a question about a tool call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

LONGEST = 500
"""The most characters of the arguments in a question. The payload has all of them."""


def question_about(tool: str, arguments: Any) -> str:
    """Return a question that asks whether a tool may be called.

    >>> question_about("pay", {"to": "Ann", "cents": 500}), question_about("patch", "*** Begin")
    ('Run pay(to="Ann", cents=500)?', 'Run patch("*** Begin")?')
    """
    if isinstance(arguments, Mapping):
        text = ", ".join(f"{name}={_json(value)}" for name, value in arguments.items())
    else:
        text = _json(arguments) if arguments else ""
    return f"Run {tool}({text if len(text) <= LONGEST else text[: LONGEST - 1] + '…'})?"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
