"""The pytest plugin behind ``--failures FILE``: which tests failed or were skipped, why, and how long each test took.

`tools.suite` reads the file to run the failed tests once more, and to name slow tests and the reasons of skipped ones.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.covers import PROPERTY

SAID = "said"
"""The name of a property with a line for the end of the run, such as a time that a test has measured."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failures", type=Path, metavar="FILE", help="write failed tests and the time of each to FILE")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--failures")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(path))


class Failures:
    """Collects the first error of each failed test and file, the reasons of skipped tests, and what tests want said."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed: dict[str, dict[str, Any]] = {}
        self.broken: dict[str, str] = {}
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.skipped: Counter[str] = Counter()
        self.said: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.broken[report.nodeid] = first_error(str(report.longrepr))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self.seconds.pop(report.nodeid, None)  # how long it takes is not known
        else:
            self.seconds[report.nodeid] += report.duration
        if report.skipped and isinstance(report.longrepr, tuple | list):  # an expected failure has another form
            self.skipped[str(report.longrepr[2]).removeprefix("Skipped: ")] += 1
        if report.when == "call":
            self.said += [str(value) for name, value in report.user_properties if name == SAID]
        if report.failed:
            numbers = [number for name, value in report.user_properties if name == PROPERTY for number in value]  # type: ignore[attr-defined]
            self.failed.setdefault(report.nodeid, {"error": first_error(str(report.longrepr)), "covers": numbers})

    def pytest_sessionfinish(self) -> None:
        facts = {
            "failed": self.failed, "broken": self.broken, "seconds": self.seconds, "skipped": self.skipped,
            "said": self.said,
        }  # fmt: skip
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")


def first_error(text: str) -> str:
    """Return the line of a failure that says what was wrong."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line[1:] for line in lines if line.startswith("E ")] or lines[-1:]
    return errors[0].strip()[:300] if errors else ""
