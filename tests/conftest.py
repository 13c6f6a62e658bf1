"""What all tests share: the ``covers`` mark and reproducible Hypothesis runs."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path

from tests.support.patience import be_patient

pytest_plugins = [
    "tests.parser", "tests.bytecode", "tests.covers", "tests.counting", "tests.failures", "pausepoint.testing.fixtures"
]  # fmt: skip

# What a shell starts in the background ignores Ctrl+C, and so would every program that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """Choose the same examples in every run, so that a red build can be repeated.

    To search for new ones: ``pytest --hypothesis-profile=explore``.
    """
    from hypothesis import settings  # here, so that tests.bytecode keeps what pytest compiles of it

    settings.register_profile("ci", derandomize=True, deadline=None)
    settings.register_profile("explore", max_examples=1000, deadline=None)
    settings.load_profile("ci")


def pytest_collection_finish() -> None:
    """Make the folder of temporary files again if another process has deleted it since the start.

    Without it, every test that asks for ``tmp_path`` fails in its setup.
    """
    be_patient()  # the tests have imported what they use
    Path(tempfile.gettempdir()).mkdir(parents=True, exist_ok=True)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Look for doctests in src only: helpers, programs for child processes and typing cases are not to be imported."""
    return True if collection_path.suffix == ".py" and not collection_path.name.startswith("test_") else None
