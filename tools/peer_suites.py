"""Run the tests of other projects with our adapters in the place of their own parts: ``make peers``.

The sources come as sdists by name from the package index, into build/peers, together with a virtual environment for
what these tests need. A suite fails if fewer tests pass than must. Tests that assert an order of parallel work may fail
by chance; they are run up to three times.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "build" / "peers"
ENVIRONMENT = PEERS / "suites"
PYTHON = ENVIRONMENT / "bin" / "python"
TRIES = 3


class Suite(NamedTuple):
    """The tests of a project.

    ``packages`` are what they need, ``arguments`` those of pytest. At least ``least`` tests must pass. ``unordered``
    are the names of tests that may fail by chance.
    """

    project: str
    version: str
    packages: tuple[str, ...]
    arguments: tuple[str, ...]
    least: int
    unordered: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> Path:
        """The unpacked sources."""
        return PEERS / f"{self.project}-{self.version}"


SUITES = {
    "langgraph": Suite(
        "langgraph",
        "1.2.22",
        (
            "langgraph==1.2.22", "langgraph-checkpoint==4.3.2", "langgraph-checkpoint-sqlite==3.1.2",
            "langgraph-checkpoint-postgres==3.2.0", "psycopg[binary]==3.3.8", "psycopg-pool==3.3.3", "redis==8.1.0",
            "pycryptodome==4.4.0", "httpx==0.28.1", "pytest-mock==3.17.0", "pytest-repeat==0.9.4", "syrupy==7.0.0",
        ),
        (
            "tests", "--timeout=120", "-p", "saver_plugin", "-p", "memory_only", "--ignore",
            "tests/test_delta_channel_benchmark.py",
        ),
        least=648,
        unordered=("test_imp_nested", "test_stream_subgraphs_during_execution"),
        variables=(("NO_DOCKER", "true"),),  # the clients of Postgres and Redis are imported, and no server is needed
    ),
    "openai-agents": Suite(
        "openai_agents",
        "0.24.0",
        ("openai-agents==0.24.0", "pytest-asyncio==1.5.0", "inline-snapshot==0.36.1"),
        (
            "tests/memory/test_session.py", "tests/memory/test_session_limit.py", "-p", "session_plugin", "-o",
            "asyncio_mode=auto",
        ),
        least=53,  # of 71: the others test the tables and connections of SQLiteSession
    ),
}  # fmt: skip

COMMON = ("hatchling==1.33.0", "pytest==9.1.1", "pytest-timeout==2.4.0")


def fetch(suite: Suite) -> None:
    """Download and unpack the sources, and install what the tests need."""
    if not PYTHON.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    _pip("install", "--editable", str(ROOT), *COMMON, *suite.packages)
    if suite.folder.exists():
        return
    name = f"{suite.project}=={suite.version}"
    _pip("download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(PEERS), name)
    with tarfile.open(PEERS / f"{suite.folder.name}.tar.gz") as archive:
        archive.extractall(PEERS, filter="data")


def _pip(*words: str) -> None:
    subprocess.run([PYTHON, "-m", "pip", "--quiet", "--disable-pip-version-check", *words], check=True)


class Ran(NamedTuple):
    """What a run of pytest found: the names of the tests that passed, and of those that did not."""

    passed: tuple[str, ...]
    failed: tuple[str, ...]


def run(suite: Suite, *more: str) -> Ran:
    """Run the tests."""
    report = PEERS / f"{suite.project}.xml"
    report.unlink(missing_ok=True)
    variables = os.environ | dict(suite.variables) | {"PYTHONPATH": str(ROOT / "tests" / "peers")}
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", f"--junitxml={report}"]
    command: list[str | Path] = [PYTHON, "-m", "pytest", *options, *suite.arguments, *more]
    subprocess.run(command, cwd=suite.folder, env=variables, check=False)  # the report says what failed
    return counted(report.read_text("utf-8"))


def counted(report: str) -> Ran:
    """Return what a report of pytest says.

    >>> counted('<testsuite><testcase name="a"/><testcase name="b[x]"><failure/></testcase><testcase name="c">'
    ...         '<skipped/></testcase></testsuite>')
    Ran(passed=('a',), failed=('b[x]',))
    """
    passed, failed = [], []
    for case in ElementTree.fromstring(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(str(case.get("name")))
        elif case.find("skipped") is None:
            passed.append(str(case.get("name")))
    return Ran(tuple(passed), tuple(failed))


def passed(suite: Suite) -> int:
    """Return how many tests pass. Those that may fail by chance are run again."""
    found = run(suite)
    again = [name for name in found.failed if name.partition("[")[0] in suite.unordered]
    total = len(found.passed)
    for _ in range(TRIES - 1):
        if not again:
            break
        retried = run(suite, "-k", " or ".join({name.partition("[")[0] for name in again}))
        total += sum(name in retried.passed for name in again)
        again = [name for name in again if name not in retried.passed]
    return total


def main(arguments: Sequence[str] | None = None) -> int:
    """Run suites. Return 1 if one of them passes fewer tests than it must."""
    parser = argparse.ArgumentParser(prog="make peers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}; by default all")
    names = parser.parse_args(arguments).suites or list(SUITES)
    if unknown := [name for name in names if name not in SUITES]:
        parser.error(f"There is no suite {unknown[0]!r}. Choose of {', '.join(SUITES)}.")
    PEERS.mkdir(parents=True, exist_ok=True)
    missed = False
    for name in names:
        suite = SUITES[name]
        fetch(suite)
        count = passed(suite)
        missed = missed or count < suite.least
        print(f"{suite.project} {suite.version}: {count} tests passed, at least {suite.least} must.")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
