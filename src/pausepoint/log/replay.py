"""Folds the records of a session into its state, its position and the memory of its open visit.

Pure: no I/O, no clock, no randomness. The ``…Body`` classes are the payloads of the records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from pausepoint.clock import LATEST
from pausepoint.codec.arguments import NOT_RECORDED
from pausepoint.errors import DamagedRecord, Redacted
from pausepoint.log.state import Blob, Change, Inline, Slot, State
from pausepoint.log.trail import Adopted, Published, Trail, Work
from pausepoint.model.chunks import Part, Tally, fold_part
from pausepoint.model.questions import Asked
from pausepoint.model.records import Record
from pausepoint.model.sessions import Failure


class Effect(msgspec.Struct, frozen=True, omit_defaults=True):
    """An ``emit`` or a ``spend`` that is committed with the next record. ``id`` prevents duplicates on replay.

    ``published`` describes the artifacts of a visit. A checkpoint has it in its last effect.
    """

    id: str
    at: int
    type: str
    agent: str = ""
    summary: str = ""
    data: msgspec.Raw = msgspec.Raw(b"{}")
    usd: int = 0
    tokens: int = 0
    published: Published | None = None


class CheckpointBody(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A checkpoint: the changes of one visit, and the next step."""

    next: str | None
    changes: tuple[Change, ...] = ()
    held_by_guard: bool = False
    skipped: str = ""
    refused: str = ""
    failure: Failure | None = None
    took: int = 0
    attempts: int = 1
    agent: str = ""
    effects: tuple[Effect, ...] = ()
    version: int = 1


