"""Apply the commits of the engine that holds a session, each as one statement under the session's fence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from pausepoint.errors import HoldLost
from pausepoint.model.commits import Commit, Flags
from pausepoint.stores import checksums as sums
from pausepoint.stores.postgres.arrays import Bytes, Numbers, Texts
from pausepoint.stores.postgres.connection import Connection as PostgresConnection
from pausepoint.stores.sql import commits as shared
from pausepoint.stores.sql import questions as asking
from pausepoint.stores.sql import sessions
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Engine, Outcome
from pausepoint.stores.sql.rows import one

_json = msgspec.json.encode

FEW = 20
"""So many records of a batch are written with the plan of a prepared statement. It is for short arrays, and bad for
long ones; to plan the statement again takes as long as to write five records."""

# The types of the columns that `_moving` returns, and of a record after its session.
_MOVES: tuple[Any, ...] = (*[Numbers] * 5, Bytes, Numbers, Texts, *[Numbers] * 6, Texts, Numbers)
_RECORDS: tuple[Any, ...] = (*[Numbers] * 3, Texts, Texts, Numbers, Numbers, *[Bytes] * 4)


def move(connection: Connection, engine: Engine, commit: Commit) -> Outcome:
    """Apply one commit of any kind in a transaction that has locked the session, and its ancestors if it has any."""
    place: Any = one(connection, connection.queries["place"], commit.key)
    if place is not None:
        everything, place = place[10], place[:10]
        if everything is not None:
            place = shared.under_everything(connection, place, everything)
    if (
        place is None
        or not shared.fits(engine, commit, place)
        or (commit.only_if_waiting and not asking.still_waits(connection, commit))
    ):
        return shared.refusal(connection, engine, commit, place)
    connection.execute(connection.queries["move_all"], bindings(engine, [commit]))
    if commit.ended is not None or commit.failure is not None:
        failure = None if commit.failure is None else _json(commit.failure).decode()
        connection.execute(connection.queries["end"], (commit.ended, failure, commit.key))
    if not commit.plain:
        shared.attach(connection, engine, commit, place, 0)
    return sessions.flags_of(*place[5:9])


def move_all(connection: PostgresConnection, engine: Engine, commits: Sequence[Commit]) -> list[Flags | None]:
    """Apply plain commits of different sessions, in a transaction that is one round trip.

    None stands for a commit that does not fit.
    """
    first, queries = commits[0], connection.queries
    if len(commits) == 1 and len(first.records) == 1:
        values = *_moving(first), engine.number, first.key, *astuple(first.records[0])
        rows = connection.transact_one(queries["move"], values)
    else:
        lock = queries["lock"], (sorted(commit.key for commit in commits),)
        fresh = sum(len(commit.records) for commit in commits) > FEW
        rows = connection.transact(lock, (queries["move_all"], bindings(engine, commits)), fresh=fresh)[-1]
    moved = {row[0]: _flags(*row[1:]) for row in rows}
    return [moved.get(commit.key) for commit in commits]


def refusal(connection: Connection, engine: Engine, commit: Commit) -> HoldLost | None:
    """Return why a plain commit did not fit."""
    place: Any = one(connection, connection.queries["place"], commit.key)
    return shared.refusal(connection, engine, commit, None if place is None else place[:10])


def is_written(connection: Connection, commit: Commit) -> bool:
    """Return whether a commit took effect. A record's digest includes a random salt, so it identifies the commit."""
    last = commit.records[-1]
    found: bytes | None = connection.execute(connection.queries["record_digest"], (commit.key, last.seq)).get
    return found == last.digest


def _flags(
    pause_requested: int, mode: Any, cancel_requested: int, mail: int, exempt: int, everything: int | None
) -> Flags:  # fmt: skip
    if everything is not None and exempt < everything >> 1:
        pause_requested, mode = 1, "abort" if everything & 1 else mode
    return sessions.flags_of(pause_requested, mode, cancel_requested, mail)


def bindings(engine: Engine, commits: Sequence[Commit]) -> tuple[list[Any] | int, ...]:
    """Return the bindings of the query `move_all`: columns of moves, this engine, columns of records."""
    moves = zip(_MOVES, zip(*map(_moving, commits), strict=True), strict=True)
    lines = [(commit.key, *astuple(record)) for commit in commits for record in commit.records]
    records = zip(_RECORDS, zip(*lines, strict=True), strict=True)
    return (*(kind(column) for kind, column in moves), engine.number, *(kind(column) for kind, column in records))


def _moving(commit: Commit) -> tuple[Any, ...]:
    last = commit.records[-1]
    failure = None if commit.failure is None else _json(commit.failure).decode()
    progress = None if commit.progress is None else _json(commit.progress).decode()
    total = sums.moved(
        last.seq, commit.key_frame, last.digest, commit.step, commit.visit, commit.held_by_guard, commit.ended, failure,
        progress, commit.fence,
    )  # fmt: skip
    return (
        commit.key, commit.fence, commit.base_seq, last.seq, commit.key_frame, last.digest, commit.updated_at,
        commit.step, commit.visit, int(commit.held_by_guard), int(commit.keep_crashes), commit.spend_usd,
        commit.spend_tokens, commit.spend_operations, progress, total,
    )  # fmt: skip
