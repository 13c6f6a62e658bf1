"""pytest fixtures. Enable them with ``pytest_plugins = ["pausepoint.testing.fixtures"]`` in the top ``conftest.py``.

The plugin has no entry point, so pytest imports it only if you ask for it. With ``--pausepoint-always-replay``,
every engine of the run replays its steps (see `always_replay`). Mark a test that cannot pass in this mode with
``@pytest.mark.no_always_replay("reason")``, and it is skipped.
"""

from __future__ import annotations

import pytest

from pausepoint.engine.base import Service
from pausepoint.runtime.drive import Drive
from pausepoint.testing.clock import ManualClock
from pausepoint.testing.inline import InlineEngine, engine
from pausepoint.testing.replay import ReplayingDrive

OPTION = "--pausepoint-always-replay"
MARK = "no_always_replay"

# The suite runs as part of a store author's tests, so its failed asserts need pytest's explanations.
pytest.register_assert_rewrite("pausepoint.testing.suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--pausepoint-always-replay``."""
    parser.getgroup("pausepoint").addoption(
        OPTION, action="store_true", help="run every step again from its top after each operation"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and make all engines of this process replay if the option is set."""
    config.addinivalue_line("markers", f"{MARK}(reason): skip this test with {OPTION}")
    if config.getoption(OPTION):
        Service.drive_class = ReplayingDrive


def pytest_unconfigure(config: pytest.Config) -> None:
    """Restore the process, because pytest may run inside another pytest run."""
    if config.getoption(OPTION):
        Service.drive_class = Drive


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the marked tests if the option is set, with the reason that the mark gives."""
    if not config.getoption(OPTION):
        return
    for item in items:
        if (mark := item.get_closest_marker(MARK)) is not None:
            if not mark.args:
                raise pytest.UsageError(f"{item.nodeid}: {MARK} needs a reason. Pass one: {MARK}('counts its calls').")
            item.add_marker(pytest.mark.skip(reason=f"{OPTION}: {mark.args[0]}"))


@pytest.fixture
def pausepoint_clock() -> ManualClock:
    """The clock of `pausepoint_engine`. A sleep advances it automatically, unless the test sets ``auto = False``."""
    return ManualClock(auto=True)


@pytest.fixture
def pausepoint_engine(pausepoint_clock: ManualClock) -> InlineEngine:
    """An in-memory engine that the test opens with ``async with pausepoint_engine:``."""
    return engine(clock=pausepoint_clock)
