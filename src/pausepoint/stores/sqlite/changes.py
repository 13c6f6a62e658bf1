"""Read the changes of all sessions, in the order in which they were committed.

The ids of `log` and `signals` rise in the order of commits, because a transaction takes the next one while it has the
write lock. They can be used again after the last rows were removed. A mark therefore carries the digest of the rows
that it names: as long as they exist, no id before them is used again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import takewhile
from typing import NamedTuple

import msgspec

from pausepoint.errors import DamagedRecord
from pausepoint.model.changes import DIGEST, Mark, Moved, Page, Point, Within
from pausepoint.stores.sql import removal
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.rows import every, one
from pausepoint.stores.sqlite.sql import QUERIES

_LAST = 2**63 - 1


class _Session(NamedTuple):
    """The session of a row. ``signals`` is the number of its last signal."""

    key: int
    session_id: str
    parent: int | None
    signals: int


class _Record(NamedTuple):
    session: _Session
    id: int
    seq: int


class _Signal(NamedTuple):
    session: _Session
    id: int
    n: int
    after: int
    log_end: int


class _Rows(NamedTuple):
    """The records and signals of a page. ``until``: the last signal that was read with this page or before."""

    records: list[_Record]
    signals: list[_Signal]
    until: int
    more: bool = False


def is_removing(connection: Connection) -> bool:
    """Return whether sessions are being removed. A page passes over all their rows, which may be many."""
    return bool(connection.execute(QUERIES["any_removing"]).get)


def read(connection: Connection, after: Mark | None, limit: int) -> Page | None:
    """Return the changes after a mark; None if one of its rows is gone. Without a mark, return the present one."""
    if after is None:
        return Page((), _present(connection))
    if not _holds(connection, after):
        return None
    if after.within is not None:
        return _page(connection, msgspec.structs.replace(after, within=None), after.within, _rest(connection, after))
    stones = every(connection, QUERIES["changed_stones"], after.stone.number, limit)
    if stones:
        found = tuple(_removed(after, stones))
        last = stones[-1][0]
        return Page(found, msgspec.structs.replace(after, stone=_point(connection, "stone_point", last)), more=True)
    start = Within(after.record.number, after.signal.number, 0)
    return _page(connection, after, start, _next(connection, start, limit))


def _present(connection: Connection) -> Mark:
    record, signal, stone = (
        (one(connection, QUERIES[end]) or (0,))[0] for end in ("last_live_record", "last_live_signal", "last_stone")
    )
    return Mark(
        _point(connection, "record_point", record),
        _point(connection, "signal_point", signal),
        _point(connection, "stone_point", stone),
    )


def _holds(connection: Connection, mark: Mark) -> bool:
    """Return whether the rows that a mark names are the ones that its reader has read."""
    named = {"record_point": mark.record, "signal_point": mark.signal, "stone_point": mark.stone}
    return all(_point(connection, query, point.number) == point for query, point in named.items())


def _point(connection: Connection, query: str, number: int) -> Point:
    if not number:
        return Point()
    found = one(connection, QUERIES[query], number)
    return Point(number, b"" if found is None else bytes(found[0])[:DIGEST])


def _removed(after: Mark, stones: Iterable[tuple[object, ...]]) -> Iterable[Moved]:
    for n, *stored in stones:
        try:
            stone = removal.proved_stone(stored)
        except DamagedRecord:  # `verify` reports it
            continue
        assert isinstance(n, int)
        mark = msgspec.structs.replace(after, stone=Point(n, stone.digest[:DIGEST]))
        yield Moved(0, stone.session_id, stone.records + 1, stone.records, 0, 0, mark, stone=stone)


def _next(connection: Connection, start: Within, limit: int) -> _Rows:
    """Return the next rows: about ``limit``, or more if a session's history would be out of order otherwise."""
    while True:
        rows = _cut(connection, start, limit)
        if not rows.more or not _is_out_of_order(connection, rows):
            return rows
        limit *= 2


