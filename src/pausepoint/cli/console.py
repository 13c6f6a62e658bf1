"""Output: one JSON document, lines of JSON, or text for a person (with colour on a terminal)."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import zip_longest
from typing import IO, Any

import click

from pausepoint.cli.host import host

COLOURS = {
    "running": "green", "completed": "green", "ready": "cyan", "created": "cyan", "pausing": "yellow",
    "paused": "yellow", "waiting": "yellow", "sleeping": "blue", "failed": "red", "cancelled": "red",
}  # fmt: skip


reserved: IO[str] | None = None
"""The stream for JSON after `reserve_stdout`."""


def reserve_stdout() -> None:
    """Reserve stdout for JSON: whatever workflows and their subprocesses print goes to stderr from now on."""
    global reserved
    sys.stdout.flush()
    reserved = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)


class Output:
    """The output of a command. With ``--json`` or ``--jsonl`` nothing but JSON goes to stdout."""

    def __init__(self, as_json: bool = False, as_lines: bool = False, shows_steps: bool = True) -> None:
        self.as_json = as_json
        self.as_lines = as_lines
        self.shows_steps = shows_steps
        self.terminal = sys.stdout.isatty()
        self.colour = self.terminal and not os.environ.get("NO_COLOR")

    @cached_property
    def width(self) -> int:
        return terminal_width()

    @property
    def for_people(self) -> bool:
        return not (self.as_json or self.as_lines)

    def document(self, value: Any) -> None:
        """Print the one document of ``--json``."""
        click.echo(to_json(value, indent=2), file=reserved)

    def record(self, value: Any) -> None:
        """Print one line of ``--jsonl``."""
        click.echo(to_json(value), file=reserved)

    def line(self, text: str = "") -> None:
        """Print a line for a person."""
        if self.for_people:
            click.echo(text, color=self.colour)

    def say(self, text: str, indent: int = 0) -> None:
        """Print sentences for a person, wrapped at the width of the terminal."""
        self.line(wrapped(text, self.width, indent) if self.terminal else text)

    def note(self, text: str, as_it_is: bool = False) -> None:
        """Print progress or a hint on stderr, so that a pipe gets results only."""
        if self.for_people:
            click.echo(wrapped(text, self.width) if sys.stderr.isatty() and not as_it_is else text, err=True)

    def paint(self, text: str, colour: str | None = None, **style: Any) -> str:
        """Return the text in colour if the terminal has colours."""
        return click.style(text, fg=colour, **style) if self.colour else text

    def status(self, status: str) -> str:
        """Return a status in its colour."""
        return self.paint(status, COLOURS.get(status))

    def status_phrase(self, status: str) -> str:
        """Return a status as the end of a sentence: ``is paused``, ``has failed``."""
        return f"{'has' if status in ('failed', 'completed') else 'is'} {self.status(status)}"

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]], below: Sequence[str] = ()) -> None:
        """Print aligned columns. Lines are cut at the width of a terminal; a pipe gets them whole.

        ``below`` has a text for each row, which is printed under it as a whole unless it is empty.
        """
        listed = [list(row) for row in rows]
        widths = [max(map(columns, column), default=0) for column in zip(head, *listed, strict=True)]
        self.line(self.fitted(self.paint(_joined(head, widths), bold=True)))
        for row, text in zip_longest(listed, below, fillvalue=""):
            self.line(self.fitted(_joined(row, widths)))
            if text:
                self.line(wrapped(f"    {text}", self.width, 4))

    def fitted(self, text: str) -> str:
        """Return the text cut at the width of the terminal, with its colours. A pipe gets it whole."""
        if not self.terminal or columns(text) <= self.width:
            return text
        room, kept = self.width - 1, ""
        for part in _STYLED.split(text):
            if not part.startswith("\x1b"):
                part = cut(part, room)
                room -= columns(part)
            kept += part
        return kept + "…"


def to_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON. Characters that a terminal would obey instead of showing them are escaped.

    >>> print(to_json("Größe \\u202e \\x9b"))
    "Größe \\u202e \\u009b"
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=_builtins)
    return text if text.isascii() and "\x7f" not in text else _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _builtins(document: Any) -> Any:
    from msgspec import to_builtins  # the text of a help needs no msgspec

    return to_builtins(document)


_OBEYED = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]")
"""DEL, C1 controls, marks of writing direction, other invisible marks, line separators and lone surrogates."""

_STYLED = re.compile(r"(\x1b\[[0-9;]*m)")


def terminal_width() -> int:
    """Return the number of columns of the terminal, between 40 and 200."""
    import shutil  # it loads five compression modules, which most commands do not need

    return min(max(shutil.get_terminal_size((100, 24)).columns, 40), 200)


def wrapped(text: str, width: int, indent: int = 0) -> str:
    """Wrap text at ``width`` columns. Commands are never broken, so that people can copy them.

    >>> print(wrapped("It is paused. Resume it: `pausepoint resume abc --store x.db`, or cancel it.", 30))
    It is paused. Resume it:
    `pausepoint resume abc --store x.db`,
    or cancel it.
    >>> print(wrapped("Resume:  /opt/venv/bin/python -m shop resume abc", 30))
    Resume:
    /opt/venv/bin/python -m shop resume abc
    """
    import textwrap

    command = re.compile(rf"{re.escape(' '.join(host().words))}(?: [^\s;,`]+)+")
    text = command.sub(lambda found: found[0].replace(" ", "\0"), text)
    text = re.sub(r"(:  +)(\S.*)", lambda found: found[1] + found[2].replace(" ", "\0"), text)  # after its label
    lines = text.splitlines() or [""]
    wrapper = textwrap.TextWrapper(
        width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )
    return "\n".join(map(wrapper.fill, lines)).replace("\0", " ")


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes.

    >>> columns("abc"), columns("日本"), columns(click.style("abc", fg="red"))
    (3, 4, 3)
    """
    bare = click.unstyle(text)
    return len(bare) if bare.isascii() else sum(_columns(char) for char in bare)


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, room: int) -> str:
    """Return the beginning of a text that takes at most ``room`` columns.

    >>> cut("abc", 2), cut("日本", 3)
    ('ab', '日')
    """
    for index, char in enumerate(text):
        room -= _columns(char)
        if room < 0:
            return text[:index]
    return text


