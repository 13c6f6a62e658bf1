"""The engines of a store: the row of each, and what this one knows about the others."""

from __future__ import annotations

import os
import socket

import apsw

from pausepoint.clock import Clock
from pausepoint.model.commits import Commit
from pausepoint.stores.liveness import Hold
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import NOTHING, Drives, Outcome, Present
from pausepoint.stores.sql.rows import every
from pausepoint.stores.sqlite import commits
from pausepoint.stores.sqlite.everything import EverythingRequest
from pausepoint.stores.sqlite.sql import QUERIES


class OwnEngine:
    """This engine, as the other engines of the store see it. ``number`` is 0 until it is registered.

    ``drives`` is what it picks up.
    """

    def __init__(
        self, hold: Hold, clock: Clock, everything: EverythingRequest, drives: Drives = NOTHING
    ) -> None:  # fmt: skip
        self.hold = hold
        self.everything = everything
        self.present = Present(hold.alive, clock.now)
        self.now = clock.now
        self.number = 0
        self.drives = drives

    def register(self, connection: Connection) -> None:
        """Get a number, and lock it before other engines can see it. Delete engines that died without a session."""
        facts = os.getpid(), socket.gethostname(), self.now(), *self.drives
        number: int = connection.execute(QUERIES["register"], facts).get
        self.hold.take(number)
        for (other,) in every(connection, QUERIES["unheld_engines"]):
            if not self.hold.alive(other):
                connection.execute(QUERIES["forget_engine"], (other,))
        self.number = number

    def unregister(self) -> None:
        """Give the number back, because its transaction failed. Another engine may get the same number."""
        self.hold.untake()
        self.number = 0

    def begin(self, connection: Connection) -> None:
        """Begin a transaction: a pause of everything that was only requested so far is stored first."""
        self.everything.store(connection, self.hold.alive)

    def leave(self, connection: Connection) -> None:
        """Release all sessions on a clean stop, without counting a crash. The next engine deletes this one's row."""
        connection.execute(QUERIES["release_all"], (self.number,))
        connection.execute(QUERIES["unkeep_all"], (self.number,))

    def move(self, connection: Connection, commit: Commit) -> Outcome:
        """Apply one commit in the transaction of a verb."""
        assert isinstance(connection, apsw.Connection)
        return commits.move(connection.cursor(), self, commit)
