"""Remove sessions: mark them, delete their rows in batches, and finally replace each session with a tombstone.

Every step is its own transaction. From the first one on, no other method finds the session. Any process can continue a
removal that was interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import astuple

from pausepoint.errors import AlreadyRunning, DamagedRecord, VerbRefused
from pausepoint.model.sessions import Filter, SessionRow, has_expired, kept_for
from pausepoint.model.stores import Removal, Sweep, Tombstone
from pausepoint.stores import checksums as sums
from pausepoint.stores.sql import engines, pickup, sessions
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Engine
from pausepoint.stores.sql.rows import every, one
from pausepoint.stores.text import storable

_stone = msgspec.json.Decoder(Tombstone)
_PARTS = (
    "strip_signals", "strip_files", "strip_inbox", "strip_sent", "strip_pauses", "strip_questions", "strip_names",
    "strip_entries", "strip_values", "strip_streams", "strip_drawers",
)  # fmt: skip


class _Doomed(NamedTuple):
    """A session that will be removed. ``row`` is None if its facts are damaged."""

    row: SessionRow | None
    key: int
    session_id: str
    holder: int | None
    parent_id: str | None
    status: str
    workflow: str
    owner: str | None
    created_at: int
    records: int
    digest: bytes


def remove(
    connection: Connection, engine: Engine, session_id: str, by: str | None, reason: str, at: int,
    expired: bool, ended_for: int | None = None,
) -> list[Removal]:  # fmt: skip
    sessions.check_owner_of(connection, session_id)
    looked = sessions.look(connection, Filter(session_id=session_id, tree=True), engine.present)
    if not looked:
        sessions.known(connection, session_id, engine.present)
    if expired and not _has_expired(connection, [facts for _, facts in looked], at, ended_for):
        return []
    doomed = [_doomed(connection, engine, session_id, *each) for each in looked]
    return [_mark(connection, engine, each, storable(by), storable(reason), at) for each in doomed]


def _has_expired(
    connection: Connection,
    tree: Sequence[SessionRow | DamagedRecord],
    at: int,
    ended_for: int | None,
) -> bool:
    rows = []
    for facts in tree:
        if isinstance(facts, DamagedRecord):
            raise facts  # its times cannot be trusted
        rows.append(facts)
    keep_for = next((kept_for(row, ended_for) for row in rows if row.parent is None), None)
    return has_expired(rows, at, ended_for) and _last_record(connection, rows) + (keep_for or 0) <= at


def _doomed(
    connection: Connection, engine: Engine, session_id: str, key: int, facts: SessionRow | DamagedRecord
) -> _Doomed:
    """Return what the tombstone of a session in the tree of ``session_id`` will contain.

    Raises an error if the session cannot be removed.
    """
    if isinstance(facts, DamagedRecord):
        doomed = _damaged(connection, key, facts)
    else:
        row = facts
        doomed = _Doomed(
            row, key, row.session_id, row.holder, row.parent_id, row.status.value, row.workflow, row.owner,
            row.created_at, row.seq, row.digest,
        )  # fmt: skip
    if doomed.session_id == session_id and doomed.parent_id is not None:
        raise VerbRefused(
            f"Session {session_id!r} was called by session {doomed.parent_id!r} and cannot be removed alone."
            f" Remove {doomed.parent_id!r} instead.",
            session_id=session_id,
            status=doomed.status,
        )
    if doomed.holder is not None and engine.present.alive(doomed.holder):
        raise _held(connection, session_id, doomed)
    return doomed


def _damaged(connection: Connection, key: int, damage: DamagedRecord) -> _Doomed:
    """Return the tombstone facts of a damaged session. Only the id must be intact, because it names the folder."""
    session_id, agreed, holder, parent_id, workflow, owner, created_at, seq, digest = one(
        connection, connection.queries["doubtful"], key
    )
    if not agreed or not isinstance(session_id, str):
        raise damage
    return _Doomed(
        None, key, session_id, holder if isinstance(holder, int) else None, parent_id, "damaged", str(workflow),
        owner if isinstance(owner, str) else None, created_at if isinstance(created_at, int) else 0,
        seq if isinstance(seq, int) else 0, digest if isinstance(digest, bytes) else b"",
    )  # fmt: skip


def _last_record(connection: Connection, tree: Sequence[SessionRow]) -> int:
    """Return when the newest record was written. A damaged `updated_at` alone must not remove a session."""
    times = [one(connection, connection.queries["last_at"], row.key) for row in tree]
    if None in times:
        raise DamagedRecord(
            f"Session {tree[0].session_id!r}: the end of its log is missing. Restore the database from a backup."
        )
    return max(int(at) for (at,) in times)


def _held(connection: Connection, session_id: str, doomed: _Doomed) -> AlreadyRunning:
    holder = engines.describe(connection, doomed.holder)
    return AlreadyRunning(
        f"Session {session_id!r} cannot be removed, because {doomed.session_id!r} is driven by {holder}. Pause or"
        " cancel it first, then remove it.",
        session_id=session_id,
        holder=holder,
    )


def _mark(
    connection: Connection, engine: Engine, doomed: _Doomed, by: str | None, reason: str, at: int
) -> Removal:  # fmt: skip
    """Mark a session, release it and raise its fence, so that a former holder can no longer write."""
    stone = Tombstone(
        doomed.session_id, doomed.workflow, doomed.owner, doomed.status, doomed.created_at, at, by, reason,
        doomed.records, doomed.digest,
    )  # fmt: skip
    if doomed.row is not None:
        pickup.take_hold(connection, engine, doomed.row)
    connection.execute(connection.queries["mark_removing"], (msgspec.json.encode(stone).decode(), doomed.key))
    return Removal(doomed.key, stone)


def strip(connection: Connection, key: int, limit: int) -> Tombstone | None:
    removal = one(connection, connection.queries["removal"], key)
    if removal is None:
        raise DamagedRecord(f"No session with the key {key} is being removed. List removals with engine.gc().")
    if connection.strip_log(key, limit):
        return None
    for part in _PARTS:
        if every(connection, connection.queries[part], key, limit):
            return None
    stone = _tombstone(removal[0])
    connection.execute(connection.queries["bury"], (*astuple(stone), sums.buried(stone)))
    connection.execute(connection.queries["forget_session"], (key,))
    return stone


def sweep(connection: Connection, after: int, limit: int) -> Sweep:
    found = unnamed(connection, after, limit)
    connection.executemany(connection.queries["forget_blob"], [(id,) for id, _, named in found if not named])
    return swept(found, limit)


def _tombstone(stored: str) -> Tombstone:
    try:
        return _stone.decode(stored)
    except (msgspec.MsgspecError, TypeError) as exc:
        raise DamagedRecord(
            f"The tombstone of an unfinished removal cannot be read ({exc}). Restore the database from a backup."
        ) from exc


def weight(connection: Connection, tree: Sequence[SessionRow]) -> int:
    keys = msgspec.json.encode([row.key for row in tree]).decode()
    parts = ("log_weight", "value_weight", "file_weight", "drawer_weight")
    return sum(int(connection.execute(connection.queries[part], (keys,)).get) for part in parts)


def removing(connection: Connection) -> list[Removal]:
    return [Removal(key, _tombstone(text)) for key, text in every(connection, connection.queries["removals"])]


def expired(connection: Connection, now: int, after: int, limit: int, ended_for: int | None) -> list[tuple[int, str]]:
    return every(connection, connection.queries["expired"], ended_for, now, after, limit)


def tombstones(connection: Connection, session_id: str | None) -> list[Tombstone]:
    where, bindings = ("", ()) if session_id is None else (" WHERE session_id = ?", (session_id,))
    rows = every(connection, f"{connection.queries['tombstones']}{where} ORDER BY n", *bindings)
    return [proved_stone(row) for row in rows]


def proved_stone(stored: Sequence[Any]) -> Tombstone:
    """Return a stored tombstone, verified against its checksum."""
    try:
        stone: Tombstone = msgspec.convert(dict(zip(Tombstone.__struct_fields__, stored[:-1], strict=True)), Tombstone,
                                           builtin_types=(bytes,))  # fmt: skip
    except msgspec.ValidationError as exc:
        raise DamagedRecord(f"A tombstone cannot be read ({exc}). Restore the database from a backup.") from exc
    if sums.buried(stone) != stored[-1]:
        raise DamagedRecord(
            f"The tombstone of session {stone.session_id!r} does not match its checksum."
            " Restore the database from a backup.",
            session_id=stone.session_id,
        )
    return stone


Looked = list[tuple[int, int, int]]


def unnamed(connection: Connection, after: int, limit: int) -> Looked:
    """Return large values in the order of their numbers: number, size, and whether a session references it."""
    return every(connection, connection.queries["look_at_blobs"], after, limit)


def swept(looked: Looked, limit: int) -> Sweep:
    sizes = [size for _, size, named in looked if not named]
    return Sweep(looked[-1][0] if len(looked) == limit else None, len(sizes), sum(sizes))
