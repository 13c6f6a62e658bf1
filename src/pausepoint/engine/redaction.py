"""Finds what a redaction must remove: the records that contain a value, and the large values that only they reference.

Apart from reading the log, this is pure. `Work` makes the commit of a redaction. Its record lists the entries whose
content was removed, and the check of the log reads it there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pausepoint.codec.arguments import NOT_RECORDED, arguments_of
from pausepoint.errors import VerbRefused
from pausepoint.log.replay import (
    CheckpointBody,
    DefinitionBody,
    EditBody,
    EventBody,
    Journal,
    KeyBody,
    Line,
    OperationBody,
    body_of,
    to_payload,
)
from pausepoint.log.state import Blob, Blobs, Change, Inline, State
from pausepoint.model.commits import Commit
from pausepoint.model.files import FileFacts
from pausepoint.model.records import Record, RecordKind, seal
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.base import Store

TYPE = "session.redacted"


class _Default:
    """Stands for the field's own default."""


DEFAULT = _Default()


class Redaction(msgspec.Struct, frozen=True):
    """The result of a redaction: the numbers of the redacted records and signals.

    ``erased`` is False if the old bytes may still be in the write-ahead log, because another process is reading the
    database. `gc` erases them later.
    """

    records: tuple[int, ...]
    signals: tuple[int, ...]
    erased: bool


class Taken(msgspec.Struct, frozen=True):
    """The content of a redaction's record. ``records`` are ranges: the first and the last number of each."""

    records: list[tuple[int, int]] = []
    signals: list[int] = []
    field: str | None = None
    drawer: str | None = None
    by: str | None = None
    reason: str = ""


_taken = msgspec.json.Decoder(Taken)


@dataclass
class Carriers:
    """The records whose content must be removed, and the large values that only they reference."""

    seqs: set[int] = field(default_factory=set)
    gone: set[bytes] = field(default_factory=set)
    kept: set[bytes] = field(default_factory=set)
    has_field: bool = False  # a record has a value of the field, not only arguments that may be one

    def note(self, record: Record, body: Any, goes: bool) -> None:
        if goes:
            self.seqs.add(record.seq)
        (self.gone if goes else self.kept).update(named_by(body))

    @property
    def unnamed(self) -> tuple[bytes, ...]:
        """The large values that nothing references once the records have lost their content."""
        return tuple(sorted(self.gone - self.kept))


async def stretches(store: Store, row: SessionRow) -> AsyncIterator[list[Record]]:
    """Yield the log from end to beginning, one key frame's range at a time, to keep memory small."""
    until = row.seq
    while until > 0:
        since = await store.key_frame(row.key, until)
        yield await store.records(row.key, since, until)
        until = since - 1


async def carriers_of_field(
    store: Store, row: SessionRow, name: str, harmless: Collection[bytes], spared: Collection[str]
) -> Carriers:
    """Find the records that contain a field's value, unless it is one of ``harmless``.

    The operations of the visits that wrote the field are included, and those with recorded arguments, except of the
    steps ``spared``, which do not read the field. Earlier names of the field are followed through migrations.
    """
    found, names = Carriers(), {name}
    writers: set[tuple[str, int]] = set()
    async for records in stretches(store, row):
        for record in reversed(records):
            if record.redacted:
                continue
            body = body_of(record)
            goes = _carries(body, names, harmless)
            found.has_field = found.has_field or goes
            if isinstance(body, CheckpointBody) and goes:
                writers.add((record.step, record.visit))
            elif isinstance(body, DefinitionBody):
                names, spared = _before(body, names), ()  # the steps may have read other fields before
            elif (record.step, record.visit) in writers:
                goes = goes or record.kind in ("operation", "wait") or _remembers(body)
            elif record.step not in spared:
                goes = goes or _has_arguments(body)
            found.note(record, body, goes)
    return found


async def carriers_of_records(
    store: Store, row: SessionRow, seqs: Collection[int], operation: OperationBody | None = None
) -> Carriers:  # fmt: skip
    """Find those of these records that still have content, and the key frames that remember ``operation``."""
    found = Carriers()
    async for records in stretches(store, row):
        for record in records:
            if not record.redacted:
                body = body_of(record)
                has_copy = operation is not None and _remembers(body) and operation in body.journal.operations
                found.note(record, body, record.seq in seqs or has_copy)
    return found


def _before(body: DefinitionBody, names: set[str]) -> set[str]:
    """Return the fields' names before a migration. A field that it wrote may come from any field that it dropped."""
    found = {body.moved.get(name, name) for name in names}
    return found.union(body.dropped) if names.intersection(body.fields) else found


def _carries(body: Any, names: set[str], harmless: Collection[bytes]) -> bool:
    if any(change.path.split(".")[0] in names for change in _changes(body)):
        return True
    if isinstance(body, KeyBody):
        slots = [slot for name, slot in body.fields.items() if name in names]
        return not all(isinstance(slot, Inline) and bytes(slot.data) in harmless for slot in slots)
    return isinstance(body, DefinitionBody) and not names.isdisjoint(body.fields)


