"""The pause of everything: one row, however many sessions there are. `pausepoint.model.everything` explains it."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import apsw
import msgspec
from msgspec.structs import astuple, replace

from pausepoint.errors import DamagedRecord
from pausepoint.model.sessions import Pause, PauseMode, Stopping
from pausepoint.stores.sqlite import checksums as sums
from pausepoint.stores.sqlite import signals
from pausepoint.stores.sqlite.rows import Flag, Time, every, one, typed
from pausepoint.stores.sqlite.sql import QUERIES


def read(connection: apsw.Connection) -> Pause | None:
    if one(connection, QUERIES["standing_pause"]) is None:
        return None
    pause, epoch, round, sum = stored(connection)
    if sum != sums.standing(pause, epoch, round):
        raise DamagedRecord(
            "The pause of everything does not match its checksum, so no new session is started."
            " Lift it with engine.lift_pause() or `pausepoint resume --all`."
        )
    return pause


def stored(connection: apsw.Connection) -> tuple[Pause, int, int, int]:
    """Return the pause of everything with its epoch, round and checksum, which is not verified."""
    row = one(connection, QUERIES["standing_pause"])
    types = tuple[str, str, str | None, Time, PauseMode, Flag, int, int, int]
    id, reason, by, at, mode, freeze, epoch, round, sum = typed(row, types)
    pause = Pause(id, "operator", reason, by, at, mode=mode, freeze=bool(freeze), standing=True)
    return pause, epoch, round, sum


def everything(connection: apsw.Connection) -> int | None:
    """Return the pause of everything as one number, as the query `everything` describes it; None if there is none."""
    number: int | None = connection.execute(QUERIES["everything"]).get
    return number


def start(connection: apsw.Connection, pause: Pause, is_alive: Callable[[int], bool]) -> None:
    """Start the pause of everything. If it is already in effect, its author and start time stay.

    A second request is another round, which also stops the sessions that were resumed since the first.
    """
    try:
        known = read(connection)
    except DamagedRecord:  # damage must not prevent a pause of everything
        known = None
    standing = replace(pause, id=str(uuid.uuid4())) if known is None else known
    mode = "abort" if "abort" in (standing.mode, pause.mode) else "finish"
    standing = replace(standing, mode=mode, freeze=standing.freeze or pause.freeze)
    last: int = connection.execute(QUERIES["last_round"]).get
    round = 0
    if known is None:
        connection.execute(QUERIES["end_rounds"], (pause.created_at, None))  # only if its row was damaged or deleted
        epoch = last + 1
    else:
        _, epoch, round, _ = stored(connection)
        if standing == known and not connection.execute(QUERIES["anybody_exempt"], (round,)).get:
            return
    asked = sum(count for holder, count in every(connection, QUERIES["driven"], round) if is_alive(holder))
    connection.execute(QUERIES["add_round"], (last + 1, epoch, pause.created_at, standing.freeze, asked))
    told = standing.id, standing.reason, standing.by, standing.created_at, standing.mode, standing.freeze
    connection.execute(QUERIES["let_stand"], (*told, epoch, last + 1, sums.standing(standing, epoch, last + 1)))


def lift(connection: apsw.Connection, by: str | None, at: int) -> bool:
    """End the pause of everything, and return whether it was in effect. Nothing is written for any session."""
    found = every(connection, QUERIES["lift"])
    if found:
        connection.execute(QUERIES["end_rounds"], (at, by))
    return bool(found)


def stopping(connection: apsw.Connection) -> Stopping:
    found = one(connection, QUERIES["stopping"])
    return Stopping() if found is None else Stopping(found[0] or 0, found[1])


def note(
    connection: apsw.Connection, key: int, step: str | None, *, at: int | None = None,
    after: int | None = None, took_effect_at: int | None = None,
) -> None:  # fmt: skip
    """Write the session's record of the pause of everything, if that stops it and nothing is written yet.

    ``at`` is from when on it stops the session; by default, from the request on. ``took_effect_at`` is when a session
    that was driven has parked.
    """
    pause = _record(connection, key, step, at, took_effect_at)
    if pause is not None:
        signals.append(connection, key, "pause", pause.by, pause.created_at, request_of(pause), after)
        connection.execute(QUERIES["due_later"], (key,))
        connection.execute(QUERIES["reckon"], (key,))


def _record(
    connection: apsw.Connection, key: int, step: str | None, at: int | None, took_effect_at: int | None
) -> Pause | None:
    """Write a session's record of the pause of everything, and return it.

    Return None if that pause does not stop the session, or if the session has a record of it.
    """
    found = one(connection, QUERIES["stopped_since"], key)
    if found is None:
        return None
    reason, by, mode, freeze, epoch, since = found
    pause = Pause(
        str(uuid.uuid4()), "operator", reason, by, since if at is None else at, step or "", mode, bool(freeze),
        standing=True, took_effect_at=took_effect_at,
    )  # fmt: skip
    *facts, _standing, _ = astuple(pause)
    connection.execute(QUERIES["open_pause"], (key, *facts, epoch, took_effect_at, sums.opened(key, pause)))
    return pause


def settle(connection: apsw.Connection, key: int) -> None:
    """Close a session's records of pauses of everything that were lifted, and count the time that they froze."""
    connection.execute(QUERIES["settle"], (key,))
    if not connection.changes():
        return
    for id, lifted_at, lifted_by in every(connection, QUERIES["lifted_records"], key):
        closing = lifted_at, lifted_by
        connection.execute(QUERIES["close_pause"], (*closing, sums.closed(*closing), key, id))
        signals.append(connection, key, "resume", lifted_by, lifted_at, b"{}")


def request_of(pause: Pause) -> bytes:
    """Return the content of the signal that a pause is requested."""
    data: dict[str, object] = {"reason": pause.reason, "mode": pause.mode}
    return msgspec.json.encode(data | {"freeze": True} if pause.freeze else data)
