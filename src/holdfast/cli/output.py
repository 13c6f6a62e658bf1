"""How things look: one JSON document, lines of JSON, or text for a person (with colour on a terminal)."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

COLOURS = {
    "running": "green", "completed": "green", "ready": "cyan", "created": "cyan", "pausing": "yellow",
    "paused": "yellow", "waiting": "yellow", "sleeping": "blue", "failed": "red", "cancelled": "red",
}  # fmt: skip


class Output:
    """Where a command says what it found. With ``json`` or ``jsonl`` nothing else goes to stdout."""

    def __init__(self, as_json: bool = False, as_lines: bool = False) -> None:
        self.as_json = as_json
        self.as_lines = as_lines
        self.terminal = sys.stdout.isatty()
        self.colour = self.terminal and not os.environ.get("NO_COLOR")
        self.width = min(max(shutil.get_terminal_size((100, 24)).columns, 40), 200)

    @property
    def for_people(self) -> bool:
        return not (self.as_json or self.as_lines)

    def document(self, value: Any) -> None:
        """The one document of ``--json``."""
        click.echo(json.dumps(value, indent=2, ensure_ascii=False))

    def record(self, value: Any) -> None:
        """One line of ``--jsonl``, to be read as it comes."""
        click.echo(json.dumps(value, ensure_ascii=False))
        sys.stdout.flush()

    def line(self, text: str = "") -> None:
        """For a person."""
        if self.for_people:
            click.echo(text, color=self.colour)

    def note(self, text: str) -> None:
        """Beside the result: progress, hints. Goes to stderr, so that a pipe gets results only."""
        if self.for_people:
            click.echo(text, err=True)

    def paint(self, text: str, colour: str | None = None, **style: Any) -> str:
        """Coloured, where there are colours."""
        return click.style(text, fg=colour, **style) if self.colour else text

    def status(self, status: str) -> str:
        """A status in its colour."""
        return self.paint(status, COLOURS.get(status))

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]], last_is_long: bool = True) -> None:
        """Aligned columns. The last one is cut where the terminal ends; a pipe gets it whole."""
        listed = [[_plain(cell) for cell in row] for row in rows]
        coloured = [list(row) for row in rows] if isinstance(rows, list) else listed
        widths = [max(map(len, column), default=0) for column in zip(head, *listed, strict=True)]
        self.line(self.paint(_joined(head, head, widths), bold=True))
        for shown, plain in zip(coloured, listed, strict=True):
            self.line(self._fitted(_joined(shown, plain, widths), _joined(plain, plain, widths)))

    def _fitted(self, shown: str, plain: str) -> str:
        if not self.terminal or len(plain) <= self.width:
            return shown
        return plain[: self.width - 1] + "…"


def _plain(cell: str) -> str:
    return click.unstyle(cell)


def _joined(shown: Sequence[str], plain: Sequence[str], widths: Sequence[int]) -> str:
    cells = [text + " " * (width - len(bare)) for text, bare, width in zip(shown, plain, widths, strict=True)]
    return "  ".join(cells).rstrip()


def ago(moment: datetime, now: datetime | None = None) -> str:
    """How long ago, or how soon, in few letters.

    >>> ago(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 3, tzinfo=UTC))
    '2 d ago'
    """
    passed = (now or datetime.now(UTC)) - moment
    text = span(abs(passed))
    return "now" if text == "0 s" else f"{text} ago" if passed > timedelta() else f"in {text}"


def span(duration: timedelta) -> str:
    """A time span in its largest unit, or in two where that says more.

    >>> span(timedelta(seconds=75)), span(timedelta(milliseconds=1500)), span(timedelta(days=2, hours=3))
    ('1 min 15 s', '1.5 s', '2 d')
    """
    seconds = duration.total_seconds()
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole < 600 and whole % 60 else "")
    if whole < 86400:
        return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 >= 60 else "")
    return f"{whole // 86400} d"


def money(usd: float) -> str:
    """An amount as it is read.

    >>> money(0.5), money(0.0004), money(12)
    ('$0.50', '$0.0004', '$12.00')
    """
    return f"${usd:.2f}" if usd == 0 or usd >= 0.01 else f"${usd:.4f}"


def facts(out: Output, known: Mapping[str, object]) -> None:
    """Names and values, one a line; what is empty is left out."""
    shown = {name: value for name, value in known.items() if value not in (None, "", (), [])}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        out.line(f"{out.paint(name.ljust(width), bold=True)}  {value}")
