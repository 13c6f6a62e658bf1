"""Drawers: streams of bytes and versioned values beside the sessions, each row under a checksum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from pausepoint.errors import DamagedRecord, UnknownSession, VersionConflict
from pausepoint.model.drawers import (
    Change,
    DrawerId,
    DrawerInfo,
    DrawerStream,
    DrawerValue,
    Fold,
    Range,
    StoredDrawer,
    StoredStream,
    StoredValue,
    after_prefix,
    chain,
    chain_start,
    drawer_sum,
    folded,
    next_changed,
    stream_sum,
    value_sum,
)
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Engine
from pausepoint.stores.sql.rows import every, one

ALL = 2**62
"""Stands for no limit."""

DISCARDED = -1
"""Stands for the session of streams that have expired and are deleted in portions. No session has this key."""

SMALL = 2**20
"""More bytes than these are neither read on the event loop's thread nor, if they are several rows, verified at once."""


class TooLarge(Exception):
    """What was asked for is larger than the caller wants to read here."""


class Row(NamedTuple):
    """The row of a drawer."""

    id: int
    changed: int
    version: int
    keep_for: int | None


class _Stream(NamedTuple):
    """The row of a stream. ``last`` is the checksum of its last entry."""

    id: int
    info: DrawerStream
    last: int


# drawers


def session_of(connection: Connection, drawer: DrawerId, query: str = "drawer_session") -> int:
    """Return the key of the session that a drawer belongs to; 0 for the store's own. Raises `UnknownSession`."""
    if drawer.session_id is None:
        return 0
    found = one(connection, connection.queries[query], drawer.session_id)
    if found is None:
        raise UnknownSession(
            f"There is no session {drawer.session_id!r} in this store, so it has no drawer {drawer.name!r}. List all"
            " sessions with engine.sessions().",
            session_id=drawer.session_id,
        )
    return int(found[0])


def _found(connection: Connection, drawer: DrawerId) -> Row | None:
    stored = one(connection, connection.queries["drawer"], session_of(connection, drawer), drawer.name)
    return None if stored is None else proved(drawer, *stored)


def proved(drawer: DrawerId, id: int, changed: Any, version: Any, keep_for: Any, sum_: Any) -> Row:
    if sum_ != _summed(drawer.name, changed, version, keep_for):
        raise damage_error(drawer, "its facts do not match their checksum")
    return Row(id, changed, version, keep_for)


def _summed(*facts: Any) -> int | None:
    try:
        return drawer_sum(*facts)
    except (TypeError, ValueError):
        return None


def _opened(connection: Connection, drawer: DrawerId) -> Row:
    """Return the row of a drawer, which is created if there is none."""
    return _found(connection, drawer) or new_row(connection, session_of(connection, drawer), drawer.name, 0, 0, None)


def new_row(
    connection: Connection, session: int, name: str, changed: int, version: int, keep_for: int | None
) -> Row:  # fmt: skip
    sum_ = drawer_sum(name, changed, version, keep_for)
    (id,) = one(connection, connection.queries["new_drawer"], session, name, changed, version, keep_for, sum_)
    return Row(id, changed, version, keep_for)


def _touch(connection: Connection, drawer: DrawerId, row: Row) -> None:
    sum_ = drawer_sum(drawer.name, row.changed, row.version, row.keep_for)
    connection.execute(connection.queries["touch_drawer"], (row.changed, row.version, row.keep_for, sum_, row.id))


def damage_error(drawer: DrawerId, what: str, **fields: Any) -> DamagedRecord:
    return DamagedRecord(
        f"Drawer {drawer}: {what}. Restore the database from a backup, or delete what is damaged.",
        drawer=drawer.name, **fields,
    )  # fmt: skip


