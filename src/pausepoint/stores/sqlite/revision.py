"""Change a session that no engine drives, as a rewind does."""

from __future__ import annotations

import apsw
from msgspec.structs import replace

from pausepoint.model.endings import is_over
from pausepoint.model.sessions import Commit, overlooks_a_wake
from pausepoint.stores.found import Found
from pausepoint.stores.sqlite import commits, endings, pauses, pickup, sessions, standing
from pausepoint.stores.sqlite.engines import OwnEngine
from pausepoint.stores.sqlite.sql import QUERIES


def revise(connection: apsw.Connection, engine: OwnEngine, commit: Commit) -> Found:
    row = sessions.get_by_key(connection, commit.key, engine.present)
    if row.live:
        raise pickup.driven(connection, row)
    if (row.seq, row.fence) != (commit.base_seq, commit.fence) or overlooks_a_wake(row, commit):
        raise pickup.changed_meanwhile(row)
    if row.ended == "cancelled":
        connection.execute(QUERIES["withdraw_cancel"], (row.key,))
        sessions.seal_given(connection, row.key)
    pickup.take_hold(connection, engine, row, crashed=False)
    reopened = is_over(row) and commit.ended is None  # ending the session closed its pauses
    if reopened:
        connection.execute(QUERIES["follow"], (row.key,))
    commits.move(connection.cursor(), engine, replace(commit, fence=row.fence + 1))
    if reopened:
        pause = pauses.above(connection, row.parent)
        if pause is not None:
            pauses.request(connection, engine, sessions.again(connection, row, engine.present), pause)
        standing.note(connection, row.key, commit.step, at=commit.updated_at)
    if not commit.cancel_children:
        return Found()
    return endings.cancel_below(connection, engine, row, commit.closed_by, commit.cancel_children, commit.updated_at)
