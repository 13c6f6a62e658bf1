"""What an engine asks a store to write: a new session, or the next move of one; and what it learns from the store then.

Nothing here does I/O. Times are microseconds since 1970 (UTC); money is in micro-dollars.
"""

from __future__ import annotations

from typing import TypedDict

import msgspec

from pausepoint.model.queues import DEFAULT_QUEUE
from pausepoint.model.records import Record, SignalRecord
from pausepoint.model.sessions import Ended, Failure, Pause, PauseMode, QuestionChange, QuestionFacts, SessionRow


class Flags(msgspec.Struct, frozen=True):
    """The requests from outside, as a commit returns them."""

    pause_requested: bool
    pause_mode: PauseMode
    cancel_requested: bool
    mail: bool = False


class Report(msgspec.Struct, frozen=True):
    """A child's report to its parent. If the child ended, the report wakes the parent; a pause is only noted."""

    status: str
    payload: bytes
    ends: bool


class ChildReport(msgspec.Struct, frozen=True):
    """The payload of a `Report`, as stored in the signal to the parent."""

    child: str
    status: str
    reason: str = ""


child_report = msgspec.json.Decoder(ChildReport).decode


class Commit(msgspec.Struct, frozen=True, gc=False):
    """One atomic move of a session from ``base_seq`` to the last of ``records``, under a fence.

    ``plain`` marks the most common kind of commit, which writes only records and the session's position. Otherwise:

    - ``release`` gives up the hold; ``waiting`` and ``wakes_at`` then say what resumes the session. ``kept`` says that
      this engine still has the step in memory.
    - ``consume`` are the numbers of the signals that the session has read. ``report`` goes to its ``parent``.
    - ``asks`` are questions asked by the commit's first record, for the first time or in their next round;
      ``questions`` are changes to open questions. ``settles`` means that the visit that asked them is over.
    - ``only_if_paused`` and ``only_if_waiting`` are conditions: a pause is still requested, the named question is still
      unanswered. If one does not hold, nothing is written.
    - ``redact`` and ``redact_signals`` are the numbers of records and signals that lose payload and salt. ``unname``
      are large values that the session no longer references; a value without any other reference is deleted.
      ``empty_drawers`` are the names of the session's drawers whose content is deleted.
    - ``cancel_children`` is the reason for which all unended descendants are cancelled (only with `Store.revise`).
    - ``keep_crashes`` keeps the crash count, because the session made no progress. ``thaw`` sets the frozen time to 0.
    """

    key: int
    fence: int
    base_seq: int
    records: tuple[Record, ...]
    updated_at: int
    key_frame: int
    step: str | None
    visit: int
    held_by_guard: bool = False
    ended: Ended | None = None
    failure: Failure | None = None
    release: bool = False
    kept: bool = False
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
    spend_operations: int = 0
    empty_drawers: tuple[str, ...] = ()


class Facts(TypedDict, total=False):
    """What a record changes besides the log: the members of `Commit` that its author may set. See there."""

    ended: Ended | None
    failure: Failure | None
    release: bool
    kept: bool
    only_if_paused: bool
    version: int | None
    open_pauses: tuple[Pause, ...]
    close_pauses: tuple[str, ...]
    closed_by: str | None
    waiting: str | None
    wakes_at: int | None
    consume: tuple[int, ...]
    thaw: bool
    parent: int | None
    report: Report | None
    cancel_children: str
    asks: tuple[QuestionFacts, ...]
    questions: tuple[QuestionChange, ...]
    only_if_waiting: str
    settles: bool


def overlooks_a_wake(row: SessionRow, commit: Commit) -> bool:
    """Return whether a commit that only adds an event would undo a resume, which moves neither ``seq`` nor the fence.

    The commit writes ``wakes_at`` as the session was read. If the session was made due since, no engine would find it.
    A commit that wakes the session earlier, as the resume of a guest does, overlooks nothing.
    """
    if commit.records[0].kind != "event" or commit.ended is not None or row.wakes_at is None:
        return False
    return commit.wakes_at is None or commit.wakes_at > row.wakes_at


class NewSession(msgspec.Struct, frozen=True):
    """A session for `Store.create` to store.

    ``names`` are large values of other sessions that its records reference. ``files`` are the signals that added the
    files which it shares with another session. ``claim`` means that the creating engine holds it. Without it, ``due``
    means that any engine may pick it up at once. ``guest``, ``queue``, ``priority`` and ``lane`` are as in
    `SessionRow`. ``drawers_of`` is the key of another session, whose drawers are copied.
    """

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
    held_by_guard: bool = False
    files: tuple[SignalRecord, ...] = ()
    budget_tokens: int | None = None
    budget_operations: int | None = None
    guest: bool = False
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    lane: str | None = None
    due: bool = False
    drawers_of: int | None = None
