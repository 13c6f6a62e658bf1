"""What the records of a session say: its state, its position, what its open visit remembers, what comes next.

Pure: no I/O, no clock, no randomness. The bodies below are the payloads of the log's records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from pausepoint.clock import LATEST
from pausepoint.definition.workflow import Check, Workflow
from pausepoint.errors import DamagedRecord, IllegalTransition, Redacted
from pausepoint.log.state import Blob, Change, Inline, Slot, State
from pausepoint.log.trail import Adopted, Left, Trail, Work
from pausepoint.model.chunks import Part, Tally, fold_part
from pausepoint.model.questions import Asked
from pausepoint.model.records import Record
from pausepoint.model.sessions import Failure


class Effect(msgspec.Struct, frozen=True, omit_defaults=True):
    """An ``emit`` or a ``spend``, committed with the next record; ``id`` keeps a replay from doubling it.

    ``left``: what a checkpoint says about the artifacts of its visit; it comes last.
    """

    id: str
    at: int
    type: str
    agent: str = ""
    summary: str = ""
    data: msgspec.Raw = msgspec.Raw(b"{}")
    usd: int = 0
    tokens: int = 0
    left: Left | None = None


class CheckpointBody(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one visit changed, and where the session goes next."""

    next: str | None
    changes: tuple[Change, ...] = ()
    leaving: bool = False
    skipped: str = ""
    refused: str = ""
    failure: Failure | None = None
    took: int = 0
    attempts: int = 1
    agent: str = ""
    effects: tuple[Effect, ...] = ()
    version: int = 1


