"""The rules that must hold after any crash. Each function returns complaints; an empty list is a pass.

- Every acknowledged write is stored. Every stored write was acknowledged, or in flight when a process died.
- The digest chains verify, and the session's row agrees with its log: no mixture of old and new.
- The state equals the state of the uninterrupted run at the same checkpoint.
- A resume completes with the state of the uninterrupted run, and runs nothing again that was stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from pausepoint import Engine
from pausepoint.log.access import StateAccess
from pausepoint.log.replay import CheckpointBody, OperationBody, body_of, fold
from pausepoint.log.state import Blob, Inline
from pausepoint.model.records import Record, SignalRecord
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.sqlite import SqliteStore
from tests.faults import programs
from tests.faults.programs import SESSION, Clock, Program
from tests.faults.witness import Note, Notes, read_notes

State = dict[str, Any]


class Undisturbed(Struct, frozen=True):
    """The results of the run without a fault."""

    states: tuple[State, ...]  # by the number of checkpoints
    ran: dict[str, int]
    spent_usd: int


class Stored(Struct, frozen=True):
    """The stored facts about the session. ``row`` is None if the store does not know the session."""

    row: SessionRow | None = None
    records: tuple[Record, ...] = ()
    signals: tuple[SignalRecord, ...] = ()
    state: State | None = None
    labels: frozenset[str] = frozenset()


async def read_stored(engine: Engine) -> Stored:
    """Read everything and verify the digest chains. Raises `DamagedRecord` if they are broken."""
    row = await engine.store.get(SESSION)
    if row is None:
        return Stored()
    records = tuple(await engine.store.records(row.key, 1))
    signals = tuple(await engine.store.signals(row.key, 0))
    state = (await engine.session(SESSION).state()).model_dump()
    return Stored(row, records, signals, state, frozenset([label async for label in _labels(engine, records)]))


async def _labels(engine: Engine, records: Iterable[Record]) -> Any:
    """Return the labels of the step bodies and operations in the log."""
    for record in records:
        body = body_of(record)
        if isinstance(body, CheckpointBody):
            yield f"{record.step}#{record.visit}"
        elif isinstance(body, OperationBody) and not body.total:
            yield str(msgspec.json.decode(await _bytes(engine, body.value)))


async def _bytes(engine: Engine, value: Inline | Blob) -> bytes:
    if isinstance(value, Inline):
        return bytes(value.data)
    key = bytes.fromhex(value.hash)
    return (await engine.store.blobs([key]))[key]


def compare(notes: Sequence[Note], stored: Stored, undisturbed: Undisturbed) -> list[str]:
    """Return the complaints about a store, given the replies that its processes got."""
    return [*_missing(notes, stored), *_unasked(notes, stored), *_mixed(stored), *_strange(stored, undisturbed)]


def _missing(notes: Sequence[Note], stored: Stored) -> Iterable[str]:
    acknowledged = [note for note in notes if note.what == "ack"]
    if stored.row is None:
        if acknowledged:
            yield f"lost: the session, acknowledged {len(acknowledged)} times"
        return
    log = {(record.seq, record.digest.hex()) for record in stored.records}
    signals = {signal.at for signal in stored.signals}
    for note in acknowledged:
        if lost := set(note.records) - log:
            yield f"lost: {note.verb} of records {sorted(seq for seq, _ in lost)} was acknowledged"
        if note.signal and note.signal not in signals:
            yield f"lost: {note.verb} was acknowledged"
        if note.fence > stored.row.fence:
            yield f"lost: fence {note.fence} was acknowledged, {stored.row.fence} is stored"


def _unasked(notes: Sequence[Note], stored: Stored) -> Iterable[str]:
    allowed = set(_acknowledged_or_in_flight(notes))
    records = {record for note in allowed for record in note.records}
    signals = {note.signal for note in allowed}
    for record in stored.records:
        if (record.seq, record.digest.hex()) not in records:
            yield f"from nowhere: record {record.seq}"
    for signal in stored.signals:
        if signal.at not in signals:
            yield f"from nowhere: signal {signal.n}"


def _acknowledged_or_in_flight(notes: Sequence[Note]) -> Iterable[Note]:
    """Yield the acknowledged requests, and the last request of each process, which may have been in flight."""
    for process in _by_process(notes):
        answered = {note.number for note in process if note.what == "ack"}
        asks = [note for note in process if note.what == "ask"]
        yield from (note for note in asks if note.number in answered or note is asks[-1])


def _by_process(notes: Sequence[Note]) -> list[list[Note]]:
    processes: list[list[Note]] = []
    for note in notes:
        if note.what == "begin":
            processes.append([])
        if processes:
            processes[-1].append(note)
    return processes


def _mixed(stored: Stored) -> Iterable[str]:
    """Yield complaints if a session's row and its log disagree. They are written together."""
    row = stored.row
    if row is None:
        return
    line = fold(stored.records)
    said, meant = (row.step, row.visit, row.held_by_guard), (line.step, line.visit, line.held_by_guard)
    if said != meant:
        yield f"mixed: the row stands at {said}, the log at {meant}"
    if (row.ended == "completed") != (line.step is None):
        yield f"mixed: the row says ended={row.ended}, the log stands at {line.step}"
    if row.ended == "completed" and row.holder is not None:
        yield "mixed: completed and still held"
    if row.spent_usd != line.usd:
        yield f"mixed: the row has spent {row.spent_usd}, the log {line.usd}"


