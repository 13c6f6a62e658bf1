"""Run a tier of the tests, run what failed once more, and say in the last lines how it ended.

    python -m tools.suite short     the tests without the mark ``long``: `make test`, and what CI runs
    python -m tools.suite all       every test: `make test-all`

A test that fails runs a second time, alone, after all others. If it passes then, it is *unstable*: the last lines and
``build/unstable.txt`` name it with its first error. Paths and options of pytest after the tier run a part of the tests.

The exit code says what was wrong:

    20        a file of tests could not be collected
    30 + n    n tests failed twice (39: nine or more; also more than twelve failures at once, which are not repeated)
    40        more than three tests were unstable
    50        an item of docs/acceptance.md has no test, or in the tier "all" no passing one
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools import acceptance

MARKS = {"short": "not browser and not long", "all": "not browser"}

MOST_UNSTABLE = 3
MOST_REPEATED = 12
"""More failures than this are not noise."""

SLOW = 2.0
"""Seconds from which the short tier names a test in its last lines."""

COLLECTION, FAILED, UNSTABLE, ACCEPTANCE = 20, 30, 40, 50


@dataclass
class Run:
    """What one run of pytest left behind."""

    code: int
    failed: dict[str, dict[str, Any]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)


def run_pytest(arguments: Sequence[str], report: Path) -> Run:
    report.unlink(missing_ok=True)
    code = subprocess.run([sys.executable, "-m", "pytest", "-q", f"--failures={report}", *arguments]).returncode
    return Run(code, **json.loads(report.read_text("utf-8"))) if report.exists() else Run(code)


def repeat(failed: dict[str, dict[str, Any]], build: Path) -> dict[str, dict[str, Any]]:
    """Run each test in a process of its own, and return those that failed again."""
    twice = {}
    for node in failed:
        second = run_pytest(["--no-header", "--numprocesses=0", node], build / "repeated.json")
        if second.code:
            twice[node] = second.failed.get(node, {"error": f"pytest ended with exit code {second.code}", "covers": []})
    return twice


def judge(first: Run, build: Path) -> tuple[int, list[str]]:
    """Repeat what failed. Return the exit code and the last lines."""
    lines: list[str] = []
    if first.broken:
        return COLLECTION, [f"{len(first.broken)} files could not be collected:", *_named(first.broken)]
    if first.code not in (0, 1):
        return COLLECTION, [f"pytest ended with exit code {first.code} before it had run the tests."]
    if len(first.failed) > MOST_REPEATED:
        errors = {node: facts["error"] for node, facts in first.failed.items()}
        lines = [f"{len(errors)} tests failed, which is too many to run them again:", *_named(errors)]
        return FAILED + 9, lines
    if first.failed:
        print(f"\n{len(first.failed)} tests failed. Each runs once more, alone.", flush=True)
    twice = repeat(first.failed, build)
    unstable = {node: facts["error"] for node, facts in first.failed.items() if node not in twice}
    (build / "unstable.txt").write_text("".join(f"{node}\n    {error}\n" for node, error in unstable.items()), "utf-8")
    _count_second_try(build, first.failed, twice)
    if unstable:
        lines += [f"{len(unstable)} unstable tests (failed, then passed alone; mend them today):", *_named(unstable)]
    if twice:
        errors = {node: facts["error"] for node, facts in twice.items()}
        return FAILED + min(len(twice), 9), [*lines, f"{len(twice)} tests failed twice:", *_named(errors)]
    if len(unstable) > MOST_UNSTABLE:
        return UNSTABLE, [*lines, f"A run may have {MOST_UNSTABLE} unstable tests."]
    if first.code and not first.failed:
        return COLLECTION, ["pytest reported a failure without a failed test; its output above says which."]
    return 0, lines


def _count_second_try(build: Path, failed: dict[str, dict[str, Any]], twice: dict[str, dict[str, Any]]) -> None:
    """Correct the reports of the first run: a test that passed in its second try has passed."""
    counts = build / "tests.json"
    if failed and counts.exists():
        numbers = json.loads(counts.read_text("utf-8"))
        numbers["numPassedTests"] += len(failed) - len(twice)
        numbers["numFailedTests"] -= len(failed) - len(twice)
        counts.write_text(json.dumps(numbers) + "\n", "utf-8")
    proofs = build / "acceptance.json"
    if failed and proofs.exists():
        before = acceptance.read_results(proofs)
        still = {number for facts in twice.values() for number in facts["covers"]}
        mended = {number for node, facts in failed.items() if node not in twice for number in facts["covers"]}
        acceptance.write_results(proofs, before.passed | mended, still, before.marked)


def _named(errors: dict[str, str]) -> list[str]:
    return [line for node, error in errors.items() for line in (f"  {node}", f"      {error}")]


def slow_tests(seconds: dict[str, float]) -> list[str]:
    slow = sorted(((took, node) for node, took in seconds.items() if took > SLOW), reverse=True)
    title = f"{len(slow)} tests of the short tier took more than {SLOW:g} s; shorten them or mark them `long`:"
    return [title, *(f"  {took:5.1f} s  {node}" for took, node in slow)] if slow else []


def skipped_tests(reasons: dict[str, int]) -> list[str]:
    """Return why tests were skipped, and how many.

    >>> skipped_tests({"PgBouncer is not installed.": 2})
    ['2 tests were skipped:', '  2: PgBouncer is not installed.']
    """
    title = f"{sum(reasons.values())} tests were skipped:"
    return [title, *(f"  {count}: {reason}" for reason, count in reasons.items())] if reasons else []


def last_pass(*, passes: bool) -> str:
    """Say how many commits ago every test passed in this clone, and note it if they pass now."""
    folder = _git("rev-parse", "--git-common-dir")
    if folder is None:
        return "This is no clone, so nothing is noted about earlier runs of all tests."
    record = Path(folder) / "all-tests-passed"
    before = record.read_text("utf-8").strip() if record.exists() else ""
    count = _git("rev-list", "--count", f"{before}..HEAD") if before else None
    ago = "have not passed in this clone before" if count is None else f"last passed {count} commits ago ({before[:8]})"
    if passes and _git("status", "--porcelain") == "":
        record.write_text(_git("rev-parse", "HEAD") or "", "utf-8")
    return f"All tests {'pass' if passes else 'do not pass'}. They {ago}."


def _git(*words: str) -> str | None:
    """Return what git prints, or None if it fails."""
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tools.suite", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tier", choices=MARKS)
    parser.add_argument("--workers", default="2", help="how many tests run at the same time (default: 2)")
    parser.add_argument("--build", type=Path, default=Path("build"), help="the folder of the reports")
    options, rest = parser.parse_known_args(arguments)
    build: Path = options.build
    # Written with "=", because pytest would take an existing file name after a space for a test path.
    reports = [f"--junitxml={build}/tests.xml", f"--counts={build}/tests.json", f"--acceptance={build}/acceptance.json"]
    workers = [f"--numprocesses={options.workers}", "--dist=worksteal"]
    for name in ("acceptance.json", "unstable.txt", "verdict.txt"):
        (build / name).unlink(missing_ok=True)
    build.mkdir(parents=True, exist_ok=True)
    first = run_pytest([*workers, *reports, "-m", MARKS[options.tier], *rest], build / "failures.json")
    code, lines = judge(first, build)
    if options.tier == "short":
        lines = [*slow_tests(first.seconds), *lines]
    lines = [*first.said, *skipped_tests(first.skipped), *lines]
    if rest:
        lines.append("Only a part of the tests ran, so the acceptance list is not checked.")
    elif code == 0:
        standing = acceptance.judge(
            acceptance.read_items(),
            acceptance.read_later(),
            acceptance.read_results(build / "acceptance.json"),
            anywhere=options.tier == "short",
        )
        lines.append(acceptance.verdict(standing))
        code = ACCEPTANCE if standing.missing else 0
    if options.tier == "all" and not rest:
        lines.append(last_pass(passes=code == 0))
    (build / "verdict.txt").write_text("\n".join(lines) + "\n", "utf-8")
    print("", *lines, sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
