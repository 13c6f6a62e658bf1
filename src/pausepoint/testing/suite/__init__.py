"""The tests that every store must pass, whether it is part of Pausepoint or not.

    from pausepoint.testing.suite import SharedStoreSuite

    class TestMyStore(SharedStoreSuite):
        def make_store(self, folder, clock):
            return MyStore(folder / "store", clock=clock)

pytest collects it like any other test class. The tests cover every verb of `pausepoint.stores.base.Store`,
including the calls that it must refuse. Use `StoreSuite` for a store whose data is lost when it closes, such as a
store in memory. Use `SharedStoreSuite` for a store that keeps its data and that several engines can open, and
`ConcurrencySuite` to test such a store with two engines that use it at the same time.
"""

from __future__ import annotations

from pausepoint.testing.suite.base import Suite
from pausepoint.testing.suite.changes import ChangeTests, SharedChangeTests
from pausepoint.testing.suite.commits import CommitTests
from pausepoint.testing.suite.concurrency import ConcurrencySuite
from pausepoint.testing.suite.contents import ContentTests
from pausepoint.testing.suite.crashes import CrashTests
from pausepoint.testing.suite.descriptions import DescriptionTests
from pausepoint.testing.suite.drawers import DrawerTests, SharedDrawerTests
from pausepoint.testing.suite.files import FileTests
from pausepoint.testing.suite.guests import GuestTests, SharedGuestTests
from pausepoint.testing.suite.integrity import ProofTests
from pausepoint.testing.suite.limits import LimitTests, SharedLimitTests
from pausepoint.testing.suite.listing import ListingTests
from pausepoint.testing.suite.opening import LifeTests, SharingTests
from pausepoint.testing.suite.questions import AskingTests
from pausepoint.testing.suite.queues import QueueTests
from pausepoint.testing.suite.remembered import RememberedTests, SharedRememberedTests
from pausepoint.testing.suite.removal import EndTests
from pausepoint.testing.suite.requests import OutsideTests
from pausepoint.testing.suite.schedules import ScheduleTests, SharedScheduleTests
from pausepoint.testing.suite.sessions import SessionTests
from pausepoint.testing.suite.standing_pause import SharedStandingTests, StandingTests, StopTests
from pausepoint.testing.suite.transfer import MovingTests
from pausepoint.testing.suite.waits import WaitingTests

__all__ = ["ConcurrencySuite", "SharedStoreSuite", "StoreSuite", "Suite"]


class StoreSuite(
    SessionTests, ListingTests, CommitTests, OutsideTests, StandingTests, WaitingTests, AskingTests, FileTests,
    ProofTests, EndTests, MovingTests, LifeTests, GuestTests, RememberedTests, DescriptionTests,
    ChangeTests, StopTests, ScheduleTests, QueueTests, LimitTests, DrawerTests,
):  # fmt: skip
    """The tests of every verb of the protocol, on one open store."""


class SharedStoreSuite(
    StoreSuite, SharingTests, SharedStandingTests, SharedGuestTests, SharedRememberedTests, SharedChangeTests,
    SharedScheduleTests, SharedLimitTests, SharedDrawerTests, CrashTests, ContentTests,
):  # fmt: skip
    """The tests of `StoreSuite`, plus tests with several engines on the same data, in parallel and in sequence."""
