"""The operations of a plan: which results of the open visit are kept, what waits, and what runs again.

The log has an operation when it has ended, when it waits, and when an attempt at it has failed. One that was in flight
when its process died has no record, so a plan cannot list it. It runs again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from pausepoint.clock import to_datetime
from pausepoint.log.replay import Line, OperationBody, WaitBody, is_inside
from pausepoint.log.state import Blob
from pausepoint.model.questions import Inquiry
from pausepoint.model.sessions import QuestionStatus, SessionRow
from pausepoint.stores.base import Store

Fate = Literal["done", "waits", "will run"]


class PlannedOperation(msgspec.Struct, frozen=True):
    """One row of a plan's operations: what a resume does with an operation, or with ``count`` operations of a kind.

    ``done``: the results are kept, so it does not run again, or what it waited for has arrived. ``waits``: what it
    waits for has not arrived. ``will run``: it has failed, or it is an item of a map that has no result yet.
    """

    operation: str
    verdict: Fate
    why: str
    count: int = 1


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
    return tuple(rows)


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
