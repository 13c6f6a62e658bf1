"""A plugin of pytest for the copy: it runs the chosen tests only, and only with the Pausepoint of the copy."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import pausepoint

ROOT = Path(__file__).resolve().parents[2]
CHOSEN = "MUTANT_TESTS"
"""The variable with the chosen tests: files or node ids, each with words, of which a test has one in its name."""


def pytest_configure(config: pytest.Config) -> None:
    """End with an error of usage, which no mutant can cause, if the code under test is not that of the copy."""
    if Path(pausepoint.__file__).resolve().parents[1] != ROOT / "src":
        raise pytest.UsageError(f"Pausepoint comes from {pausepoint.__file__}, not from {ROOT / 'src'}.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what was not chosen."""
    chosen = json.loads(os.environ[CHOSEN])
    left = [item for item in items if not any(_is_meant(item, test, words) for test, words in chosen)]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


def _is_meant(item: pytest.Item, test: str, words: list[str]) -> bool:
    return item.nodeid.startswith(test) and (not words or any(word in item.name for word in words))