def _mend(connection: Connection, drawer: DrawerId, stored: Any, now: int) -> None:
    """Replace the damaged facts of a drawer, once nothing is in it. So a drawer can be used again.

    Its next version is the time in microseconds: no drawer has given out as many, so none is given out twice.
    """
    if stored is not None and stored[-1] != _summed(drawer.name, *stored[1:-1]) and _is_empty(connection, stored[0]):
        _touch(connection, drawer, Row(stored[0], now // 1000, now, None))


def _is_empty(connection: Connection, id: int) -> bool:
    streams, values = one(connection, connection.queries["drawer_counts"], id)
    return not streams and not values


def check_count(connection: Connection, drawer: DrawerId, row: Row, what: str, found: int) -> None:
    """Raise `DamagedRecord` if there are more streams or values than were found by their names."""
    streams, values = one(connection, connection.queries["drawer_counts"], row.id)
    stored = streams if what == "streams" else values
    if found != stored:
        raise damage_error(drawer, f"only {found} of {stored} {what} are found by name, so a name is damaged")


def _check_size(connection: Connection, most: int | None, query: str, *bindings: object) -> None:
    if most is not None and one(connection, connection.queries[query], *bindings)[0] > most:
        raise TooLarge


# streams


def append(
    connection: Connection, engine: Engine, drawer: DrawerId, stream: str, entries: Sequence[bytes],
    fold: Fold | None, keep_for: int | None,
) -> int:  # fmt: skip
    row = _opened(connection, drawer)
    found = _stream(connection, drawer, row, stream)
    changed = next_changed(row.changed, engine.now())
    old = None if found is None else found.info.note
    note = old if fold is None else folded(fold, old, changed)
    if found is None:
        found = _new_stream(connection, drawer, row, DrawerStream(stream, 0, changed, note))
    sums = chain(drawer.name, stream, entries, (found.info.n, found.last))
    numbered = enumerate(zip(entries, sums, strict=True), found.info.n + 1)
    connection.executemany(
        connection.queries["append_entry"], [(found.id, n, data, sum_) for n, (data, sum_) in numbered]
    )
    n = found.info.n + len(entries)
    _move(connection, drawer, found.id, DrawerStream(stream, n, changed, note), sums[-1] if sums else found.last)
    _touch(connection, drawer, row._replace(changed=changed, keep_for=row.keep_for if keep_for is None else keep_for))
    return n


def _stream(connection: Connection, drawer: DrawerId, row: Row, stream: str) -> _Stream | None:
    stored = one(connection, connection.queries["drawer_stream"], row.id, stream)
    return None if stored is None else proved_stream(drawer, stored)


def proved_stream(drawer: DrawerId, stored: Any) -> _Stream:
    id, stream, n, changed, note, last, sum_ = stored
    info = DrawerStream(stream, n, changed, note)
    try:
        intact = stream_sum(drawer.name, info, last) == sum_
    except (TypeError, ValueError):
        intact = False
    if not intact:
        what = f"the facts about stream {str(stream)!r:.80} do not match their checksum"
        raise damage_error(drawer, what, stream=str(stream))
    return _Stream(id, info, last)


def _new_stream(connection: Connection, drawer: DrawerId, row: Row, info: DrawerStream) -> _Stream:
    last = chain_start(drawer.name, info.stream)
    facts = row.id, info.stream, info.n, info.changed, info.note, last, stream_sum(drawer.name, info, last)
    (id,) = one(connection, connection.queries["new_stream"], *facts)
    return _Stream(id, info, last)


def _move(connection: Connection, drawer: DrawerId, id: int, info: DrawerStream, last: int) -> None:
    sum_ = stream_sum(drawer.name, info, last)
    connection.execute(connection.queries["touch_stream"], (info.n, info.changed, info.note, last, sum_, id))


def read(
    connection: Connection, drawer: DrawerId, stream: str, after: int, last: int | None, most: int | None = None
) -> list[bytes] | None:
    """Return entries. Raises `TooLarge` if they have more than ``most`` bytes."""
    row = _found(connection, drawer)
    found = None if row is None else _stream(connection, drawer, row, stream)
    if found is None:
        return None
    after = max(after, 0) if last is None else max(after, found.info.n - last, 0)
    if after >= found.info.n:
        return []
    _check_size(connection, most, "entries_size", found.id, after)
    return entries_of(connection, drawer, found, after, found.info.n)


def entries_of(connection: Connection, drawer: DrawerId, stream: _Stream, after: int, until: int) -> list[bytes]:
    """Return the entries with ``after < n <= until``, of which there must be some."""
    stored = every(connection, connection.queries["drawer_entries"], stream.id, after, until)
    name = stream.info.stream
    before = None if after == 0 else (after, _sum_of(connection, drawer, stream, after))
    sums = chain(drawer.name, name, [data if isinstance(data, bytes) else b"" for _, data, _ in stored], before)
    for number, (n, _, sum_) in enumerate(stored, after + 1):
        if n != number or sum_ != sums[number - after - 1]:
            raise entry_error(drawer, name, number)
    if len(stored) != until - after or (until == stream.info.n and sums[-1] != stream.last):
        raise entry_error(drawer, name, min(after + len(stored) + 1, until))
    return [data for _, data, _ in stored]


def _sum_of(connection: Connection, drawer: DrawerId, stream: _Stream, n: int) -> int:
    found = one(connection, connection.queries["entry_sum"], stream.id, n)
    if found is None or not isinstance(found[0], int):
        raise entry_error(drawer, stream.info.stream, n)
    return found[0]


def entry_error(drawer: DrawerId, stream: str, n: int) -> DamagedRecord:
    return damage_error(drawer, f"entry {n} of stream {stream!r:.80} is missing or damaged", stream=stream, n=n)


def streams(connection: Connection, drawer: DrawerId, prefix: str) -> tuple[list[DrawerStream], list[DamagedRecord]]:
    found: list[DrawerStream] = []
    damage: list[DamagedRecord] = []
    row = _found(connection, drawer)
    for stored in [] if row is None else all_streams(connection, row, prefix):
        try:
            found.append(proved_stream(drawer, stored).info)
        except DamagedRecord as error:
            damage.append(error)
    if row is not None and not prefix:
        try:
            check_count(connection, drawer, row, "streams", len(found) + len(damage))
        except DamagedRecord as error:
            damage.append(error)
    return found, damage


def all_streams(connection: Connection, row: Row, prefix: str = "") -> list[Any]:
    return every(connection, connection.queries["drawer_streams"], row.id, prefix, after_prefix(prefix))


def pop(connection: Connection, engine: Engine, drawer: DrawerId, stream: str) -> bytes | None:
    row = _found(connection, drawer)
    found = None if row is None else _stream(connection, drawer, row, stream)
    if row is None or found is None or found.info.n == 0:
        return None
    info, n = found.info, found.info.n
    (data,) = entries_of(connection, drawer, found, n - 1, n)
    last = chain_start(drawer.name, stream) if n == 1 else _sum_of(connection, drawer, found, n - 1)
    changed = next_changed(row.changed, engine.now())
    connection.execute(connection.queries["pop_entry"], (found.id, n))
    _move(connection, drawer, found.id, DrawerStream(stream, n - 1, changed, info.note), last)
    _touch(connection, drawer, row._replace(changed=changed))
    return data


def drop(connection: Connection, engine: Engine, drawer: DrawerId, wanted: Sequence[str]) -> int:
    session = session_of(connection, drawer)
    row = one(connection, connection.queries["drawer"], session, drawer.name)
    ids = []
    for stream in dict.fromkeys(wanted) if row is not None else ():
        ids += [id for id, *_ in every(connection, connection.queries["drawer_stream"], row[0], stream)]
    drop_whole(connection, ids)
    _mend(connection, drawer, row, engine.now())
    return len(ids)


def drop_whole(connection: Connection, ids: Sequence[int]) -> None:
    bindings = [(id,) for id in ids]
    connection.executemany(connection.queries["drop_entries"], bindings)
    connection.executemany(connection.queries["drop_stream"], bindings)


# values


def put(
    connection: Connection, engine: Engine, drawer: DrawerId, changes: Sequence[Change], keep_for: int | None
) -> list[int]:
    row = _opened(connection, drawer)
    keys = msgspec.json.encode([each.key for each in changes]).decode()
    present: dict[str, int] = dict(every(connection, connection.queries["value_versions"], row.id, keys))
    version, now = row.version, engine.now()
    versions, puts, removed = [], [], []
    for change in changes:
        had = present.get(change.key, 0)
        if change.if_version not in (None, had):
            raise conflict(drawer, change, had)
        if change.only_new and had:
            versions.append(had)
        elif change.data is None:
            removed.append((row.id, change.key))
            versions.append(0)
        else:
            version += 1
            sum_ = value_sum(drawer.name, change.key, version, now, change.data)
            puts.append((row.id, change.key, version, now, change.data, sum_))
            versions.append(version)
    connection.executemany(connection.queries["put_value"], puts)
    connection.executemany(connection.queries["remove_value"], removed)
    kept = row.keep_for if keep_for is None else keep_for
    if (version, kept) != (row.version, row.keep_for):
        _touch(connection, drawer, row._replace(version=version, keep_for=kept))
    return versions


def conflict(drawer: DrawerId, change: Change, had: int) -> VersionConflict:
    assert change.if_version is not None
    there = f"has version {had}" if had else "does not exist"
    wanted = f"version {change.if_version}" if change.if_version else "no value"
    return VersionConflict(
        f"The value {change.key!r:.80} in drawer {drawer} {there}, but the call expects {wanted} (if_version="
        f"{change.if_version}). Nothing was stored. Read it again, and repeat the change.",
        key=change.key, expected=change.if_version, found=had,
    )  # fmt: skip


def get(
    connection: Connection, drawer: DrawerId, keys: Sequence[str], most: int | None = None
) -> dict[str, DrawerValue]:  # fmt: skip
    """Return values by key. Raises `TooLarge` if they have more than ``most`` bytes."""
    row = _found(connection, drawer)
    if row is None:
        return {}
    wanted = msgspec.json.encode(keys).decode()
    _check_size(connection, most, "values_by_key_size", row.id, wanted)
    stored = {each[0]: each for each in every(connection, connection.queries["values_by_key"], row.id, wanted)}
    return {key: proved_value(drawer, stored[key]) for key in keys if key in stored}


def find(connection: Connection, drawer: DrawerId, keys: Range, most: int | None = None) -> dict[str, DrawerValue]:
    """Return the values in a range of keys. Raises `TooLarge` if they have more than ``most`` bytes."""
    row = _found(connection, drawer)
    if row is None:
        return {}
    return {stored[0]: proved_value(drawer, stored) for stored in _range(connection, drawer, row, keys, most)}


def _range(connection: Connection, drawer: DrawerId, row: Row, keys: Range, most: int | None = None) -> list[Any]:
    query = "values_last" if keys.last else "values_first"
    bindings = row.id, keys.since, keys.until, ALL if keys.limit is None else min(keys.limit, ALL)
    _check_size(connection, most, f"{query}_size", *bindings)
    found = every(connection, connection.queries[query], *bindings)
    if keys == Range():
        check_count(connection, drawer, row, "values", len(found))
    return found[::-1] if keys.last else found


def proved_value(drawer: DrawerId, stored: Any) -> DrawerValue:
    key, version, changed, data, sum_ = stored
    try:
        intact = value_sum(drawer.name, key, version, changed, data) == sum_
    except (TypeError, ValueError):
        intact = False
    if not intact:
        raise damage_error(drawer, f"the value {str(key)!r:.80} does not match its checksum", key=str(key))
    return DrawerValue(data, version)


def keys(connection: Connection, drawer: DrawerId, prefix: str) -> list[str]:
    row = _found(connection, drawer)
    if row is None:
        return []
    return [
        key for (key,) in every(connection, connection.queries["drawer_keys"], row.id, prefix, after_prefix(prefix))
    ]


def clear(connection: Connection, engine: Engine, drawer: DrawerId, prefix: str) -> int:
    session = session_of(connection, drawer)
    row = one(connection, connection.queries["drawer"], session, drawer.name)
    if row is None:
        return 0
    if prefix:
        connection.execute(connection.queries["clear_values"], (row[0], prefix, after_prefix(prefix)))
    else:  # also those whose keys are damaged
        connection.execute(connection.queries["clear_all_values"], (row[0],))
    found = connection.changes()
    _mend(connection, drawer, row, engine.now())
    return found


# whole drawers


def infos(connection: Connection, session_id: str | None) -> list[DrawerInfo]:
    session = session_of(connection, DrawerId("", session_id))
    found = [
        DrawerInfo(name, session_id, *map(int, one(connection, connection.queries["drawer_sizes"], id)))
        for id, name, *_ in every(connection, connection.queries["drawers"], session)
    ]
    return [each for each in found if each.streams or each.values]


def whole(connection: Connection, session: int, session_id: str | None) -> list[StoredDrawer]:
    """Return the drawers of a session by its key, each verified; 0 stands for the store's own."""
    rows = every(connection, connection.queries["drawers"], session)
    return [_whole(connection, DrawerId(name, session_id), id, *facts) for id, name, *facts in rows]


def one_whole(connection: Connection, name: str) -> StoredDrawer | None:
    stored = one(connection, connection.queries["drawer"], 0, name)
    return None if stored is None else _whole(connection, DrawerId(name), *stored)


def _whole(connection: Connection, drawer: DrawerId, *stored: Any) -> StoredDrawer:
    row = proved(drawer, *stored)
    streams = all_streams(connection, row)
    check_count(connection, drawer, row, "streams", len(streams))
    return StoredDrawer(
        drawer.name, row.changed, row.version, row.keep_for,
        [_whole_stream(connection, drawer, each) for each in streams],
        [whole_value(drawer, each) for each in _range(connection, drawer, row, Range())],
    )  # fmt: skip


def _whole_stream(connection: Connection, drawer: DrawerId, stored: Any) -> StoredStream:
    found = proved_stream(drawer, stored)
    info = found.info
    entries = entries_of(connection, drawer, found, 0, info.n) if info.n else []
    return StoredStream(info.stream, info.changed, info.note, entries)


def whole_value(drawer: DrawerId, stored: Any) -> StoredValue:
    key, _, changed, *_ = stored
    value = proved_value(drawer, stored)
    return StoredValue(key, value.version, changed, value.data)


def import_one(connection: Connection, drawer: StoredDrawer) -> bool:
    known = _found(connection, DrawerId(drawer.name))
    if known is not None:
        if not _is_empty(connection, known.id):
            return False
        connection.execute(connection.queries["empty_drawer"], (0, drawer.name))
        drawer = drawer.after(known.changed, known.version)
    insert_whole(connection, 0, drawer)
    return True


def insert_whole(connection: Connection, session: int, whole: StoredDrawer) -> None:
    """Store a drawer that another session or another store had."""
    drawer = DrawerId(whole.name)
    row = new_row(connection, session, whole.name, whole.changed, whole.version, whole.keep_for)
    for each in whole.streams:
        found = _new_stream(connection, drawer, row, DrawerStream(each.stream, 0, each.changed, each.note))
        sums = chain(whole.name, each.stream, each.entries)
        rows = [(found.id, n, *entry) for n, entry in enumerate(zip(each.entries, sums, strict=True), 1)]
        connection.executemany(connection.queries["append_entry"], rows)
        info = DrawerStream(each.stream, len(each.entries), each.changed, each.note)
        _move(connection, drawer, found.id, info, sums[-1] if sums else found.last)
    connection.executemany(
        connection.queries["put_value"],
        [
            (row.id, each.key, each.version, each.changed, each.data,
             value_sum(whole.name, each.key, each.version, each.changed, each.data))
            for each in whole.values
        ],
    )  # fmt: skip


def copy(connection: Connection, source: int, target: int) -> None:
    """Copy the drawers of a session to a new one. The checksums name no session, so they stay."""
    if one(connection, connection.queries["drawer_source"], source) is None:
        found = one(connection, connection.queries["session_id"], source)
        session_id = f"with the key {source}" if found is None else str(found[0])
        raise UnknownSession(
            f"Session {session_id!r}, whose drawers are copied, is being removed. Nothing was stored.",
            session_id=session_id,
        )
    for query in ("copy_drawers", "copy_streams", "copy_entries", "copy_values"):
        connection.execute(connection.queries[query], (source, target))


def empty(connection: Connection, session: int, names: Sequence[str], now: int) -> None:
    """Delete everything in drawers of a session. A drawer keeps its counters, so no version is given out again."""
    for name in names:
        for part in ("empty_entries", "empty_streams", "empty_values"):
            connection.execute(connection.queries[part], (session, name))
        _mend(connection, DrawerId(name), one(connection, connection.queries["drawer"], session, name), now)
