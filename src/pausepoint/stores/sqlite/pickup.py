"""Which sessions an engine can pick up, and how it takes and releases the hold of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import apsw
import msgspec

from pausepoint.errors import AlreadyRunning, DamagedRecord, HoldLost, SessionEnded, VerbRefused
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.found import Found
from pausepoint.stores.sqlite import engines, sessions, standing
from pausepoint.stores.sqlite.engines import OwnEngine, Present
from pausepoint.stores.sqlite.rows import every
from pausepoint.stores.sqlite.sql import QUERIES

# The first condition is a range of the index; 0 is due even if the clock is before 1970. The plus keeps SQLite from
# looking at all sessions of the workflows instead.
_DUE = """wakes_at <= max(:now, 0) AND (wakes_at <= :now OR wakes_at = 0) AND wakes_at IS NOT NULL
    AND pause_requested = 0 AND guest = 0 AND removing = 0 AND (ended IS NULL OR ended = 'failed')
    AND +workflow IN (SELECT value FROM json_each(:workflows))"""
_EXEMPT = "INDEXED BY sessions_exempt WHERE exempt = :round AND exempt > 0 AND "
"""While everything is paused, only the few sessions that were resumed since can run."""


def due(
    connection: apsw.Connection, present: Present, now: int, workflows: Sequence[str], limit: int, tree: str | None
) -> sessions.Rows:
    bindings = _waking(now, workflows, tree)
    among = f" AND {sessions.TREE}" if tree is not None else ""
    query = f"{sessions.FACTS} {_unstopped(connection, bindings)}{_DUE}{among} ORDER BY wakes_at"
    return _free(connection, query, bindings, sessions.asked_once(present), limit)


def _free(
    connection: apsw.Connection, query: str, bindings: dict[str, Any], present: Present, limit: int,
    skip: Mapping[int, int] = MappingProxyType({}),
) -> sessions.Rows:  # fmt: skip
    """Return the first ``limit`` sessions of a query that an engine can pick up.

    The others are passed over here, not cut off by a LIMIT: they must not keep an engine from those behind them. They
    are damaged, held, kept in memory by another engine, paused by the engine itself, or in ``skip``.
    """
    rows: sessions.Rows = []
    cursor = connection.execute(query, bindings)
    try:
        while len(rows) < limit and (stored := cursor.fetchone()) is not None:
            with suppress(DamagedRecord):
                row = sessions.row_of(stored, present)
                stuck = row.live or row.kept_by is not None or row.open_pauses
                if not stuck and skip.get(row.key) != row.seq:
                    rows.append(row)
    finally:
        cursor.close()  # an open cursor would keep its snapshot of the database
    return rows


def _unstopped(connection: apsw.Connection, bindings: dict[str, Any]) -> str:
    """Return the beginning of a query for sessions that the pause of everything does not stop, and add its binding."""
    number = standing.everything(connection)
    if number is None:
        return "WHERE "
    bindings["round"] = number >> 1
    return _EXEMPT


def ready(
    connection: apsw.Connection, present: Present, now: int, workflows: Sequence[str], limit: int,
    skip: Mapping[int, int],
) -> sessions.Rows:  # fmt: skip
    """Return sessions that can be taken. ``skip`` is as in `Store.take`."""
    rows, present = [], sessions.asked_once(present)
    for workflow in dict.fromkeys(workflows):
        bindings = {"workflow": workflow, "now": now}
        where = _unstopped(connection, bindings)
        query = QUERIES["ready"]
        if where is _EXEMPT:
            query = query.replace("INDEXED BY sessions_ready WHERE ", where)
        rows += _free(connection, f"{sessions.FACTS} {query}", bindings, present, limit, skip)
    return sorted(rows, key=lambda row: (row.ready_at or 0, row.key))[:limit]


def dead_holders(connection: apsw.Connection, present: Present) -> list[int]:
    """Return the engines that died while they held sessions."""
    return [holder for (holder,) in every(connection, QUERIES["holders"]) if not present.alive(holder)]


def next_wake(connection: apsw.Connection, now: int, workflows: Sequence[str], tree: str | None) -> int | None:
    among = f" AND {sessions.TREE}" if tree is not None else ""
    bindings = _waking(now, workflows, tree)
    query = QUERIES["next_wake"].replace("WHERE ", _unstopped(connection, bindings), 1)
    found: int | None = connection.execute(query + among, bindings).get
    return found


def waking(connection: apsw.Connection, present: Present, now: int, limit: int, owner: str | None) -> Found:
    bindings = {"now": now, "owner": owner, "limit": limit}
    query, where = QUERIES["waking"], _unstopped(connection, bindings)
    if where is _EXEMPT:
        query = query.replace("INDEXED BY sessions_waking WHERE ", where)
    return sessions.found(connection.execute(f"{sessions.FACTS} {query}", bindings).fetchall(), present)


def _waking(now: int, workflows: Sequence[str], tree: str | None) -> dict[str, Any]:
    return {"now": now, "workflows": msgspec.json.encode(workflows).decode(), "session_id": tree}


# writing


def claim(
    connection: apsw.Connection, engine: OwnEngine, session_id: str, steal: bool, fence: int | None,
    paused: bool = False,
) -> SessionRow:  # fmt: skip
    row = sessions.known(connection, session_id, engine.present)
    if row.ended in ("completed", "cancelled"):
        raise SessionEnded(
            f"Session {session_id!r} is {row.ended} and cannot be resumed. Start another session.",
            session_id=session_id,
            status=row.ended,
        )
    if row.live and not steal:
        raise driven(connection, row)
    if fence is not None and row.fence != fence:
        raise changed_meanwhile(row)
    if row.pause_requested and not paused:
        raise _is_paused(row)
    crashed = row.holder is not None and not row.live
    take_hold(connection, engine, row, crashed)
    return sessions.again(connection, row, engine.present)


def take(
    connection: apsw.Connection, engine: OwnEngine, now: int, workflows: Sequence[str], limit: int,
    skip: Mapping[int, int],
) -> list[SessionRow]:  # fmt: skip
    for holder in dead_holders(connection, engine.present):
        connection.execute(QUERIES["reap"], (holder,))
    rows = ready(connection, engine.present, now, workflows, limit, skip)
    for row in rows:
        take_hold(connection, engine, row, crashed=False)
    return [sessions.again(connection, row, engine.present) for row in rows]


def release(connection: apsw.Connection, engine: OwnEngine, key: int, fence: int) -> None:
    connection.execute(QUERIES["give_back"], (key, fence, engine.number))


def unkeep(connection: apsw.Connection, engine: OwnEngine, key: int, fence: int) -> None:
    """Record that the step which this engine kept in memory is gone."""
    connection.execute(QUERIES["unkeep"], (key, fence, engine.number))


def take_hold(connection: apsw.Connection, engine: OwnEngine, row: SessionRow, crashed: bool) -> None:
    """Take the hold of a session and raise its fence."""
    standing.settle(connection, row.key)
    connection.execute(QUERIES["claim"], (engine.number, crashed, sessions.moved_sum(row, row.fence + 1), row.key))


def driven(connection: apsw.Connection, row: SessionRow) -> AlreadyRunning:
    session_id, holder = row.session_id, engines.describe(connection, row.holder)
    return AlreadyRunning(
        f"Session {session_id!r} is driven by {holder}. Wait for it with engine.outcome({session_id!r}), pause it,"
        f" or take it over with engine.resume({session_id!r}, steal=True).",
        session_id=session_id,
        holder=holder,
    )


def changed_meanwhile(row: SessionRow) -> HoldLost:
    return HoldLost(
        f"Session {row.session_id!r} has changed since it was read; it is now at record {row.seq} with fence"
        f" {row.fence}. Nothing was written. Read the session again, then retry.",
        session_id=row.session_id,
    )


def _is_paused(row: SessionRow) -> VerbRefused:
    return VerbRefused(
        f"Session {row.session_id!r} is to be paused, so it was not picked up. Resume it with"
        f" engine.resume({row.session_id!r}).",
        session_id=row.session_id,
        status=row.status.value,
    )
