"""What the records of a session say: its state, its position, what its open visit remembers, what comes next.

Pure: no I/O, no clock, no randomness. The bodies below are the payloads of the log's records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from holdfast.errors import DamagedRecord, IllegalTransition
from holdfast.model import Failure, Record
from holdfast.state import Blob, Change, Inline, Slot, State
from holdfast.workflow import Check, Workflow


class Effect(msgspec.Struct, frozen=True, omit_defaults=True):
    """An ``emit`` or a ``spend``, committed with the next record; ``id`` keeps a replay from doubling it."""

    id: str
    at: int
    type: str
    agent: str = ""
    summary: str = ""
    data: msgspec.Raw = msgspec.Raw(b"{}")
    usd: int = 0
    tokens: int = 0


class KeyBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key frame: everything that the records before it add up to."""

    fields: dict[str, Slot]
    step: str | None
    leaving: bool = False
    visits: dict[str, int] = {}
    took: int = 0
    usd: int = 0
    created: bool = False
    by: str | None = None


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


class OperationBody(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A remembered operation. ``input`` is a fingerprint, never the arguments themselves."""

    id: str
    name: str
    value: Inline | Blob
    input: str = ""
    total: int = 0
    took: int = 0
    agent: str = ""
    effects: tuple[Effect, ...] = ()


class EventBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fact about the session that changes no data; it may move the position."""

    type: str
    summary: str = ""
    agent: str = ""
    data: msgspec.Raw = msgspec.Raw(b"{}")
    moved: bool = False
    next: str | None = None
    leaving: bool = False
    effects: tuple[Effect, ...] = ()


Body = KeyBody | CheckpointBody | OperationBody | EventBody
_bodies: dict[str, msgspec.json.Decoder[Any]] = {
    "key": msgspec.json.Decoder(KeyBody),
    "checkpoint": msgspec.json.Decoder(CheckpointBody),
    "operation": msgspec.json.Decoder(OperationBody),
    "event": msgspec.json.Decoder(EventBody),
}
to_payload = msgspec.json.Encoder().encode


def body_of(record: Record) -> Any:
    """Read a record's payload."""
    try:
        return _bodies[record.kind].decode(record.payload)
    except msgspec.MsgspecError as error:
        raise DamagedRecord(f"record {record.seq} ({record.kind}) cannot be read: {error}", seq=record.seq) from error


class Line:
    """The fold of a session's records: where it stands and what it knows."""

    def __init__(self) -> None:
        self.state = State()
        self.step: str | None = None
        self.leaving = False
        self.visits: dict[str, int] = {}
        self.operations: dict[str, OperationBody] = {}
        self.effects: set[str] = set()
        self.opened = 0
        self.took = 0
        self.usd = 0
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
            self.took += body.took
            self._fold_effects(body.effects)
        elif isinstance(body, KeyBody):
            self._fold_key(record, body)
        else:
            self._fold_effects(body.effects)
            if body.moved:
                self.step, self.leaving = body.next, body.leaving
                self._open(record.seq)

    def _fold_checkpoint(self, record: Record, body: CheckpointBody, applied: bool) -> None:
        if not applied:
            for change in body.changes:
                self.state.apply(change)
        self.visits[record.step] = record.visit
        self.step, self.leaving = (record.step if body.leaving else body.next), body.leaving
        # A visit's own time contains that of its operations, which were counted one by one.
        operations = sum(operation.took for operation in self.operations.values()) if self.operations else 0
        if body.took > operations:
            self.took += body.took - operations
        if body.effects:
            self._fold_effects(body.effects)
        self._open(record.seq)

    def _fold_key(self, record: Record, body: KeyBody) -> None:
        self.state = State(dict(body.fields))
        self.step, self.leaving, self.visits = body.step, body.leaving, dict(body.visits)
        self.took, self.usd = body.took, body.usd
        self.records_since_key = self.bytes_since_key = 0
        self._open(record.seq)

    def _fold_effects(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            self.effects.add(effect.id)
            self.usd += effect.usd

    def _open(self, seq: int) -> None:
        if self.operations:
            self.operations.clear()
        if self.effects:
            self.effects.clear()
        self.opened = seq

    def key_body(self) -> KeyBody:
        """This line as a key frame. Call `State.seal` first."""
        return KeyBody(self.state.slots, self.step, self.leaving, self.visits, self.took, self.usd)


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


def settle(workflow: Workflow[Any], step: str, evaluate: Callable[[Check], Any]) -> Settled:
    """Ask the guards after a step, then its route, else take the next in the list."""
    for guard in workflow.guards.get(step, ()):
        reason = evaluate(guard)
        if reason is not None:
            return Settled(None, str(reason) or f"guard {guard.name!r} refused and gave no reason", guard.name)
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
