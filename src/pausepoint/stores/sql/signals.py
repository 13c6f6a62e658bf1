"""Signals: what a session was told from outside, in a chain of digests, and the mail that it has not read yet."""

from __future__ import annotations

from typing import Any

from msgspec.structs import astuple

from pausepoint.errors import DamagedRecord, SessionEnded
from pausepoint.model.endings import is_over
from pausepoint.model.questions import about
from pausepoint.model.records import SignalRecord, first_digest, seal_signal, signal_intact
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.sql import sessions
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Engine
from pausepoint.stores.sql.rows import every, one, typed
from pausepoint.stores.text import storable

_LAST = 2**63 - 1


def read(connection: Connection, key: int, after: int, until: int | None = None) -> list[SignalRecord]:
    head = one(connection, connection.queries["signals_head"], key)
    if head is None:
        raise sessions.no_session(key)
    session_id, _, count, last_digest = typed(head, tuple[str, int, int, bytes])
    after = max(after, 0)
    last = count if until is None else min(until, count)
    rows = every(connection, connection.queries["signals"], key, max(after, 1), _LAST if last == count else last)
    found = [SignalRecord(*row) for row in rows]
    previous = first_digest(session_id)
    if after and found and found[0].n == after:
        previous = found.pop(0).digest
    for expected, signal in enumerate(found, after + 1):
        if signal.n != expected or not _signal_intact(signal, previous):
            raise _damaged_signal(session_id, expected)
        previous = signal.digest
    if after < last and (len(found) != last - after or (last == count and previous != last_digest)):
        raise _damaged_signal(session_id, after + len(found) + (len(found) < last - after))
    return found


def mail(
    connection: Connection, key: int, limit: int | None, kind: str | None, about: str | None
) -> list[SignalRecord]:
    """Return unread signals: all of them, all of one kind, or those about one thing."""
    at_most = -1 if limit is None else limit
    if kind is None:
        return picked(connection, key, every(connection, connection.queries["mail"], key, at_most))
    if about is None:
        return picked(connection, key, every(connection, connection.queries["mail_of_kind"], key, kind, at_most))
    return picked(connection, key, every(connection, connection.queries["mail_about"], key, kind, about, at_most))


def picked(connection: Connection, key: int, numbers: list[Any]) -> list[SignalRecord]:
    """Return the signals with these numbers, each verified against its predecessor."""
    found: list[SignalRecord] = []
    for first, last in _stretches([n for (n,) in numbers]):
        found += read(connection, key, first - 1, last)
    return found


def _stretches(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the first and last number of each run without a gap.

    >>> _stretches([1, 2, 3, 7, 9, 10])
    [(1, 3), (7, 7), (9, 10)]
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


def _signal_intact(signal: SignalRecord, previous: bytes) -> bool:
    try:
        return signal_intact(signal, previous)
    except TypeError:  # a value has the wrong type
        return False


def _damaged_signal(session_id: str, n: int) -> DamagedRecord:
    return DamagedRecord(
        f"Session {session_id!r}: signal {n} is missing or does not match its digest."
        " Restore the database from a backup.",
        session_id=session_id,
        n=n,
    )


def append(
    connection: Connection, key: int, kind: str, by: str | None, at: int, payload: bytes,
    after: int | None = None,
) -> int:  # fmt: skip
    """Append a signal to the session's chain and return its number."""
    _, seq, count, previous = one(connection, connection.queries["signals_head"], key)
    signal = seal_signal(previous, count + 1, seq if after is None else after, kind, by, at, payload)
    connection.execute(connection.queries["append_signal"], (key, *astuple(signal)))
    connection.execute(connection.queries["move_signals"], (signal.n, signal.digest, key))
    return signal.n


def deliver(connection: Connection, key: int, n: int, kind: str, payload: bytes) -> None:
    """Put a signal into the session's mail."""
    connection.execute(connection.queries["deliver"], (key, n, kind, about(kind, payload)))
    connection.execute(connection.queries["has_mail"], (kind, key))
    connection.execute(connection.queries["reckon"], (key,))


def send(
    connection: Connection, engine: Engine, session_id: str, by: str | None, at: int, payload: bytes
) -> SessionRow:  # fmt: skip
    return send_to(connection, engine, sessions.known(connection, session_id, engine.present), by, at, payload)


def send_to(
    connection: Connection, engine: Engine, row: SessionRow, by: str | None, at: int, payload: bytes
) -> SessionRow:  # fmt: skip
    """Send a message to a session that this transaction has read."""
    session_id = row.session_id
    if is_over(row):
        raise SessionEnded(
            f"Session {session_id!r} is {row.ended} and accepts no more messages. Start another session.",
            session_id=session_id,
            status=str(row.ended),
        )
    n = append(connection, row.key, "message", storable(by), at, payload)
    deliver(connection, row.key, n, "message", payload)
    return sessions.again(connection, row, engine.present)
