"""What upkeep does with drawers: it deletes what has expired, and finds damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from pausepoint.errors import DamagedRecord
from pausepoint.model.drawers import DrawerId
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.drawers import (
    DISCARDED,
    SMALL,
    Row,
    all_streams,
    check_count,
    damage_error,
    drop_whole,
    entries_of,
    entry_error,
    new_row,
    proved,
    proved_stream,
    proved_value,
    session_of,
    whole_value,
)
from pausepoint.stores.sql.rows import every, one

T = TypeVar("T")

AT_ONCE = 200
"""How many rows are verified with one statement, at most."""


# expiry


def delete_expired(connection: Connection, now: int, limit: int) -> int:
    """Delete what has expired in the store's own drawers. What is damaged stays: its time may be wrong."""
    gone = 0
    for id, name, *facts in every(connection, connection.queries["expiring_drawers"]):
        drawer = DrawerId(name)
        try:
            row = proved(drawer, id, *facts)
            before = now - (row.keep_for or 0)
            gone += _delete_streams(connection, drawer, row, before // 1000, limit - gone)
            gone += _delete_values(connection, drawer, row, before, limit - gone)
        except (DamagedRecord, UnicodeDecodeError):
            continue
    return gone


def _delete_streams(connection: Connection, drawer: DrawerId, row: Row, before: int, limit: int) -> int:
    """Delete streams until about ``limit`` entries are gone. One that has more is discarded."""
    short: list[int] = []
    gone = entries = after = 0
    while max(entries, gone) < limit and (
        page := every(connection, connection.queries["expired_streams"], row.id, before, after, AT_ONCE)
    ):
        after = page[-1][0]
        for found in _intact(page, lambda stored: proved_stream(drawer, stored)):
            if max(entries, gone) >= limit:
                break
            gone += 1
            if found.info.n > limit:
                _discard(connection, found.id)
            else:
                short.append(found.id)
                entries += found.info.n
    drop_whole(connection, short)
    return gone


def _discard(connection: Connection, stream: int) -> None:
    """Take a stream out of its drawer at once, so that no one sees a part of it. `delete_discarded` deletes it."""
    found = one(connection, connection.queries["drawer"], DISCARDED, "")
    drawer = new_row(connection, DISCARDED, "", 0, 0, None).id if found is None else found[0]
    connection.execute(connection.queries["discard_stream"], (drawer, str(stream), stream))


def delete_discarded(connection: Connection, limit: int) -> int:
    """Delete up to ``limit`` rows of discarded streams. Return how many there were."""
    for part in ("strip_entries", "strip_streams", "strip_drawers"):
        if rows := every(connection, connection.queries[part], DISCARDED, limit):
            return len(rows)
    return 0


def _delete_values(connection: Connection, drawer: DrawerId, row: Row, before: int, limit: int) -> int:
    keys: list[str] = []
    after = ""
    while len(keys) < limit and (
        sizes := every(connection, connection.queries["expired_values"], row.id, before, after, min(limit, AT_ONCE))
    ):
        after = sizes[-1][0]
        for part in _parts(sizes):
            wanted = msgspec.json.encode(part).decode()
            stored = every(connection, connection.queries["values_by_key"], row.id, wanted)
            keys += [each.key for each in _intact(stored, lambda stored: whole_value(drawer, stored))]
    connection.executemany(connection.queries["remove_value"], [(row.id, key) for key in keys])
    return len(keys)


def _intact(rows: Sequence[Any], prove: Callable[[Any], T]) -> Iterator[T]:
    for stored in rows:
        with suppress(DamagedRecord):
            yield prove(stored)


def _parts(sizes: Sequence[tuple[T, int]]) -> Iterator[list[T]]:
    """Split the names of rows into lists, each of one row or of rows with few bytes together.

    >>> list(_parts([("a", 1), ("b", SMALL - 1), ("c", 1), ("d", SMALL * 9), ("e", 1)]))
    [['a', 'b'], ['c'], ['d'], ['e']]
    """
    part: list[T] = []
    total = 0
    for name, size in sizes:
        if part and total + size > SMALL:
            yield part
            part, total = [], 0
        part.append(name)
        total += size
    yield part


# verification


def problems(connection: Connection, session_id: str | None) -> list[str]:
    """Return a line for each damage in the drawers of a session, or in the store's own."""
    session = session_of(connection, DrawerId("", session_id))
    rows = every(connection, connection.queries["drawers"], session)
    return [
        str(error)
        for id, name, *facts in rows
        for error in _problems(connection, DrawerId(name, session_id), id, *facts)
    ]


def _problems(connection: Connection, drawer: DrawerId, *stored: Any) -> Iterator[DamagedRecord]:
    yield from _raised(proved, drawer, *stored)
    row = Row(stored[0], 0, 0, None)
    for find_problems in (_stream_problems, _value_problems):
        try:
            yield from find_problems(connection, drawer, row)
        except connection.unreadable as exc:
            yield damage_error(drawer, f"a row cannot be read ({exc})")


def _raised(check: Callable[..., object], *given: Any) -> list[DamagedRecord]:
    try:
        check(*given)
    except DamagedRecord as error:
        return [error]
    return []


def _stream_problems(connection: Connection, drawer: DrawerId, row: Row) -> Iterator[DamagedRecord]:
    stored = all_streams(connection, row)
    for each in stored:
        yield from _raised(_prove_stream, connection, drawer, each)
    yield from _raised(check_count, connection, drawer, row, "streams", len(stored))


def _prove_stream(connection: Connection, drawer: DrawerId, stored: Any) -> None:
    stream = proved_stream(drawer, stored)
    after, n = 0, stream.info.n
    while after < n:
        sizes = every(connection, connection.queries["entry_sizes"], stream.id, after, AT_ONCE)
        if not sizes:
            raise entry_error(drawer, stream.info.stream, after + 1)
        for part in _parts(sizes):
            entries_of(connection, drawer, stream, after, min(part[-1], n))
            after = part[-1]
    if one(connection, connection.queries["entry_sum"], stream.id, n + 1) is not None:
        raise entry_error(drawer, stream.info.stream, n + 1)


def _value_problems(connection: Connection, drawer: DrawerId, row: Row) -> Iterator[DamagedRecord]:
    after, found = "", 0
    while sizes := every(connection, connection.queries["value_sizes"], row.id, after, AT_ONCE):
        after = sizes[-1][0]
        found += len(sizes)
        for part in _parts(sizes):
            wanted = msgspec.json.encode(part).decode()
            for stored in every(connection, connection.queries["values_by_key"], row.id, wanted):
                yield from _raised(proved_value, drawer, stored)
    yield from _raised(check_count, connection, drawer, row, "values", found)
