"""The pause of everything: one row, however many sessions there are. `pausepoint.model.everything` explains it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from pausepoint.errors import DamagedRecord
from pausepoint.model.sessions import Pause, PauseMode, Stopping
from pausepoint.stores import checksums as sums
from pausepoint.stores.sql import signals
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.rows import Flag, Time, every, one, prepared, typed
from pausepoint.stores.text import storable


def read(connection: Connection) -> Pause | None:
    row = one(connection, connection.queries["standing_pause"])
    return None if row is None else _verified(row)[0]


def stored(connection: Connection) -> tuple[Pause, int, int, int]:
    """Return the pause of everything with its epoch, round and checksum, which is not verified."""
    return decoded(one(connection, connection.queries["standing_pause"]))


def _verified(row: Any) -> tuple[Pause, int, int]:
    """Return the pause of everything with its epoch and round."""
    pause, epoch, round, sum = decoded(row)
    if sum != sums.standing(pause, epoch, round):
        raise DamagedRecord(
            "The pause of everything does not match its checksum, so no new session is started."
            " Lift it with engine.lift_pause() or `pausepoint resume --all`."
        )
    return pause, epoch, round


_Stored = prepared(tuple[str, str, str | None, Time, PauseMode, Flag, int, int, int])


def decoded(row: Any) -> tuple[Pause, int, int, int]:
    """Return the row of the pause of everything as a pause, epoch, round and checksum, which is not verified."""
    id, reason, by, at, mode, freeze, epoch, round, sum = typed(row, _Stored)
    pause = Pause(id, "operator", reason, by, at, mode=mode, freeze=bool(freeze), standing=True)
    return pause, epoch, round, sum


def everything(connection: Connection) -> int | None:
    """Return the pause of everything as one number, as the query `everything` describes it; None if there is none."""
    number: int | None = connection.execute(connection.queries["everything"]).get
    return number


def concerns(connection: Connection, key: int) -> bool:
    """Return whether the pause of everything stops a session, or would if the session were opened again."""
    number = everything(connection)
    return number is not None and connection.execute(connection.queries["exempt"], (key,)).get < number >> 1


def start(connection: Connection, pause: Pause, is_alive: Callable[[int], bool]) -> None:
    """Start the pause of everything. If it is already in effect, its author and start time stay.

    A second request is another round, which also stops the sessions that were resumed since the first.
    """
    # All that it reads is one round trip to a server: every other verb waits for this one.
    rows = [connection.execute(connection.queries[query]) for query in ("standing_pause", "last_round", "driven")]
    found, last, driven = rows[0].fetchone(), rows[1].get, rows[2].fetchall()
    known, epoch, round = None, last + 1, 0
    with suppress(DamagedRecord):  # damage must not prevent a pause of everything
        known, epoch, round = (None, epoch, round) if found is None else _verified(found)
    standing = replace(pause, id=str(uuid.uuid4())) if known is None else known
    mode = "abort" if "abort" in (standing.mode, pause.mode) else "finish"
    standing = replace(standing, mode=mode, freeze=standing.freeze or pause.freeze)
    if standing == known and not connection.execute(connection.queries["anybody_exempt"], (round,)).get:
        return
    asked = sum(count for holder, count in driven if is_alive(holder))
    if known is None:
        connection.execute(
            connection.queries["end_rounds"], (pause.created_at, None)
        )  # only if its row was damaged or deleted
    connection.execute(connection.queries["add_round"], (last + 1, epoch, pause.created_at, standing.freeze, asked))
    told = standing.id, standing.reason, standing.by, standing.created_at, standing.mode, standing.freeze
    connection.execute(
        connection.queries["let_stand"], (*told, epoch, last + 1, sums.standing(standing, epoch, last + 1))
    )


def lift(connection: Connection, by: str | None, at: int) -> bool:
    """End the pause of everything, and return whether it was in effect. Nothing is written for any session."""
    found = every(connection, connection.queries["lift"])
    if found:
        connection.execute(connection.queries["end_rounds"], (at, storable(by)))
    return bool(found)


def stopping(connection: Connection) -> Stopping:
    found = one(connection, connection.queries["stopping"])
    return Stopping() if found is None else Stopping(found[0] or 0, found[1])


def note(
    connection: Connection, key: int, step: str | None, *, at: int | None = None,
    after: int | None = None, took_effect_at: int | None = None,
) -> None:  # fmt: skip
    """Write the session's record of the pause of everything, if that stops it and nothing is written yet.

    ``at`` is from when on it stops the session; by default, from the request on. ``took_effect_at`` is when a session
    that was driven has parked.
    """
    pause = _record(connection, key, step, at, took_effect_at)
    if pause is not None:
        signals.append(connection, key, "pause", pause.by, pause.created_at, request_of(pause), after)
        connection.execute(connection.queries["due_later"], (key,))
        connection.execute(connection.queries["reckon"], (key,))


def _record(
    connection: Connection, key: int, step: str | None, at: int | None, took_effect_at: int | None
) -> Pause | None:
    """Write a session's record of the pause of everything, and return it.

    Return None if that pause does not stop the session, or if the session has a record of it.
    """
    found = one(connection, connection.queries["stopped_since"], key)
    if found is None:
        return None
    reason, by, mode, freeze, epoch, since = found
    pause = Pause(
        str(uuid.uuid4()), "operator", reason, by, since if at is None else at, step or "", mode, bool(freeze),
        standing=True, took_effect_at=took_effect_at,
    )  # fmt: skip
    *facts, _standing, _ = astuple(pause)
    connection.execute(connection.queries["open_pause"], (key, *facts, epoch, took_effect_at, sums.opened(key, pause)))
    return pause


def settle(connection: Connection, key: int) -> None:
    """Close a session's records of pauses of everything that were lifted, and count the time that they froze."""
    connection.execute(connection.queries["settle"], (key,))
    if not connection.changes():
        return
    for id, lifted_at, lifted_by in every(connection, connection.queries["lifted_records"], key):
        closing = lifted_at, lifted_by
        connection.execute(connection.queries["close_pause"], (*closing, sums.closed(*closing), key, id))
        signals.append(connection, key, "resume", lifted_by, lifted_at, b"{}")


def request_of(pause: Pause) -> bytes:
    """Return the content of the signal that a pause is requested."""
    data: dict[str, object] = {"reason": pause.reason, "mode": pause.mode}
    return msgspec.json.encode(data | {"freeze": True} if pause.freeze else data)
