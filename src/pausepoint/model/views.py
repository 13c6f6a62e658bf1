"""Plain records about sessions for people and programs to read. They have no methods that change anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, cast

import msgspec
from typing_extensions import TypeVar

from pausepoint.errors import DamagedRecord, NotFinished, StateRefused
from pausepoint.model.ids import SessionId
from pausepoint.model.limits import Scope
from pausepoint.model.notebook import facts, table
from pausepoint.model.questions import Question
from pausepoint.model.queues import DEFAULT_QUEUE
from pausepoint.model.sessions import Failure, Pause, Status
from pausepoint.model.stores import About, Holder

if TYPE_CHECKING:
    from pydantic import BaseModel

S = TypeVar("S", bound="BaseModel")
R = TypeVar("R", default=S)  # the result: what a function returned, or the final state
T = TypeVar("T")


class SessionInfo(msgspec.Struct, frozen=True):
    """The facts about a session, without its state. ``seq`` is the number of the last record in its log.

    ``held_by_guard`` means that the session's step has ended but the session has not moved on: a guard holds it there,
    or its next step is not decided yet. ``kept_by`` is the process that keeps the step of a paused session in memory:
    if the session is resumed soon, the step continues there. ``fence`` rises whenever an engine takes the session; see
    `Session.take_up`. The code of a ``guest`` runs in a program of its own; see `Engine.visit`.

    ``pause`` is the first open pause, the reason why a paused session does not run; `Session.pauses` returns all of
    them. ``signals`` is the number of the last request or message that reached the session from outside: a pause, for
    example, raises it without raising ``seq``. ``waits_for_slot`` is the limit that keeps a ready session from work,
    such as ``queue gpu, 4 of 4 at work``.
    """

    session_id: SessionId
    workflow: str
    version: int
    status: Status
    step: str | None
    visit: int
    owner: str | None
    tags: tuple[str, ...]
    created_at: datetime
    updated_at: datetime
    pause_requested: bool
    cancel_requested: bool
    holder: str | None
    failure: Failure | None
    spent_usd: float
    spent_tokens: int
    budget_usd: float | None
    progress: tuple[int, int] | None
    waiting: tuple[str, ...] = ()
    wakes_at: datetime | None = None
    parent_id: str | None = None
    seq: int = 0
    held_by_guard: bool = False
    kept_by: str | None = None
    fence: int = 0
    spent_operations: int = 0
    budget_tokens: int | None = None
    budget_operations: int | None = None
    guest: bool = False
    signals: int = 0
    pause: Pause | None = None
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    lane: str | None = None
    waits_for_slot: str | None = None

    def _repr_html_(self) -> str:
        failure, progress = self.failure, self.progress
        known = {
            "status": self.status.value,
            "workflow": f"{self.workflow}, version {self.version}",
            "step": self.step and f"{'after ' if self.held_by_guard else ''}{self.step}#{self.visit}",
            "progress": progress and f"{progress[0]}/{progress[1]}",
            "owner": self.owner,
            "tags": ", ".join(self.tags),
            "created": f"{self.created_at:%Y-%m-%d %H:%M:%S} UTC",
            "updated": f"{self.updated_at:%Y-%m-%d %H:%M:%S} UTC",
            "requested": " and ".join(_requests(self)),
            "paused": self.pause and _paused(self.pause),
            "queue": None if (self.queue, self.priority) == (DEFAULT_QUEUE, 0) else f"{self.queue}, {self.priority}",
            "waits for a slot": self.waits_for_slot,
            "driven by": self.holder,
            "step kept by": self.kept_by,
            "failure": failure and _failed(failure),
            "spent": _money(self.spent_usd, self.budget_usd),
            "tokens": _count(self.spent_tokens, self.budget_tokens),
            "operations": _count(self.spent_operations, self.budget_operations),
        }
        return facts(known, f"Session {self.session_id}")


class LimitInfo(msgspec.Struct, frozen=True):
    """A limit of the sessions of a queue, workflow or lane: see `Engine.limit`.

    ``most`` is None if it lifts a limit of the code. ``declared`` limits come from the code of a workflow. ``counts``
    is false for a declared limit that `Engine.limit` has overridden. ``at_work`` is how many sessions of the queue,
    workflow or lane are at work now, of all owners and lanes.
    """

    scope: Scope
    name: str
    most: int | None
    per: timedelta | None = None
    by: str | None = None
    declared: bool = False
    counts: bool = True
    at_work: int = 0


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue: how many of its sessions are ready and wait for an engine or a slot, and how many are at work."""

    name: str
    ready: int
    at_work: int


class Working(msgspec.Struct, frozen=True):
    """A session that a process still works on although it was asked to pause.

    ``operations`` are the names of the operations in flight. ``confirmed`` is false if the process has not reacted to
    the request yet: it may be blocked, stopped or out of reach, and may still begin something.
    """

    session_id: SessionId
    holder: str
    step: str
    operations: tuple[str, ...]
    confirmed: bool


