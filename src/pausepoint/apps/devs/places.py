"""Find the lines of tasks and keys in a plan's file, for TOML and JSON.

The parsers do not report lines, so this scans the text a second time. If the scan does not find the same tasks as the
parser, no lines are reported: no line is better than a wrong one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_HEADER = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]+\s*(#.*)?")
_KEY = re.compile(r"\s*([\w-]+|\"[^\"]*\"|'[^']*')\s*[=.]")
_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass
class Block:
    """A table: its first line, and the lines of its keys."""

    line: int
    keys: dict[str, int] = field(default_factory=dict)


class Places:
    """The lines of the plan's keys and of each task."""

    def __init__(self, top: Block | None = None, tasks: list[Block] | None = None) -> None:
        self.top = top or Block(1)
        self.tasks = tasks or []

    def line(self, task: int | None, key: str | None = None) -> int | None:
        """Return the line of a task, of a task's key, or (without a task) of a plan's key. None if unknown."""
        if task is None:
            return self.top.keys.get(key or "")
        if task >= len(self.tasks):
            return None
        block = self.tasks[task]
        return block.keys.get(key or "", block.line)


def in_toml(text: str, tasks: int) -> Places:
    """Return the lines in a TOML file with this number of tasks.

    >>> places = in_toml('name = "x"\\n[[tasks]]\\nid = "a"\\n\\n[[tasks]]\\nid = "b"\\nneeds = ["a"]\\n', 2)
    >>> places.line(0), places.line(1, "needs"), places.line(None, "name")
    (2, 7, 1)
    """
    top, found = Block(1), list[Block]()
    here: Block | None = top
    for number, line in _outside_strings(text):
        header = _HEADER.fullmatch(line)
        if header is not None:
            here = _opened(header[1], line, number, top, found)
        elif here is not None and (key := _KEY.match(line)) is not None:
            here.keys.setdefault(key[1].strip("\"'"), number)
    return Places(top, found if len(found) == tasks else [])


def _opened(name: str, line: str, number: int, top: Block, tasks: list[Block]) -> Block | None:
    """Return the table that a header opens. A table inside a task or the plan counts as its key."""
    first, *rest = [part.strip().strip("\"'") for part in name.split(".")]
    if first == "tasks" and not rest and line.lstrip().startswith("[["):
        tasks.append(Block(number))
        return tasks[-1]
    if first == "tasks" and tasks and rest:
        tasks[-1].keys.setdefault(rest[0], number)
    else:
        top.keys.setdefault(first, number)
    return None


def _outside_strings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that do not start inside a multi-line string."""
    within = ""
    for number, line in enumerate(text.splitlines(), 1):
        if not within:
            yield number, line
        for mark in re.findall(r'"""|\'\'\'', line):
            within = "" if within == mark else within or mark


def in_json(text: str, tasks: int) -> Places:
    """Return the lines in a JSON file with this number of tasks.

    >>> places = in_json('{"name": "x",\\n "tasks": [{"id": "a"},\\n {"id": "b",\\n "needs": ["a"]}]}', 2)
    >>> places.line(0), places.line(1, "needs"), places.line(None, "tasks")
    (2, 4, 2)
    """
    top, found = Block(1), list[Block]()
    for key, at, value in _entries(text, _skipped(text, 0)):
        top.keys[key] = _line(text, at)
        if key == "tasks" and text[value] == "[":
            for item in _items(text, value):
                block = Block(_line(text, item))
                block.keys = {name: _line(text, where) for name, where, _ in _entries(text, item)}
                found.append(block)
    return Places(top, found if len(found) == tasks else [])


def _entries(text: str, at: int) -> Iterator[tuple[str, int, int]]:
    """Yield the keys of an object with their offsets and those of their values. Nothing if it is not an object."""
    if text[at] != "{":
        return
    at = _skipped(text, at + 1)
    while text[at] != "}":
        key, end = _decoder.raw_decode(text, at)
        value = _skipped(text, _skipped(text, end) + 1)
        yield key, at, value
        at = _next(text, value)


def _items(text: str, at: int) -> Iterator[int]:
    at = _skipped(text, at + 1)
    while text[at] != "]":
        yield at
        at = _next(text, at)


def _next(text: str, value: int) -> int:
    """Return the offset after a value and its comma. The text was parsed before, so it is well formed."""
    end = _skipped(text, _decoder.raw_decode(text, value)[1])
    return _skipped(text, end + 1) if text[end] == "," else end


def _skipped(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a JSON object with a duplicate key. Otherwise the parser would silently use the second one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice")
    return found


_decoder = json.JSONDecoder()
