"""Take ready sessions. Several engines may do so at the same time: each takes what the others have not locked.

Only if all ready sessions are locked, an engine waits for them: it must not report that nothing is ready. If there are
limits, it does not wait: it has locked them, and the engine that has locked a session may wait for a slot.
"""

from __future__ import annotations

from pausepoint.model.sessions import SessionRow
from pausepoint.stores.postgres import locks
from pausepoint.stores.postgres.engines import OwnEngine
from pausepoint.stores.sql import sessions
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.limits import Room
from pausepoint.stores.sql.pickup import take_hold
from pausepoint.stores.sql.queues import Wanted, ready
from pausepoint.stores.sql.rows import every


def take(connection: Connection, engine: OwnEngine, wanted: Wanted) -> list[SessionRow]:
    taken: list[SessionRow] = []
    passed = dict(wanted.skip)
    room = Room(connection, engine.present, wanted.now, lock=True)
    while len(taken) < wanted.limit:
        left = wanted._replace(limit=wanted.limit - len(taken), skip=passed)
        found = ready(connection, engine.present, left, room.trial())
        if not found and (taken or room.limits or passed == wanted.skip):
            break
        if found:
            keys = [row.key for row in found]
            locked = {key for (key,) in every(connection, connection.queries["skip_locked"], keys)}
            passed |= {row.key: row.seq for row in found if row.key not in locked}
        else:
            locked = passed.keys() - wanted.skip.keys()
            locks.keys(connection, locked)
            passed = dict(wanted.skip)
        # A session may have changed between the moment when it was read and the lock.
        again = ready(connection, engine.present, left._replace(skip=passed), room.trial())
        for row in again:
            if row.key in locked:
                room.use(row)
                take_hold(connection, engine, row)
                taken.append(row)
    room.keep()
    return [sessions.again(connection, row, engine.present) for row in taken]
