"""The suite that every store must pass, ours and strangers'.

    from pausepoint.testing.suite import SharedStoreSuite

    class TestMyStore(SharedStoreSuite):
        def make_store(self, folder, clock):
            return MyStore(folder / "store", clock=clock)

pytest collects it like any other class of tests. It covers every verb of `pausepoint.stores.base.Store`,
also what they refuse. `StoreSuite` is for a store that lives as long as it is open, such as one
in memory; `SharedStoreSuite` adds what several engines on the same data must be able to rely on.
"""

from __future__ import annotations

from pausepoint.testing.suite.base import Suite
from pausepoint.testing.suite.commits import CommitTests
from pausepoint.testing.suite.files import FileTests
from pausepoint.testing.suite.integrity import ProofTests
from pausepoint.testing.suite.opening import LifeTests, SharingTests
from pausepoint.testing.suite.questions import AskingTests
from pausepoint.testing.suite.removal import EndTests
from pausepoint.testing.suite.requests import OutsideTests
from pausepoint.testing.suite.sessions import SessionTests
from pausepoint.testing.suite.standing_pause import SharedStandingTests, StandingTests
from pausepoint.testing.suite.transfer import MovingTests
from pausepoint.testing.suite.waits import WaitingTests

__all__ = ["SharedStoreSuite", "StoreSuite", "Suite"]


class StoreSuite(
    SessionTests, CommitTests, OutsideTests, StandingTests, WaitingTests, AskingTests, FileTests, ProofTests, EndTests,
    MovingTests, LifeTests,
):  # fmt: skip
    """Every verb of the protocol, on one open store."""


class SharedStoreSuite(StoreSuite, SharingTests, SharedStandingTests):
    """The same, and several engines on the same data, at once and one after the other."""