def _strange(stored: Stored, undisturbed: Undisturbed) -> Iterable[str]:
    if stored.row is None:
        return
    checkpoints = sum(record.kind == "checkpoint" for record in stored.records)
    if stored.state != undisturbed.states[checkpoints]:
        yield f"strange: the state after {checkpoints} checkpoints is not that of the undisturbed run"


async def verdict(program: Program, folder: Path, undisturbed: Undisturbed, incarnation: int) -> list[str]:
    """Open the store after a crash, compare, resume until completed, and compare again."""
    path = folder / "store.db"
    clock = Clock(incarnation)
    notes = Notes(folder / "notes")
    engine = Engine(SqliteStore(path, clock=clock), workflows=[program.workflow], clock=clock, signals=False)
    async with engine:
        stored = await read_stored(engine)
        complaints = compare(read_notes(folder / "notes"), stored, undisturbed)
        notes.write(Note("begin", number=incarnation))
        programs.NOW.ran = lambda label: notes.write(Note("ran", label=label))
        programs.NOW.engine = engine
        await programs.complete(engine, program)
        end = await read_stored(engine)
        complaints += [f"after going on: {problem}" for problem in (await engine.verify()).problems]
    complaints += _mixed(end)
    if end.state != undisturbed.states[-1]:
        complaints.append("after going on: another final state")
    if end.row is None or end.row.spent_usd != undisturbed.spent_usd:
        complaints.append("after going on: other spending")
    return complaints + list(_repeated(stored, read_notes(folder / "notes"), undisturbed))


def _repeated(stored: Stored, notes: Sequence[Note], undisturbed: Undisturbed) -> Iterable[str]:
    """Yield complaints if remembered work ran again, or if other work did not run exactly once more."""
    later = Counter(note.label for note in _by_process(notes)[-1] if note.what == "ran")
    for label in undisturbed.ran.keys() | later.keys():
        expected = undisturbed.ran.get(label, 0) - (label in stored.labels)
        if later[label] != expected:
            yield f"after going on: {label} ran {later[label]} times, not {expected}"


async def states_along(program: Program, path: Path) -> list[State]:
    """Return the state after 0, 1, 2, … checkpoints, built from longer and longer prefixes of the log."""
    clock = Clock(9)
    store = SqliteStore(path, clock=clock)
    async with Engine(store, workflows=[program.workflow], clock=clock, signals=False) as engine:
        row = await store.get(SESSION)
        assert row is not None
        records = await store.records(row.key, 1)
        ends = [place for place, record in enumerate(records, 1) if record.kind in ("key", "checkpoint")]
        states = []
        for end in ends:
            access = StateAccess(program.workflow, fold(records[:end]).state, store, engine._service.sizes)
            await access.prefetch()
            states.append(access.build().model_dump())
        return states


async def look_at(program: Program, path: Path) -> Stored:
    """Read the real store without changing the session."""
    clock = Clock(9)
    store = SqliteStore(path, clock=clock)
    async with Engine(store, workflows=[program.workflow], clock=clock, signals=False) as engine:
        return await read_stored(engine)
