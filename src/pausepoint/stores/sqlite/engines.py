"""The engines of a store: the row of each, and what this one knows about the others."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import NamedTuple

import apsw

from pausepoint.clock import Clock, to_datetime
from pausepoint.stores.sqlite.liveness import Hold
from pausepoint.stores.sqlite.rows import every, one
from pausepoint.stores.sqlite.sql import QUERIES


class Present(NamedTuple):
    """Facts about the present that are not in the database: which engines are alive, and the time."""

    alive: Callable[[int], bool]
    now: Callable[[], int]


class OwnEngine:
    """This engine, as the other engines of the store see it. ``number`` is 0 until it is registered.

    ``workflows`` are the names of the workflows whose due sessions it picks up, as JSON.
    """

    def __init__(self, hold: Hold, clock: Clock, workflows: str = "[]") -> None:
        self.hold = hold
        self.present = Present(hold.alive, clock.now)
        self.now = clock.now
        self.number = 0
        self.workflows = workflows

    def register(self, connection: apsw.Connection) -> None:
        """Get a number, and lock it before other engines can see it. Delete engines that died without a session."""
        facts = os.getpid(), socket.gethostname(), self.now(), self.workflows
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

    def leave(self, connection: apsw.Connection) -> None:
        """Release all sessions on a clean stop, without counting a crash. The next engine deletes this one's row."""
        connection.execute(QUERIES["release_all"], (self.number,))
        connection.execute(QUERIES["unkeep_all"], (self.number,))


def describe(connection: apsw.Connection, holder: int | None) -> str:
    """Describe a holder for people."""
    if holder is None:
        return "nobody"
    found: tuple[int, str, int] | None = one(connection, QUERIES["engine"], holder)
    if found is None:
        return f"an engine that is gone (number {holder})"
    pid, host, since = found
    return f"process {pid} on {host}, since {to_datetime(since).isoformat(timespec='seconds')}"
