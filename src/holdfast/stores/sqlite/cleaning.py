"""How sessions leave the store: marked first, then emptied batch by batch, at last a tombstone instead of the row.

Every step is a transaction of its own, and from the first one on the session is unknown to all other verbs. Whoever
finds one half removed goes on where it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec
from msgspec.structs import astuple

from holdfast.errors import AlreadyRunning, DamagedRecord, VerbRefused
from holdfast.model import Filter, Removal, SessionRow, Space, Sweep, Tombstone, has_expired
from holdfast.stores.sqlite import reads, sums
from holdfast.stores.sqlite.sql import QUERIES
from holdfast.stores.sqlite.writes import Writes

_stone = msgspec.json.Decoder(Tombstone)
_PARTS = ("strip_signals", "strip_inbox", "strip_pauses", "strip_names")


def session_folder(database: str, session_id: str) -> Path:
    """Where the files of a session lie: in a folder of its own, beside the database."""
    return Path(f"{database}.files") / session_id


class Cleaning(Writes):
    """The verbs that take data away."""

    def remove(
        self, connection: apsw.Connection, session_id: str, by: str | None, reason: str, at: int, expired: bool
    ) -> list[Removal]:
        row = self._known(connection, session_id)
        if row.parent is not None:
            raise VerbRefused(
                f"session {session_id!r} was called by session {row.parent_id!r} and is removed together with it",
                session_id=session_id,
                status=row.status.value,
            )
        tree = reads.find(connection, Filter(session_id=session_id, tree=True), self.present)
        if expired and not (has_expired(tree, at) and self._last_record(connection, tree) + (row.keep_for or 0) <= at):
            return []
        for each in tree:
            if each.live:
                raise self._held(connection, session_id, each)
        return [self._mark(connection, each, by, reason, at) for each in tree]

    def _last_record(self, connection: apsw.Connection, tree: Sequence[SessionRow]) -> int:
        """When the last record of all was written. A damaged `updated_at` alone must not end a session."""
        times = [reads.one(connection, QUERIES["last_at"], row.key) for row in tree]
        if None in times:
            raise DamagedRecord(
                f"session {tree[0].session_id}: the end of its log is missing; restore the database from a backup"
            )
        return max(int(at) for (at,) in times)

    def _held(self, connection: apsw.Connection, session_id: str, row: SessionRow) -> AlreadyRunning:
        holder = self.describe(connection, row.holder)
        return AlreadyRunning(
            f"session {session_id!r} cannot be removed: {row.session_id!r} is driven by {holder}; pause or cancel it"
            " first, then remove it",
            session_id=session_id,
            holder=holder,
        )

    def _mark(self, connection: apsw.Connection, row: SessionRow, by: str | None, reason: str, at: int) -> Removal:
        """The fence rises: who thinks that it still drives the session can write nothing."""
        stone = Tombstone(
            row.session_id, row.workflow, row.owner, row.status.value, row.created_at, at, by, reason, row.seq,
            row.digest,
        )  # fmt: skip
        self._take(connection, row, crashed=False)
        connection.execute(QUERIES["mark_removing"], (msgspec.json.encode(stone).decode(), row.key))
        return Removal(row.key, stone)

    def strip(self, connection: apsw.Connection, key: int, limit: int) -> Tombstone | None:
        removal = reads.one(connection, QUERIES["removal"], key)
        if removal is None:
            raise DamagedRecord(f"no session with the key {key} is being removed; look at what is: engine.gc()")
        if self._strip_log(connection, key, limit):
            return None
        for part in _PARTS:
            if reads.every(connection, QUERIES[part], key, limit):
                return None
        stone = _tombstone(removal[0])
        connection.execute(QUERIES["bury"], (*astuple(stone), sums.buried(stone)))
        connection.execute(QUERIES["forget_session"], (key,))
        return stone

    def _strip_log(self, connection: apsw.Connection, key: int, limit: int) -> bool:
        """Take the last records away; True if there were any."""
        last = reads.every(connection, QUERIES["last_records"], key, limit)
        if last:
            connection.executemany(QUERIES["strip_record"], [(id,) for id, _ in last])
            connection.execute(QUERIES["shorten_log"], (last[-1][1], key))
            return True
        if not connection.execute(QUERIES["log_is_left"], (key,)).get:
            return False
        # The chain is damaged and breaks off here: look for the rest everywhere.
        if not reads.every(connection, QUERIES["strip_lost_records"], key, limit):
            connection.execute(QUERIES["shorten_log"], (0, key))
        return True

    def sweep(self, connection: apsw.Connection, after: int, limit: int) -> Sweep:
        found = unnamed(connection, after, limit)
        connection.executemany(QUERIES["forget_blob"], [(id,) for id, _, named in found if not named])
        return swept(found, limit)

    def compact(self, connection: apsw.Connection, pages: int) -> int:
        """Give pages at the end of the file back; how many."""
        before = connection.pragma("freelist_count")
        connection.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()
        return int(before - connection.pragma("freelist_count"))


def _tombstone(stored: str) -> Tombstone:
    try:
        return _stone.decode(stored)
    except (msgspec.MsgspecError, TypeError) as exc:
        raise DamagedRecord(
            f"a half-made tombstone cannot be read ({exc}); restore the database from a backup"
        ) from exc


def removing(connection: apsw.Connection) -> list[Removal]:
    return [Removal(key, _tombstone(text)) for key, text in reads.every(connection, QUERIES["removals"])]


def expired(connection: apsw.Connection, now: int, after: int, limit: int) -> list[tuple[int, str]]:
    return reads.every(connection, QUERIES["expired"], now, after, limit)


def tombstones(connection: apsw.Connection, session_id: str | None) -> list[Tombstone]:
    where, bindings = ("", ()) if session_id is None else (" WHERE session_id = ?", (session_id,))
    rows = reads.every(connection, f"{QUERIES['tombstones']}{where} ORDER BY n", *bindings)
    return [_proved_stone(row) for row in rows]


def _proved_stone(stored: Sequence[Any]) -> Tombstone:
    try:
        stone: Tombstone = msgspec.convert(dict(zip(Tombstone.__struct_fields__, stored[:-1], strict=True)), Tombstone,
                                           builtin_types=(bytes,))  # fmt: skip
    except msgspec.ValidationError as exc:
        raise DamagedRecord(f"a tombstone cannot be read ({exc}); restore the database from a backup") from exc
    if sums.buried(stone) != stored[-1]:
        raise DamagedRecord(
            f"the tombstone of {stone.session_id!r} does not match its checksum; restore the database from a backup",
            session_id=stone.session_id,
        )
    return stone


Looked = list[tuple[int, int, int]]


def unnamed(connection: apsw.Connection, after: int, limit: int) -> Looked:
    """Large values in the order in which they came: number, size, and whether a session names it."""
    return reads.every(connection, QUERIES["look_at_blobs"], after, limit)


def swept(looked: Looked, limit: int) -> Sweep:
    sizes = [size for _, size, named in looked if not named]
    return Sweep(looked[-1][0] if len(looked) == limit else None, len(sizes), sum(sizes))


def space(connection: apsw.Connection) -> Space:
    size = connection.pragma("page_size")
    return Space(connection.pragma("page_count") * size, connection.pragma("freelist_count") * size)
