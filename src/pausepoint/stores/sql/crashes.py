"""Free the sessions of engines that died."""

from __future__ import annotations

from pausepoint.stores.sql import endings, pickup
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Engine, Present
from pausepoint.stores.sql.rows import every

AT_ONCE = 500
"""How many sessions of dead engines one transaction frees."""


def dead_holders(connection: Connection, present: Present) -> list[int]:
    """Return the engines that died while they held sessions."""
    return [holder for (holder,) in every(connection, connection.queries["holders"]) if not present.alive(holder)]


def reap(connection: Connection, engine: Engine) -> list[int]:
    """Free some sessions of dead engines, and end those of them that were cancelled. Return their keys."""
    freed: list[int] = []
    for holder in dead_holders(connection, engine.present):
        freed += [key for (key,) in every(connection, connection.queries["held_by"], holder, AT_ONCE - len(freed))]
    pickup.free(connection, freed)
    endings.end_cancelled(connection, engine, sorted({*freed}.intersection(endings.cancelled_open(connection))))
    return freed
