"""The stored facts about sessions, and the function that derives a session's status from them.

Nothing here does I/O. Times are microseconds since 1970 (UTC); money is in micro-dollars.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Literal

import msgspec

from pausepoint.model.queues import DEFAULT_QUEUE


class Status(StrEnum):
    """The status of a session. It is derived from facts, never stored."""

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


StatusName = Literal[
    "created", "ready", "running", "pausing", "paused", "waiting", "sleeping", "completed", "failed", "cancelled"
]
"""The values of `Status`, for requests: their schema lists them where they are used."""

Ended = Literal["completed", "failed", "cancelled"]
PauseMode = Literal["finish", "abort"]
Level = Literal["any", "top", "root"]
Sort = Literal["created", "updated", "workflow", "spent", "id"]
Position = tuple[int | str, ...]
"""A position in a sorted list: the values of one item that the list is sorted by."""
PauseKind = Literal[
    "operator", "guard", "budget", "oversized", "missing", "mismatch", "definition", "crashes", "question", "disk"
]  # fmt: skip


class Failure(msgspec.Struct, frozen=True):
    """The error of a step, as stored with a failed session."""

    step: str
    type: str
    message: str
    attempts: int = 1
    traceback: str = ""


class Pause(msgspec.Struct, frozen=True):
    """A record of why a session does not run.

    ``standing`` marks a pause that is part of the pause of everything; lifting that pause closes it. ``freeze`` means
    that timers do not run during the pause. ``took_effect_at`` is when the session stopped because of the pause. It is
    None while the session is still finishing something, and if the session was not running when it was paused.
    """

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
    took_effect_at: int | None = None


class Stopping(msgspec.Struct, frozen=True):
    """How a pause of everything took effect: how many driven sessions it asked to stop, and the longest it took."""

    asked: int = 0
    longest: int | None = None


class QuestionStatus(StrEnum):
    """The stored status of a question. A waiting question may have expired: see `QuestionRow.status_at`."""

    WAITING = "WAITING_USER_INPUT"
    RESUMED = "RESUMED"
    COMPLETED = "COMPLETED"
    EXPIRED = "EXPIRED"
    CANCELLED = "CANCELLED"


class QuestionFacts(msgspec.Struct, frozen=True):
    """The stored facts about one question. Record ``seq`` of the log, the first of its commit, holds its text.

    ``version`` is the round and rises by one each time the question is asked. ``seen`` is a digest of what a person is
    shown. ``answer`` is the number of the signal with the answer. If the question is still waiting, that answer was
    invalid and the step has not read it yet. ``told`` means that the sender of a later message has been informed that
    the question expired. ``refused`` counts the refused answers.
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
    """A commit's change to an open question. Fields that are None stay unchanged."""

    id: str
    status: QuestionStatus | None = None
    expires_at: int | None = None
    answer: int | None = None


