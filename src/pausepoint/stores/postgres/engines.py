"""The engines of a store: this one's row and lease, and which of the others are alive."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pausepoint.clock import Clock
from pausepoint.model.commits import Commit
from pausepoint.stores.liveness import FileHold
from pausepoint.stores.postgres import commits
from pausepoint.stores.postgres.connection import Connection as PostgresConnection
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import NOTHING, Drives, Outcome, Present
from pausepoint.stores.sql.rows import every

LEASE = 10.0
"""Seconds for which an engine is alive after a beat, by the clock of the database."""

LONGEST = LEASE
"""Seconds that no lease of any engine exceeds."""

BEAT = 3.0
"""Seconds between two beats."""

SPARED = 30.0
"""After a lost connection, engines whose lease ended less than this many seconds ago still count as alive, for the time
of one lease: they have probably lost their connections too, and could not renew it."""


def boot_time() -> float:
    """Return a clock that goes on while the machine sleeps: a lease that ended meanwhile must not look fresh."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease(NamedTuple):
    """A number of an engine, and when its lease ends, by `boot_time`."""

    number: int
    until: float


class Enrolled(NamedTuple):
    """A lease that this engine got, and its lock file, which engines with the same place share."""

    lease: Lease
    hold: FileHold | None
    place: str


class OwnEngine:
    """This engine, as the other engines of the store see it. ``number`` is 0 until it is registered.

    Engines on one machine also lock a byte of a file, each that of its number. The system frees it with the process,
    so they need not wait for each other's leases.

    ``backend`` is the process of the server that runs its writes.

    `take` looks at each session before it takes something if it has found a damaged one (``careful``), and at each
    engine if the last `take` found a dead one (``suspicious``).
    """

    def __init__(self, clock: Clock, store: str, drives: Drives = NOTHING) -> None:
        self.present = Present(self._alive, clock.now)
        self.now = clock.now
        self.drives = drives  # what it picks up
        self.careful = self.suspicious = False
        self.backend = 0
        self._lease = Lease(0, 0.0)  # the number and its end change together
        self._guard = threading.Lock()  # for writes of `_lease`
        self._spares_until = 0.0
        self._store = store
        self._hold: FileHold | None = None
        self._next_hold: FileHold | None = None  # until `become`
        self._place = ""
        self._local = threading.local()

    @property
    def number(self) -> int:
        return self._lease.number

    def enrol(self, connection: Connection) -> Enrolled:
        """Get a number and a lease, for `become`. The byte is locked before other engines can see the number."""
        if self._next_hold is not None:
            self._next_hold.drop()  # the transaction of an earlier attempt failed
        hold, place = _locks(self._store)
        self._next_hold = hold
        before = boot_time()
        facts = os.getpid(), socket.gethostname(), place, self.now(), *self.drives, LEASE
        number: int = connection.execute(connection.queries["register"], facts).get
        if hold is not None:
            hold.take(number)
        return Enrolled(Lease(number, before + LEASE), hold, place)

    def become(self, enrolled: Enrolled) -> None:
        """Be the engine with this number from now on."""
        self._next_hold = None
        self.drop()
        with self._guard:
            self._lease, self._hold, self._place = enrolled

    def lease_left(self, number: int) -> float:
        """Return how many seconds are left of the lease that this engine has under a number."""
        lease = self._lease
        return lease.until - boot_time() if number == lease.number else -1.0

    def beat(self, connection: PostgresConnection) -> int | None:
        """Renew the lease, in a transaction of its own. Return the number whose lease is lost, or None."""
        lease, before = self._lease, boot_time()
        if before >= lease.until:
            return lease.number  # what this engine drove has stopped, even if the clock of the database is behind
        if not connection.transact((connection.queries["beat"], (LEASE, lease.number)))[-1]:
            return lease.number
        with self._guard:
            if self._lease is lease:
                self._lease = Lease(lease.number, before + LEASE)
        return None

    def begin_again(self, connection: Connection, number: int) -> Enrolled | None:
        """Leave as the engine with this number, whose lease has ended, and get another number, for `become`."""
        if number != self.number:
            return None
        self.leave(connection)
        return self.enrol(connection)

    def lost_connection(self) -> None:
        """Spare the other engines for a while: a server that was down has kept them from renewing their leases."""
        self._spares_until = boot_time() + LEASE

    @property
    def spared(self) -> float:
        """For how many seconds after the end of its lease another engine still counts as alive."""
        return SPARED if boot_time() < self._spares_until else 0.0

    def leave(self, connection: Connection) -> None:
        """Release all sessions without counting a crash. The row says that this engine is gone."""
        connection.execute(connection.queries["release_all"], (self.number,))
        connection.execute(connection.queries["unkeep_all"], (self.number,))
        connection.execute(connection.queries["farewell"], (self.number,))

    def drop(self) -> None:
        """Free the byte of this engine."""
        for hold in (self._hold, self._next_hold):
            if hold is not None:
                hold.drop()
        self._hold = self._next_hold = None

    def look(self, connection: Connection) -> None:
        """Begin work of this thread on a connection: `present` reads there which engines are alive, once."""
        self._local.connection, self._local.alive = connection, None

    def move(self, connection: Connection, commit: Commit) -> Outcome:
        """Apply one commit in the transaction of a verb."""
        return commits.move(connection, self, commit)

    def _alive(self, number: int) -> bool:
        if self._local.alive is None:
            self._local.alive = self._living(self._local.connection)
        return number in self._local.alive

    def _living(self, connection: Connection) -> set[int]:
        found = set()
        for number, _, place in every(connection, connection.queries["alive"], self.spared):
            here = self._hold is not None and place == self._place
            if not here or self._hold is None or self._hold.alive(number):
                found.add(number)
        return found

    def anything_left(self, connection: Connection) -> bool:
        """Return whether other engines have died, or left something to clean up."""
        facts = self.number, self.spared, LONGEST, self._place
        left = every(connection, connection.queries["left_engines"], *facts)
        hold = self._hold
        return any(certain or (hold is not None and not hold.alive(number)) for number, certain in left)

    def dead_here(self, connection: Connection) -> list[int]:
        """Return the engines of this machine that died before their lease ended."""
        leased = every(connection, connection.queries["alive"], self.spared)
        return self.have_died([(number, place) for number, _, place in leased])

    def have_died(self, leased: Iterable[tuple[int, str]]) -> list[int]:
        """Return those of some engines with a lease, each with its place, that ran on this machine and have died."""
        hold = self._hold
        if hold is None:
            return []
        return [number for number, place in leased if place == self._place and not hold.alive(number)]


def _locks(store: str) -> tuple[FileHold | None, str]:
    """Return the lock file of a store on this machine, and what is the same for all engines that use it.

    Without a folder that this process can write, or if the file was deleted while this process has it open, no other
    engine has the same place, and only leases count.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        folder = Path(runtime) / "pausepoint" if runtime else Path(tempfile.gettempdir()) / f"pausepoint-{os.getuid()}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (owned := folder.stat()).st_uid != os.getuid() or owned.st_mode & 0o022:
            raise PermissionError(f"{folder} can be written by others")
        hold = FileHold(str(folder / store))
    except OSError:
        return None, str(uuid.uuid4())
    identity = hold.identity()
    if identity is None:
        hold.drop()
        return None, str(uuid.uuid4())
    return hold, f"{boot}:{identity[0]}:{identity[1]}"