class OperationBody(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A remembered operation. ``input`` is a fingerprint of the arguments, by which a replay finds it again.

    ``outcome`` is set if a question got no valid answer (``expired``, ``rounds``, ``declined``); ``value`` then holds
    the details. It is ``timeout`` if no message arrived in time. ``part`` is set if the operation works on one chunk of
    a file, or on all chunks. ``nth`` is which call of its function in its scope it was, 0 if it has a key.
    ``digests`` has a short digest of each argument; an error names those that differ. ``arguments`` are for people: see
    `pausepoint.codec.arguments`.
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
    nth: int = 0
    digests: str = msgspec.field(default="", name="arguments")
    arguments: msgspec.Raw = msgspec.field(default=NOT_RECORDED, name="args")


class EventBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fact about the session that changes no data. It may change the position.

    ``shift`` extends the open timers by the time for which they were frozen; ``wake`` ends them now. ``attempts`` is
    the number of failed attempts of the open visit. ``noticed`` is a child whose failure was raised in the step.
    ``forgets`` lists operations to forget: questions, which are then asked again. ``part`` is a chunk of a file that
    failed. ``idle`` is how long the session was paused, which does not count for the time-out of a child. ``reopened``
    is the status in which the session had ended.
    """

    type: str
    summary: str = ""
    agent: str = ""
    data: msgspec.Raw = msgspec.Raw(b"{}")
    moved: bool = False
    next: str | None = None
    held_by_guard: bool = False
    shift: int = 0
    wake: bool = False
    attempts: int | None = None
    effects: tuple[Effect, ...] = ()
    noticed: str = ""
    forgets: tuple[str, ...] = ()
    part: Part | None = None
    idle: int = 0
    reopened: str = ""


class WaitBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The start of a wait: until ``due``, for the end of ``child``, or for the answer to ``ask``, until ``due``.

    The operation with the same id ends the wait. ``at`` is the time at which it started. ``input`` is the same as in an
    operation. A wait for a message has a record only if it has a time-out: messages are stored until they are received.
    ``attempt`` is how many attempts at the operation have failed so far. With an ``error``, that of the last one, the
    operation waits until ``due`` for its next attempt; the operations that it ``resets``, which are inside it, count
    their attempts from 1 again. ``item`` names the item of a map: its key, or the beginning of its value.
    ``after`` is a child that took too long; ``child`` replaces it.
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
    attempt: int = 0
    error: str = ""
    after: str = ""
    resets: tuple[str, ...] = ()
    item: str = ""


class Journal(msgspec.Struct, frozen=True, omit_defaults=True):
    """The memory of an open visit, for a key frame in the middle of a visit. ``opened`` is the record where it began.

    ``touched``: the state or the definition was changed since then. ``tries`` is how many of its attempts failed, over
    all resumes.
    """

    opened: int
    operations: tuple[OperationBody, ...] = ()
    waits: tuple[WaitBody, ...] = ()
    effects: tuple[str, ...] = ()
    attempts: int = 0
    touched: bool = False
    tries: int = 0


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The origin of a fork: the session, the record ``seq`` with its state, and the visit that runs next.

    ``at_operation`` is the id of the operation of that visit before which it starts.
    """

    session_id: str
    seq: int
    at_step: str = ""
    edited: tuple[str, ...] = ()
    at_operation: str = ""


class KeyBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key frame: the complete fold of all records before it.

    ``left_behind`` are the stretches of the log (first and last number) that rewinds went back over. ``chunked`` is the
    progress of work on files. ``trail`` is the history of artifacts.
    """

    fields: dict[str, Slot]
    step: str | None
    held_by_guard: bool = False
    visits: dict[str, int] = {}
    took: int = 0
    usd: int = 0
    created: bool = False
    by: str | None = None
    journal: Journal | None = None
    version: int = 1
    outline: tuple[str, ...] = ()
    left_behind: tuple[tuple[int, int], ...] = ()
    origin: Origin | None = None
    chunked: dict[str, Tally] = {}
    trail: Trail | None = None


class EditBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """An edit of the state of a parked session. ``reopened`` is the status in which the session had ended.

    A completed session is at its last step again (``last_step``), and the guards and the route after it run again.
    ``adopted`` are files that a person edited in the session's folder.
    """

    changes: tuple[Change, ...]
    by: str | None = None
    reason: str = ""
    reopened: str = ""
    last_step: str | None = None
    adopted: tuple[Adopted, ...] = ()


class RewindBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rewind to before visit ``to``. The record's parent is the record that the new line continues from.

    A key frame with the complete state at that point follows. With ``operation``, the id of an operation of that visit,
    it lacks that operation and what began after it. ``replaced``: a record of it with another result follows.
    """

    to: str
    reuse: bool = False
    by: str | None = None
    reason: str = ""
    reopened: str = ""
    operation: str = ""
    replaced: bool = False


class DefinitionBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of the session's definition: its version, its steps, or both.

    ``outline`` lists the present steps. ``renamed`` maps former names of steps to present ones. In the state, ``moved``
    fields (new name to old) keep their value, ``dropped`` fields are removed, and ``fields`` are written. ``shown``
    maps the new names of fields that artifacts carry to the old ones.
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
"""The names of the operations that ask a person."""

UNANSWERED = ("expired", "rounds", "declined")
"""The outcomes of a question that has no answer to continue with."""

SPANS = ("sleep", "receive")
"""The names of the waits that last for a time, and not until a point in time."""

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
    """Decode the payload of a record. Raises `Redacted` or `DamagedRecord`."""
    if record.redacted:
        raise Redacted(
            f"Record {record.seq} ({record.kind}) was redacted. Read a later record, or the present state.",
            seq=record.seq,
        )
    try:
        return _bodies[record.kind].decode(record.payload)
    except msgspec.MsgspecError as error:
        raise DamagedRecord(
            f"Record {record.seq} ({record.kind}) cannot be read: {error}. Restore the database from a backup.",
            seq=record.seq,
        ) from error


class Line:
    """The fold of a session's records: its state, its position, and the memory of its open visit."""

    __slots__ = (
        "attempts", "base", "bytes_since_key", "chunked", "effects", "held_by_guard", "left_behind", "noticed",
        "opened", "operations", "outline", "records_since_key", "spans", "spent", "state", "step", "took", "touched",
        "trail", "tries", "usd", "version", "visits", "waits", "worked",
    )  # fmt: skip

    def __init__(self) -> None:
        self.state = State()
        self.version = 1
        self.outline: tuple[str, ...] = ()
        self.step: str | None = None
        self.held_by_guard = False
        self.visits: dict[str, int] = {}
        self.operations: dict[str, OperationBody] = {}
        self.waits: dict[str, WaitBody] = {}
        self.effects: set[str] = set()
        self.chunked: dict[str, Tally] = {}
        self.noticed: set[str] = set()  # children whose failure was raised in this attempt
        self.attempts = 0
        self.tries = 0  # failed attempts of the open visit; unlike `attempts`, a resume does not start again with 0
        self.opened = 0
        self.base = 0  # the last record that changed the input of the open visit
        self.touched = False  # the state or the definition changed since the visit was opened
        self.left_behind: tuple[tuple[int, int], ...] = ()
        self.took = 0
        self.worked = 0  # the part of ``took`` in operations of the open visit
        self.spans: list[tuple[int, int]] = []  # the times of these operations
        self.usd = 0
        self.spent = 0  # the part of ``usd`` before the open visit
        self.trail: Trail | None = None  # only in a session that publishes artifacts
        self.records_since_key = 0
        self.bytes_since_key = 0

    @property
    def visit(self) -> int:
        """The number of the open visit, or of the visit that would open next at the present position."""
        if self.step is None:
            return 0
        return self.visits.get(self.step, 0) + (0 if self.held_by_guard else 1)

    def fold(self, record: Record, body: Body, applied: bool = False) -> None:
        """Fold the next record. ``applied``: the state already has its changes."""
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
            if body.error:
                self.noticed.discard(body.child)  # the next attempt resumes the failed child
                self._forget_attempts(body.resets)
        elif isinstance(body, EditBody):
            self.edit(body, applied)
            if self.trail is not None:
                self._fold_edit(record, body, self.trail)
            self.base, self.touched = record.seq, True
        elif isinstance(body, EventBody):
            self._fold_event(record, body)
        # A rewind has no effect of its own: the key frame after it has the result.

    def _fold_event(self, record: Record, body: EventBody) -> None:
        self._fold_effects(body.effects)
        if body.moved:
            self.step, self.held_by_guard = body.next, body.held_by_guard
            self._open(record.seq)
        if body.attempts is not None:
            self.attempts = body.attempts
            self.tries += 1
            self.noticed.clear()
            self._forget_attempts(tuple(self.waits))
        if body.noticed:
            self.noticed.add(body.noticed)
        if body.part is not None:
            fold_part(self.chunked, body.part, 0)
        for tally in self.chunked.values():
            if body.attempts is not None or body.type == "session.resumed":
                tally.reset_attempts()
            if body.wake:
                tally.wake()
        for id in body.forgets:
            self.operations.pop(id, None)
        for id, wait in self.waits.items() if body.shift or body.wake or body.idle else ():
            if limits_child(wait):
                self.waits[id] = msgspec.structs.replace(wait, due=min((wait.due or 0) + body.idle, LATEST))
            elif (due := deferred(wait, record.at, body.shift, body.wake)) is not None:
                self.waits[id] = msgspec.structs.replace(wait, due=due)

    def _forget_attempts(self, ids: tuple[str, ...]) -> None:
        """Let operations count their attempts from 1 again, because the code around them starts again after a failure.

        Changes the dict in place, because a visit holds it. A called child stays the same, with a new time-out.
        """
        for id, wait in [(id, self.waits[id]) for id in ids if id in self.waits]:
            if wait.child:
                self.waits[id] = msgspec.structs.replace(wait, due=None, attempt=0, error="")
            elif wait.attempt:
                del self.waits[id]

    def edit(self, body: EditBody, applied: bool = False) -> None:
        """Apply an edit. The open visit keeps its memory."""
        if not applied:
            for change in body.changes:
                self.state.apply(change)
        if body.last_step is not None:
            self.step, self.held_by_guard = body.last_step, True

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
        self.step, self.held_by_guard = (record.step if body.held_by_guard else body.next), body.held_by_guard
        # The time of a visit includes its operations, which are already counted.
        if body.took > self.worked:
            self.took += body.took - self.worked
        if body.effects:
            self._fold_effects(body.effects)
            if (published := body.effects[-1].published) is not None and self.trail is not None:
                self.trail.finished(_work(record, body, published))
                if published.of:
                    self.usd += published.usd  # as if it was spent on this line
        self._open(record.seq)

    def _worked(self, end: int, took: int) -> None:
        """Add the time of an operation. Time that overlaps with other operations counts once."""
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
        self.version, self.outline, self.left_behind = body.version, body.outline, body.left_behind
        self.step, self.held_by_guard, self.visits = body.step, body.held_by_guard, dict(body.visits)
        self.took, self.usd, self.chunked, self.trail = body.took, body.usd, body.chunked, body.trail
        self.records_since_key = self.bytes_since_key = 0
        self._open(record.seq)
        if body.journal is not None:
            self._fold_journal(body.journal)

    def upgrade(self, body: DefinitionBody) -> None:
        """Switch to another definition. The open visit keeps its memory, even if its step is renamed."""
        self.version, self.outline = body.version, body.outline
        self.state.carry(body.fields, body.moved, body.dropped)
        if body.renamed:
            self.rename(body.renamed)
        if self.trail is not None:
            self.trail.carried(body.renamed, {**body.moved, **body.shown})

    def rename(self, names: Mapping[str, str]) -> None:
        """Rename steps. If two steps become one, the higher number of visits counts."""
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
        self.attempts, self.touched, self.tries = journal.attempts, journal.touched, journal.tries

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
        self.attempts, self.touched, self.tries = 0, False, 0
        self.opened = self.base = seq
        self.spent = self.usd

    @property
    def asks(self) -> bool:
        """Whether the open visit has asked a question."""
        return any(wait.ask is not None for wait in self.waits.values()) or any(
            operation.name in ASKING for operation in self.operations.values()
        )

    def key_body(self) -> KeyBody:
        """Return this line as a key frame. Call `State.seal` first."""
        return KeyBody(
            self.state.slots, self.step, self.held_by_guard, self.visits, self.took, self.usd, journal=self.journal(),
            version=self.version, outline=self.outline, left_behind=self.left_behind, chunked=self.chunked,
            trail=self.trail,
        )  # fmt: skip

    def journal(self) -> Journal | None:
        """Return the memory of the open visit; None if it is empty."""
        if not (self.operations or self.waits or self.effects or self.attempts or self.touched or self.tries):
            return None
        operations, waits = tuple(self.operations.values()), tuple(self.waits.values())
        return Journal(self.opened, operations, waits, tuple(self.effects), self.attempts, self.touched, self.tries)


def _work(record: Record, body: CheckpointBody, published: Published) -> Work:
    """Convert a checkpoint into the form that the trail stores."""
    overwritten = {change.path for change in body.changes if change.act == "set"}
    grown = {change.path for change in body.changes} - overwritten
    writes = published.writes or {change.path: record.seq for change in body.changes}
    files = tuple(file if file.at else msgspec.structs.replace(file, at=record.seq) for file in published.files)
    return Work(
        record.step, record.visit, record.seq, record.at, published.reads, writes, files, published.code,
        published.took or body.took, published.usd, body.version, body.skipped, made=published.of,
        grown=tuple(sorted(grown)), places=published.places, unstaged=published.unstaged,
    )  # fmt: skip


def operations_in(body: Body) -> int:
    """Return how many operations a record counts for: one that is remembered, or an attempt that is retried."""
    if isinstance(body, OperationBody):
        return 0 if body.total else 1  # one with a total announces the items of a map
    return 1 if isinstance(body, WaitBody) and body.error else 0


def spent_on(line: Line, ids: Collection[str]) -> int:
    """Return the microdollars that operations of the open visit and those inside them have spent, as far as known."""
    effects = [effect for body in line.operations.values() for effect in body.effects if effect.usd]
    return sum(effect.usd for effect in effects if is_inside(effect.id, ids))


def is_inside(id: str, ids: Collection[str]) -> bool:
    """Return whether something belongs to one of these operations, by its id.

    >>> is_inside("/fetch~1#1/spend:5:0#1", {"/fetch~1#1"}), is_inside("/fetch~1#1", {"/fetch~1#1"})
    (True, False)
    """
    return any(id[:end] in ids for end in range(1, len(id)) if id[end] == "/")


def retry_line(wait: WaitBody) -> str:
    """Return what happened to an operation that waits for its next attempt.

    >>> retry_line(WaitBody("/fetch~1#1", "fetch", due=3_500_000, at=1_000_000, attempt=2, error="OSError: down"))
    'fetch: attempt 2 failed, OSError: down; retry in 2.5 s'
    """
    delay = max((wait.due or 0) - wait.at, 0) / 1e6
    item = f", item {wait.item}" if wait.item else ""
    return f"{wait.name}{item}: attempt {wait.attempt} failed, {wait.error.rstrip('.')}; retry in {delay:.1f} s"


def deferred(wait: WaitBody, at: int, shift: int, wake: bool) -> int | None:
    """Return the new end of a wait after timers were frozen, or are woken now; None if this does not affect the wait.

    A wait that started while the session was pausing was frozen only since its start. If the clock was set back since,
    the start is unknown and the full ``shift`` counts.
    """
    if wait.due is None or limits_child(wait) or (not shift and not wake):
        return None
    if wait.ask is None and (wait.name not in SPANS or wait.error) and not wake:
        return None
    if wake and wait.ask is None:
        return 0
    passed = at - wait.at
    return min(wait.due + (shift if passed < 0 else min(shift, passed)), LATEST)


def limits_child(wait: WaitBody) -> bool:
    """Return whether a wait has the time-out of a child that runs."""
    return bool(wait.child) and wait.due is not None and not wait.error


def fold(records: Iterable[Record]) -> Line:
    """Fold a key frame and the records after it. Raises `DamagedRecord` if the first record is not a key frame."""
    line = Line()
    for record in records:
        body = body_of(record)
        if not line.opened and not isinstance(body, KeyBody):
            raise DamagedRecord(
                f"Record {record.seq} should be a key frame, but is a {record.kind}."
                " Restore the database from a backup.",
                seq=record.seq,
            )
        line.fold(record, body)
    return line
