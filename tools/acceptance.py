"""Which items of docs/acceptance.md have a passing test.

Reads the list, reads what a test run wrote (``pytest --acceptance FILE``), prints the difference:

    python -m tools.acceptance FILE                 a report; always succeeds
    python -m tools.acceptance FILE --gate NUMBERS  fails unless all items named in the file NUMBERS are covered
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

_NUMBER = re.compile(r"S\d+\.\d+")
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


def read_items(path: Path = LIST) -> dict[str, Item]:
    """The list, in its order."""
    rows = [Item(number, title.strip(), area) for number, title, area in _ROW.findall(path.read_text("utf-8"))]
    items = {item.number: item for item in rows}
    if len(items) != len(rows):
        twice = [number for number, times in Counter(item.number for item in rows).items() if times > 1]
        raise ValueError(f"{path} lists {', '.join(twice)} more than once; every number has one row")
    return items


def write_results(path: Path, passed: Iterable[str], failed: Iterable[str]) -> None:
    path.write_text(json.dumps({"passed": sorted(passed), "failed": sorted(failed)}, indent=1) + "\n", "utf-8")


def read_results(path: Path) -> Results:
    data = json.loads(path.read_text("utf-8"))
    return Results(frozenset(data["passed"]), frozenset(data["failed"]))


def report(items: dict[str, Item], results: Results) -> str:
    """The figures by seed and by area, then what has no passing test, in as few lines as possible."""
    missing = [item for item in items.values() if item.number not in results.covered]
    lines = ["Items with a passing test", ""]
    lines += _figures(items.values(), results, sorted({item.seed for item in items.values()}), "seed")
    lines += ["", *_figures(items.values(), results, sorted({item.area for item in items.values()}), "area")]
    lines += ["", f"  {'all':13}{len(items) - len(missing):4} of {len(items)}"]
    if missing:
        lines += ["", "Without a passing test:", *_short(missing)]
    broken = [items[number] for number in sorted(results.failed & items.keys())]
    if broken:
        lines += ["", "Refuted by a failing test:", *(f"  {item.number}  {item.title}" for item in broken)]
    return "\n".join(lines)


def _figures(items: Iterable[Item], results: Results, groups: list[str], attribute: str) -> list[str]:
    total = Counter(getattr(item, attribute) for item in items)
    covered = Counter(getattr(item, attribute) for item in items if item.number in results.covered)
    return [f"  {group:13}{covered[group]:4} of {total[group]}" for group in groups]


def _short(items: list[Item]) -> list[str]:
    by_seed: dict[str, list[int]] = {}
    for item in items:
        by_seed.setdefault(item.seed, []).append(int(item.number.partition(".")[2]))
    return [f"  {seed}: {ranges(numbers)}" for seed, numbers in sorted(by_seed.items())]


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in order, neighbours joined.

    >>> ranges([3, 1, 2, 7, 9, 10])
    '1–3, 7, 9–10'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs)


def uncovered(items: dict[str, Item], results: Results, demanded: str) -> list[Item]:
    """The items named anywhere in ``demanded`` that are not covered, in the order of the list."""
    numbers = set(_NUMBER.findall(demanded))
    unknown = numbers - items.keys()
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))}: not in docs/acceptance.md; correct the gate's file")
    if not numbers:
        raise ValueError("the gate's file names no item such as S1.21, so it would let everything pass")
    return [item for item in items.values() if item.number in numbers - results.covered]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.acceptance", description="Which items have a passing test.")
    parser.add_argument("results", type=Path, help="what `pytest --acceptance FILE` wrote")
    parser.add_argument("--gate", type=Path, metavar="NUMBERS", help="fail unless all items named in this file pass")
    options = parser.parse_args(arguments)
    items, results = read_items(), read_results(options.results)
    print(report(items, results))
    if options.gate is None:
        return 0
    left = uncovered(items, results, options.gate.read_text("utf-8"))
    print(f"\nGate: {f'{len(left)} missing' if left else 'passed'}")
    print("".join(f"  {item.number}  {item.title}\n" for item in left), end="")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
