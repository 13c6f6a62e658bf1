"""pytest fixtures, switched on by ``pytest_plugins = ["pausepoint.testing.fixtures"]`` in the top ``conftest.py``.

There is no entry point on purpose: who does not ask for it imports nothing. With
``--pausepoint-always-replay`` every engine of the run replays (see `always_replay`), whoever
made it; a test that cannot hold then says so with ``@pytest.mark.no_always_replay("reason")``.
"""

from __future__ import annotations

import pytest

from pausepoint.engine.control import Control
from pausepoint.runtime.drive import Drive
from pausepoint.testing.clock import ManualClock
from pausepoint.testing.inline import InlineEngine, engine
from pausepoint.testing.replay import ReplayingDrive

OPTION = "--pausepoint-always-replay"
MARK = "no_always_replay"

# Its asserts are those of a store author's tests: let pytest explain them too.
pytest.register_assert_rewrite("pausepoint.testing.suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("pausepoint").addoption(
        OPTION, action="store_true", help="run every step again from its top after each operation"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and let all engines of this process replay if that was asked for."""
    config.addinivalue_line("markers", f"{MARK}(reason): not to be run with {OPTION}")
    if config.getoption(OPTION):
        Control.drive_class = ReplayingDrive


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave this process as it was, for a run of pytest inside another one."""
    if config.getoption(OPTION):
        Control.drive_class = Drive


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what cannot hold under the option, with the reason that it gives."""
    if not config.getoption(OPTION):
        return
    for item in items:
        if (mark := item.get_closest_marker(MARK)) is not None:
            if not mark.args:
                raise pytest.UsageError(f"{item.nodeid}: {MARK} needs a reason, as in {MARK}('counts its calls')")
            item.add_marker(pytest.mark.skip(reason=f"{OPTION}: {mark.args[0]}"))


@pytest.fixture
def pausepoint_clock() -> ManualClock:
    """The clock of `pausepoint_engine`: a sleep moves the time itself, unless the test sets ``auto = False``."""
    return ManualClock(auto=True)


@pytest.fixture
def pausepoint_engine(pausepoint_clock: ManualClock) -> InlineEngine:
    """An engine in memory, to be opened by the test: ``async with pausepoint_engine:``."""
    return engine(clock=pausepoint_clock)
