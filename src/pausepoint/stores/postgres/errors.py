"""Translate Postgres's errors into Pausepoint's, with the reason and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from pausepoint.errors import StoreError, StoreUnavailable

AGAIN = (
    psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure, psycopg.errors.UniqueViolation,
)  # fmt: skip
"""Two transactions were in each other's way, and this one was rolled back. It can be repeated."""

PATIENCE = 30.0
"""Seconds for which an engine tries to reach the server again before it gives up a read or a write."""

ATTEMPTS = 10
"""How often a transaction is repeated that others were in the way of."""

LOST = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.IdleInTransactionSessionTimeout)
"""The connection is gone, or cannot be made. Whether the last transaction took effect is not known."""


_CROWDED = "Each engine needs three connections. Raise max_connections on the server, or use a pooler."

_ADVICE: tuple[tuple[type[Exception], tuple[str, ...], str], ...] = (
    (
        psycopg.OperationalError, ("password authentication failed", "no password supplied", "Peer authentication"),
        "Check the user and the password in the URL, in PGPASSWORD or in ~/.pgpass.",
    ),
    (
        psycopg.OperationalError, ("too many connections", "too many clients", "remaining connection slots"), _CROWDED,
    ),
    (psycopg.errors.TooManyConnections, (), _CROWDED),
    (
        psycopg.OperationalError, ("permission denied for database",),
        "Let an administrator grant the right (GRANT CONNECT ON DATABASE … TO …), or name another database in the URL.",
    ),
    (
        psycopg.OperationalError, ("database \".*\" does not exist",),
        "Create the database first, for example with createdb, or name another one in the URL.",
    ),
    (
        psycopg.errors.InsufficientPrivilege, (),
        "Let an administrator create the schema for this user (CREATE SCHEMA … AUTHORIZATION …), or grant the rights"
        " that are missing. Nothing was written.",
    ),
    (
        psycopg.errors.DiskFull, (),
        "The disk of the server is full. Free some space there, then try again. Nothing was written.",
    ),
    (
        psycopg.Error, ("prepared statement \"",),
        "A pooler gives each transaction another connection. Add prepare=off to the URL of the store.",
    ),
)  # fmt: skip
"""Errors with a known cause, by type and patterns of their message, and what to do."""


def translated(exc: psycopg.Error | UnicodeError, shown: str, writes: bool = False) -> StoreError:
    """Return the error to raise, ``from exc``, for an error of the database. ``writes``: the error of a write."""
    said = " ".join(str(exc).split())
    for kind, words, advice in _ADVICE:
        if isinstance(exc, kind) and (not words or any(re.search(word, said) for word in words)):
            return StoreUnavailable(f"{shown}: {said.rstrip('.')}. {advice}")
    if isinstance(exc, LOST):
        return StoreUnavailable(
            f"{shown} cannot be reached ({said}). Check that the server runs and accepts you."
            + (" The write may have taken effect: read the session before you repeat it." if writes else "")
        )
    return StoreUnavailable(
        f"{shown}: the database reported {type(exc).__name__}: {said}. Nothing was written. Check the database with"
        " engine.verify(), then try again."
    )


@contextmanager
def edge(shown: str) -> Iterator[None]:
    """Translate every error of Postgres that is raised inside the ``with`` block."""
    try:
        yield
    except (psycopg.Error, UnicodeError) as exc:
        raise translated(exc, shown) from exc
