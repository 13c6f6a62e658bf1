"""Cancel sessions, and end those that no engine drives."""

from __future__ import annotations

import apsw
import msgspec
from msgspec.structs import replace

from pausepoint.errors import DamagedRecord, UnknownSession
from pausepoint.model.endings import can_end, cancelled, is_over
from pausepoint.model.sessions import Filter, SessionRow
from pausepoint.stores.found import Found
from pausepoint.stores.sqlite import commits, pickup, sessions, signals
from pausepoint.stores.sqlite.engines import OwnEngine
from pausepoint.stores.sqlite.remembered import Takes, takes_all
from pausepoint.stores.sqlite.rows import every
from pausepoint.stores.sqlite.sql import QUERIES


def cancel(
    connection: apsw.Connection, engine: OwnEngine, session_id: str, by: str | None, reason: str, at: int,
    takes: Takes = takes_all,
) -> Found:  # fmt: skip
    row = sessions.known(connection, session_id, engine.present)
    if not takes(row.key):
        return Found([row])
    request(connection, engine, row, by, reason, at)
    below = cancel_below(connection, engine, row, by, reason, at)
    return Found([sessions.again(connection, row, engine.present), *below], below.damaged)


def cancel_below(
    connection: apsw.Connection, engine: OwnEngine, row: SessionRow, by: str | None, reason: str, at: int
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
    connection: apsw.Connection, engine: OwnEngine, row: SessionRow, by: str | None, reason: str, at: int
) -> SessionRow:
    if not is_over(row) and not row.cancel_requested:
        connection.execute(QUERIES["request_cancel"], (row.key,))
        sessions.seal_given(connection, row.key)
        signals.append(connection, row.key, "cancel", by, at, msgspec.json.encode({"reason": reason}))
        row = sessions.again(connection, row, engine.present)
    return _end(connection, engine, row, at) if can_end(row) else row


def _end(connection: apsw.Connection, engine: OwnEngine, row: SessionRow, at: int) -> SessionRow:
    """End a cancelled session that no engine drives."""
    commit = cancelled(row, at)
    if row.parent is not None and not _is_readable(connection, engine, row.parent):
        commit = replace(commit, parent=None, report=None)  # a damaged parent cannot read the report anyway
    pickup.take_hold(connection, engine, row, crashed=False)
    commits.move(connection.cursor(), engine, replace(commit, fence=row.fence + 1))
    return sessions.again(connection, row, engine.present)


def _is_readable(connection: apsw.Connection, engine: OwnEngine, key: int) -> bool:
    try:
        sessions.get_by_key(connection, key, engine.present)
    except (DamagedRecord, UnknownSession):
        return False
    return True


def end_cancelled(connection: apsw.Connection, engine: OwnEngine) -> None:
    """End the cancelled sessions that an engine left open because it died, or lost its store, at that moment."""
    for (key,) in every(connection, QUERIES["cancelled_open"]):
        try:
            row = sessions.get_by_key(connection, key, engine.present)
        except DamagedRecord:
            continue
        if can_end(row):
            _end(connection, engine, row, engine.now())
