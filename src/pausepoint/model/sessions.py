"""Frozen records and facts, and the one function that derives a status from them.

Nothing here does I/O. Times are microseconds since 1970 (UTC), money is micro-dollars.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Literal

import msgspec

from pausepoint.model.records import Record, SignalRecord


class Status(StrEnum):
    """What a session is doing. Derived from facts, never stored."""

    CREATED = "created"
    READY = "ready"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    WAITING = "waiting"
    SLEEPING = "sleeping"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


Ended = Literal["completed", "failed", "cancelled"]
PauseMode = Literal["finish", "abort"]
Level = Literal["any", "top", "root"]
Sort = Literal["created", "updated", "workflow", "spent", "id"]
PauseKind = Literal[
    "operator", "guard", "budget", "oversized", "missing", "mismatch", "definition", "crashes", "question"
]  # fmt: skip


class Failure(msgspec.Struct, frozen=True):
    """A step's own error, as kept with a failed session."""

    step: str
    type: str
    message: str
    attempts: int = 1
    traceback: str = ""


class Pause(msgspec.Struct, frozen=True):
    """Why a session stands still. ``standing``: it is part of a pause of everything, and is closed with that."""

    id: str
    kind: PauseKind
    reason: str
    by: str | None
    created_at: int
    step: str = ""
    mode: PauseMode = "finish"
    freeze: bool = False
    closed_at: int | None = None
    closed_by: str | None = None
    standing: bool = False


class QuestionStatus(StrEnum):
    """What has become of a question. That a waiting one has expired is derived from the clock: see `standing`."""

    WAITING = "WAITING_USER_INPUT"
    RESUMED = "RESUMED"
    COMPLETED = "COMPLETED"
    EXPIRED = "EXPIRED"
    CANCELLED = "CANCELLED"


class QuestionFacts(msgspec.Struct, frozen=True):
    """The stored facts about one question. What it asks is in record ``seq`` of the log: the first of the commit.

    ``version`` rises with every round, ``seen`` is a digest of what a person is shown. ``answer`` is the number of the
    signal that it was answered with; if it still waits, that is one that could not be right, and that the step has yet
    to hear of. ``told``: that it has expired was told to who sent the next message. ``refused``: how many answers were.
    """

    id: str
    key: str
    seq: int
    status: QuestionStatus
    version: int
    seen: bytes
    created_at: int
    updated_at: int
    expires_at: int | None
    answer: int | None = None
    told: bool = False
    refused: int = 0


class QuestionChange(msgspec.Struct, frozen=True):
    """What a commit changes in an open question; what is None stays."""

    id: str
    status: QuestionStatus | None = None
    expires_at: int | None = None
    answer: int | None = None


class SessionRow(msgspec.Struct, frozen=True):
    """The stored facts about one session.

    ``live`` and ``due`` are the store's word: whether the holder is alive, and whether what the session waits for has
    come. ``waiting`` names what kinds of things those are, ``wakes_at`` is 0 if one of them is there,
    whatever the clock says.
    """

    key: int
    session_id: str
    workflow: str
    version: int
    owner: str | None
    tags: tuple[str, ...]
    input_digest: bytes
    created_at: int
    updated_at: int
    seq: int
    key_frame: int
    digest: bytes
    step: str | None
    visit: int
    leaving: bool
    ended: Ended | None
    failure: Failure | None
    pause_requested: bool
    pause_mode: PauseMode
    cancel_requested: bool
    holder: int | None
    fence: int
    live: bool
    waiting: str | None
    wakes_at: int | None
    crashes: int
    spent_usd: int
    spent_tokens: int
    budget_usd: int | None
    open_pauses: int
    progress: tuple[int, int] | None
    parent: int | None = None
    keep_for: int | None = None
    mail: bool = False
    frozen: int = 0
    parent_id: str | None = None
    due: bool = False

    @property
    def status(self) -> Status:
        """See `derive_status`."""
        return derive_status(self)

    @property
    def awaits_child(self) -> bool:
        """Whether one of the things that it waits for is the end of a child."""
        return self.waiting is not None and "child" in self.waiting.split(",")

    @property
    def awaits_timer(self) -> bool:
        """Whether one of the things that it waits for is a time, other than that when a question expires."""
        kinds = (self.waiting or "").split(",")
        return self.wakes_at is not None and ("answer" not in kinds or "timer" in kinds)

    @property
    def awaits_answer_for_ever(self) -> bool:
        """Whether a person may take as long as they like to answer."""
        return self.wakes_at is None and "answer" in (self.waiting or "").split(",")

    @property
    def wakes_by_itself(self) -> bool:
        """Whether a parked session goes on without anybody's help: what it waits for is there, or a timer runs."""
        status = self.status
        return status is Status.SLEEPING or (status is Status.READY and self.due)