def _cut(connection: Connection, start: Within, limit: int) -> _Rows:
    records = _records(connection, start.record, _LAST, 0, limit)
    signals = _signals(connection, start.signal, _LAST, 0, limit)
    more = len(records) == limit or len(signals) == limit
    if len(records) == limit:
        end = records[-1].id
        signals = list(takewhile(lambda signal: signal.log_end <= end, signals))
    return _Rows(records, signals, signals[-1].id if signals else start.signal, more)


def _is_out_of_order(connection: Connection, rows: _Rows) -> bool:
    """Return whether a record of the page comes after a signal that is not in the page.

    A commit can write both, and a page can end between them.
    """
    read = {signal.session: signal.n for signal in rows.signals}
    last = {record.session: record.seq for record in rows.records if record.session.signals}
    for session, seq in last.items():
        n = read.get(session) or _last_signal(connection, session, rows.until)
        if n == session.signals:
            continue
        found = one(connection, QUERIES["signal_after"], session.key, n + 1)
        if found is not None and found[0] < seq:
            return True
    return False


def _rest(connection: Connection, mark: Mark) -> _Rows:
    """Return the rows of a page that belong to the sessions after those that were read."""
    assert mark.within is not None
    start, ends = mark.within, (mark.record.number, mark.signal.number)
    records = _records(connection, start.record, ends[0], start.session, -1)
    signals = _signals(connection, start.signal, ends[1], start.session, -1)
    return _Rows(records, signals, ends[1], more=True)


def _records(connection: Connection, *where: int) -> list[_Record]:
    return [_Record(_Session(*row[:4]), *row[4:]) for row in every(connection, QUERIES["changed_records"], *where)]


def _signals(connection: Connection, *where: int) -> list[_Signal]:
    return [_Signal(_Session(*row[:4]), *row[4:]) for row in every(connection, QUERIES["changed_signals"], *where)]


def _page(connection: Connection, after: Mark, start: Within, rows: _Rows) -> Page:
    end = after
    if rows.records:
        end = msgspec.structs.replace(end, record=_later(connection, "record_point", end.record, rows.records[-1].id))
    if rows.signals:
        end = msgspec.structs.replace(end, signal=_later(connection, "signal_point", end.signal, rows.signals[-1].id))
    found: dict[_Session, tuple[list[_Record], list[_Signal]]] = defaultdict(lambda: ([], []))
    for record in rows.records:
        found[record.session][0].append(record)
    for signal in rows.signals:
        found[signal.session][1].append(signal)
    moved, last = [], max(found, default=None)
    for session in sorted(found):
        within = None if session == last else Within(start.record, start.signal, session.key)
        mark = msgspec.structs.replace(end, within=within)
        moved.append(_moved(connection, session, *found[session], rows.until, mark))
    return Page(tuple(moved), end, rows.more)


def _later(connection: Connection, query: str, known: Point, number: int) -> Point:
    return known if number <= known.number else _point(connection, query, number)


def _moved(
    connection: Connection, session: _Session, records: list[_Record], signals: list[_Signal], until: int,
    mark: Mark,
) -> Moved:  # fmt: skip
    key, session_id, parent, _ = session
    above = () if parent is None else tuple(id for (id,) in every(connection, QUERIES["ancestors"], key)[1:])
    if not signals:
        n = _last_signal(connection, session, until)
        return Moved(key, session_id, records[0].seq, records[-1].seq, n, n, mark, above)
    last = signals[-1]
    seqs = (records[0].seq, records[-1].seq) if records else (last.after + 1, last.after)
    return Moved(key, session_id, *seqs, signals[0].n - 1, last.n, mark, above)


def _last_signal(connection: Connection, session: _Session, until: int) -> int:
    """Return the number of a session's last signal up to a row."""
    found = one(connection, QUERIES["last_signal_until"], session.key, until) if session.signals else None
    return 0 if found is None else int(found[0])
