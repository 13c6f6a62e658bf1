"""Change a session that no engine drives, as a rewind does."""

from __future__ import annotations

from msgspec.structs import replace

from pausepoint.model.commits import Commit, overlooks_a_wake
from pausepoint.model.endings import is_over
from pausepoint.stores.found import Found
from pausepoint.stores.sql import endings, pauses, pickup, sessions, standing
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Engine
from pausepoint.stores.text import of_commit


def revise(connection: Connection, engine: Engine, commit: Commit) -> Found:
    commit = of_commit(commit)
    row = sessions.get_by_key(connection, commit.key, engine.present)
    if row.live:
        raise pickup.driven(connection, row)
    if (row.seq, row.fence) != (commit.base_seq, commit.fence) or overlooks_a_wake(row, commit):
        raise pickup.changed_meanwhile(row)
    if row.ended == "cancelled":
        connection.execute(connection.queries["withdraw_cancel"], (row.key,))
        sessions.seal_given(connection, row.key)
    pickup.take_hold(connection, engine, row)
    reopened = is_over(row) and commit.ended is None  # ending the session closed its pauses
    if reopened:
        connection.execute(connection.queries["follow"], (row.key,))
    engine.move(connection, replace(commit, fence=row.fence + 1))
    if reopened:
        pause = pauses.above(connection, row.parent)
        if pause is not None:
            pauses.request(connection, engine, sessions.again(connection, row, engine.present), pause)
        standing.note(connection, row.key, commit.step, at=commit.updated_at)
    if not commit.cancel_children:
        return Found()
    return endings.cancel_below(connection, engine, row, commit.closed_by, commit.cancel_children, commit.updated_at)