class Finishing(msgspec.Struct, frozen=True):
    """An operation that a session finishes before the pause of everything takes effect.

    ``operation`` is empty if the step finishes outside of operations, or if the process has not reacted yet. ``since``
    is when it was asked to stop.
    """

    session_id: SessionId
    step: str
    operation: str
    since: datetime


class StandingPause(Pause, frozen=True):
    """The pause of everything, and how it took effect.

    - ``asked``: the sessions that ran when everything was paused.
    - ``stopped``: those of them that no longer run.
    - ``finishing``: what the others still do.
    - ``longest``: the longest time that a session took until it paused; None if none did.
    """

    asked: int = 0
    stopped: int = 0
    finishing: tuple[Finishing, ...] = ()
    longest: timedelta | None = None


class Retrying(msgspec.Struct, frozen=True):
    """An operation that waits to be retried: how many attempts have failed, the last error, and the next attempt."""

    operation: str
    attempt: int
    error: str
    until: datetime

    def __str__(self) -> str:
        when = f"{self.until:%Y-%m-%d %H:%M:%S} UTC"
        return f"{self.operation} waits to be retried at {when}: attempt {self.attempt} failed, {self.error}"


class Listing(list[T]):
    """The result of a search for sessions. ``damaged`` are the errors of sessions whose facts cannot be read.

    A damaged session does not hide the others. Each `DamagedRecord` names its ``session_id``. ``working`` is what
    ``pause(wait=True, timeout=…)`` found still at work when its time was over. ``next`` is the cursor of the next page
    if ``limit`` left out others; pass it as ``after``. It is None on the last page.
    """

    def __init__(
        self, found: Iterable[T] = (), damaged: Iterable[DamagedRecord] = (), working: Iterable[Working] = (),
        next: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(found)
        self.damaged: tuple[DamagedRecord, ...] = tuple(damaged)
        self.working: tuple[Working, ...] = tuple(working)
        self.next = next


def _requests(info: SessionInfo) -> list[str]:
    asked = {"pause": info.pause_requested, "cancel": info.cancel_requested}
    return [name for name, wanted in asked.items() if wanted]


def _paused(pause: Pause) -> str:
    return f"{pause.reason or pause.kind}{f', by {pause.by}' if pause.by else ''}"


def _failed(failure: Failure) -> str:
    return f"{failure.type} in {failure.step}: {failure.message}"


def _money(spent: float, budget: float | None = None) -> str:
    if budget is not None:
        return f"{spent:.6g} of {budget:.6g} USD"
    return f"{spent:.6g} USD" if spent else ""


def _count(spent: int, budget: int | None) -> str | int | None:
    return f"{spent:,} of {budget:,}" if budget is not None else spent or None


class Checkpoint(msgspec.Struct, frozen=True):
    """The log's record of one finished visit.

    ``seq`` is its record number, ``fields`` the fields that it wrote, ``version`` the version of the workflow.
    ``left_behind`` means that a rewind went back past this checkpoint, so it no longer affects the session's state.
    ``redacted`` means that its content was deleted; only ``step``, ``visit``, ``seq`` and ``ended_at`` are known.
    """

    step: str
    visit: int
    seq: int
    ended_at: datetime
    took: timedelta = timedelta()
    skipped: str = ""
    attempts: int = 1
    fields: tuple[str, ...] = ()
    version: int = 1
    left_behind: bool = False
    redacted: bool = False

    @property
    def name(self) -> str:
        """Return the name that other calls accept for this checkpoint, such as ``write#2``."""
        return f"{self.step}#{self.visit}"


class OperationInfo(msgspec.Struct, frozen=True):
    """An operation that has ended: what it received and returned, as plain JSON values.

    - ``seq``: the number of its record. ``id``: its identity, by which a replay finds it. ``label``: its key, or the
      beginning of its arguments.
    - ``arguments``: those of its function by name; None if they were not recorded. ``result``: what it returned; the
      beginning if it is large, unless one operation was asked for. ``bytes`` is its size.
    - ``outcome``: why a wait ended without a result: ``expired``, ``rounds``, ``declined`` or ``timeout``.
    - ``usd``, ``tokens``: what it spent itself.
    - ``left_behind``: a rewind has undone it, so that its result no longer counts.
    """

    seq: int
    id: str
    name: str
    label: str
    step: str
    visit: int
    began_at: datetime
    ended_at: datetime
    arguments: dict[str, Any] | None
    result: Any
    bytes: int
    outcome: str = ""
    usd: float = 0.0
    tokens: int = 0
    left_behind: bool = False

    @property
    def took(self) -> timedelta:
        """How long it ran."""
        return self.ended_at - self.began_at


Role: TypeAlias = Literal["system", "user", "assistant", "tool", "question", "answer", "message", "error"]
"""Who says something in a conversation, or what happens there."""


class ToolUse(msgspec.Struct, frozen=True):
    """A tool that a model wants to call."""

    name: str
    arguments: Any


class Turn(msgspec.Struct, frozen=True):
    """One turn of a session's conversation.

    - ``seq``: the number of its record; several turns may have the same. ``role``: ``system`` and ``user`` are what a
      model was told, ``assistant`` is what it answered, ``tool`` is another operation, ``question``, ``answer`` and
      ``message`` are between the session and people.
    - ``name``: the function that called the model, the tool, the person, or the step.
    - ``calls``: the tools that a model wants to call. ``arguments`` and ``result`` are those of a tool.
    - ``operation``: the id of the operation, if the turn is one; it ``took`` so many seconds.
    - ``left_behind``: it belongs to an operation that a rewind has undone.
    """

    seq: int
    at: datetime
    role: Role
    name: str
    text: str = ""
    thinking: str = ""
    calls: tuple[ToolUse, ...] = ()
    arguments: dict[str, Any] | None = None
    result: Any = None
    operation: str = ""
    took: float = 0.0
    usd: float = 0.0
    tokens: int = 0
    left_behind: bool = False


class StoredState(msgspec.Struct, frozen=True):
    """The state of a session at record ``seq``: its fields as plain JSON values."""

    session_id: SessionId
    seq: int
    values: dict[str, Any]


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """One difference between two states, at ``path``.

    The kind ``grown`` means that a list got longer; the field ``added`` holds the new items. The kinds ``added`` and
    ``removed`` mean that the path exists in only one of the states.
    """

    path: str
    kind: Literal["changed", "grown", "added", "removed"]
    before: Any = None
    after: Any = None
    added: tuple[Any, ...] = ()

    def __str__(self) -> str:
        match self.kind:
            case "grown":
                count = len(self.added)
                return f"{self.path}: {count} {'item' if count == 1 else 'items'} added: {_shown(list(self.added))}"
            case "added":
                return f"{self.path}: added {_shown(self.after)}"
            case "removed":
                return f"{self.path}: removed, was {_shown(self.before)}"
            case "changed":
                return f"{self.path}: {_shown(self.before)} → {_shown(self.after)}"


class Diff(msgspec.Struct, frozen=True, omit_defaults=True):
    """The differences between two states of a session, or of two sessions. Values are plain JSON, as stored.

    ``a`` and ``b`` are record numbers; ``b`` belongs to the session ``other_id`` if that is set.
    """

    session_id: SessionId
    a: int
    b: int
    changes: tuple[Difference, ...]
    other_id: SessionId | None = None

    def __len__(self) -> int:
        return len(self.changes)

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.changes)

    def __getitem__(self, path: str) -> Difference:
        return {change.path: change for change in self.changes}[path]

    def __str__(self) -> str:
        lines = [str(change) for change in self.changes] or ["no difference"]
        return "\n".join([f"{self._title}:", *(f"  {line}" for line in lines)])

    @property
    def _title(self) -> str:
        to = f"{self.b}" if self.other_id is None else f"{self.other_id}, record {self.b}"
        return f"{self.session_id}, record {self.a} to {to}"

    def to_json(self) -> dict[str, Any]:
        """Return the diff as plain data for `json.dumps`."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    def _repr_html_(self) -> str:
        rows = [
            (each.path, _shown(each.before), "+ " + _shown(list(each.added)) if each.added else _shown(each.after))
            for each in self
        ]
        return table(["place", "before", "after"], rows, f"Session {self._title}")


def _shown(value: Any, most: int = 200) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


class Stale(msgspec.Struct, frozen=True):
    """A finished step that must run again: the reason, and the time and cost of its last run."""

    step: str
    why: str
    seconds: float
    usd: float

    def __str__(self) -> str:
        cost = f", {self.usd:.4g} USD" if self.usd else ""
        return f"{self.step} ({self.seconds:.3g} s{cost} when it last ran)"


class Misfit(msgspec.Struct, frozen=True):
    """A parked session that cannot resume with the current code: the reasons, and the ways to fix it."""

    session: SessionInfo
    reasons: tuple[str, ...]
    ways: tuple[str, ...] = ()


class Obstacles(msgspec.Struct, frozen=True):
    """Why a resume would not run a session now, and the ways to make it fit the code; both empty if it would run."""

    reasons: tuple[str, ...] = ()
    ways: tuple[str, ...] = ()


class Health(msgspec.Struct, frozen=True):
    """The health of a store: facts about it, the engines that use it, and the sessions that need attention.

    ``trouble`` says why the store cannot be written at present; ``standing_pause`` is the pause of everything, if one
    is in effect. ``gone`` are engines that died while they held sessions. ``crashes`` counts, for each unended session,
    how often its process died since the session last made progress. ``damaged`` are the errors of those that cannot be
    read; `Engine.verify` checks all sessions. ``sessions`` counts damaged sessions too.
    """

    store: About
    trouble: str | None
    sessions: dict[Status, int]
    engines: tuple[Holder, ...]
    gone: tuple[Holder, ...]
    crashes: dict[SessionId, int]
    damaged: tuple[str, ...] = ()
    standing_pause: Pause | None = None


class Outcome(msgspec.Struct, Generic[S, R], frozen=True):
    """The result of running a session in this process.

    ``questions`` are those that wait for an answer. ``step`` is where the session stopped, or None at its end.
    """

    session_id: SessionId
    status: Status
    pauses: tuple[Pause, ...]
    failure: Failure | None
    skipped_visits: int
    saved_time: timedelta
    saved_usd: float
    spent_usd: float
    spent_tokens: int
    _state: S | StateRefused
    questions: tuple[Question, ...] = ()
    _returns: str | None = None
    step: str | None = None
    _run_with: str | None = None  # what `run` had as its store, if the caller has no engine

    def __repr__(self) -> str:
        """Return the status in short. The state and the rest are attributes."""
        failure = f", failure={_failed(self.failure)!r}" if self.failure is not None else ""
        asked = f", questions={len(self.questions)}" if self.questions else ""
        return f"Outcome({str(self.session_id)!r}, {self.status.value!r}{failure}{asked})"

    @property
    def state(self) -> S:
        """Return the state at the last checkpoint. Raises `StateRefused` if it does not fit the current model."""
        if isinstance(self._state, StateRefused):
            raise self._state
        return self._state

    @property
    def result(self) -> R:
        """Return what the function returned; for a workflow with a list of steps, the final state.

        Raises `NotFinished` unless the session completed.
        """
        if self.status is not Status.COMPLETED:
            raise NotFinished(self._unfinished(), session_id=self.session_id, status=self.status.value)
        return cast("R", self.state if self._returns is None else getattr(self.state, self._returns))

    def _unfinished(self) -> str:
        """Return why there is no result yet, and what to do."""
        from pausepoint.model.ways import Ways, unanswered  # only an error needs them

        about, ways = f"Session {str(self.session_id)!r}", Ways(str(self.session_id), self._run_with)
        if (question := unanswered(self.failure)) is not None:
            failed = f"{about} failed: {ways.reworded(_failed(cast('Failure', self.failure))).rstrip('.')}."
            return failed if question else f"{failed} A resume keeps that. Ask again with {ways.ask_again('')}."
        if self.failure is not None:
            why = _failed(self.failure).rstrip(".")
            return f"{about} failed: {why}. Remove the cause, then retry the step with {ways.resume()}."
        if self.questions:
            asked = self.questions[0].next_question
            return f"{about} waits for an answer to {asked!r}. Answer it with {ways.answer(self.questions[0].id)}."
        if self.status is Status.CANCELLED:
            return f"{about} was cancelled and has no result. {ways.after_cancel}."
        if self.pauses:
            budget = any(pause.kind == "budget" for pause in self.pauses)
            why = f": {reason}" if (reason := self.pauses[0].reason) else ""
            if any(pause.standing for pause in self.pauses):
                return f"{about} is paused with everything else{why}. Continue it with {ways.lift}."
            return f"{about} is paused{why}. Continue it with {ways.resume(budget)}."
        if self.status is Status.WAITING:
            what = "waits for a message or a child session"
            return f"{about} {what}. Send the message with {ways.send}, or answer the child."
        return f"{about} is {self.status.value} and has no result yet. Wait for it: {ways.wait}."

    def _repr_html_(self) -> str:
        known = {
            "status": self.status.value,
            "failure": self.failure and _failed(self.failure),
            "skipped": f"{self.skipped_visits} visits, {self.saved_time}" if self.skipped_visits else "",
            "saved": _money(self.saved_usd),
            "spent": _money(self.spent_usd),
            "tokens": self.spent_tokens or None,
        }
        tables = [facts(known, f"Session {self.session_id}")]
        if self.pauses:
            pauses = [(pause.kind, pause.reason, pause.by) for pause in self.pauses]
            tables.append(table(["pause", "reason", "by"], pauses, "Why it is paused"))
        if self.questions:
            asked = [(each.next_question, each.current_round, each.id) for each in self.questions]
            tables.append(table(["question", "round", "id"], asked, "What it waits for"))
        if isinstance(self._state, StateRefused):
            tables.append(facts({"refused": self._state}, "State"))
        else:
            fields = [(name, getattr(self._state, name)) for name in type(self._state).model_fields]
            tables.append(table(["field", "value"], fields, "State"))
        return "".join(tables)
