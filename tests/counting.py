"""The pytest plugin behind ``--counts FILE``: how many tests there were and how many failed, for a machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--counts", type=Path, metavar="FILE", help="write how many tests passed and failed to FILE")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--counts")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Counts(path))


class Counts:
    """Counts tests by how they ended. One that fails before or after its call has failed, and so has a broken file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ended: dict[str, str] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.ended[report.nodeid] = "failed"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.skipped:
            self.ended[report.nodeid] = report.outcome
        else:
            self.ended.setdefault(report.nodeid, "passed")

    def pytest_sessionfinish(self) -> None:
        ended = list(self.ended.values())
        counts = {f"num{kind.capitalize()}Tests": ended.count(kind) for kind in ("passed", "failed", "skipped")}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps({"numTotalTests": len(ended), **counts}) + "\n")