class SessionRow(msgspec.Struct, frozen=True):
    """The stored facts about one session.

    The store computes ``live`` (the holder is alive) and ``due`` (what the session waits for has arrived) when it reads
    the row. ``waiting`` lists the kinds of things that the session waits for, separated by commas. ``wakes_at`` is the
    time when it wakes; 0 means that something it waits for has arrived, so it is due now. ``kept_by`` is the engine
    that keeps the step of a paused session in memory, if that engine is alive: it can continue the step in place.
    ``ready_at`` is stored; its value is that of the function `ready_at`. ``pause_requested`` is set if the session has
    a pause of its own (``own_pause``), or if the pause of everything stops it (``under_everything``). The code of a
    ``guest`` runs in a program of its own, so no engine picks the session up. ``signals`` is the number of its last
    signal. ``queue``, ``priority`` and ``lane`` say when the session gets its turn: see `pausepoint.model.queues`.
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
    held_by_guard: bool
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
    kept_by: int | None = None
    ready_at: int | None = None
    own_pause: bool = False
    under_everything: bool = False
    spent_operations: int = 0
    budget_tokens: int | None = None
    budget_operations: int | None = None
    guest: bool = False
    signals: int = 0
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    lane: str | None = None

    @property
    def status(self) -> Status:
        """See `derive_status`."""
        return derive_status(self)

    @property
    def may_have_budget(self) -> bool:
        """Return whether the session has a budget, or may spend the budget of a parent."""
        return (
            self.parent is not None
            or self.budget_usd is not None
            or self.budget_tokens is not None
            or self.budget_operations is not None
        )

    @property
    def awaits_child(self) -> bool:
        """Return whether the session waits for a child to end."""
        return self.waiting is not None and "child" in self.waiting.split(",")

    @property
    def awaits_timer(self) -> bool:
        """Return whether the session waits for a timer. The time limit of a question or a message does not count."""
        kinds = (self.waiting or "").split(",")
        return self.wakes_at is not None and ("timer" in kinds or not self.awaits_someone)

    @property
    def awaits_someone(self) -> bool:
        """Return whether the session waits for a message or an answer."""
        kinds = (self.waiting or "").split(",")
        return "message" in kinds or "answer" in kinds

    @property
    def awaits_answer_for_ever(self) -> bool:
        """Return whether the session waits for an answer without a time limit."""
        return self.wakes_at is None and "answer" in (self.waiting or "").split(",")

    @property
    def resumes_on_its_own(self) -> bool:
        """Return whether a parked session resumes on its own: what it waits for has arrived, or a timer is running."""
        status = self.status
        return not self.guest and (status is Status.SLEEPING or (status is Status.READY and self.due))


def derive_status(row: SessionRow) -> Status:
    """Return the status: the first rule that applies. An ended session stays ended even if a pause was requested."""
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


def needs_driving(row: SessionRow) -> bool:
    """Return whether a parked session that is no longer paused needs an engine to drive it.

    Either it waits for nothing, or its wake-up time must be computed again because its timers were frozen.
    """
    status = row.status
    return status in (Status.CREATED, Status.READY) or (row.frozen > 0 and status in (Status.WAITING, Status.SLEEPING))


def can_be_tried_again(row: SessionRow) -> bool:
    """Return whether a resume can leave it to any engine to test why a session is paused, such as a guard."""
    return not row.guest and not row.live and row.ended is None


def can_be_handed_over(row: SessionRow) -> bool:
    """Return whether a resume can leave a session to any engine, although no pause was withdrawn.

    It has failed, or it is ready but not due, because its process was interrupted.
    """
    return not row.guest and not row.due and row.status in (Status.CREATED, Status.READY, Status.FAILED)


def position(row: SessionRow, sort: Sort) -> Position:
    """Return where a session is in a list that is sorted like this. No two sessions are at the same position."""
    match sort:
        case "created":
            return row.created_at, row.key
        case "updated":
            return row.updated_at, row.key
        case "workflow":
            return row.workflow, row.created_at, row.key
        case "spent":
            return row.spent_usd, row.key
        case "id":
            return (row.session_id,)


_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def contains(text: str, part: str) -> bool:
    """Return whether a text has this part. Only the letters A to Z match in both cases, and nothing is a wildcard.

    >>> contains("Nightly 100%", "LY 100%"), contains("100x", "100%"), contains("Öl", "öl")
    (True, False, False)
    """
    return part.translate(_LOWER) in text.translate(_LOWER)


def ready_at(row: SessionRow) -> int | None:
    """Return from when on a worker may take a session; 0 means at once, and None not before something else happens.

    That is the case while an engine holds the session, a pause of its own or another obstacle stops it, it waits
    without a timer, or it has ended, and always for a guest. The pause of everything does not count: it is one fact of
    the store. Stores keep the value with the session, so that ready sessions are found by index.
    """
    if row.guest or row.holder is not None or row.own_pause or row.open_pauses or row.ended is not None:
        return None
    return 0 if row.wakes_at is None and row.waiting is None else row.wakes_at


def kept_for(row: SessionRow, ended_for: int | None) -> int | None:
    """Return how long a session is kept. ``ended_for`` applies to ended sessions without their own ``keep_for``."""
    return ended_for if row.keep_for is None and row.ended in ("completed", "cancelled") else row.keep_for


def has_expired(tree: Sequence[SessionRow], now: int, ended_for: int | None = None) -> bool:
    """Return whether a session and its descendants have been inactive for as long as the session is kept.

    A session never expires while one of them is being driven, or waits for an answer without a time limit. The time
    counts from the last update or the last wake-up time, whichever is later.
    """
    roots = [row for row in tree if row.parent is None]
    keep_for = kept_for(roots[0], ended_for) if roots else None
    if keep_for is None or any(row.live or row.awaits_answer_for_ever for row in tree):
        return False
    return all(max(row.updated_at, row.wakes_at or 0) + keep_for <= now for row in tree)


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects sessions. A session must match every given condition; without conditions, all sessions match.

    ``ids`` are the ids of several sessions. ``tree`` adds the descendants of ``session_id`` or ``ids``. ``parent`` is
    the key of a session whose children are selected. ``prefix`` is the start of the id. ``statuses`` selects sessions
    whose current status is one of these. ``failed`` selects sessions that have failed, or those that have not, even if
    they are paused. ``own_pause`` selects unended sessions that have a pause of their own, besides the pause of
    everything. ``crashed`` selects unended sessions whose process died since they last made progress. ``since``
    and ``until`` are limits of ``updated_at``, which both match. ``level`` is ``root`` to leave out all child sessions,
    or ``top`` to leave out only those whose parent matches too. ``text`` is a part of the id, the owner, a tag, the
    type or message of the failure, or the reason of an open pause; `contains` defines how they are compared. ``after``
    selects the sessions after this position in the sorted list; it does not affect counts.
    """

    session_id: str | None = None
    ids: tuple[str, ...] | None = None
    prefix: str | None = None
    workflow: str | None = None
    owner: str | None = None
    tag: str | None = None
    queue: str | None = None
    unended: bool = False
    tree: bool = False
    parent: int | None = None
    statuses: tuple[Status, ...] = ()
    failed: bool | None = None
    own_pause: bool = False
    crashed: bool = False
    input_digest: bytes | None = None
    since: int | None = None
    until: int | None = None
    level: Level = "any"
    text: str | None = None
    sort: Sort = "created"
    reverse: bool = False
    limit: int | None = None
    after: Position | None = None


class Event(msgspec.Struct, frozen=True):
    """One line of a session's history. To read on, pass ``cursor``; it is empty for events that are not stored."""

    cursor: str
    session_id: str
    created_at: int
    agent_name: str
    event_type: str
    summary: str
    data: dict[str, Any]
