"""The measured figures, and how they are printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One figure over several rounds. The median counts; lowest and highest show how much the machine varies."""

    name: str
    what: str
    unit: str
    limit: float | None
    values: tuple[float, ...]
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def value(self) -> float:
        return median(self.values)

    @property
    def passed(self) -> bool | None:
        """Whether the figure is within its limit; None if it has no limit."""
        return None if self.limit is None else self.value <= self.limit

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "what": self.what, "unit": self.unit, "limit": self.limit, "passed": self.passed,
            "value": self.value, "lowest": min(self.values), "highest": max(self.values),
            "values": list(self.values), "notes": self.notes,
        }  # fmt: skip


def to_json(figures: Sequence[Figure], facts: dict[str, Any]) -> str:
    """Return all figures as JSON."""
    return json.dumps({"facts": facts, "figures": [figure.as_json() for figure in figures]}, indent=2)


_VERDICT = {True: "ok", False: "MISSED", None: ""}


def to_table(figures: Sequence[Figure], facts: dict[str, Any]) -> str:
    """Return a table for a terminal, which is also valid Markdown."""
    head = ["figure", "measured", "limit", "", "lowest–highest", "rounds"]
    rows = [head, *[_row(figure) for figure in figures]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    lines += ["", *[f"{name}: {value}" for name, value in facts.items()]]
    lines += [line for figure in figures if (line := _notes(figure))]
    return "\n".join(lines)


def _row(figure: Figure) -> list[str]:
    limit = "" if figure.limit is None else f"≤ {figure.limit:g} {figure.unit}"
    spread = f"{_number(min(figure.values))}–{_number(max(figure.values))}"
    measured = f"{_number(figure.value)} {figure.unit}"
    return [figure.what, measured, limit, _VERDICT[figure.passed], spread, str(len(figure.values))]


def _notes(figure: Figure) -> str:
    parts = ", ".join(f"{name} {_number(value)}" for name, value in figure.notes.items())
    return f"{figure.name}: {parts}" if parts else ""


def _number(value: float) -> str:
    """Format a number with three significant digits.

    >>> _number(0.5012), _number(12.345), _number(1234.5)
    ('0.501', '12.3', '1234')
    """
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
