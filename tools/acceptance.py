"""The gate of docs/acceptance.md: every item has a passing test, or the page says which later part it waits for.

Reads the list, reads what a run of all tests wrote (``pytest --acceptance FILE``), and fails if an item is left over:

    python -m tools.acceptance FILE            one line, or the items without a passing test
    python -m tools.acceptance FILE --report   the figures by seed and area as well
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).resolve().parents[1] / "docs" / "acceptance.md"

_LATER = re.compile(r"^- \*\*(S\d+\.\d+)\*\*(.*)$", re.MULTILINE)
_ROW = re.compile(r"^\| (S\d+\.\d+) \| ([^|]+) \| ([a-z-]+) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Item:
    """One row of the list."""

    number: str
    title: str
    area: str

    @property
    def seed(self) -> str:
        return self.number.partition(".")[0]


@dataclass(frozen=True)
class Results:
    """What a test run found out: the items with a passing test, and those with a failing one."""

    passed: frozenset[str]
    failed: frozenset[str]

    @property
    def covered(self) -> frozenset[str]:
        """An item that one test shows and another refutes is not covered."""
        return self.passed - self.failed


@dataclass(frozen=True)
class Standing:
    """The items in three heaps: shown by a test, waiting for a later part, and neither."""

    shown: list[Item]
    later: list[Item]
    missing: list[Item]


def read_items(path: Path = LIST) -> dict[str, Item]:
    """The list, in its order."""
    rows = [Item(number, title.strip(), area) for number, title, area in _ROW.findall(path.read_text("utf-8"))]
    items = {item.number: item for item in rows}
    if len(items) != len(rows):
        twice = [number for number, times in Counter(item.number for item in rows).items() if times > 1]
        raise ValueError(f"{path} lists {', '.join(twice)} more than once; every number has one row")
    return items


def read_later(path: Path = LIST) -> frozenset[str]:
    """The items that the page says wait for a later part. It has to say why."""
    reasons: dict[str, str] = dict(_LATER.findall(path.read_text("utf-8")))
    unknown = sorted(reasons.keys() - read_items(path).keys())
    if unknown:
        raise ValueError(f"{path} lets {', '.join(unknown)} wait, which it does not list; correct the number")
    silent = sorted(number for number, reason in reasons.items() if not reason.strip())
    if silent:
        raise ValueError(f"{path} lets {', '.join(silent)} wait without a reason; say what it needs")
    return frozenset(reasons)


def write_results(path: Path, passed: Iterable[str], failed: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"passed": sorted(passed), "failed": sorted(failed)}, indent=1) + "\n", "utf-8")


def read_results(path: Path) -> Results:
    if not path.exists():
        raise SystemExit(f"{path} is not there: the test run ended before it could say which items passed")
    data = json.loads(path.read_text("utf-8"))
    return Results(frozenset(data["passed"]), frozenset(data["failed"]))


def judge(items: dict[str, Item], later: frozenset[str], results: Results) -> Standing:
    """An item that waits for a later part is not counted as shown, even if a test shows some of it."""
    now = [item for item in items.values() if item.number not in later]
    return Standing(
        shown=[item for item in now if item.number in results.covered],
        later=[item for item in items.values() if item.number in later],
        missing=[item for item in now if item.number not in results.covered],
    )


def report(items: dict[str, Item], standing: Standing, results: Results) -> str:
    """The figures by seed and by area, then what a failing test speaks against."""
    lines = ["Items with a passing test", "", *_figures(items.values(), standing, "seed")]
    lines += ["", *_figures(items.values(), standing, "area")]
    broken = [item for item in items.values() if item.number in results.failed]
    if broken:
        lines += ["", "Refuted by a failing test:", *_named(broken)]
    return "\n".join(lines)


def _figures(items: Iterable[Item], standing: Standing, attribute: str) -> list[str]:
    total = Counter(getattr(item, attribute) for item in items)
    shown = Counter(getattr(item, attribute) for item in standing.shown)
    return [f"  {group:13}{shown[group]:4} of {total[group]}" for group in sorted(total)]


def _named(items: Iterable[Item]) -> list[str]:
    return [f"  {item.number}  {item.title}" for item in items]


def verdict(standing: Standing) -> str:
    """One line if the gate is passed; else what is missing, and what to do about it."""
    total = len(standing.shown) + len(standing.later) + len(standing.missing)
    numbers = ", ".join(item.number for item in standing.later) or "none"
    line = f"Acceptance: {len(standing.shown)} of {total} items have a passing test; for a later part wait: {numbers}."
    if not standing.missing:
        return line
    todo = (
        "Mark the test that proves it with @pytest.mark.covers, write one, or say in docs/acceptance.md what it needs."
    )
    return "\n".join([line, "Without a passing test:", *_named(standing.missing), todo])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.acceptance", description="Fail if an item has no passing test.")
    parser.add_argument("results", type=Path, help="what `pytest --acceptance FILE` wrote")
    parser.add_argument("--report", action="store_true", help="print the figures by seed and area as well")
    options = parser.parse_args(arguments)
    items, results = read_items(), read_results(options.results)
    standing = judge(items, read_later(), results)
    if options.report:
        print(report(items, standing, results), end="\n\n")
    print(verdict(standing))
    return 1 if standing.missing else 0


if __name__ == "__main__":
    sys.exit(main())
