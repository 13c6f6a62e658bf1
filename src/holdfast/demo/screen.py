"""Prints the demo: in place on a terminal, line by line elsewhere."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from holdfast.demo.view import Row, View

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Screen:
    """Where the demo is shown."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._stream = stream
        self._terminal = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._coloured = self._terminal and "NO_COLOR" not in os.environ
        self._drawn = 0
        self._said: set[str] = set()
        self._tick = 0

    def say(self, text: str = "", style: str = "") -> None:
        """A line that stays, below what was drawn so far."""
        self._drawn = 0
        print(self.styled(text, style), file=self._stream, flush=True)

    def styled(self, text: str, style: str) -> str:
        return f"\033[{_STYLES[style]}m{text}\033[0m" if style and self._coloured else text

    def chapter(self, text: str) -> None:
        """A heading. The steps are shown anew below it."""
        self._said.clear()
        self.say(f"\n{text}", "bold")

    def draw(self, view: View, running: bool, brief: bool = False) -> None:
        """The steps as they stand, or only the one at work. On a terminal this replaces what was drawn just before."""
        self._tick += 1
        rows = [row for row in view.rows.values() if not brief or row is view.active]
        if self._terminal:
            up = f"\033[{self._drawn}A" if self._drawn else ""
            lines = [f"\033[2K{self._line(row, running and row is view.active)}\n" for row in rows]
            print(up + "".join(lines), end="", file=self._stream, flush=True)
            self._drawn = len(lines)
            return
        for row in rows:
            if (row.items or row.done) and (text := _text(row)) not in self._said:
                self._said.add(text)
                print(self._line(row, running), file=self._stream, flush=True)

    def _line(self, row: Row, active: bool) -> str:
        text = _text(row)
        if row.kept:
            return self.styled(f"   ↷ {text}", "dim")
        if row.done:
            return f"   {self.styled('✓', 'green')} {text}"
        if active:
            sign = _SPINNER[self._tick % len(_SPINNER)] if self._terminal else "▸"
            return f"   {self.styled(sign, 'cyan')} {text}"
        return self.styled(f"   · {text}", "dim")


def _text(row: Row) -> str:
    bar = "■" * row.items + "□" * (row.total - row.items)
    return f"{row.name:<8} {bar:<10}{_detail(row)}".rstrip()


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