def derive_status(row: SessionRow) -> Status:
    """The first that applies. A session at its end is at its end, whatever was asked."""
    if row.ended == "completed":
        return Status.COMPLETED
    if row.ended == "cancelled":
        return Status.CANCELLED
    if row.pause_requested or row.open_pauses:
        return Status.PAUSING if row.live else Status.PAUSED
    if row.ended == "failed":
        return Status.FAILED
    if row.live:
        return Status.RUNNING
    if row.due:
        return Status.READY
    if row.waiting:
        return Status.WAITING
    if row.wakes_at is not None:
        return Status.SLEEPING
    return Status.CREATED if row.seq <= 1 else Status.READY


def would_go_on(row: SessionRow) -> bool:
    """Whether a parked session that is no longer paused needs somebody to drive it: it waits for nothing, or for a time
    that has to be reckoned anew."""
    status = row.status
    return status in (Status.CREATED, Status.READY) or (row.frozen > 0 and status in (Status.WAITING, Status.SLEEPING))


def kept_for(row: SessionRow, ended_for: int | None) -> int | None:
    """How long a session is kept; ``ended_for`` if it is at its end and nobody said how long."""
    return ended_for if row.keep_for is None and row.ended in ("completed", "cancelled") else row.keep_for


def has_expired(tree: Sequence[SessionRow], now: int, ended_for: int | None = None) -> bool:
    """Whether a session and all that it called have been left alone for as long as it is kept.

    Never while one of them is driven, or waits for an answer for as long as that takes. Time is counted from the last
    update, or from when one of them wakes.
    """
    roots = [row for row in tree if row.parent is None]
    keep_for = kept_for(roots[0], ended_for) if roots else None
    if keep_for is None or any(row.live or row.awaits_answer_for_ever for row in tree):
        return False
    return all(max(row.updated_at, row.wakes_at or 0) + keep_for <= now for row in tree)


class Flags(msgspec.Struct, frozen=True):
    """What a commit brings back: the requests that came from outside."""

    pause_requested: bool
    pause_mode: PauseMode
    cancel_requested: bool
    mail: bool = False


class Report(msgspec.Struct, frozen=True):
    """What a child tells its parent. Its end wakes the parent; a pause is only noted."""

    status: str
    payload: bytes
    ends: bool


class ChildReport(msgspec.Struct, frozen=True):
    """The payload of a `Report`, as the signal to the parent carries it."""

    child: str
    status: str
    reason: str = ""


child_report = msgspec.json.Decoder(ChildReport).decode


class Commit(msgspec.Struct, frozen=True, gc=False):
    """One atomic move of a session from ``base_seq`` to the last of ``records``, under a fence.

    With ``release`` the hold is given up; ``waiting`` and ``wakes_at`` then say what would make the session go on.
    ``consume`` are the numbers of the signals that it has taken in, ``report`` goes to its ``parent``.
    ``cancel_children`` says why all that it has called and has not ended is asked to end (only with `Store.revise`).
    ``redact`` and ``redact_signals`` lose payload and salt, ``unname`` are large values that it no
    longer names; those that nobody else names go. ``plain`` tells that nothing but records and position is written,
    as with most commits.
    ``asks`` are questions that its record asks, anew or in another round, ``questions`` what changes in open ones.
    ``only_if_waiting`` is a question that must not have been answered yet. ``settles``: the visit that asked is over.
    """

    key: int
    fence: int
    base_seq: int
    records: tuple[Record, ...]
    updated_at: int
    key_frame: int
    step: str | None
    visit: int
    leaving: bool = False
    ended: Ended | None = None
    failure: Failure | None = None
    release: bool = False
    only_if_paused: bool = False
    keep_crashes: bool = False
    spend_usd: int = 0
    spend_tokens: int = 0
    progress: tuple[int, int] | None = None
    version: int | None = None
    blobs: tuple[tuple[bytes, bytes], ...] = ()
    open_pauses: tuple[Pause, ...] = ()
    close_pauses: tuple[str, ...] = ()
    closed_by: str | None = None
    waiting: str | None = None
    wakes_at: int | None = None
    consume: tuple[int, ...] = ()
    thaw: bool = False
    parent: int | None = None
    report: Report | None = None
    redact: tuple[int, ...] = ()
    redact_signals: tuple[int, ...] = ()
    unname: tuple[bytes, ...] = ()
    cancel_children: str = ""
    asks: tuple[QuestionFacts, ...] = ()
    questions: tuple[QuestionChange, ...] = ()
    only_if_waiting: str = ""
    settles: bool = False
    plain: bool = False


