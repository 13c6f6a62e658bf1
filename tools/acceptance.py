"""Check docs/acceptance.md: every item has a passing test, or the page says why the item is postponed.

The script reads the list and the results of a test run (``pytest --acceptance FILE``). It fails if an item has no
passing test. `tools.suite` uses it for both tiers of the tests: in the short one, an item needs a test in either tier.

    python -m tools.acceptance FILE            print one line, or the items without a passing test
    python -m tools.acceptance FILE --report   print the figures by seed and area as well
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
    """The results of a test run: the items with a passing test, with a failing one, and with a test in any tier."""

    passed: frozenset[str]
    failed: frozenset[str]
    marked: frozenset[str] = frozenset()

    @property
    def covered(self) -> frozenset[str]:
        """The items with a passing test and no failing one."""
        return self.passed - self.failed


@dataclass(frozen=True)
class Standing:
    """The items in three groups: shown by a test, postponed, and neither."""

    shown: list[Item]
    later: list[Item]
    missing: list[Item]
    kind: str = "a passing test"


def read_items(path: Path = LIST) -> dict[str, Item]:
    """Return the items of the list, in order."""
    rows = [Item(number, title.strip(), area) for number, title, area in _ROW.findall(path.read_text("utf-8"))]
    items = {item.number: item for item in rows}
    if len(items) != len(rows):
        twice = [number for number, times in Counter(item.number for item in rows).items() if times > 1]
        raise ValueError(f"{path} lists {', '.join(twice)} more than once. Keep one row for each number.")
    return items


def read_later(path: Path = LIST) -> frozenset[str]:
    """Return the numbers of the items that the page postpones. Each needs a reason on the page."""
    reasons: dict[str, str] = dict(_LATER.findall(path.read_text("utf-8")))
    unknown = sorted(reasons.keys() - read_items(path).keys())
    if unknown:
        raise ValueError(f"{path} postpones {', '.join(unknown)}, which is not in the list. Correct the number.")
    silent = sorted(number for number, reason in reasons.items() if not reason.strip())
    if silent:
        raise ValueError(f"{path} postpones {', '.join(silent)} without a reason. Say what it needs.")
    return frozenset(reasons)


def write_results(path: Path, passed: Iterable[str], failed: Iterable[str], marked: Iterable[str] = ()) -> None:
    results = {"passed": sorted(passed), "failed": sorted(failed), "marked": sorted(marked)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


def read_results(path: Path) -> Results:
    if not path.exists():
        raise SystemExit(f"{path} does not exist: the test run ended before it wrote its results. Run the tests again.")
    data = json.loads(path.read_text("utf-8"))
    return Results(frozenset(data["passed"]), frozenset(data["failed"]), frozenset(data["marked"]))


def judge(items: dict[str, Item], later: frozenset[str], results: Results, *, anywhere: bool = False) -> Standing:
    """Sort the items into groups. A postponed item does not count as shown, even if a test covers part of it.

    With ``anywhere``, a test that did not run because it belongs to another tier counts, too.
    """
    now = [item for item in items.values() if item.number not in later]
    covered = (results.covered | results.marked) - results.failed if anywhere else results.covered
    return Standing(
        shown=[item for item in now if item.number in covered],
        later=[item for item in items.values() if item.number in later],
        missing=[item for item in now if item.number not in covered],
        kind="a test" if anywhere else "a passing test",
    )


def report(items: dict[str, Item], standing: Standing, results: Results) -> str:
    """Return the figures by seed and by area, then the items with a failing test."""
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
    """Return one line if every item is covered; otherwise also the missing items and what to do."""
    total = len(standing.shown) + len(standing.later) + len(standing.missing)
    numbers = ", ".join(item.number for item in standing.later) or "none"
    line = f"Acceptance: {len(standing.shown)} of {total} items have {standing.kind}. Postponed: {numbers}."
    if not standing.missing:
        return line
    todo = "Mark the test that proves it with @pytest.mark.covers, write one, or postpone it in docs/acceptance.md."
    return "\n".join([line, f"Without {standing.kind}:", *_named(standing.missing), todo])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tools.acceptance", description="Fail if an item of docs/acceptance.md has no passing test."
    )
    parser.add_argument("results", type=Path, help="the file that `pytest --acceptance FILE` wrote")
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
