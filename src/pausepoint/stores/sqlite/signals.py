"""Signals: what a session was told from outside, in a chain of digests, and the mail that it has not read yet."""

from __future__ import annotations

from typing import Any

import apsw
from msgspec.structs import astuple

from pausepoint.errors import DamagedRecord, SessionEnded
from pausepoint.model.endings import is_over
from pausepoint.model.questions import about
from pausepoint.model.records import SignalRecord, first_digest, seal_signal, signal_intact
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.sqlite import sessions
from pausepoint.stores.sqlite.engines import OwnEngine
from pausepoint.stores.sqlite.rows import every, one, typed
from pausepoint.stores.sqlite.sql import QUERIES

_LAST = 2**63 - 1


def read(connection: apsw.Connection, key: int, after: int, until: int | None = None) -> list[SignalRecord]:
    head = one(connection, QUERIES["signals_head"], key)
    if head is None:
        raise sessions.no_session(key)
    session_id, _, count, last_digest = typed(head, tuple[str, int, int, bytes])
    after = max(after, 0)
    last = count if until is None else min(until, count)
    rows = every(connection, QUERIES["signals"], key, max(after, 1), _LAST if last == count else last)
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
    connection: apsw.Connection, key: int, limit: int | None, kind: str | None, about: str | None
) -> list[SignalRecord]:
    """Return unread signals: all of them, all of one kind, or those about one thing."""
    at_most = -1 if limit is None else limit
    if kind is None:
        return picked(connection, key, every(connection, QUERIES["mail"], key, at_most))
    if about is None:
        return picked(connection, key, every(connection, QUERIES["mail_of_kind"], key, kind, at_most))
    return picked(connection, key, every(connection, QUERIES["mail_about"], key, kind, about, at_most))


def picked(connection: apsw.Connection, key: int, numbers: list[Any]) -> list[SignalRecord]:
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
    connection: apsw.Connection, key: int, kind: str, by: str | None, at: int, payload: bytes,
    after: int | None = None,
) -> int:  # fmt: skip
    """Append a signal to the session's chain and return its number."""
    _, seq, count, previous = one(connection, QUERIES["signals_head"], key)
    signal = seal_signal(previous, count + 1, seq if after is None else after, kind, by, at, payload)
    connection.execute(QUERIES["append_signal"], (key, *astuple(signal)))
    connection.execute(QUERIES["move_signals"], (signal.n, signal.digest, key))
    return signal.n


def deliver(connection: apsw.Connection, key: int, n: int, kind: str, payload: bytes) -> None:
    """Put a signal into the session's mail."""
    connection.execute(QUERIES["deliver"], (key, n, kind, about(kind, payload)))
    connection.execute(QUERIES["has_mail"], (kind, key))
    connection.execute(QUERIES["reckon"], (key,))


def send(
    connection: apsw.Connection, engine: OwnEngine, session_id: str, by: str | None, at: int, payload: bytes
) -> SessionRow:  # fmt: skip
    row = sessions.known(connection, session_id, engine.present)
    if is_over(row):
        raise SessionEnded(
            f"Session {session_id!r} is {row.ended} and accepts no more messages. Start another session.",
            session_id=session_id,
            status=str(row.ended),
        )
    n = append(connection, row.key, "message", by, at, payload)
    deliver(connection, row.key, n, "message", payload)
    return sessions.again(connection, row, engine.present)
