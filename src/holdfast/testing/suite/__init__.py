"""The suite that every store must pass, ours and strangers'.

    from holdfast.testing.suite import SharedStoreSuite

    class TestMyStore(SharedStoreSuite):
        def make_store(self, folder, clock):
            return MyStore(folder / "store", clock=clock)

pytest collects it like any other class of tests. It covers every verb of `holdfast.store.Store`,
also what they refuse. `StoreSuite` is for a store that lives as long as it is open, such as one
in memory; `SharedStoreSuite` adds what several engines on the same data must be able to rely on.
"""

from __future__ import annotations

from holdfast.testing.suite.asking import AskingTests
from holdfast.testing.suite.base import Suite
from holdfast.testing.suite.commits import CommitTests
from holdfast.testing.suite.ends import EndTests
from holdfast.testing.suite.filing import FileTests
from holdfast.testing.suite.life import LifeTests, SharingTests
from holdfast.testing.suite.moving import MovingTests
from holdfast.testing.suite.outside import OutsideTests
from holdfast.testing.suite.proof import ProofTests
from holdfast.testing.suite.sessions import SessionTests
from holdfast.testing.suite.standing import SharedStandingTests, StandingTests
from holdfast.testing.suite.waiting import WaitingTests

__all__ = ["SharedStoreSuite", "StoreSuite", "Suite"]


class StoreSuite(
    SessionTests, CommitTests, OutsideTests, StandingTests, WaitingTests, AskingTests, FileTests, ProofTests, EndTests,
    MovingTests, LifeTests,
):  # fmt: skip
    """Every verb of the protocol, on one open store."""


class SharedStoreSuite(StoreSuite, SharingTests, SharedStandingTests):
    """The same, and several engines on the same data, at once and one after the other."""
