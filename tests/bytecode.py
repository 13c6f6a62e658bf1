"""Compile each module once, not again in each of the many processes that the tests start.

Compiling takes more than half of the time in which a process imports Pausepoint, and two thirds of the time in which
pytest collects the tests. So the first process of a run compiles the project, and keeps the result even where the
environment forbids that (``PYTHONDONTWRITEBYTECODE``). The result for modules that tests write is never kept: Python
does not notice it if another module of the same size replaces one within a second.
"""

from __future__ import annotations

import compileall
import multiprocessing
import os
import re
import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

ROOT = Path(__file__).resolve().parents[1]
# Pytest compiles its modules of tests in its own way.
_TESTS = re.compile(r"/test_[^/]*$")

sys.dont_write_bytecode = False  # until the tests are collected


def pytest_configure(config: pytest.Config) -> None:
    workers: int | None = config.getoption("numprocesses", None)
    if not hasattr(config, "workerinput"):
        for folder in ("src", "tests", "tools", "benchmarks"):
            compileall.compile_dir(ROOT / folder, maxlevels=10, quiet=2, rx=_TESTS, workers=workers or 1)
        if workers and config.args_source is config.ArgsSource.TESTPATHS:
            rewrite_asserts(config, workers)
    if not workers:
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def rewrite_asserts(config: pytest.Config, workers: int) -> None:
    """Compile what pytest compiles in its own way. Otherwise each worker compiles all of it, at the same time."""
    paths = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("test_*.py")]
    fork = multiprocessing.get_context("fork")
    parts = [fork.Process(target=_rewrite, args=(config, paths[number::workers])) for number in range(workers)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()


def _rewrite(config: pytest.Config, paths: list[Path]) -> None:
    for path in paths:
        kept = rewrite.get_cache_dir(path) / (path.stem + rewrite.PYC_TAIL)
        if rewrite._read_pyc(path, kept) is None:
            kept.parent.mkdir(exist_ok=True)
            stat, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, stat, kept)


def pytest_collection_finish() -> None:
    sys.dont_write_bytecode = True
