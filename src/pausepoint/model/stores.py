"""Facts about a store: its size and place, the engines that have it open, and what it removes, verifies or exports."""

from __future__ import annotations

import msgspec

from pausepoint.model.drawers import StoredDrawer
from pausepoint.model.records import Record, SignalRecord
from pausepoint.model.sessions import Pause, QuestionFacts, SessionRow


class Tombstone(msgspec.Struct, frozen=True):
    """What remains of a removed session. ``records`` and ``digest`` are the length and last digest of its log."""

    session_id: str
    workflow: str
    owner: str | None
    status: str
    created_at: int
    removed_at: int
    by: str | None
    reason: str
    records: int
    digest: bytes


class Removal(msgspec.Struct, frozen=True):
    """A session that is being removed, and the tombstone that will remain."""

    key: int
    tombstone: Tombstone


class Sweep(msgspec.Struct, frozen=True):
    """The unreferenced large values in one batch: how many, and their size. ``last`` is None after the last batch."""

    last: int | None
    count: int
    bytes: int


class Space(msgspec.Struct, frozen=True):
    """The size of a store in bytes, and how many of them it could give back to the system."""

    total: int
    free: int


class Proved(msgspec.Struct, frozen=True):
    """The result of verifying one batch of large values. ``last`` is None after the last batch."""

    last: int | None
    count: int
    damaged: tuple[str, ...]


class Whole(msgspec.Struct, frozen=True):
    """One session with everything that belongs to it. ``mail`` are the numbers of the signals it has not read yet."""

    row: SessionRow
    records: list[Record]
    signals: list[SignalRecord]
    mail: list[int]
    pauses: list[Pause]
    blobs: dict[bytes, bytes]
    questions: list[QuestionFacts] = []
    drawers: list[StoredDrawer] = []


class Holder(msgspec.Struct, frozen=True):
    """An engine that has a store open, or that died while it held ``sessions``.

    ``workflows`` are the names of the workflows whose due sessions it picks up. It is empty for an engine that drives
    only what it is asked to drive, or nothing. ``WORKFLOW/SESSION`` means that it picks up only this session, after
    someone resumes it; see `Session.stand_by`. ``queues`` are the queues from which it picks them up; None means all.
    """

    number: int
    pid: int
    host: str
    since: int
    live: bool
    sessions: tuple[str, ...]
    workflows: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None

    def picks_up(self, workflow: str, session_id: str, queue: str | None = None) -> bool:
        """Return whether the engine picks up this session when it is due. Without a queue, any of them counts.

        >>> holder = Holder(1, 4711, "here", 0, True, (), ("brief", "release/release-7"), ("mail",))
        >>> [holder.picks_up(*each) for each in (("brief", "b1"), ("release", "release-7"), ("release", "release-8"))]
        [True, True, False]
        >>> holder.picks_up("brief", "b1", "mail"), holder.picks_up("brief", "b1", "gpu")
        (True, False)
        """
        serves = queue is None or self.queues is None or queue in self.queues
        return self.live and serves and not {workflow, f"{workflow}/{session_id}"}.isdisjoint(self.workflows)


class About(msgspec.Struct, frozen=True):
    """Facts about a store and its location. Sizes are in bytes; None means unknown or not applicable.

    ``free`` is what `Store.compact` could give back to the system; ``disk_free`` is the free space on the disk.
    ``ballast`` is the size of the space reserved for a full disk; ``ballast_size`` is the size it should have.

    A store on a server also has the server's name and version, how long it takes to answer, and how far its clock is
    ahead of this machine's, in microseconds.
    """

    kind: str
    place: str
    schema: int
    size: int
    free: int
    versions: dict[str, str]
    holders: tuple[Holder, ...]
    file_system: str | None = None
    disk_free: int | None = None
    ballast: int | None = None
    ballast_size: int = 0
    server: str | None = None
    latency_ms: float | None = None
    clock_skew_us: int | None = None
