"""Cancel sessions, and end those that no engine drives."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from pausepoint.errors import DamagedRecord, UnknownSession
from pausepoint.model.endings import can_end, cancelled, is_over
from pausepoint.model.sessions import Filter, SessionRow
from pausepoint.stores.found import Found
from pausepoint.stores.sql import pickup, sessions, signals
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Engine
from pausepoint.stores.sql.remembered import Takes, takes_all
from pausepoint.stores.sql.rows import every
from pausepoint.stores.text import storable


def cancel(
    connection: Connection, engine: Engine, session_id: str, by: str | None, reason: str, at: int,
    takes: Takes = takes_all,
) -> Found:  # fmt: skip
    row = sessions.known(connection, session_id, engine.present)
    by, reason = storable(by), storable(reason)
    if not takes(row.key):
        return Found([row])
    request(connection, engine, row, by, reason, at)
    below = cancel_below(connection, engine, row, by, reason, at)
    return Found([sessions.again(connection, row, engine.present), *below], below.damaged)


def cancel_below(
    connection: Connection, engine: Engine, row: SessionRow, by: str | None, reason: str, at: int
) -> Found:  # fmt: skip
    """Request the end of all descendants of a session, and end those that no engine drives."""
    tree = sessions.look(connection, Filter(session_id=row.session_id, tree=True, unended=True), engine.present)
    rows, damaged = [], []
    for key, facts in sorted(tree, key=lambda each: each[0]):  # parents first: an ended one gets no more reports
        if isinstance(facts, DamagedRecord):
            damaged.append(facts)
            sessions.flag_damaged(connection, "request_cancel", key)
        elif key != row.key:
            rows.append(request(connection, engine, sessions.again(connection, facts, engine.present), by, reason, at))
    # They are read again, with the reports of their children.
    return Found([sessions.again(connection, each, engine.present) for each in rows], damaged)


def request(
    connection: Connection, engine: Engine, row: SessionRow, by: str | None, reason: str, at: int
) -> SessionRow:
    if not is_over(row) and not row.cancel_requested:
        connection.execute(connection.queries["request_cancel"], (row.key,))
        sessions.seal_given(connection, row.key)
        signals.append(connection, row.key, "cancel", by, at, msgspec.json.encode({"reason": reason}))
        row = sessions.again(connection, row, engine.present)
    return _end(connection, engine, row, at) if can_end(row) else row


def _end(connection: Connection, engine: Engine, row: SessionRow, at: int) -> SessionRow:
    """End a cancelled session that no engine drives."""
    commit = cancelled(row, at)
    if row.parent is not None and not _is_readable(connection, engine, row.parent):
        commit = replace(commit, parent=None, report=None)  # a damaged parent cannot read the report anyway
    pickup.take_hold(connection, engine, row)
    engine.move(connection, replace(commit, fence=row.fence + 1))
    return sessions.again(connection, row, engine.present)


def _is_readable(connection: Connection, engine: Engine, key: int) -> bool:
    try:
        sessions.get_by_key(connection, key, engine.present)
    except (DamagedRecord, UnknownSession):
        return False
    return True


def cancelled_open(connection: Connection) -> list[int]:
    """Return the cancelled sessions that have not ended: an engine drives them, or left them open."""
    return [key for (key,) in every(connection, connection.queries["cancelled_open"])]


def are_left_open(connection: Connection, engine: Engine) -> bool:
    """Return whether `end_cancelled` would end a session."""
    for key in cancelled_open(connection):
        with suppress(DamagedRecord, UnknownSession):
            if can_end(sessions.get_by_key(connection, key, engine.present)):
                return True
    return False


def end_cancelled(connection: Connection, engine: Engine, keys: Iterable[int]) -> None:
    """End those of some cancelled sessions that no live engine drives.

    An engine left them open because it died, or lost its store, at that moment. Damaged ones stay open, because the
    others in this transaction must not wait for them.
    """
    for key in keys:
        connection.execute("SAVEPOINT ending")
        try:
            row = sessions.get_by_key(connection, key, engine.present)
            if can_end(row):
                _end(connection, engine, row, engine.now())
        except (DamagedRecord, UnknownSession):
            connection.execute("ROLLBACK TO SAVEPOINT ending")
        connection.execute("RELEASE SAVEPOINT ending")
