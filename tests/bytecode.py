"""Compile each module once, not again in each of the many processes that the tests start.

Compiling takes more than half of the time in which a process imports Pausepoint, and some environments forbid Python to
keep the result (``PYTHONDONTWRITEBYTECODE``). So the first process of a run compiles the project. The result for
modules that tests write is never kept: Python does not notice it if another module of the same size replaces one within
a second.
"""

from __future__ import annotations

import compileall
import os
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Pytest compiles its modules of tests in its own way.
_TESTS = re.compile(r"/test_[^/]*$")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        for folder in ("src", "tests", "tools", "benchmarks"):
            compileall.compile_dir(ROOT / folder, maxlevels=10, quiet=2, rx=_TESTS)
    if not config.getoption("numprocesses", None):
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def pytest_collection_finish() -> None:
    sys.dont_write_bytecode = True
