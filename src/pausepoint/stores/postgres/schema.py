"""Open a database: create or migrate the schema, and make connections."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

import psycopg
from psycopg import sql as names
from psycopg.types.numeric import Int8Dumper

from pausepoint.errors import NewerSchema, StoreMissing, StoreUnavailable
from pausepoint.name import NAME
from pausepoint.stores.postgres import arrays, sql
from pausepoint.stores.postgres.connection import Connection
from pausepoint.stores.postgres.errors import edge
from pausepoint.stores.postgres.place import Place

VERSION = 1


class Use(NamedTuple):
    """How long a connection may be silent, in seconds.

    ``connect``: until it is made. ``silence``: until a server that does not answer is given up. ``idle``: until the
    server ends a transaction whose client does nothing: a machine that is gone without a word, or a stopped process.
    """

    connect: int = 10
    silence: int = 10
    idle: int = 60


READS = Use()

WRITES = Use(idle=8)
"""Others wait for what its transactions lock, and must not lose their leases over it."""

LEASED = Use(connect=3, silence=3, idle=8)
"""For a lease, with time for a second attempt."""

_OLDEST = 150000

_IDLE = "idle_in_transaction_session_timeout"


def connect(place: Place, use: Use = READS) -> Connection:
    """Return a new connection with the store's settings.

    A pooler between transactions may give a connection to another client, and drops its settings. So with
    ``prepare=off`` each transaction names the schema, and no statement is prepared.
    """
    ours = "" if not place.prepare else f"-c {_IDLE}={use.idle}s"
    path = "" if not place.prepare else f"-c search_path={place.schema}"
    settings = {name: value for name, value in _settings(use).items() if name not in place.given}
    raw: psycopg.Connection[Any] = psycopg.connect(
        place.url, autocommit=True, options=f"{ours} {place.options} {path}".strip(),
        prepare_threshold=5 if place.prepare else None, cursor_factory=psycopg.RawCursor, **settings,
    )  # fmt: skip
    raw.adapters.register_dumper(int, Int8Dumper)  # one type for all numbers, so that a statement is prepared once
    arrays.register(raw)
    if place.prepare:
        return Connection(raw)
    begin = f'BEGIN; SET LOCAL search_path TO "{place.schema}"'
    return Connection(raw, begin if _IDLE in place.options else f"{begin}; SET LOCAL {_IDLE} TO '{use.idle}s'")


def _settings(use: Use) -> dict[str, Any]:
    """Return the driver's settings, unless the URL has others."""
    return {
        "connect_timeout": use.connect, "application_name": NAME, "keepalives_idle": max(use.silence // 2, 1),
        "keepalives_interval": max(use.silence // 6, 1), "keepalives_count": 2, "tcp_user_timeout": use.silence * 1000,
    }  # fmt: skip


class Identity(NamedTuple):
    """What names a store on all machines, and its lock file on this one.

    A restored copy of a database has the same uuid, but other engines, which must not share a lock file with these.
    """

    uuid: str
    locks: str


def prepare(place: Place) -> tuple[Identity, Connection]:
    """Make sure that the database has the current schema. Raises `StoreError`.

    Return the store's identity, and the connection that read it, for the writer: making one takes milliseconds.
    """
    with edge(place.shown):
        connection = connect(place, WRITES)
        try:
            return _prepare(connection, place), connection
        except BaseException:
            connection.raw.close()
            raise


def exists(place: Place) -> bool:
    """Return whether the database has a store. Raises `StoreError` if it cannot be reached."""
    with edge(place.shown):
        connection = connect(place)
        try:
            return _version(connection.raw, place) > 0
        finally:
            connection.raw.close()


def _prepare(connection: Connection, place: Place) -> Identity:
    raw = connection.raw
    if raw.info.server_version < _OLDEST:
        raise StoreUnavailable(
            f"{place.shown}: the server is Postgres {raw.info.server_version // 10000}, which is too old. Use Postgres"
            " 15 or newer."
        )
    version = _version(raw, place)
    if version > VERSION:
        raise NewerSchema(
            f"{place.shown} was written by a newer Pausepoint (schema {version}; this version supports {VERSION})."
            " Nothing was changed. Upgrade Pausepoint, or name another schema for the store."
        )
    if not version and not place.create:
        raise StoreMissing(
            f"There is no store at {place.shown}, and create=False does not create one. Check the URL, or open the"
            " engine with create=True.",
            path=place.shown,
        )
    if version < VERSION:
        _bring_up(raw, place)
    row = raw.execute(
        names.SQL(
            "SELECT uuid, (SELECT oid FROM pg_database WHERE datname = current_database()), current_setting('port')"
            " FROM {}.store"
        ).format(names.Identifier(place.schema))
    ).fetchone()
    assert row is not None
    id, database, port = row
    return Identity(str(id), f"{id}-{database}-{port}")


def _version(raw: psycopg.Connection[Any], place: Place) -> int:
    """Return the version of the schema; 0 if there is none."""
    found = raw.execute("SELECT to_regclass($1)", (f"{place.schema}.store",)).fetchone()
    if found is None or found[0] is None:
        return 0
    row = raw.execute(names.SQL("SELECT version FROM {}.store").format(names.Identifier(place.schema))).fetchone()
    return 0 if row is None else int(row[0])


def _bring_up(raw: psycopg.Connection[Any], place: Place) -> None:
    """Create the schema, or migrate it. Another process that does the same waits."""
    raw.execute("BEGIN")
    try:
        raw.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (f"{place.schema} schema",))
        raw.execute(names.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(names.Identifier(place.schema)))
        raw.execute(names.SQL("SET LOCAL search_path TO {}").format(names.Identifier(place.schema)))
        version = _version(raw, place)
        if not version:
            raw.execute(sql.schema())
            raw.execute("INSERT INTO store (version, uuid) VALUES ($1, $2)", (VERSION, str(uuid.uuid4())))
        else:
            for step in sql.migrations():
                if step.number > version:
                    raw.execute(step.text)
                    raw.execute("UPDATE store SET version = $1", (step.number,))
        raw.execute("COMMIT")
    except BaseException:
        raw.execute("ROLLBACK")
        raise
