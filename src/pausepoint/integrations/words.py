"""The sentences of errors in the words of another front end.

The engine's messages name Python calls as the way out. A client of the HTTP API or a language model cannot call them,
so each front end has a `Words` that names its own requests instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pausepoint.errors import PausepointError

_CODE = re.compile(
    r"\bengine\.\w|\bEngine\(|\b\w+\([^)]*\)|\b\w+=(?:True|False|None|\[|'|\"|\d|…|\.\.\.| )|\bbased_on\b|`|(?<!\w)--\w"
)
"""What only Python code or a shell understands."""

_END = re.compile(r"(?<=[.?!])\s+(?=[A-Z'\"])")


class Words(NamedTuple):
    """The words of a front end, by the names of errors. Those of a base class are used for its subclasses.

    - ``lines``: the whole message. It is used if the error has all fields that the line names.
    - ``advice``: the sentence that replaces sentences which name Python or the command line.
    - ``otherwise``: the message if nothing else is left of it.
    """

    lines: Mapping[str, str]
    advice: Mapping[str, str]
    otherwise: str

    def of(self, error: BaseException) -> str:
        """Return an error's message.

        >>> from pausepoint.errors import SessionEnded
        >>> words = Words({}, {"SessionError": "Start another session."}, "That was refused.")
        >>> words.of(SessionEnded("Session 'x' has ended. Call engine.session('x').fork().", session_id="x"))
        "Session 'x' has ended. Start another session."
        """
        return self.line(error) or self.rest(error)

    def line(self, error: BaseException) -> str | None:
        """Return the line of an error; None if it has none."""
        lines = (_filled(self.lines.get(cls.__name__), _fields(error)) for cls in type(error).__mro__)
        return next((line for line in lines if line is not None), None)

    def rest(self, error: BaseException) -> str:
        """Return the engine's message without sentences that name code, and with the advice instead of them."""
        named = next((cls.__name__ for cls in type(error).__mro__ if cls.__name__ in self.advice), "")
        return self._without_code(str(error), _filled(self.advice.get(named), _fields(error)) or "")

    def _without_code(self, message: str, advice: str) -> str:
        if not message.endswith((".", "?", "!")):  # Pydantic's words
            message = f"{message}. {advice}".strip()
        sentences = _END.split(message.strip())
        plain = [each for each in sentences if not names_code(each)]
        if len(plain) == len(sentences):
            return message
        return " ".join([*plain, advice] if advice else plain) or self.otherwise


def names_code(text: str) -> bool:
    """Return whether a message names Python or a command."""
    return _CODE.search(text) is not None


def _fields(error: BaseException) -> dict[str, Any]:
    """Return the fields of an error, with lists as texts."""
    found = error.fields if isinstance(error, PausepointError) else {}
    return {name: ", ".join(map(str, value)) if isinstance(value, list) else value for name, value in found.items()}


def _filled(line: str | None, fields: dict[str, Any]) -> str | None:
    """Return the line with the error's fields; None if one of them is missing or empty."""
    if line is None or any(not fields.get(name) for name in re.findall(r"{(\w+)", line)):
        return None
    return line.format(**fields)


_REASONS = (
    (r"Object missing required field '(.*?)'", r"the member '\1' is missing"),
    (r"Object contains unknown field '(.*?)'", r"it has the unknown member '\1'"),
    (r"Invalid enum value (.*?)(?= - at |$)", r"\1 is not one of the known values"),
    (r"Expected '(.*?)', got '(.*?)'", r"expected \1, got \2"),
    (r"Expected '(.*?)'", r"expected \1"),
    (r" - at '\$\.(.*)'$", r", at '\1'"),
    (r" - at '\$'$", ""),
)


def complaint(error: Exception) -> str:
    """Return what msgspec complains about, as a part of a sentence.

    >>> complaint(ValueError("Expected `int` <= 200 - at `$.limit`"))
    "expected int <= 200, at 'limit'"
    >>> complaint(ValueError("Object missing required field `to`"))
    "the member 'to' is missing"
    """
    text = str(error).replace("`", "'")
    for pattern, said in _REASONS:
        text = re.sub(pattern, said, text)
    return text.rstrip(".")
