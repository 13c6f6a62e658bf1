"""The pytest plugin behind ``@pytest.mark.covers("S1.21")``.

Refuses numbers that docs/acceptance.md does not list, and with ``--acceptance FILE`` writes which items had a passing
test, which had a failing one, and which have a test at all, also one that was not selected. The marks travel in the
reports, so it makes no difference whether the tests ran here or in worker processes.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tools.acceptance import read_items, write_results

PROPERTY = "covers"
MARKED = pytest.StashKey[set[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--acceptance", type=Path, metavar="FILE", help="write which acceptance items passed to FILE")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--acceptance")
    is_worker = hasattr(config, "workerinput")
    if path and not is_worker:
        config.pluginmanager.register(Recorder(path))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn a wrong mark into an error of the file (or class) that has it, like any other error of collection."""
    report = yield
    wrong = [text for node in report.result or () if isinstance(node, pytest.Item) for text in note_covers(node)]
    if wrong:
        report.outcome, report.longrepr, report.result = "failed", "\n".join(wrong), []
    return report


def note_covers(item: pytest.Item) -> list[str]:
    """Attach the item's numbers to its reports; return what is wrong with them."""
    marks = list(item.iter_markers("covers"))
    wrong = [f"{item.nodeid}: covers() takes numbers, as in covers('S1.21')" for m in marks if m.kwargs or not m.args]
    numbers = [number for mark in marks for number in mark.args]
    unknown = [number for number in numbers if number not in _known()]
    wrong += [f"{item.nodeid}: covers {number!r}, which docs/acceptance.md does not list" for number in unknown]
    if numbers and not wrong:
        item.user_properties.append((PROPERTY, numbers))
        marked(item.session).update(numbers)
    return wrong


def marked(session: pytest.Session) -> set[str]:
    """Return the numbers of all tests that this process has collected, selected or not."""
    return session.stash.setdefault(MARKED, set())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the numbers that a worker has collected to the process that records them."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[PROPERTY] = sorted(marked(session))


@cache
def _known() -> frozenset[str]:
    return frozenset(read_items())


class Recorder:
    """Collects the outcome of every covered item and writes the file at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.passed: set[str] = set()
        self.failed: set[str] = set()
        self.marked: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = [value for name, value in report.user_properties if name == PROPERTY]
        numbers = {number for value in properties if isinstance(value, list) for number in value}
        if report.failed:
            self.failed |= numbers
        # A test that passed although it was expected to fail proves nothing.
        elif report.passed and report.when == "call" and not hasattr(report, "wasxfail"):
            self.passed |= numbers

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.marked.update(getattr(node, "workeroutput", {}).get(PROPERTY, ()))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        write_results(self.path, self.passed, self.failed, self.marked | marked(session))