def _changes(body: Any) -> list[Change]:
    """Return all changes that a record contains, including those of reused checkpoints."""
    if isinstance(body, CheckpointBody):
        return list(body.changes)
    if isinstance(body, EditBody):
        return [*body.changes, *(each.change for each in body.adopted)]
    if isinstance(body, KeyBody) and body.trail is not None:
        return [change for reused in body.trail.reused.values() for change in reused.changes]
    return []


def _remembers(body: Any) -> bool:
    return isinstance(body, KeyBody) and body.journal is not None


def _has_arguments(body: Any) -> bool:
    if isinstance(body, OperationBody):
        return bool(arguments_of(body.arguments))
    return _remembers(body) and any(_has_arguments(operation) for operation in body.journal.operations)


def named_by(body: Any) -> set[bytes]:
    """Return the hashes of the large values that a record references."""
    return {bytes.fromhex(hash_) for hash_ in _named(body)}


def _named(body: Any) -> Iterator[str]:
    yield from _hashes(change.value for change in _changes(body))
    if isinstance(body, OperationBody):
        yield from _hashes((body.value,))
    elif isinstance(body, DefinitionBody):
        yield from _hashes(body.fields.values())
    elif isinstance(body, KeyBody):
        yield from (hash_.hex() for hash_ in State(dict(body.fields)).needs(body.fields))
        for operation in body.journal.operations if body.journal is not None else ():
            yield from _hashes((operation.value,))


def _hashes(values: Iterable[Inline | Blob]) -> Iterator[str]:
    return (value.hash for value in values if isinstance(value, Blob))


def taken_by(body: Any) -> Taken | None:
    """Return what a record says was redacted; None if it is not the record of a redaction."""
    return _taken.decode(body.data) if isinstance(body, EventBody) and body.type == TYPE else None


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers as ranges.

    >>> ranges([3, 1, 2, 7])
    [(1, 3), (7, 7)]
    """
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


class Work:
    """One redaction in progress: the present line, what is removed, and what replaces it."""

    def __init__(self, row: SessionRow, line: Line, found: Carriers, taken: Taken) -> None:
        self.row = row
        self.line = line
        self.found = found
        self.taken = taken
        self.changes: tuple[Change, ...] = ()
        self.blobs: Blobs = []
        self.signals: tuple[int, ...] = ()
        self.files: tuple[FileFacts, ...] = ()
        self.consume: tuple[int, ...] = ()

    def forget_arguments(self) -> None:
        """Keep the results of the open visit's operations, which a resume needs, but not their arguments."""
        operations = self.line.operations.items()
        self.line.operations = {id: msgspec.structs.replace(each, arguments=NOT_RECORDED) for id, each in operations}

    def refusal(self, why: str) -> VerbRefused:
        row = self.row
        return VerbRefused(f"Session {row.session_id!r} {why}", session_id=row.session_id, status=row.status.value)

    def commit(self, now: int) -> Commit:
        """Return the commit: the record of the redaction, and a key frame that needs nothing of what was removed."""
        row, line = self.row, self.line
        for change in self.changes:
            line.state.apply(change)
        self.blobs += line.state.seal()
        frame = line.key_body()
        if frame.journal is None and line.step is not None:  # keeps the visit's idempotency keys
            frame = msgspec.structs.replace(frame, journal=Journal(line.opened))
        self.found.kept |= named_by(frame)
        first = self._seal(row.digest, row.seq + 1, now, self._event())
        second = self._seal(first.digest, first.seq + 1, now, frame)
        return Commit(
            row.key, row.fence, row.seq, (first, second), max(now, row.updated_at), second.seq, line.step, line.visit,
            line.held_by_guard, row.ended, row.failure, release=True, keep_crashes=True, progress=row.progress,
            blobs=tuple(self.blobs), waiting=row.waiting, wakes_at=row.wakes_at, consume=self.consume,
            redact=tuple(sorted(self.found.seqs)), redact_signals=self.signals, unname=self.found.unnamed,
            empty_drawers=() if self.taken.drawer is None else (self.taken.drawer,),
        )  # fmt: skip

    def _event(self) -> EventBody:
        taken = msgspec.structs.replace(self.taken, records=ranges(self.found.seqs), signals=list(self.signals))
        what = f"field {taken.field!r}" if taken.field else "a signal" if self.signals else "a record"
        what = "a file" if self.files else what
        what = f"drawer {taken.drawer!r}" if taken.drawer else what
        why = f" ({taken.reason})" if taken.reason else ""
        data = msgspec.Raw(msgspec.json.encode(taken))
        return EventBody(TYPE, f"{what} was redacted by {taken.by or 'someone'}{why}", taken.by or "", data)

    def _seal(self, previous: bytes, seq: int, now: int, body: EventBody | KeyBody) -> Record:
        kind: RecordKind = "event" if isinstance(body, EventBody) else "key"
        return seal(previous, seq, seq - 1, kind, self.line.step or "", self.line.visit, now, to_payload(body))
