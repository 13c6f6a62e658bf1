"""The suite that every store must pass, ours and strangers'.

    from pausepoint.testing.suite import SharedStoreSuite

    class TestMyStore(SharedStoreSuite):
        def make_store(self, folder, clock):
            return MyStore(folder / "store", clock=clock)

pytest collects it like any other class of tests. It covers every verb of `pausepoint.store.Store`,
also what they refuse. `StoreSuite` is for a store that lives as long as it is open, such as one
in memory; `SharedStoreSuite` adds what several engines on the same data must be able to rely on.
"""

from __future__ import annotations

from pausepoint.testing.suite.asking import AskingTests
from pausepoint.testing.suite.base import Suite
from pausepoint.testing.suite.commits import CommitTests
from pausepoint.testing.suite.ends import EndTests
from pausepoint.testing.suite.filing import FileTests
from pausepoint.testing.suite.life import LifeTests, SharingTests
from pausepoint.testing.suite.moving import MovingTests
from pausepoint.testing.suite.outside import OutsideTests
from pausepoint.testing.suite.proof import ProofTests
from pausepoint.testing.suite.sessions import SessionTests
from pausepoint.testing.suite.standing import SharedStandingTests, StandingTests
from pausepoint.testing.suite.waiting import WaitingTests

__all__ = ["SharedStoreSuite", "StoreSuite", "Suite"]


class StoreSuite(
    SessionTests, CommitTests, OutsideTests, StandingTests, WaitingTests, AskingTests, FileTests, ProofTests, EndTests,
    MovingTests, LifeTests,
):  # fmt: skip
    """Every verb of the protocol, on one open store."""


class SharedStoreSuite(StoreSuite, SharingTests, SharedStandingTests):
    """The same, and several engines on the same data, at once and one after the other."""
