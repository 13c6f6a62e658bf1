"""What terminals show over time: frames, from the screens that tmux captures to a file of asciinema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

SGR = re.compile(r"\x1b\[([\d;]*)m")
COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")

Row = tuple["Run", ...]
"""One line of a terminal."""

Screen = tuple[Row, ...]
"""What one terminal shows."""


@dataclass(frozen=True)
class Style:
    """How a text looks. The colour is that of the terminal if it is empty."""

    colour: str = ""
    bold: bool = False
    dim: bool = False
    reverse: bool = False

    def changed(self, codes: Sequence[int]) -> Style:
        """Return the style after a change by escape codes. Unknown ones change nothing."""
        found = self
        for code in codes:
            match code:
                case 0:
                    found = Style()
                case 1:
                    found = replace(found, bold=True)
                case 2:
                    found = replace(found, dim=True)
                case 7 | 27:
                    found = replace(found, reverse=code == 7)
                case 22:
                    found = replace(found, bold=False, dim=False)
                case 39:
                    found = replace(found, colour="")
                case _ if 30 <= code <= 37 or 90 <= code <= 97:
                    found = replace(found, colour=COLOURS[code % 10])
        return found

    def codes(self) -> str:
        """Return the escape codes that make a text look like this."""
        flags = [text for text, is_on in (("1", self.bold), ("2", self.dim), ("7", self.reverse)) if is_on]
        colour = [str(30 + COLOURS.index(self.colour))] if self.colour else []
        return f"\x1b[{';'.join(['0', *flags, *colour])}m"


@dataclass(frozen=True)
class Run:
    """Some characters of a line that look alike."""

    text: str
    style: Style = Style()


def read_screen(text: str) -> Screen:
    """Return what `tmux capture-pane -e` has printed. A style lasts until it is changed, also on the next line.

    >>> [[(run.text, run.style.colour) for run in row] for row in read_screen("a \\x1b[32mb\\nc\\x1b[0m")]
    [[('a ', ''), ('b', 'green')], [('c', 'green')]]
    """
    style, rows = Style(), list[Row]()
    for line in text.split("\n"):
        runs, parts = list[Run](), SGR.split(line)
        for number, part in enumerate(parts):
            if number % 2:
                style = style.changed([int(code or 0) for code in part.split(";")])
            elif part:
                runs.append(Run(part, style))
        rows.append(tuple(runs))
    return tuple(rows)


def plain(screen: Screen) -> str:
    """Return the text of a screen."""
    return "\n".join("".join(run.text for run in row) for row in screen)


@dataclass(frozen=True)
class Pane:
    """A terminal and its place: columns and rows from the upper left corner of the whole."""

    name: str
    left: int
    top: int
    width: int
    height: int


@dataclass(frozen=True)
class Frame:
    """What all terminals show from a moment on, in seconds. The cursor is that of the last pane."""

    at: float
    screens: Mapping[str, Screen]
    cursor: tuple[int, int] = (0, 0)


@dataclass
class Film:
    """Frames in the order of their time. ``marks`` are the moments at which something began; ``ends`` is the last."""

    panes: Sequence[Pane]
    frames: list[Frame] = field(default_factory=list)
    marks: dict[str, float] = field(default_factory=dict)
    ends: float = 0.0

    def add(self, frame: Frame) -> None:
        """Add a frame. One that shows the same as the last one only makes the film longer."""
        self.ends = frame.at
        if not self.frames or (self.frames[-1].screens, self.frames[-1].cursor) != (frame.screens, frame.cursor):
            self.frames.append(frame)

    def trimmed(self, longest: Mapping[str, float]) -> Film:
        """Return the film from its first mark on, with each part sped up to last no longer than given.

        A part lasts from its mark to the next one.
        """
        parts = sorted(self.marks.items(), key=lambda mark: mark[1])
        ends = [begins for _, begins in parts[1:]] + [self.ends]
        found = Film(self.panes, [replace(self.at(parts[0][1]), at=0.0)])
        start = 0.0
        for (name, begins), end in zip(parts, ends, strict=True):
            pace = min(1.0, longest[name] / (end - begins)) if end > begins else 1.0
            found.marks[name] = start
            for frame in self.frames:
                if begins < frame.at <= end:
                    found.frames.append(replace(frame, at=start + (frame.at - begins) * pace))
            start += (end - begins) * pace
        found.ends = start
        return found

    def at(self, moment: float) -> Frame:
        """Return what is shown at a moment."""
        return [frame for frame in self.frames if frame.at <= moment][-1]


def asciicast(film: Film, title: str) -> str:
    """Return the film as an asciicast, version 2. A frame repaints the lines that it changes."""
    width = max(pane.left + pane.width for pane in film.panes)
    height = max(pane.top + pane.height for pane in film.panes)
    lines = [json.dumps({"version": 2, "width": width, "height": height, "title": title})]
    shown: list[str] = [""] * height
    for frame in film.frames:
        wanted = [_line(film.panes, frame, number, width) for number in range(height)]
        changed = [
            f"\x1b[{n + 1};1H{new}" for n, (new, old) in enumerate(zip(wanted, shown, strict=True)) if new != old
        ]
        column, row = frame.cursor
        changed.append(f"\x1b[{film.panes[-1].top + row + 1};{film.panes[-1].left + column + 1}H")
        lines.append(json.dumps([round(frame.at, 3), "o", "".join(changed)], ensure_ascii=False))
        shown = wanted
    lines.append(json.dumps([round(film.ends, 3), "o", ""]))
    return "\n".join(lines) + "\n"


def _line(panes: Sequence[Pane], frame: Frame, number: int, width: int) -> str:
    """Return one line across all panes. The line above a pane has its name."""
    return "".join(_parts(panes, frame, number, width)) + "\x1b[0m"


def _parts(panes: Sequence[Pane], frame: Frame, number: int, width: int) -> Iterator[str]:
    for pane in sorted(panes, key=lambda pane: pane.left):
        if pane.top - 1 == number:
            yield Style(dim=True).codes() + f"─ {pane.name} ".ljust(pane.width, "─")
        elif pane.top <= number < pane.top + pane.height:
            rows = frame.screens[pane.name]
            row = rows[number - pane.top] if number - pane.top < len(rows) else ()
            yield from (run.style.codes() + run.text for run in row)
            yield Style().codes() + " " * (pane.width - sum(len(run.text) for run in row))
        else:
            continue
        if pane.left + pane.width < width:
            yield Style(dim=True).codes() + "│"
