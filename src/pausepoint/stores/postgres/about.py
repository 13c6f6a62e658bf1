"""Facts about a store in Postgres: sizes, versions, the server, the engines."""

from __future__ import annotations

import time

import psycopg

from pausepoint.model.stores import About, Space
from pausepoint.stores.postgres import schema
from pausepoint.stores.postgres.connection import Connection
from pausepoint.stores.postgres.place import Place
from pausepoint.stores.sql.engines import Present
from pausepoint.stores.sql.holders import holders


def about(connection: Connection, place: Place, present: Present) -> About:
    version: str = connection.execute("SELECT current_setting('server_version')").get
    before, sent = time.perf_counter(), time.time()
    there: int = connection.execute(connection.queries["clock"]).get
    latency = time.perf_counter() - before
    return About(
        "postgres",
        place.shown,
        schema.VERSION,
        space(connection).total,
        0,
        {"postgres": version, "psycopg": psycopg.__version__},
        tuple(holders(connection, present)),
        server=f"Postgres {version}",
        latency_ms=round(latency * 1000, 3),
        clock_skew_us=clock_skew(sent, latency, there),
    )


def clock_skew(sent: float, latency: float, there: int) -> int:
    """Return how far the clock of the server is ahead, in microseconds, if it was read in the middle of a round trip.

    >>> clock_skew(100.0, 0.5, 101_250_000)
    1000000
    """
    return there - round((sent + latency / 2) * 1e6)


def space(connection: Connection) -> Space:
    """Return the size of the store's tables with their indexes. Postgres reuses free space on its own."""
    total: int = connection.execute(
        "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c"
        " WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'"
    ).get
    return Space(total, 0)