def _joined(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [text + " " * (width - columns(text)) for text, width in zip(cells, widths, strict=True)]
    return "  ".join(padded).rstrip()


def ago(moment: datetime, now: datetime | None = None) -> str:
    """Return how long ago a moment was, or how soon it is.

    >>> now = datetime(2024, 1, 3, tzinfo=UTC)
    >>> [ago(now - timedelta(seconds=each), now) for each in (0.3, 7.8, 418, 90000, -4000)]
    ['now', '7 s ago', '6 min ago', '1 d ago', 'in 1 h 6 min']
    """
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    if seconds < 0:
        return f"in {span(timedelta(seconds=-seconds))}"
    units = {"d": 86400, "h": 3600, "min": 60, "s": 1}
    unit, size = next((unit, size) for unit, size in units.items() if seconds >= size)
    return f"{int(seconds // size)} {unit} ago"


def span(duration: timedelta) -> str:
    """Return a duration as text, in its largest unit or its two largest.

    >>> span(timedelta(seconds=75)), span(timedelta(milliseconds=1500)), span(timedelta(days=2, hours=3))
    ('1 min 15 s', '1.5 s', '2 d')
    >>> span(timedelta(milliseconds=40)), span(timedelta(microseconds=40))
    ('40 ms', '< 1 ms')
    """
    seconds = duration.total_seconds()
    if 0 < seconds < 0.0005:
        return "< 1 ms"
    if 0.0005 <= seconds < 0.95:
        return f"{seconds * 1000:.0f} ms"
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
    """Return an amount in dollars as text.

    >>> money(0.5), money(0.0004), money(12)
    ('$0.50', '$0.0004', '$12.00')
    """
    return f"${usd:.2f}" if usd == 0 or usd >= 0.01 else f"${usd:.4f}"


def saving(duration: timedelta, usd: float) -> str:
    """Return the time and money that a resume has saved, as text. Less than a second is not worth a line.

    >>> saving(timedelta(seconds=75), 0.5), saving(timedelta(milliseconds=4), 0.5), saving(timedelta(milliseconds=4), 0)
    ('1 min 15 s and $0.50', '$0.50', '')
    """
    parts = [span(duration)] * (duration >= timedelta(seconds=1)) + [money(usd)] * bool(usd)
    return " and ".join(parts)


def facts(out: Output, known: Mapping[str, object]) -> None:
    """Print names and values, one per line, without the empty ones."""
    shown = {name: value for name, value in known.items() if value not in (None, "", (), [])}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        out.line(f"{out.paint(name.ljust(width), bold=True)}  {value}")
