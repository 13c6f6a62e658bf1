"""Reads a session's visits with their operations, waits, retries and cost, and the operations with their values."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pausepoint.clock import to_datetime, to_micros
from pausepoint.codec.arguments import arguments_of
from pausepoint.codec.values import as_plain, decode
from pausepoint.engine.filters import check_limit
from pausepoint.errors import UnknownOperation
from pausepoint.log import events as history
from pausepoint.log.events import label_of, result_of
from pausepoint.log.replay import OperationBody, body_of
from pausepoint.log.spans import Part, Span, Spans
from pausepoint.log.state import Blob, Inline
from pausepoint.log.timeline import AT_ONCE, Timeline, Undone, operation_of
from pausepoint.log.totals import Adder, Totals
from pausepoint.model.ids import shortened
from pausepoint.model.records import Record
from pausepoint.model.sessions import SessionRow
from pausepoint.model.views import OperationInfo
from pausepoint.stores.base import Store
from pausepoint.threads import in_thread

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine

# front ends fold live events with `Spans`, and do not import the log
__all__ = [
    "Part", "Span", "Spans", "Totals", "label_of", "operation", "operations", "spans_from", "spans_of", "totals",
]  # fmt: skip


async def spans_of(store: Store, timeline: Timeline, row: SessionRow, before: int | None, limit: int) -> list[Span]:
    """Return the last ``limit`` visits that ended before record ``before``, oldest first, then the open one."""
    found = await timeline.checkpoints(before, limit + 1)
    begins = found[0] if len(found) > limit else None
    since = 1 if begins is None else begins.seq + 1
    until = row.seq if before is None else max((each.seq for each in found), default=0)
    records = await store.records(row.key, since, until) if since <= until else []
    fold = await in_thread(_folded, row.session_id, records, None if begins is None else begins.ended_at)
    undone = {each.seq: each.left_behind for each in found}
    spans = [replace(span, left_behind=span.left_behind or undone.get(span.seq, False)) for span in fold.done]
    if before is None and row.ended != "completed" and row.step is not None and not row.held_by_guard:
        spans.append(fold.open(row.step, row.visit))
    return spans


async def spans_from(store: Store, timeline: Timeline, row: SessionRow, at: int | str, limit: int) -> list[Span]:
    """Return the first ``limit`` visits that ended with record ``at`` or later, oldest first, then the open one.

    ``at`` may also name a visit, such as ``write#2``.
    """
    place = at if isinstance(at, int) else await timeline.find(at)
    found = await timeline.checkpoints_from(place, limit)
    if len(found) < limit:
        return await spans_of(store, timeline, row, None, len(found))
    return await spans_of(store, timeline, row, found[-1].seq + 1, limit)


async def totals(engine: Engine, session_id: str, *, before: int | None = None) -> Totals:
    """Return what each step and each operation of a session has done, in total.

    ``earlier`` of the result counts the visits that ended before record ``before``. The cost follows the length of the
    log; the time is spent in a thread.
    """
    engine._service.check_open()
    row = await engine._service.row(session_id)
    timeline = engine._service.timeline(row)
    adder = Adder(await timeline.left_behind(), before)
    for first in range(1, row.seq + 1, AT_ONCE):
        records = await engine._service.store.records(row.key, first, min(first + AT_ONCE - 1, row.seq))
        await in_thread(adder.add, records)
    return adder.totals()


async def operations(
    engine: Engine, session_id: str, *, before: int | None = None, limit: int | None = 100, whole: bool = False
) -> list[OperationInfo]:
    """Return the last operations of a session that ended before record ``before``, oldest first.

    Large results are cut, unless ``whole`` is set.
    """
    check_limit(limit, "operations")
    rows, undone = list[OperationInfo](), await _undone(engine, session_id)
    async for store, record, body in _newest(engine, session_id, before):
        if limit is not None and len(rows) >= limit:
            break
        rows.append(await _info(store, record, body, undone, whole))
    return rows[::-1]


async def _undone(engine: Engine, session_id: str) -> Undone:
    engine._service.check_open()
    return await engine._service.timeline(await engine._service.row(session_id)).left_behind()


async def operation(engine: Engine, session_id: str, id: str) -> OperationInfo:
    """Return an operation of a session with its whole result; the last one with this id, if a rewind repeated it.

    Raises `UnknownOperation`.
    """
    async for store, record, body in _newest(engine, session_id):
        if body.id == id:
            return await _info(store, record, body, await _undone(engine, session_id), whole=True)
    raise UnknownOperation(
        f"Session {session_id!r} has no operation {shortened(id)} that has ended. List them with"
        f" `pausepoint show {session_id} --operations`.",
        session_id=session_id,
        operation=id,
    )


async def _newest(
    engine: Engine, session_id: str, before: int | None = None
) -> AsyncIterator[tuple[Store, Record, OperationBody]]:
    """Yield the records of operations before record ``before``, the newest first."""
    engine._service.check_open()
    store, row = engine._service.store, await engine._service.row(session_id)
    end = row.seq if before is None else min(before - 1, row.seq)
    for last in range(end, 0, -AT_ONCE):
        for record in reversed(await store.records(row.key, max(last - AT_ONCE + 1, 1), last)):
            if (body := operation_of(record)) is not None:
                yield store, record, body


async def _info(store: Store, record: Record, body: OperationBody, undone: Undone, whole: bool) -> OperationInfo:
    arguments = arguments_of(body.arguments)
    arguments = {} if arguments is None and not body.input else arguments  # a wait has none
    spent = [each for each in body.effects if each.id.rpartition("/spend:")[0] == body.id]
    return OperationInfo(
        record.seq, body.id, body.name, label_of(body.id, body.name, arguments), record.step, record.visit,
        to_datetime(record.at - body.took), to_datetime(record.at), arguments,
        await _result(store, body) if whole else result_of(body), _size(body.value), body.outcome,
        sum(each.usd for each in spent) / 1e6, sum(each.tokens for each in spent), undone.has(record, body),
    )  # fmt: skip


def _size(value: Inline | Blob) -> int:
    return value.size if isinstance(value, Blob) else len(bytes(value.data))


async def _result(store: Store, body: OperationBody) -> Any:
    if isinstance(body.value, Inline):
        return as_plain(decode(bytes(body.value.data)))
    hash_ = bytes.fromhex(body.value.hash)
    data = (await store.blobs([hash_]))[hash_]
    return await in_thread(lambda: as_plain(decode(data)))


def _folded(session_id: str, records: Sequence[Record], begins: datetime | None) -> Spans:
    """Fold the events of records into visits. It takes milliseconds, so the loop leaves it to a thread."""
    fold, here = Spans(), ("", 0)
    if begins is not None:
        fold.since = to_micros(begins)
    for record in records:
        if record.redacted and record.kind == "checkpoint":
            fold.ended_redacted(record.step, record.visit, record.seq, record.at)
        for event in history.events(session_id, history.Cursor(record.seq - 1), [record], []):
            fold.apply(event, here)  # a rewind's own record is already at its new place
        if record.kind == "key" and not record.redacted and (journal := body_of(record).journal) is not None:
            fold.keep((record.step, record.visit), {each.id for each in journal.operations})
        here = record.step, record.visit
    return fold
