"""Reads a session's history backwards, a page at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pausepoint.engine.filters import check_limit
from pausepoint.log.events import Cursor, events
from pausepoint.model.sessions import Event, SessionRow
from pausepoint.stores.base import Store
from pausepoint.threads import in_thread

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine


async def recent_events(engine: Engine, session_id: str, *, before: str = "", limit: int = 100) -> list[Event]:
    """Return the last ``limit`` events of a session before a cursor, oldest first.

    The event that has this cursor is left out. Without one, the page ends with the newest event. ``"17.0.0"`` is the
    cursor before all that happened after record 17. The cost follows the page, not the length of the log.
    """
    check_limit(limit, "events")
    engine._service.check_open()
    store, row = engine._service.store, await engine._service.row(session_id)
    end = Cursor.parse(before) if before else Cursor(row.seq + 1)
    last = min(end.seq + 1, row.seq)  # an event in the middle of a record has the cursor of the record before
    first, found = last, list[Event]()
    while first > 0 and len(found) < limit:
        first = max(first - max(limit, 1), 0)
        page = await _page(store, row, first, last)
        found = [each for each in page if _position(each) < (end.seq, end.signal, end.index)]
    return found[-limit:] if limit else []


def _position(event: Event) -> tuple[int, int, int]:
    cursor = Cursor.parse(event.cursor)
    return cursor.seq, cursor.signal, cursor.index


async def _page(store: Store, row: SessionRow, first: int, last: int) -> list[Event]:
    """Return the events of the records after ``first``, up to ``last``, and of the signals among them."""
    since = await _signals_until(store, row, first - 1)
    until = await _signals_until(store, row, last)
    signals = await store.signals(row.key, since, until) if since < until else []
    records = await store.records(row.key, first + 1, last) if first < last else []
    return await in_thread(lambda: list(events(row.session_id, Cursor(first, since), records, signals)))


async def _signals_until(store: Store, row: SessionRow, seq: int) -> int:
    """Return how many signals have arrived until record ``seq`` was the last one, by binary search."""
    low, high = 0, row.signals
    while low < high:
        middle = (low + high + 1) // 2
        (signal,) = await store.signals(row.key, middle - 1, middle)
        low, high = (middle, high) if signal.after <= seq else (low, middle - 1)
    return low
