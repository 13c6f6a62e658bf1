"""The operations of a plan: which results of the open visit are kept, what waits, and what runs again.

The log has an operation when it has ended, when it waits, and when an attempt at it has failed. One that was in flight
when its process died has no record, so a plan cannot list it. It runs again. So does what had finished in a visit that
a rewind or a fork undoes; its cost is known from the log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from pausepoint.clock import to_datetime
from pausepoint.log.replay import (
    CheckpointBody,
    Effect,
    EventBody,
    KeyBody,
    Line,
    OperationBody,
    WaitBody,
    body_of,
    is_inside,
)
from pausepoint.log.state import Blob
from pausepoint.log.timeline import Timeline
from pausepoint.model.questions import Inquiry
from pausepoint.model.sessions import QuestionStatus, SessionRow
from pausepoint.stores.base import Store

Fate = Literal["done", "waits", "will run", "runs again"]

Range = tuple[int, int]

MOST = 10_000
"""How many records of undone visits a plan reads at most, the newest ones. A row of older ones is left out."""


class PlannedOperation(msgspec.Struct, frozen=True):
    """One row of a plan's operations: what a resume does with an operation, or with ``count`` operations of a kind.

    ``done``: the results are kept, so it does not run again, or what it waited for has arrived. ``waits``: what it
    waits for has not arrived. ``will run``: it has failed, or it is an item of a map that has no result yet. ``runs
    again``: it had finished in a visit of ``step`` that is undone, and its result is not kept; it then cost ``usd`` and
    ``tokens``, as far as the log tells.
    """

    operation: str
    verdict: Fate
    why: str
    count: int = 1
    step: str = ""
    usd: float = 0.0
    tokens: int = 0


async def item_ids(store: Store, line: Line) -> dict[str, tuple[str, ...]]:
    """Return the items of each map of the open visit: their ids, by the id of the record that announces them."""
    maps = {id: each.value for id, each in line.operations.items() if each.total}
    large = await store.blobs({bytes.fromhex(value.hash) for value in maps.values() if isinstance(value, Blob)})
    return {
        id: tuple(msgspec.json.decode(large[bytes.fromhex(value.hash)] if isinstance(value, Blob) else value.data))
        for id, value in maps.items()
    }


async def arrivals(store: Store, row: SessionRow, line: Line) -> frozenset[str]:
    """Return what the open visit waited for and has not read yet: ids of questions and children, and ``message``."""
    waits = line.waits.values()
    arrived: list[str] = []
    if any(wait.ask is not None for wait in waits):
        answered = await store.questions(Inquiry(session=row.key, statuses=(QuestionStatus.RESUMED,)))
        arrived += [question.facts.id for question in answered]
    for child in {wait.child for wait in waits if wait.child}:
        arrived += [child] * bool(await store.mail(row.key, 1, "child", child))
    if await store.mail(row.key, 1, "message"):
        arrived.append("message")
    return frozenset(arrived)


def planned_operations(
    row: SessionRow, line: Line, maps: Mapping[str, tuple[str, ...]], arrived: Collection[str] = ()
) -> tuple[PlannedOperation, ...]:
    """Return what a resume does with the operations of the open visit, in the order in which they were recorded."""
    if row.ended in ("completed", "cancelled") or line.held_by_guard or line.step is None:
        return ()
    items = {id for ids in maps.values() for id in ids}
    known = _outermost(line.operations.values(), line.waits.values())
    waits = [each for each in known if isinstance(each, WaitBody) and each.id not in items]
    done = [each for each in known if isinstance(each, OperationBody) and each.id not in items]
    rows = [*_done(done, line, maps), *(_waiting(wait, arrived) for wait in waits)]
    if "message" in (row.waiting or "").split(",") and all(wait.name != "receive" for wait in waits):
        rows.append(_waiting(WaitBody("/receive", "receive"), arrived))
    return tuple(replace(each, step=line.step) for each in rows)


def _outermost(*bodies: Iterable[OperationBody | WaitBody]) -> list[OperationBody | WaitBody]:
    """Leave out what is inside of another operation that has a record: its result, or its next attempt, covers it."""
    every = {each.id: each for some in bodies for each in some}
    return [each for each in every.values() if not is_inside(each.id, every)]


def _done(
    bodies: Iterable[OperationBody], line: Line, maps: Mapping[str, tuple[str, ...]]
) -> Iterator[PlannedOperation]:  # fmt: skip
    """Yield a row for each map, and one for all other operations of the same name: a loop may have thousands."""
    rows: dict[str, list[PlannedOperation]] = {}
    for each in bodies:
        if each.total:
            rows[each.id] = _map(each, line, maps[each.id])
        else:
            count = rows[each.name][0].count + 1 if each.name in rows else 1
            why = "its result is kept" if count == 1 else f"the results of {count:,} operations are kept"
            rows[each.name] = [PlannedOperation(each.name, "done", why, count)]
    for some in rows.values():
        yield from some


def _map(header: OperationBody, line: Line, items: tuple[str, ...]) -> list[PlannedOperation]:
    kept = sum(1 for id in items if id in line.operations)
    left, failed = len(items) - kept, [line.waits[id] for id in items if id in line.waits and line.waits[id].error]
    total = f"{len(items):,} {'item' if len(items) == 1 else 'items'}"
    rows = []
    if kept:
        which = f"{kept:,} of {total}" if left else f"all {total}"
        rows.append(PlannedOperation(header.name, "done", f"the results of {which} are kept", kept))
    if left:
        tried = f"; {len(failed):,} of them after a failed attempt, {_error(failed[-1])}" if failed else ""
        rows.append(PlannedOperation(header.name, "will run", f"{left:,} of {total}{tried}", left))
    return rows


def _waiting(wait: WaitBody, arrived: Collection[str]) -> PlannedOperation:
    until = f" until {_moment(wait.due)}" if wait.due else ""
    if wait.error:
        why = f"attempt {wait.attempt} failed, {_error(wait)}; the next one is at {_moment(wait.due or 0)}"
        return PlannedOperation(wait.name, "will run", why)
    if wait.ask is not None:
        awaited, thing, arrival = wait.ask.id, f"an answer to {wait.ask.text!r}", f"{wait.ask.text!r} was answered"
    elif wait.child:
        awaited, thing, arrival = wait.child, f"child session {wait.child}", f"child session {wait.child} has ended"
    elif wait.name == "receive":
        awaited, thing, arrival = "message", "a message", "a message has arrived"
    else:
        return PlannedOperation(wait.name, "waits", f"waits{until}")
    if awaited in arrived:
        return PlannedOperation(wait.name, "done", arrival)
    return PlannedOperation(wait.name, "waits", f"waits for {thing}{until}")


def _error(wait: WaitBody) -> str:
    return wait.error.rstrip(".")


def _moment(micros: int) -> str:
    return to_datetime(micros).isoformat(timespec="seconds")


class _Undone:
    """What had finished in one visit that is undone, and what it has spent. ``turn`` counts the rewinds before it."""

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self.operations: dict[str, OperationBody] = {}
        self.effects: dict[str, Effect] = {}

    def add(self, effects: Iterable[Effect]) -> None:
        self.effects.update((effect.id, effect) for effect in effects)


async def undone_operations(
    timeline: Timeline, line: Line, ranges: Sequence[Range], renamed: Mapping[str, str]
) -> tuple[PlannedOperation, ...]:  # fmt: skip
    """Return the operations in ranges of the log that a line has left behind, and that it would run again."""
    visits = await _undone(timeline, ranges)
    rows: dict[tuple[str, str], tuple[list[str], list[OperationBody], list[Effect]]] = {}
    for (former, number), undone in visits.items():
        step = renamed.get(former, former)
        if number <= line.visits.get(step, 0):
            continue  # the line has this visit
        kept = line.operations if (step, number) == (line.step, line.visit) else {}
        for body in _outermost(undone.operations.values()):
            if isinstance(body, OperationBody) and body.id not in kept and not body.total:
                names, bodies, effects = rows.setdefault((step, body.name), ([], [], []))
                names += [f"{step}#{number}"] * (f"{step}#{number}" not in names)
                bodies.append(body)
                effects += [each for each in undone.effects.values() if is_inside(each.id, {body.id})]
    return tuple(_runs_again(step, name, *finished) for (step, name), finished in rows.items())


def _runs_again(
    step: str, name: str, visits: list[str], bodies: list[OperationBody], effects: list[Effect]
) -> PlannedOperation:  # fmt: skip
    usd, tokens, count = sum(each.usd for each in effects) / 1e6, sum(each.tokens for each in effects), len(bodies)
    where = visits[0] if len(visits) == 1 else f"{visits[0]} to {visits[-1]}"
    costs = [f"${usd:.4g}"] * (usd > 0) + [f"{tokens:,} tokens"] * (tokens > 0)
    cost = f"; {'it' if count == 1 else 'they'} cost {' and '.join(costs)}" if costs else ""
    why = f"{'it' if count == 1 else f'{count:,} of them'} had finished in {where}{cost}"
    return PlannedOperation(name, "runs again", why, count, step, usd, tokens)


async def _undone(timeline: Timeline, ranges: Sequence[Range]) -> dict[tuple[str, int], _Undone]:
    """Return the visits in ranges of the log, each as it was the last time that it ran."""
    visits: dict[tuple[str, int], _Undone] = {}
    turn = 0
    for first, last in _newest(ranges):
        before = await timeline.line(first - 1)
        turn += 1
        if before.operations:  # they were kept from the visit before a rewind, or finished before an edit
            visits[before.step or "", before.visit] = undone = _Undone(turn)
            undone.operations.update(before.operations)
            undone.add(effect for body in before.operations.values() for effect in body.effects)
        async for record in timeline.records(first, last):
            if record.kind == "rewind":
                turn += 1
            if record.redacted or record.kind not in ("operation", "event", "wait", "key", "checkpoint"):
                continue
            body = body_of(record)
            bodies: Sequence[OperationBody | EventBody | WaitBody | CheckpointBody] = (body,)
            if isinstance(body, KeyBody):
                bodies = () if body.journal is None else body.journal.operations
            for body in bodies:
                _note(visits, turn, (record.step, record.visit), body)
    return visits


def _note(
    visits: dict[tuple[str, int], _Undone], turn: int, visit: tuple[str, int],
    body: OperationBody | EventBody | WaitBody | CheckpointBody,
) -> None:  # fmt: skip
    undone = visits.get(visit)
    if isinstance(body, OperationBody):
        if undone is None or undone.turn != turn:
            undone = visits[visit] = _Undone(turn)
        undone.operations[body.id] = body
    if undone is None:
        return
    undone.add(body.effects)
    for id in body.forgets if isinstance(body, EventBody) else ():
        undone.operations.pop(id, None)


def _newest(ranges: Sequence[Range]) -> list[Range]:
    """Return the newest of these ranges, with at most `MOST` records.

    >>> _newest([(1, 9_000), (10_001, 12_000)])
    [(1001, 9000), (10001, 12000)]
    """
    room, newest = MOST, list[Range]()
    for first, last in reversed(ranges):
        if room <= 0:
            break
        newest.insert(0, (max(first, last - room + 1), last))
        room -= last - newest[0][0] + 1
    return newest
