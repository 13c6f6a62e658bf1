"""Which sessions an engine can pick up, and how it takes and releases the hold of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pausepoint.errors import AlreadyRunning, HoldLost, LimitReached, SessionEnded, VerbRefused
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.found import Found
from pausepoint.stores.sql import engines, limits, queues, sessions, standing
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Engine, Present
from pausepoint.stores.text import storable


def due(
    connection: Connection, present: Present, now: int, workflows: Sequence[str], limit: int, tree: str | None,
    names: Sequence[str] | None, skip: Mapping[int, int] | None,
) -> sessions.Rows:  # fmt: skip
    """Return due sessions. ``names`` are the queues, or None for all of them."""
    wanted = queues.Wanted(now, workflows, limit, names, dict(skip or {}))
    return queues.due(connection, present, wanted, limits.Room(connection, present, now), tree)


def _unstopped(connection: Connection, bindings: dict[str, Any]) -> str:
    """Return the beginning of a query for sessions that the pause of everything does not stop, and add its binding."""
    number = standing.everything(connection)
    if number is None:
        return "WHERE "
    bindings["round"] = number >> 1
    return f"{connection.parts['exempted']} "  # only the few sessions that were resumed since can run


def _among(connection: Connection, query: str, bindings: dict[str, Any]) -> str:
    """Return a query, among the sessions that the pause of everything does not stop, and add its binding."""
    text, where = connection.queries[query], _unstopped(connection, bindings)
    return text if where == "WHERE " else where + text.partition("WHERE ")[2]


def anything_to_take(connection: Connection, present: Present, wanted: queues.Wanted) -> bool:
    """Return whether a take would find a session. An idle worker looks often and must not write."""
    room = limits.Room(connection, present, wanted.now)
    return bool(queues.ready(connection, present, wanted._replace(limit=1), room))


def next_wake(connection: Connection, now: int, workflows: Sequence[str], tree: str | None) -> int | None:
    among = f" AND {connection.parts['tree']}" if tree is not None else ""
    bindings = _waking(now, workflows, tree)
    query = connection.queries["next_wake"].replace("WHERE ", _unstopped(connection, bindings), 1)
    found: int | None = connection.execute(query + among, bindings).get
    return found


def has_due(connection: Connection, now: int, workflows: Sequence[str], tree: str | None) -> bool:
    """Return whether a session is due that no engine has picked up, such as one without a free slot."""
    bindings = _waking(now, workflows, tree)
    where = f"{_unstopped(connection, bindings)}{connection.parts['due']} AND holder IS NULL"
    among = f" AND {connection.parts['tree']}" if tree is not None else ""
    found = connection.execute(f"{connection.parts['due_candidates']} {where}{among} LIMIT 1", bindings)
    return bool(found.fetchall())


def waking(connection: Connection, present: Present, now: int, limit: int, owner: str | None) -> Found:
    bindings: dict[str, Any] = {"now": now, "owner": storable(owner), "limit": limit}
    query = _among(connection, "waking", bindings)
    return sessions.found(connection.execute(f"{connection.queries['facts']} {query}", bindings).fetchall(), present)


def _waking(now: int, workflows: Sequence[str], tree: str | None) -> dict[str, Any]:
    return {"now": now, "workflows": msgspec.json.encode(workflows).decode(), "session_id": tree}


# writing


def claim(
    connection: Connection, engine: Engine, session_id: str, steal: bool, fence: int | None,
    paused: bool = False,
) -> SessionRow | LimitReached:  # fmt: skip
    """Take the hold of a session. If no slot is free, make it due, and return the error: what was written stays."""
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
    if not paused and (row.pause_requested or (row.ended == "failed" and standing.concerns(connection, row.key))):
        raise _is_paused(row)
    if row.holder is not None and not row.live:
        free(connection, [row.key])
    if not row.live and not row.guest:
        reached = limits.check_slot(connection, engine.present, engine.now(), row)
        if reached is not None:
            _make_due(connection, row)
            return reached
    take_hold(connection, engine, row)
    return sessions.again(connection, row, engine.present)


def _make_due(connection: Connection, row: SessionRow) -> None:
    """Let any engine pick up a session when a slot is free. Like a claim, this reopens a failed session."""
    if row.ended is not None:
        connection.execute(connection.queries["reopen"], (sessions.moved_sum(row, row.fence), row.key))
    connection.execute(connection.queries["wake"], (row.key,))
    connection.execute(connection.queries["reckon"], (row.key,))


def take(connection: Connection, engine: Engine, wanted: queues.Wanted) -> list[SessionRow]:
    room = limits.Room(connection, engine.present, wanted.now, lock=True)
    rows = queues.ready(connection, engine.present, wanted, room)
    for row in rows:
        take_hold(connection, engine, row)
    room.keep()
    return [sessions.again(connection, row, engine.present) for row in rows]


def release(connection: Connection, engine: Engine, key: int, fence: int) -> None:
    connection.execute(connection.queries["give_back"], (key, fence, engine.number))


def unkeep(connection: Connection, engine: Engine, key: int, fence: int) -> None:
    """Record that the step which this engine kept in memory is gone."""
    connection.execute(connection.queries["unkeep"], (key, fence, engine.number))


def free(connection: Connection, keys: Sequence[int]) -> None:
    """Release sessions whose engine died, and count a crash for each."""
    connection.execute(connection.queries["free"], (msgspec.json.encode(keys).decode(),))


def take_hold(connection: Connection, engine: Engine, row: SessionRow) -> None:
    """Take the hold of a session and raise its fence."""
    standing.settle(connection, row.key)
    connection.execute(connection.queries["claim"], (engine.number, sessions.moved_sum(row, row.fence + 1), row.key))


def driven(connection: Connection, row: SessionRow) -> AlreadyRunning:
    session_id, holder = row.session_id, engines.describe(connection, row.holder)
    return AlreadyRunning(
        f"Session {session_id!r} is driven by {holder}. Wait for it with"
        f" engine.session({session_id!r}).outcome(), pause it, or take it over with"
        f" engine.session({session_id!r}).resume(steal=True).",
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
        f" engine.session({row.session_id!r}).resume().",
        session_id=row.session_id,
        status=row.status.value,
    )
