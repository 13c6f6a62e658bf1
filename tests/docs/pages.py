"""The pages of the documentation, taken apart: blocks of code, links, tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = (
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(DOCS.rglob("*.md")),
)

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_NOT_RUN = "<!-- not run -->"
_FILE = re.compile(r"<!-- file: (\S+) -->$")

EXAMPLES = DOCS / "examples"


class Block(NamedTuple):
    """One fenced block of Python. ``line`` is that of its first statement; ``runs`` unless it is marked.

    A block that is marked as a ``file`` shows a file of docs/examples. Other tests run that as a process.
    """

    line: int
    source: str
    runs: bool
    file: str


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """The Python of a page, in order, also what hides in comments."""
    text = page.read_text("utf-8")
    return [_block(text, found) for found in _BLOCK.finditer(text)]


def _block(text: str, found: re.Match[str]) -> Block:
    before = text[: found.start()].rstrip()
    file = _FILE.search(before)
    runs = file is None and not before.endswith(_NOT_RUN)
    return Block(text.count("\n", 0, found.start(1)) + 1, found[1], runs, file[1] if file else "")


def links(page: Path) -> list[str]:
    """Where a page points to."""
    return _LINK.findall(_FENCED.sub("", page.read_text("utf-8")))


def anchors(page: Path) -> set[str]:
    """The names that its headings can be linked by."""
    headings = _HEADING.findall(_FENCED.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def section(page: Path, heading: str) -> str:
    """The text below a heading, up to the next one of the same or a higher level."""
    text = page.read_text("utf-8")
    found = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    assert found, f"{name_of(page)} has no section {heading!r}"
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", _FENCED.sub(lambda block: " " * len(block[0]), rest), re.MULTILINE)
    return rest[: end.start()] if end else rest


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows, without heads and rulers."""
    tables = re.findall(r"(?:^\|.*\|\n?)+", text, re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()[2:]]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def code(text: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", text)
