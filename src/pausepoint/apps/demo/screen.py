"""Print the demo: in place on a terminal, line by line elsewhere."""

from __future__ import annotations

import io
import os
import shutil
import sys
from typing import NamedTuple, TextIO

from pausepoint.apps.demo.view import Row, View


class Signs(NamedTuple):
    """The signs in front of a row and in its progress bar."""

    kept: str
    done: str
    active: str
    ahead: str
    full: str
    empty: str
    spinner: str


_DRAWN = Signs("↷", "✓", "▸", "·", "■", "□", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
_PLAIN = Signs("~", "+", ">", "-", "#", ".", "|/-\\")
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Screen:
    """The stream on which the demo is shown."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a folder's name may contain letters that the encoding lacks
        self._stream = stream
        self._signs = _signs(stream)
        self._terminal = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._coloured = self._terminal and "NO_COLOR" not in os.environ
        self._drawn = 0
        self._said: set[str] = set()
        self._tick = 0

    def say(self, text: str = "", style: str = "") -> None:
        """Print a permanent line below everything drawn so far."""
        self._drawn = 0
        print(self.styled(text, style), file=self._stream, flush=True)

    def styled(self, text: str, style: str) -> str:
        return f"\033[{_STYLES[style]}m{text}\033[0m" if style and self._coloured else text

    def _cut(self, text: str, reserved: int) -> str:
        """Cut text to one line: a row that wraps cannot be redrawn. The last column may wrap as well."""
        if not self._terminal:
            return text
        return text[: max(0, shutil.get_terminal_size().columns - 1 - reserved)]

    def chapter(self, text: str) -> None:
        """Print a heading. The steps are drawn again below it."""
        self._said.clear()
        self.say(f"\n{text}", "bold")

    def draw(self, view: View, running: bool, brief: bool = False) -> None:
        """Draw all steps, or with ``brief`` only the active one. On a terminal this replaces the previous drawing."""
        self._tick += 1
        rows = [row for row in view.rows.values() if not brief or row is view.active]
        if self._terminal:
            up = f"\033[{self._drawn}A" if self._drawn else ""
            lines = [f"\033[2K{self._line(row, running and row is view.active)}\n" for row in rows]
            print(up + "".join(lines), end="", file=self._stream, flush=True)
            self._drawn = len(lines)
            return
        for row in rows:
            if (row.items or row.done) and (text := self._text(row)) not in self._said:
                self._said.add(text)
                print(self._line(row, running), file=self._stream, flush=True)

    def _line(self, row: Row, active: bool) -> str:
        signs, text = self._signs, self._cut(self._text(row), reserved=len("   ✓ "))
        if row.kept:
            return self.styled(f"   {signs.kept} {text}", "dim")
        if row.done:
            return f"   {self.styled(signs.done, 'green')} {text}"
        if active:
            sign = signs.spinner[self._tick % len(signs.spinner)] if self._terminal else signs.active
            return f"   {self.styled(sign, 'cyan')} {text}"
        return self.styled(f"   {signs.ahead} {text}", "dim")

    def _text(self, row: Row) -> str:
        bar = self._signs.full * row.items + self._signs.empty * (row.total - row.items)
        return f"{row.name:<8} {bar:<10}{_detail(row)}".rstrip()


def _signs(stream: TextIO) -> Signs:
    """Return the signs that the stream can encode."""
    try:
        "".join(_DRAWN).encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return _PLAIN
    return _DRAWN


def _detail(row: Row) -> str:
    if row.kept:
        return f"skipped, done before (${row.usd:.2f})"
    parts = []
    if row.total:
        parts.append(f"{row.items} of {row.total}")
    if row.kept_items:
        parts.append(f"{row.kept_items} kept from before")
    if row.done:
        parts.append(f"{row.took:.1f} s")
    if row.usd:
        parts.append(f"${row.usd:.2f}")
    return ", ".join(parts)
