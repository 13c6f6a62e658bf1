"""Limits, one row each, and the slots that they leave.

A slot is the hold of a session. So whatever ends a hold frees the slot: a release, the end of the session, or the death
of the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from copy import copy
from functools import cached_property
from typing import Any
from zlib import crc32

import msgspec
from msgspec.structs import astuple

from pausepoint.errors import DamagedRecord, LimitReached
from pausepoint.model.limits import AtWork, ReadyCount, Scope, Slots, StoredLimit
from pausepoint.model.queues import Facts
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Present
from pausepoint.stores.sql.rows import every, prepared

_packed = msgspec.msgpack.Encoder().encode


class Room:
    """The slots for sessions that one verb takes. Nothing is read before a session is found.

    ``lock``: no other engine takes a slot until the transaction ends. In SQLite every write has that lock.
    """

    def __init__(self, connection: Connection, present: Present, now: int, lock: bool = False) -> None:
        self._connection, self._present, self._now, self._lock = connection, present, now, lock

    @cached_property
    def limits(self) -> list[StoredLimit]:
        """The stored limits. Raises `DamagedRecord`."""
        query = self._connection.queries["lock_limits" if self._lock else "limits"]
        return [_verified(row) for row in every(self._connection, query)]

    @cached_property
    def _at_work(self) -> list[tuple[Facts, int]]:
        return [(each, each.sessions) for each in at_work(self._connection, self._present)]

    @cached_property
    def lanes(self) -> Counter[str | None]:
        """How many sessions of each lane are at work."""
        found: Counter[str | None] = Counter()
        for session, count in self._at_work:
            found[session.lane] += count
        return found

    @cached_property
    def slots(self) -> Slots:
        """The slots that are left."""
        return Slots(self.limits, self._at_work if self.limits else (), self._now)

    def trial(self) -> Room:
        """Return the same slots, to try out what can be taken."""
        room = copy(self)
        room.__dict__["slots"] = self.slots.copy()
        return room

    def full(self, session: Facts) -> StoredLimit | None:
        """Return the limit that leaves no slot for this session, if there is one."""
        return self.slots.full(session)

    def closed(self, queue: str, workflow: str) -> bool:
        """Return whether no session of a queue and workflow can be taken."""
        return self.slots.closed(queue, workflow)

    def use(self, session: Facts) -> None:
        """Count a session that is taken."""
        self.slots.use(session)

    def keep(self) -> None:
        """Store what the sessions that were taken have used."""
        for limit in self.slots.used.values():
            self._connection.execute(self._connection.queries["use_limit"], (limit.full_at, *_key(limit)))

    def admit(self, session: Facts) -> bool:
        """Use a slot for one session, and return whether there was one."""
        if self.full(session) is not None:
            return False
        self.use(session)
        self.keep()
        return True


def check_slot(connection: Connection, present: Present, now: int, row: SessionRow) -> LimitReached | None:
    """Use a slot for a session that is to be claimed. Return why there is none."""
    room = Room(connection, present, now, lock=True)
    if not room.limits:
        return None
    limit = room.full(row)
    if limit is None:
        room.use(row)
        room.keep()
        return None
    return limit_reached(row, limit, room.slots.count(limit, row))


def at_work(connection: Connection, present: Present) -> list[AtWork]:
    rows = every(connection, connection.queries["at_work"])
    return [AtWork(*facts) for holder, *facts in rows if present.alive(holder)]


def ready_counts(connection: Connection, now: int) -> list[ReadyCount]:
    return [ReadyCount(*facts) for facts in every(connection, connection.queries["ready_counts"], now)]


def limit_reached(row: SessionRow, limit: StoredLimit, count: int) -> LimitReached:
    return LimitReached(
        f"Session {row.session_id!r} was not picked up: it waits for a free slot of {limit.described(count)}. An engine"
        f" picks it up when a slot is free; engine.limit({limit.scope}={limit.name!r}, …) changes the limit.",
        session_id=row.session_id, status=row.status.value,
    )  # fmt: skip


def read(connection: Connection) -> tuple[list[StoredLimit], list[DamagedRecord]]:
    found: list[StoredLimit] = []
    damage: list[DamagedRecord] = []
    for row in every(connection, connection.queries["limits"]):
        try:
            found.append(_verified(row))
        except DamagedRecord as error:
            damage.append(error)
    return found, damage


def put(connection: Connection, limit: StoredLimit) -> None:
    connection.execute(connection.queries["put_limit"], (*_values(limit), limit.full_at, _sum(limit)))


def drop(connection: Connection, scope: Scope, name: str, declared: bool) -> int:
    connection.execute(connection.queries["drop_limits"], (scope, name, declared))
    return connection.changes()


def damaged(connection: Connection) -> list[str]:
    """Return a line for each limit that cannot be read."""
    return [str(error) for error in read(connection)[1]]


def next_at(stored: Iterable[StoredLimit], now: int) -> int | None:
    """Return when the next session may get to work that a limit with ``per`` keeps from it now."""
    found = (limit.next_at(now) for limit in stored)
    return min((at for at in found if at is not None and at > now), default=None)


def _key(limit: StoredLimit) -> tuple[object, ...]:
    return limit.scope, limit.name, limit.by, int(limit.per > 0), int(limit.declared)


def _values(limit: StoredLimit) -> tuple[object, ...]:
    return *_key(limit), limit.most, limit.per


def _sum(limit: StoredLimit) -> int:
    return crc32(_packed(_values(limit)))


prepared(StoredLimit)


def _verified(row: Any) -> StoredLimit:
    scope, name, by, _, declared, most, per, full_at, sum_ = row
    values = {"scope": scope, "name": name, "most": most, "per": per, "by": by, "declared": declared == 1,
              "full_at": full_at}  # fmt: skip
    try:
        limit = msgspec.convert(values, StoredLimit)
        if _sum(limit) != sum_ or astuple(limit)[4] not in ("", "owner", "lane"):
            raise ValueError("it does not match its checksum")
    except (msgspec.MsgspecError, ValueError, TypeError) as exc:
        raise DamagedRecord(
            f"The limit of {scope} {str(name)!r:.80} cannot be read ({exc}). Remove it with engine.limits.remove(), and"
            " set it again.",
            scope=str(scope), name=str(name),
        ) from exc  # fmt: skip
    return limit
