"""Draw the growth plots as SVG: both axes logarithmic, one line per contender, a table's worth of numbers as titles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 130, 44, 50
COLORS = {
    "raw": "#777777", "pausepoint": "#0b6e4f", "langgraph": "#c0392b", "dbos": "#2c5fa8", "burr": "#b7791f",
    "restate": "#7b3fa0",
}  # fmt: skip
DASHES = {"raw": "6 4", "dbos": "2 3", "burr": "8 3 2 3", "restate": "12 4"}

Line = Sequence[tuple[float, float]]


def draw(title: str, axis: str, unit: str, lines: Mapping[str, Line], titles: Mapping[str, str]) -> str:
    """Return an SVG picture of these lines."""
    points = [point for line in lines.values() for point in line]
    across = _Axis([x for x, _ in points], LEFT, WIDTH - RIGHT)
    up = _Axis([y for _, y in points], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="sans-serif" '
        f'font-size="12"><title>{escape(title)}</title><rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{escape(axis)}</text>',
        f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {HEIGHT / 2})">{unit}</text>',
    ]
    parts += [_across_mark(across.at(mark), _short(mark)) for mark in across.marks]
    parts += [_up_mark(up.at(mark), _short(mark)) for mark in up.marks]
    names = _spread({key: up.at(line[-1][1]) for key, line in lines.items() if line})
    for key, line in lines.items():
        if line:
            parts.append(_line(key, [(across.at(x), up.at(y), f"{_short(x)}: {y:.4g}") for x, y in line]))
            parts.append(
                f'<text x="{WIDTH - RIGHT + 12}" y="{names[key] + 4:.1f}" fill="{COLORS[key]}">{titles[key]}</text>'
            )
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Axis:
    """A logarithmic axis between two places of the picture."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self._low, self._high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        self._high = max(self._high, self._low + 1)
        self._begin, self._end = begin, end

    @property
    def marks(self) -> list[float]:
        return [10.0**power for power in range(self._low, self._high + 1)]

    def at(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._begin + share * (self._end - self._begin)


def _across_mark(x: float, text: str) -> str:
    return (
        f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#e4e4e4"/>'
        f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{text}</text>'
    )


def _up_mark(y: float, text: str) -> str:
    return (
        f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e4e4e4"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
    )


def _line(key: str, points: Sequence[tuple[float, float, str]]) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
    dash = f' stroke-dasharray="{DASHES[key]}"' if key in DASHES else ""
    width = 3 if key == "pausepoint" else 2
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLORS[key]}"><title>{text}</title></circle>'
        for x, y, text in points
    )
    return f'<polyline points="{path}" fill="none" stroke="{COLORS[key]}" stroke-width="{width}"{dash}/>{dots}'


def _spread(wanted: Mapping[str, float]) -> dict[str, float]:
    """Move the names at the ends of the lines apart, so that they can be read.

    >>> _spread({"a": 100.0, "b": 101.0, "c": 200.0})
    {'a': 100.0, 'b': 115.0, 'c': 200.0}
    """
    found: dict[str, float] = {}
    last = -math.inf
    for key, place in sorted(wanted.items(), key=lambda each: each[1]):
        last = max(place, last + 15)
        found[key] = last
    return found


def _short(value: float) -> str:
    """Write a number for a mark.

    >>> _short(0.1), _short(1000.0), _short(30_000_000)
    ('0.1', '1,000', '30 M')
    """
    return f"{value / 1e6:g} M" if value >= 1e6 else f"{value:,g}"
