"""A film of terminals as one animated SVG: no script, no font and no picture from elsewhere, in light and in dark.

Each line of a terminal is drawn once for each time in which it is shown, and CSS shows and hides it. Without
animations, as for people who ask for less motion, the picture is still: it shows a chosen moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from tests.gate.film import COLOURS, Film, Pane, Row, Run

FONT, CHARACTER, LINE = 13, 7.8, 17
"""The height of the font, the width of a character and the height of a line, in pixels."""

GAP, BAR, EDGE = 8, 22, 8
"""Pixels between windows, of a title bar, and between a window and its text."""

PALETTES = {
    "light": {
        "page": "#e8ebef", "window": "#ffffff", "edge": "#c2c8d0", "bar": "#f3f4f6", "text": "#24292f",
        "dim": "#5d6570", "red": "#b42318", "green": "#116329", "yellow": "#7d4e00", "blue": "#0550ae",
        "magenta": "#7a3fc4", "cyan": "#05606b", "mark": "#ffd866", "ink": "#24292f",
    },
    "dark": {
        "page": "#0d1117", "window": "#161b22", "edge": "#3d444d", "bar": "#262c36", "text": "#e6edf3",
        "dim": "#98a2ad", "red": "#ff7b72", "green": "#56d364", "yellow": "#e3b341", "blue": "#79c0ff",
        "magenta": "#d2a8ff", "cyan": "#56d4dd", "mark": "#e3b341", "ink": "#0d1117",
    },
}  # fmt: skip

INKS = ("text", "dim", "ink", *(name for name in COLOURS if name in PALETTES["light"]))
FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"

WORDS = re.compile(r"(?: ?[!-~])+|[^ -~]")
"""Words with single spaces between them, or one unusual character, whose width another font decides."""


class Box(NamedTuple):
    """The place of a window, in pixels."""

    x: float
    y: float
    width: float
    height: float


class Shown(NamedTuple):
    """A line of a terminal, and the time in which it is shown."""

    number: int
    begins: float
    ends: float
    row: Row
    cursor: int | None


def animated_svg(film: Film, still_at: float, words: str) -> str:
    """Return the picture. ``words`` describe it for people who do not see it."""
    return "".join(_Drawing(film, still_at).parts(words))


class _Drawing:
    """``times`` has the name of the animation for each time in which something is shown."""

    def __init__(self, film: Film, still_at: float) -> None:
        self.film = film
        self.still_at = still_at
        self.times: dict[tuple[float, float], str] = {}

    def parts(self, words: str) -> Iterator[str]:
        boxes = _boxes(self.film.panes)
        body = "".join(self._window(pane, box) for pane, box in zip(self.film.panes, boxes, strict=True))
        width = round(max(box.x + box.width for box in boxes) + GAP)
        height = round(max(box.y + box.height for box in boxes) + GAP)
        yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        yield f' viewBox="0 0 {width} {height}" role="img">\n<title>{escape(words)}</title>\n<style>\n'
        yield from self._styles()
        yield f'</style>\n<rect class="page" width="{width}" height="{height}" rx="8"/>\n{body}</svg>\n'

    def _styles(self) -> Iterator[str]:
        """Yield the colours of both looks, and when each line is shown."""
        light, dark = ("".join(f"--{name}:{colour};" for name, colour in each.items()) for each in PALETTES.values())
        yield f"svg{{{light}}}\n@media(prefers-color-scheme:dark){{svg{{{dark}}}}}\n"
        yield f"text{{font:{FONT}px {FONTS};fill:var(--text);white-space:pre}}"
        yield ".title,.bold{font-weight:700}.page{fill:var(--page)}.window{fill:var(--window);stroke:var(--edge)}"
        yield ".bar{fill:var(--bar);stroke:var(--edge)}.mark{fill:var(--mark)}.cursor{fill:var(--dim)}"
        yield "".join(f".{name}{{fill:var(--{name})}}" for name in INKS)
        yield f"\n.t{{visibility:hidden;animation:{self.film.ends:.2f}s step-end infinite}}"
        yield ".still{visibility:visible}\n"
        for (begins, ends), name in self.times.items():
            yield f".{name}{{animation-name:{name}}}@keyframes {name}{{{self._keyframes(begins, ends)}}}\n"
        yield "@media(prefers-reduced-motion:reduce){.t{animation:none}}\n"

    def _keyframes(self, begins: float, ends: float) -> str:
        first, last = (f"{100 * moment / self.film.ends:.2f}%" for moment in (begins, ends))
        before = "0%{visibility:hidden}" if begins > 0 else ""
        after = f"{last}{{visibility:hidden}}" if ends < self.film.ends else ""
        return f"{before}{first}{{visibility:visible}}{after}100%{{visibility:{'hidden' if after else 'visible'}}}"

    def _window(self, pane: Pane, box: Box) -> str:
        frame = f'<rect class="window" width="{box.width:g}" height="{box.height:g}" rx="6"/>'
        bar = f'<path class="bar" d="M0 {BAR}V6a6 6 0 0 1 6-6H{box.width - 6:g}a6 6 0 0 1 6 6V{BAR}z"/>'
        title = f'<text class="title" x="{EDGE}" y="{BAR - 7}">{escape(pane.name)}</text>'
        lines = "".join(map(self._line, _lines(self.film, pane)))
        return f'<g transform="translate({box.x:g} {box.y:g})">{frame}{bar}{title}\n{lines}</g>\n'

    def _line(self, shown: Shown) -> str:
        drawn = "".join(_drawn(shown))
        if (shown.begins, shown.ends) == (0.0, self.film.ends):
            return f"{drawn}\n"
        name = self.times.setdefault((shown.begins, shown.ends), f"t{len(self.times)}")
        still = " still" if shown.begins <= self.still_at < shown.ends else ""
        return f'<g class="t {name}{still}">{drawn}</g>\n'


def _boxes(panes: Sequence[Pane]) -> list[Box]:
    """Return the places of the windows. The last one is as wide as all others together."""
    lefts, tops = sorted({pane.left for pane in panes}), sorted({pane.top for pane in panes})
    found = []
    for pane in panes:
        column, row = lefts.index(pane.left), tops.index(pane.top)
        x = GAP + column * (2 * EDGE + GAP) + (pane.left - column) * CHARACTER
        y = GAP + row * (BAR + 2 * EDGE + GAP) + (pane.top - row - 1) * LINE
        found.append(Box(x, y, pane.width * CHARACTER + 2 * EDGE, pane.height * LINE + BAR + 2 * EDGE))
    return [*found[:-1], found[-1]._replace(width=max(box.x + box.width for box in found) - GAP)]


def _lines(film: Film, pane: Pane) -> Iterator[Shown]:
    """Yield the lines of a terminal, each with the time in which it is the same."""
    for number in range(pane.height):
        last: Shown | None = None
        for frame in film.frames:
            rows = frame.screens[pane.name]
            row = rows[number] if number < len(rows) else ()
            cursor = frame.cursor[0] if pane == film.panes[-1] and frame.cursor[1] == number else None
            if last is not None and (last.row, last.cursor) == (row, cursor):
                continue
            if last is not None and (last.row or last.cursor is not None):
                yield last._replace(ends=frame.at)
            last = Shown(number, frame.at, film.ends, row, cursor)
        if last is not None and (last.row or last.cursor is not None):
            yield last


def _drawn(shown: Shown) -> Iterator[str]:
    top, column = BAR + EDGE + shown.number * LINE, 0
    if shown.cursor is not None:
        x = EDGE + shown.cursor * CHARACTER
        yield f'<rect class="cursor" x="{x:g}" y="{top}" width="{CHARACTER}" height="{LINE}"/>'
    for run in shown.row:
        x = EDGE + column * CHARACTER
        if run.style.reverse:
            yield f'<rect class="mark" x="{x:g}" y="{top}" width="{len(run.text) * CHARACTER:g}" height="{LINE}"/>'
        yield from _words(run, x, top + LINE - 4)
        column += len(run.text)


def _words(run: Run, x: float, y: int) -> Iterator[str]:
    """Yield the words of a run. Their place and length are fixed, so that columns are straight with any font."""
    ink = "ink" if run.style.reverse else run.style.colour or ("dim" if run.style.dim else "")
    names = " ".join(filter(None, (ink if ink in INKS else "", "bold" if run.style.bold else "")))
    attributes = f' class="{names}"' if names else ""
    for found in WORDS.finditer(run.text):
        text = found[0].lstrip(" ")
        place = x + (found.end() - len(text)) * CHARACTER
        length = f' textLength="{len(text) * CHARACTER:g}"' if len(text) > 1 else ""
        yield f'<text x="{place:g}" y="{y}"{length}{attributes}>{escape(text, quote=False)}</text>'
