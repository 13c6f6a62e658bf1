"""Read the changes of all sessions, in the order of the transactions that wrote them.

Transactions have rising numbers, but do not commit in this order. So a page ends before the first transaction that may
still be running: nothing can appear behind a mark. A reader waits a moment for those that are running, because it must
find what was committed before it asked. A transaction of another program on the same server that writes for a long time
delays the changes.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from hashlib import sha256
from typing import Any, NamedTuple

from msgspec.structs import replace

from pausepoint.errors import DamagedRecord
from pausepoint.model.changes import DIGEST, Mark, Moved, Page, Point, Within
from pausepoint.stores.sql import removal
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.rows import every, one

PATIENCE = 1.0
"""Seconds to wait for transactions that are running."""


class _Session(NamedTuple):
    key: int
    session_id: str
    parent: int | None
    signals: int


def running(connection: Connection) -> tuple[int, int]:
    """Return the first transaction that may be running, and the next one that has not begun."""
    first, wanted = one(connection, connection.queries["settled_until"])
    return int(first), int(wanted)


async def settled(look: Callable[[], Awaitable[tuple[int, int]]]) -> int:
    """Return a transaction number before which all transactions have ended; if possible, the present one.

    Other reads run in between.
    """
    end = time.monotonic() + PATIENCE
    first, wanted = await look()
    while first < wanted and time.monotonic() < end:
        await asyncio.sleep(0.002)
        first, _ = await look()
    return min(first, wanted)


def read(connection: Connection, store: str, after: Mark | None, limit: int, horizon: int) -> Page | None:
    """Return the changes after a mark and before a transaction; None if it is a mark of another store."""
    if after is None:
        return Page((), _present(connection, store, horizon))
    if not _holds(connection, store, after):
        return None
    if after.within is not None:
        start = after.within
        rows = _rows(connection, start.record, after.record.number, -1)
        return _page(connection, replace(after, within=None), start, rows, more=True)
    stones = every(connection, connection.queries["changed_stones"], after.stone.number, limit)
    if stones:
        found = tuple(_removed(after, stones))
        return Page(found, replace(after, stone=_stone(connection, stones[-1][0])), more=True)
    first = after.record.number
    rows, end = _next(connection, first, max(horizon, first), limit)
    if not rows.records and not rows.signals:
        return Page((), after)  # the same mark, although other stores of the server have written meanwhile
    mark = replace(after, record=_point(store, end), signal=_point(store, end))
    return _page(connection, mark, Within(first, first, 0), rows, more=end < horizon)


def _point(store: str, number: int) -> Point:
    return Point(number, sha256(f"{store}:{number}".encode()).digest()[:DIGEST])


def _stone(connection: Connection, number: int) -> Point:
    if not number:
        return Point()
    found = one(connection, connection.queries["stone_point"], number)
    return Point(number, b"" if found is None else bytes(found[0])[:DIGEST])


def _present(connection: Connection, store: str, horizon: int) -> Mark:
    stone = (one(connection, connection.queries["last_stone"]) or (0,))[0]
    here = _point(store, horizon)
    return Mark(here, here, _stone(connection, stone))


def _holds(connection: Connection, store: str, mark: Mark) -> bool:
    """Return whether a mark is one of this store."""
    points = [point for point in (mark.record, mark.signal) if point.number]
    known = all(point == _point(store, point.number) for point in points)
    return known and _stone(connection, mark.stone.number) == mark.stone


def _removed(after: Mark, stones: Iterable[tuple[Any, ...]]) -> Iterable[Moved]:
    for n, *stored in stones:
        try:
            stone = removal.proved_stone(stored)
        except DamagedRecord:  # `verify` reports it
            continue
        mark = replace(after, stone=Point(n, stone.digest[:DIGEST]))
        yield Moved(0, stone.session_id, stone.records + 1, stone.records, 0, 0, mark, stone=stone)


class _Rows(NamedTuple):
    """Records and signals of whole transactions, each with its transaction and session."""

    records: list[tuple[int, _Session, int]]
    signals: list[tuple[int, _Session, int, int]]

    def before(self, end: int) -> _Rows:
        return _Rows([row for row in self.records if row[0] < end], [row for row in self.signals if row[0] < end])


def _rows(connection: Connection, first: int, end: int, limit: int) -> _Rows:
    most = None if limit < 0 else limit
    records = every(connection, connection.queries["changed_records"], str(first), str(end), most)
    signals = every(connection, connection.queries["changed_signals"], str(first), str(end), most)
    return _Rows(
        [(tx, _Session(*session), seq) for tx, *session, seq in records],
        [(tx, _Session(*session), n, after) for tx, *session, n, after in signals],
    )


def _next(connection: Connection, first: int, horizon: int, limit: int) -> tuple[_Rows, int]:
    """Return the rows of the next transactions, about ``limit`` of them, and the transaction after these."""
    while True:
        rows = _rows(connection, first, horizon, limit)
        full = [each[-1][0] for each in rows if len(each) == limit]
        if not full:
            return rows, horizon
        end = min(full)  # rows of this transaction may be missing
        if end > first and (rows.records or rows.signals)[0][0] < end:
            return rows.before(end), end
        limit *= 2


def _page(connection: Connection, mark: Mark, start: Within, rows: _Rows, more: bool) -> Page:
    found: dict[_Session, tuple[list[int], list[tuple[int, int]]]] = defaultdict(lambda: ([], []))
    for _, session, seq in rows.records:
        found[session][0].append(seq)
    for _, session, n, after in rows.signals:
        found[session][1].append((n, after))
    chosen = sorted(session for session in found if session.key > start.session)
    moved = []
    for session in chosen:
        within = None if session == chosen[-1] else Within(start.record, start.signal, session.key)
        moved.append(_moved(connection, session, *found[session], mark.record.number, replace(mark, within=within)))
    return Page(tuple(moved), mark, more)


def _moved(
    connection: Connection, session: _Session, seqs: list[int], signals: list[tuple[int, int]], end: int, mark: Mark
) -> Moved:
    key, session_id, parent, _ = session
    above: tuple[str, ...] = ()
    if parent is not None:
        above = tuple(id for (id,) in every(connection, connection.queries["ancestors"], key)[1:])
    if not signals:
        n = connection.execute(connection.queries["last_signal_before"], (key, str(end))).get
        return Moved(key, session_id, min(seqs), max(seqs), n, n, mark, above)
    last, after = max(signals)
    records = (min(seqs), max(seqs)) if seqs else (after + 1, after)
    return Moved(key, session_id, *records, min(signals)[0] - 1, last, mark, above)
