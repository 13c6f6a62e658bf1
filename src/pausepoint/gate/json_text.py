"""A JSON document that is changed in one place while every other byte stays as it is.

Settings files belong to people. Writing them again from their parsed content would change indentation, spaces and the
lines of lists everywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()

Path = Sequence[str | int]
"""The names and indexes that lead to a value."""


@dataclass
class _Node:
    """A value in the text. ``begins`` includes the name of a member."""

    name: str | int
    begins: int
    start: int
    end: int = 0
    children: list[_Node] = field(default_factory=list)


class JsonText:
    """A JSON document and its parsed ``value``. Each change returns a new document.

    >>> text = JsonText('{"model": "opus", "list": [1,2]}')
    >>> text.added((), {"a": 1}, "hooks").text
    '{"model": "opus", "list": [1,2], "hooks": {"a": 1}}'
    >>> text.removed(("list", 0)).text, text.replaced(("model",), None).text
    ('{"model": "opus", "list": [2]}', '{"model": null, "list": [1,2]}')
    """

    def __init__(self, text: str) -> None:
        """Parse the text. Raises ValueError if it is not JSON."""
        self.text = text
        try:
            self.value: Any = json.loads(text, parse_constant=_not_json)
            self._root = _read(text, _after_space(text, 0))
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        self._newline = "\r\n" if "\r\n" in text else "\n"
        first = self._indent_of(self._root.children[0].begins) if self._root.children else None
        self._unit = first or "  "

    def added(self, path: Path, value: Any, name: str | None = None) -> JsonText:
        """Return the document with a value at the end of a list, or of an object under ``name``. It gets one line."""
        node = self._at(path)
        begin = "" if name is None else f"{_rendered(name)}: "
        if node.children:
            last = node.children[-1]
            indent = self._indent_of(last.begins)
            space = " " if indent is None else self._newline + indent
            return self._changed(last.end, last.end, f",{space}{begin}{_rendered(value)}")
        outer = re.match(r"[ \t]*", self.text[self._line_start(node.begins) :])
        assert outer is not None  # it matches an empty text
        indent = outer[0] + self._unit
        inside = f"{self._newline}{indent}{begin}{_rendered(value)}{self._newline}{outer[0]}"
        return self._changed(node.start + 1, node.end - 1, inside)

    def replaced(self, path: Path, value: Any) -> JsonText:
        """Return the document with another value in this place, in one line."""
        node = self._at(path)
        return self._changed(node.start, node.end, _rendered(value))

    def removed(self, path: Path) -> JsonText:
        """Return the document without a member or an item."""
        outer, node = self._at(path[:-1]), self._at(path)
        index = outer.children.index(node)
        if index:
            return self._changed(outer.children[index - 1].end, node.end, "")
        if len(outer.children) > 1:
            return self._changed(node.begins, outer.children[1].begins, "")
        return self._changed(outer.start + 1, outer.end - 1, "")

    def _at(self, path: Path) -> _Node:
        node = self._root
        for name in path:
            node = [each for each in node.children if each.name == name][-1]  # the last of equal names counts
        return node

    def _changed(self, start: int, end: int, text: str) -> JsonText:
        return JsonText(self.text[:start] + text + self.text[end:])

    def _line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def _indent_of(self, at: int) -> str | None:
        """Return the space before a value that begins its line; None if other text is before it."""
        before = self.text[self._line_start(at) : at]
        return before if "\n" in self.text[:at] and not before.strip() else None


def _rendered(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _not_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None  # it matches an empty text
    return found.end()


def _read(text: str, at: int, name: str | int = "", begins: int | None = None) -> _Node:
    """Return where a value of a valid document, and everything inside it, begins and ends."""
    node = _Node(name, at if begins is None else begins, at)
    if text[at] not in "{[":
        node.end = _DECODER.raw_decode(text, at)[1]
        return node
    is_object, at = text[at] == "{", _after_space(text, at + 1)
    while text[at] not in "}]":
        begins, key = at, len(node.children)
        if is_object:
            key, at = _DECODER.raw_decode(text, at)
            at = _after_space(text, _after_space(text, at) + 1)  # after the colon
        node.children.append(_read(text, at, key, begins))
        at = _after_space(text, node.children[-1].end)
        at = _after_space(text, at + 1) if text[at] == "," else at
    node.end = at + 1
    return node
