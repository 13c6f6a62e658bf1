"""Free the sessions of engines that died. Nothing here waits for a lock: its holder may have stopped for good."""

from __future__ import annotations

from pausepoint.stores.postgres import locks
from pausepoint.stores.postgres.engines import LONGEST, OwnEngine
from pausepoint.stores.sql import endings, pickup
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.crashes import AT_ONCE
from pausepoint.stores.sql.rows import every


def reap(connection: Connection, engine: OwnEngine) -> list[int]:
    """Free some sessions of dead engines, and end those of them that were cancelled. Return their keys.

    A cancelled session stays open if a transaction has locked one of its relatives: then the engine that picks it up
    ends it.
    """
    connection.execute(connection.queries["cap_leases"], (LONGEST,))
    connection.execute(connection.queries["bury_engines"], (engine.number, engine.spared, engine.dead_here(connection)))
    engine.look(connection)  # they are dead from now on
    freed = [key for (key,) in every(connection, connection.queries["left_sessions"], AT_ONCE)]
    pickup.free(connection, freed)
    cancelled = sorted({*freed}.intersection(endings.cancelled_open(connection) if freed else ()))
    endings.end_cancelled(connection, engine, [key for key in cancelled if locks.line_at_once(connection, key)])
    connection.execute(connection.queries["forget_engines"])
    return freed