class NewSession(msgspec.Struct, frozen=True):
    """What `Store.create` stores. ``names`` are large values of other sessions that its records name, ``files`` what
    told another session of files that it shares."""

    session_id: str
    workflow: str
    version: int
    owner: str | None
    tags: tuple[str, ...]
    input_digest: bytes
    created_at: int
    step: str | None
    visit: int
    budget_usd: int | None
    records: tuple[Record, ...]
    blobs: tuple[tuple[bytes, bytes], ...] = ()
    pause: Pause | None = None
    claim: bool = True
    parent: int | None = None
    keep_for: int | None = None
    names: tuple[bytes, ...] = ()
    leaving: bool = False
    files: tuple[SignalRecord, ...] = ()


class Tombstone(msgspec.Struct, frozen=True):
    """What is left of a session that was removed. ``records`` and ``digest`` say where its log ended."""

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
    """A session that is being removed, and what will be left of it."""

    key: int
    tombstone: Tombstone


class Sweep(msgspec.Struct, frozen=True):
    """One batch of large values that was looked at: those that nothing named. ``last`` is None at the end."""

    last: int | None
    count: int
    bytes: int


class Space(msgspec.Struct, frozen=True):
    """How many bytes a store takes, and how many of them it could give back."""

    total: int
    free: int


class Proved(msgspec.Struct, frozen=True):
    """One batch of large values that were proved. ``last`` is None at the end."""

    last: int | None
    count: int
    damaged: tuple[str, ...]


class Whole(msgspec.Struct, frozen=True):
    """One session with all that belongs to it. ``mail`` are the numbers of the signals that it has yet to take in."""

    row: SessionRow
    records: list[Record]
    signals: list[SignalRecord]
    mail: list[int]
    pauses: list[Pause]
    blobs: dict[bytes, bytes]
    questions: list[QuestionFacts] = []


class Holder(msgspec.Struct, frozen=True):
    """An engine that has a store open, or that died and left ``sessions`` behind."""

    number: int
    pid: int
    host: str
    since: int
    live: bool
    sessions: tuple[str, ...]


class About(msgspec.Struct, frozen=True):
    """What a store says of itself and of where it is. Sizes are in bytes; None: not known, or there is no such thing.

    ``free`` is what `compact` could give back, ``disk_free`` what the disk has left. ``ballast`` is what is kept for a
    full disk, of the ``ballast_size`` that there should be.
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


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions a verb is for. Everything given must match; nothing given matches all.

    ``tree`` adds to ``session_id`` what descends from it; ``parent`` is the key of the one whose children are meant;
    ``prefix`` is how the id begins. ``statuses``: one of these, as they are derived at this moment. ``level``: ``root``
    leaves out what another session called, ``top`` only those whose caller matches as well.
    """

    session_id: str | None = None
    prefix: str | None = None
    workflow: str | None = None
    owner: str | None = None
    tag: str | None = None
    unended: bool = False
    tree: bool = False
    parent: int | None = None
    statuses: tuple[Status, ...] = ()
    input_digest: bytes | None = None
    level: Level = "any"
    sort: Sort = "created"
    reverse: bool = False
    limit: int | None = None


class Event(msgspec.Struct, frozen=True):
    """One line of a session's history. ``cursor`` is where to go on reading after it; empty for live-only events."""

    cursor: str
    session_id: str
    created_at: int
    agent_name: str
    event_type: str
    summary: str
    data: dict[str, Any]