class OperationBody(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A remembered operation. ``input`` is a fingerprint, never the arguments themselves.

    ``outcome``: a question came to nothing (``expired``, ``rounds``, ``declined``), and ``value`` is what to say of it.
    ``part``: it is the work on a chunk of a file, or on all of them.
    """

    id: str
    name: str
    value: Inline | Blob
    input: str = ""
    total: int = 0
    took: int = 0
    agent: str = ""
    effects: tuple[Effect, ...] = ()
    outcome: str = ""
    part: Part | None = None


class EventBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fact about the session that changes no data; it may move the position.

    ``shift`` moves the open timers on by the time for which they were frozen, ``wake`` ends them now. ``attempts`` is
    how many of the open visit have failed by now. ``noticed`` is a child whose failure the step was told. ``forgets``
    are operations that are no longer remembered: questions that nobody answered, which are to be asked anew. ``part``
    is a chunk of a file that failed.
    """

    type: str
    summary: str = ""
    agent: str = ""
    data: msgspec.Raw = msgspec.Raw(b"{}")
    moved: bool = False
    next: str | None = None
    leaving: bool = False
    shift: int = 0
    wake: bool = False
    attempts: int | None = None
    effects: tuple[Effect, ...] = ()
    noticed: str = ""
    forgets: tuple[str, ...] = ()
    part: Part | None = None


class WaitBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A wait was opened: until ``due``, for the end of ``child``, or for an answer to what it asks (in time).

    The operation of the same id ends it. ``at`` is when, ``input`` is as in an operation. A wait for a message needs no
    record: what it waits for is kept for it anyway.
    """

    id: str
    name: str
    due: int | None = None
    child: str = ""
    agent: str = ""
    effects: tuple[Effect, ...] = ()
    at: int = 0
    input: str = ""
    ask: Asked | None = None


class Journal(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an open visit remembers, for a key frame in the middle of one. ``opened`` is where the visit began.

    ``touched``: the state or the definition was changed since then.
    """

    opened: int
    operations: tuple[OperationBody, ...] = ()
    waits: tuple[WaitBody, ...] = ()
    effects: tuple[str, ...] = ()
    attempts: int = 0
    touched: bool = False


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a fork comes from: the state of that session as of record ``seq``; it stands before visit ``at_step``."""

    session_id: str
    seq: int
    at_step: str = ""
    edited: tuple[str, ...] = ()


class KeyBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key frame: everything that the records before it add up to.

    ``left`` are the stretches of the log (first and last number) that rewinds have left behind, ``chunked`` is how far
    the work on files has come, ``trail`` what is known of artifacts.
    """

    fields: dict[str, Slot]
    step: str | None
    leaving: bool = False
    visits: dict[str, int] = {}
    took: int = 0
    usd: int = 0
    created: bool = False
    by: str | None = None
    journal: Journal | None = None
    version: int = 1
    outline: tuple[str, ...] = ()
    left: tuple[tuple[int, int], ...] = ()
    origin: Origin | None = None
    chunked: dict[str, Tally] = {}
    trail: Trail | None = None


class EditBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody changed the state of a parked session. ``reopened``: how it had ended.

    One that had completed stands at its last step again (``leave``), whose way out is decided anew. ``adopted``: files
    that somebody has edited in the session's folder.
    """

    changes: tuple[Change, ...]
    by: str | None = None
    reason: str = ""
    reopened: str = ""
    leave: str | None = None
    adopted: tuple[Adopted, ...] = ()


class RewindBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The session goes back to before visit ``to``. Its record's parent is what the new line builds on.

    A key frame follows and says how everything stood there.
    """

    to: str
    reuse: bool = False
    by: str | None = None
    reason: str = ""
    reopened: str = ""


class DefinitionBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The session goes on with another definition than before: its version, its steps, or both.

    ``outline`` lists the steps that it has now, ``renamed`` what they were called before. What becomes of the state:
    ``moved`` fields keep their value under a new name, ``dropped`` ones go, ``fields`` are written. ``shown``: fields
    that artifacts carry by another name now (new to old).
    """

    version: int
    outline: tuple[str, ...]
    type: str
    summary: str = ""
    by: str | None = None
    data: msgspec.Raw = msgspec.Raw(b"{}")
    renamed: dict[str, str] = {}
    fields: dict[str, Inline | Blob] = {}
    moved: dict[str, str] = {}
    dropped: tuple[str, ...] = ()
    shown: dict[str, str] = {}


ASKING = ("ask", "confirm", "collect")
"""The names of operations that ask people."""

Body = KeyBody | CheckpointBody | OperationBody | EventBody | WaitBody | EditBody | RewindBody | DefinitionBody
_bodies: dict[str, msgspec.json.Decoder[Any]] = {
    "key": msgspec.json.Decoder(KeyBody),
    "checkpoint": msgspec.json.Decoder(CheckpointBody),
    "operation": msgspec.json.Decoder(OperationBody),
    "event": msgspec.json.Decoder(EventBody),
    "wait": msgspec.json.Decoder(WaitBody),
    "edit": msgspec.json.Decoder(EditBody),
    "rewind": msgspec.json.Decoder(RewindBody),
    "definition": msgspec.json.Decoder(DefinitionBody),
}
to_payload = msgspec.json.Encoder().encode


def body_of(record: Record) -> Any:
    """Read a record's payload."""
    if record.redacted:
        raise Redacted(
            f"record {record.seq} ({record.kind}) was redacted; ask for a later one, or for how the session stands now",
            seq=record.seq,
        )
    try:
        return _bodies[record.kind].decode(record.payload)
    except msgspec.MsgspecError as error:
        raise DamagedRecord(f"record {record.seq} ({record.kind}) cannot be read: {error}", seq=record.seq) from error


class Line:
    """The fold of a session's records: where it stands and what it knows."""

    __slots__ = (
        "attempts", "base", "bytes_since_key", "chunked", "effects", "leaving", "left", "noticed", "opened",
        "operations", "outline", "records_since_key", "spans", "spent", "state", "step", "took", "touched", "trail",
        "usd", "version", "visits", "waits", "worked",
    )  # fmt: skip

    def __init__(self) -> None:
        self.state = State()
        self.version = 1
        self.outline: tuple[str, ...] = ()
        self.step: str | None = None
        self.leaving = False
        self.visits: dict[str, int] = {}
        self.operations: dict[str, OperationBody] = {}
        self.waits: dict[str, WaitBody] = {}
        self.effects: set[str] = set()
        self.chunked: dict[str, Tally] = {}
        self.noticed: set[str] = set()  # children whose failure this attempt at the visit was told
        self.attempts = 0
        self.opened = 0
        self.base = 0  # the last record that says what the open visit begins with
        self.touched = False  # an edit or another definition came since the visit was opened
        self.left: tuple[tuple[int, int], ...] = ()
        self.took = 0
        self.worked = 0  # of that, in the operations of the open visit …
        self.spans: list[tuple[int, int]] = []  # … which was at these times
        self.usd = 0
        self.spent = 0  # of that, before the open visit
        self.trail: Trail | None = None  # of a session that leaves artifacts
        self.records_since_key = 0
        self.bytes_since_key = 0

    @property
    def visit(self) -> int:
        """The number of the visit that is open, or would be opened next, at the present position."""
        if self.step is None:
            return 0
        return self.visits.get(self.step, 0) + (0 if self.leaving else 1)

    def fold(self, record: Record, body: Body, applied: bool = False) -> None:
        """Take in the next record; ``applied`` if the state has its changes already."""
        self.records_since_key += 1
        self.bytes_since_key += len(record.payload)
        if isinstance(body, CheckpointBody):
            self._fold_checkpoint(record, body, applied)
        elif isinstance(body, OperationBody):
            self.operations[body.id] = body
            self.waits.pop(body.id, None)
            self._worked(record.at, body.took)
            self._fold_effects(body.effects)
            if body.part is not None:
                fold_part(self.chunked, body.part, body.total)
        elif isinstance(body, KeyBody):
            self._fold_key(record, body)
        elif isinstance(body, DefinitionBody):
            self.upgrade(body)
            self.base, self.touched = record.seq, True
        elif isinstance(body, WaitBody):
            self.waits[body.id] = body
            self._fold_effects(body.effects)
        elif isinstance(body, EditBody):
            self.edit(body, applied)
            if self.trail is not None:
                self._fold_edit(record, body, self.trail)
            self.base, self.touched = record.seq, True
        elif isinstance(body, EventBody):
            self._fold_event(record, body)
        # What a rewind does is in the key frame behind it.

    def _fold_event(self, record: Record, body: EventBody) -> None:
        self._fold_effects(body.effects)
        if body.moved:
            self.step, self.leaving = body.next, body.leaving
            self._open(record.seq)
        if body.attempts is not None:
            self.attempts = body.attempts
            self.noticed.clear()
        if body.noticed:
            self.noticed.add(body.noticed)
        if body.part is not None:
            fold_part(self.chunked, body.part, 0)
        for tally in self.chunked.values():
            if body.attempts is not None or body.type == "session.resumed":
                tally.begin_anew()
            if body.wake:
                tally.wake()
        for id in body.forgets:
            self.operations.pop(id, None)
        for id, wait in self.waits.items() if body.shift or body.wake else ():
            if (due := deferred(wait, record.at, body.shift, body.wake)) is not None:
                self.waits[id] = msgspec.structs.replace(wait, due=due)

    def edit(self, body: EditBody, applied: bool = False) -> None:
        """Take in what somebody changed. The open visit keeps what it remembers."""
        if not applied:
            for change in body.changes:
                self.state.apply(change)
        if body.leave is not None:
            self.step, self.leaving = body.leave, True

    def _fold_edit(self, record: Record, body: EditBody, trail: Trail) -> None:
        if trail.works:
            written = {change.path: record.seq for change in body.changes}
            trail.versions.update(written)
            trail.edited.update(written)
        for change in trail.adopts(record.seq, body.by, body.adopted):
            self.state.apply(change)

    def _fold_checkpoint(self, record: Record, body: CheckpointBody, applied: bool) -> None:
        if not applied:
            for change in body.changes:
                self.state.apply(change)
        self.visits[record.step] = record.visit
        self.step, self.leaving = (record.step if body.leaving else body.next), body.leaving
        # A visit's own time contains that of its operations, which was counted already.
        if body.took > self.worked:
            self.took += body.took - self.worked
        if body.effects:
            self._fold_effects(body.effects)
            if (left := body.effects[-1].left) is not None and self.trail is not None:
                self.trail.finished(_work(record, body, left))
                if left.of:
                    self.usd += left.usd  # as if it had been spent on this line
        self._open(record.seq)

    def _worked(self, end: int, took: int) -> None:
        """Count the time of an operation, but what it has in common with others only once."""
        start, gained = end - took, took
        while self.spans and self.spans[-1][1] > start:
            since, until = self.spans.pop()
            gained -= min(until, end) - max(since, start)
            start, end = min(since, start), max(until, end)
        if took:
            self.spans.append((start, end))
        self.worked += gained
        self.took += gained

    def _fold_key(self, record: Record, body: KeyBody) -> None:
        self.state = State(dict(body.fields))
        self.version, self.outline, self.left = body.version, body.outline, body.left
        self.step, self.leaving, self.visits = body.step, body.leaving, dict(body.visits)
        self.took, self.usd, self.chunked, self.trail = body.took, body.usd, body.chunked, body.trail
        self.records_since_key = self.bytes_since_key = 0
        self._open(record.seq)
        if body.journal is not None:
            self._fold_journal(body.journal)

    def upgrade(self, body: DefinitionBody) -> None:
        """The open visit goes on: what it remembers does not depend on the name of its step."""
        self.version, self.outline = body.version, body.outline
        self.state.carry(body.fields, body.moved, body.dropped)
        if body.renamed:
            self.rename(body.renamed)
        if self.trail is not None:
            self.trail.carried(body.renamed, {**body.moved, **body.shown})

    def rename(self, names: Mapping[str, str]) -> None:
        """Call steps by their new names. Two that became one have been visited as often as the busier of them."""
        visits: dict[str, int] = {}
        for step, count in self.visits.items():
            now = names.get(step, step)
            visits[now] = max(count, visits.get(now, 0))
        self.visits = visits
        if self.step is not None:
            self.step = names.get(self.step, self.step)

    def _fold_journal(self, journal: Journal) -> None:
        self.opened = journal.opened
        self.operations.update((operation.id, operation) for operation in journal.operations)
        self.worked = sum(operation.took for operation in journal.operations)
        self.waits.update((wait.id, wait) for wait in journal.waits)
        self.effects.update(journal.effects)
        self.attempts, self.touched = journal.attempts, journal.touched

    def _fold_effects(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            self.effects.add(effect.id)
            self.usd += effect.usd

    def _open(self, seq: int) -> None:
        if self.operations:
            self.operations.clear()
        if self.worked:
            self.spans.clear()
            self.worked = 0
        if self.waits:
            self.waits.clear()
        if self.effects:
            self.effects.clear()
        if self.noticed:
            self.noticed.clear()
        self.attempts, self.touched = 0, False
        self.opened = self.base = seq
        self.spent = self.usd

    @property
    def asks(self) -> bool:
        """Whether the open visit has asked anybody anything."""
        return any(wait.ask is not None for wait in self.waits.values()) or any(
            operation.name in ASKING for operation in self.operations.values()
        )

    def key_body(self) -> KeyBody:
        """This line as a key frame. Call `State.seal` first."""
        return KeyBody(
            self.state.slots, self.step, self.leaving, self.visits, self.took, self.usd, journal=self.journal(),
            version=self.version, outline=self.outline, left=self.left, chunked=self.chunked, trail=self.trail,
        )  # fmt: skip

    def journal(self) -> Journal | None:
        """What the open visit remembers; None if that is nothing."""
        if not (self.operations or self.waits or self.effects or self.attempts or self.touched):
            return None
        operations, waits = tuple(self.operations.values()), tuple(self.waits.values())
        return Journal(self.opened, operations, waits, tuple(self.effects), self.attempts, self.touched)


def _work(record: Record, body: CheckpointBody, left: Left) -> Work:
    """A checkpoint as the trail has it."""
    overwritten = {change.path for change in body.changes if change.act == "set"}
    grown = {change.path for change in body.changes} - overwritten
    writes = left.writes or {change.path: record.seq for change in body.changes}
    files = tuple(file if file.at else msgspec.structs.replace(file, at=record.seq) for file in left.files)
    return Work(
        record.step, record.visit, record.seq, record.at, left.reads, writes, files, left.code, left.took or body.took,
        left.usd, body.version, body.skipped, made=left.of, grown=tuple(sorted(grown)), places=left.places,
    )  # fmt: skip


def deferred(wait: WaitBody, at: int, shift: int, wake: bool) -> int | None:
    """When a wait ends after timers were frozen for a time, or are to end now; None if that is nothing to it.

    One that was opened while the session was about to stand still has slept no longer than since then. A clock that was
    set back meanwhile cannot tell.
    """
    if wait.due is None or (wait.ask is None and wait.name != "sleep" and not wake):
        return None
    if wake and wait.ask is None:
        return 0
    passed = at - wait.at
    return min(wait.due + (shift if passed < 0 else min(shift, passed)), LATEST)


def fold(records: Iterable[Record]) -> Line:
    """The line that a key frame and the records after it describe."""
    line = Line()
    for record in records:
        body = body_of(record)
        if not line.opened and not isinstance(body, KeyBody):
            raise DamagedRecord(
                f"the log is to be read from record {record.seq} on, which is no key frame but a {record.kind};"
                " restore the database from a backup",
                seq=record.seq,
            )
        line.fold(record, body)
    return line


class Settled(msgspec.Struct, frozen=True, gc=False):
    """Where a session goes after a step: on to ``next``, or nowhere yet and why."""

    next: str | None
    refused: str = ""
    guard: str = ""


def refusal(workflow: Workflow[Any], step: str, evaluate: Callable[[Check], Any]) -> Settled | None:
    """Ask the guards after a step; None if it may be left."""
    for guard in workflow.guards.get(step, ()):
        reason = evaluate(guard)
        if reason is not None:
            return Settled(None, str(reason) or f"guard {guard.name!r} refused and gave no reason", guard.name)
    return None


def settle(workflow: Workflow[Any], step: str, evaluate: Callable[[Check], Any]) -> Settled:
    """Ask the guards after a step, then its route, else take the next in the list."""
    if (refused := refusal(workflow, step, evaluate)) is not None:
        return refused
    route = workflow.routes.get(step)
    if route is None:
        return Settled(workflow.following(step))
    target = evaluate(route.check)
    if target not in route.targets:
        legal = ", ".join("the end" if name is None else name for name in route.targets)
        raise IllegalTransition(
            f"{workflow.name}: route {route.check.name!r} may not lead from {step!r} to {target!r};"
            f" its return type lists: {legal}",
            step=step,
            target=target,
        )
    return Settled(target)
