"""Reads a session's visits with their operations, waits, retries and cost, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from pausepoint.clock import to_micros
from pausepoint.log import events as history
from pausepoint.log.spans import Span, Spans
from pausepoint.log.timeline import Timeline
from pausepoint.model.records import Record
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.base import Store
from pausepoint.threads import in_thread

__all__ = ["Span", "Spans", "spans_of"]  # front ends fold live events with `Spans`, and do not import the log


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
        here = record.step, record.visit
    return fold
