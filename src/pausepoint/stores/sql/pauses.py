"""The pauses of sessions: read them, request and withdraw them. The pause of everything is in `standing`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from pausepoint.errors import DamagedRecord
from pausepoint.model.budgets import Allowance
from pausepoint.model.commits import Commit
from pausepoint.model.endings import is_over
from pausepoint.model.sessions import (
    Filter,
    Pause,
    PauseKind,
    PauseMode,
    SessionRow,
    can_be_handed_over,
    can_be_tried_again,
    needs_driving,
)
from pausepoint.stores import checksums as sums
from pausepoint.stores import text
from pausepoint.stores.found import Found
from pausepoint.stores.sql import sessions, signals, standing
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Engine
from pausepoint.stores.sql.remembered import Takes, takes_all
from pausepoint.stores.sql.rows import Flag, Time, every, one, prepared, typed

FLAG = "flag"
"""The id of a pause without a record: someone set the flag directly in the database."""

FEW = 50
"""The pauses of so many sessions are read on the loop's thread: they take about a millisecond."""

_Paused = prepared(tuple[
    str, PauseKind, str, str | None, int, str, PauseMode, Flag, Time | None, str | None, Flag, Time | None, int,
    int | None, Time | None, str | None,
])  # fmt: skip


def read(connection: Connection, key: int, open_only: bool) -> list[Pause]:
    found = [_pause(key, row) for row in every(connection, connection.queries["pauses"], key, open_only)]
    flag = one(connection, connection.queries["pause_flag"], key)
    return _completed(found, flag, lambda: standing.stored(connection)[0])


def first(connection: Connection, keys: Sequence[int]) -> dict[int, Pause]:
    """Return the first open pause of several sessions, by key. A damaged record of a pause is left out."""
    among = msgspec.json.encode(list(keys)).decode()
    asked = connection.execute(connection.queries["pause_flags"], (among,))
    noted = connection.execute(connection.queries["open_pauses"], (among,))
    standing_row = connection.execute(connection.queries["standing_pause"])
    flags = {key: flag for key, *flag in asked}
    recorded: dict[int, list[Pause]] = {key: [] for key in flags}
    for key, *stored in noted:
        with suppress(DamagedRecord):  # one of them must not hide the others; `read` reports it
            recorded.get(key, []).append(_pause(key, stored))
    everything = cache(lambda: standing.decoded(standing_row.fetchone())[0])
    found = {key: _completed(pauses, flags[key], everything) for key, pauses in recorded.items()}
    return {key: pauses[0] for key, pauses in found.items() if pauses}


def _completed(found: list[Pause], flag: Sequence[Any] | None, everything: Callable[[], Pause]) -> list[Pause]:
    """Add the pauses of a session that nothing was recorded for. ``flag`` is the result of the query `pause_flag`."""
    asked = [pause for pause in found if pause.kind == "operator" and pause.closed_at is None]
    if flag and flag[0] and all(pause.standing for pause in asked):
        reason = "pause_requested was set in the database"
        found.append(Pause(FLAG, "operator", reason, by=None, created_at=flag[2], mode=flag[1]))
    if flag and flag[3] and not any(pause.standing for pause in asked):
        # The session was parked already, so nothing was written for it.
        since = everything()
        since = since if flag[4] is None else replace(since, created_at=flag[4])
        later = [n for n, pause in enumerate(found) if pause.created_at > since.created_at]
        found.insert(later[0] if later else len(found), since)
    return found


def _pause(key: int, stored: Sequence[Any]) -> Pause:
    (id, kind, reason, by, at, step, mode, freeze, closed_at, closed_by, standing, took_effect_at,
     opened_sum, closed_sum, lifted_at, lifted_by) = typed(stored, _Paused)  # fmt: skip
    pause = Pause(id, kind, reason, by, at, step, mode, bool(freeze), closed_at, closed_by, bool(standing),
                  took_effect_at)  # fmt: skip
    # A pause that was ended directly in the database has an end without an author and without a checksum.
    right = closed_by is None if closed_sum is None else closed_sum == sums.closed(closed_at, closed_by)
    if opened_sum != sums.opened(key, pause) or not right:
        raise DamagedRecord(
            f"Pause record {pause.id!r} (session key {key}) does not match its checksum. Restore the database from a"
            " backup."
        )
    if standing and closed_at is None and lifted_at is not None:  # the next verb on the session closes it
        return replace(pause, closed_at=lifted_at, closed_by=lifted_by)
    return pause


# writing


def attach(connection: Connection, commit: Commit, requested: bool) -> None:
    """Open and close the pauses that a commit names. A commit that ends the session closes all of them.

    ``requested``: whether a pause may be requested. Most sessions end without, and nothing is withdrawn then.
    """
    if commit.open_pauses:
        connection.executemany(connection.queries["open_pause"], [_opening(commit.key, p) for p in commit.open_pauses])
    closing = commit.updated_at, commit.closed_by
    for pause_id in commit.close_pauses:
        bindings = (*closing, sums.closed(*closing), commit.key, pause_id)
        connection.execute(connection.queries["close_pause"], bindings)
    if commit.ended in ("completed", "cancelled"):
        connection.execute(connection.queries["close_all_pauses"], (*closing, sums.closed(*closing), commit.key))
        if requested:
            connection.execute(connection.queries["withdraw_request"], (commit.key,))


def pause(connection: Connection, engine: Engine, query: Filter, pause: Pause, takes: Takes = takes_all) -> Found:
    pause = text.of_pause(pause)
    if pause.standing:
        standing.start(connection, pause, engine.present.alive)
        return Found()
    sessions.check_owner_of(connection, query.session_id)
    looked = sessions.look(connection, query, engine.present)
    if not looked and query.session_id is not None:
        sessions.known(connection, query.session_id, engine.present)
    rows, damaged = [], []
    for key, facts in looked:
        if isinstance(facts, DamagedRecord):
            damaged.append(facts)
            if takes(key):
                _stop(connection, key, pause)
        else:
            left = is_over(facts) or not takes(key)
            rows.append(facts if left else request(connection, engine, facts, pause))
    return Found(rows, damaged)


def _stop(connection: Connection, key: int, pause: Pause) -> None:
    """Pause a session whose facts cannot be read. It gets no signal, because the facts hold the signals' chain."""
    stopped = sessions.flag_damaged(connection, "stop", pause.mode, key)
    if stopped and not connection.execute(connection.queries["own_pauses"], (key,)).get:
        connection.execute(connection.queries["open_pause"], _opening(key, replace(pause, id=str(uuid.uuid4()))))


def request(connection: Connection, engine: Engine, row: SessionRow, pause: Pause) -> SessionRow:
    """Request that a session pauses, unless this is already requested, and return the session."""
    # A session under the pause of everything also gets a pause of its own, because that pause may end first.
    asked = bool(connection.execute(connection.queries["own_pauses"], (row.key,)).get)
    own_mode = one(connection, connection.queries["pause_flag"], row.key)[1]
    raised = pause.mode == "abort" and own_mode == "finish"
    freezes = pause.freeze and connection.execute(connection.queries["is_freezing"], (row.key,)).get is None
    if asked and not raised and not freezes:
        return row
    if raised:
        connection.execute(connection.queries["raise_pauses"], (row.key,))
    if freezes or not asked:
        record = replace(pause, id=str(uuid.uuid4()), kind="operator", step=row.step or "", closed_at=None)
        connection.execute(connection.queries["open_pause"], _opening(row.key, record))
    connection.execute(connection.queries["request_pause"], ("abort" if raised else own_mode, row.key))
    signals.append(connection, row.key, "pause", pause.by, pause.created_at, standing.request_of(pause))
    return sessions.again(connection, row, engine.present)


def above(connection: Connection, parent: int | None) -> Pause | None:
    """Return the parent's own pause, which applies to a new or reopened session too."""
    pauses = [] if parent is None else read(connection, parent, open_only=True)
    return next((pause for pause in pauses if pause.kind == "operator" and not pause.standing), None)


def unpause(
    connection: Connection, engine: Engine, session_id: str, by: str | None, at: int, limits: Allowance,
    wake: bool = False, takes: Takes = takes_all, exempt: bool = True,
) -> SessionRow:  # fmt: skip
    by, named = text.storable(by), sessions.known(connection, session_id, engine.present)
    if not takes(named.key) or not (exempt or standing.everything(connection) is None):
        return named
    for row in sessions.find(connection, Filter(session_id=session_id, tree=True), engine.present):
        budget = limits.given() if row.session_id == session_id else {}
        if row.pause_requested:
            _withdraw_pause(connection, row, by, at)
        connection.execute(connection.queries["excuse"], (row.key,))
        tries_again = wake and can_be_tried_again(row) and _close_reasons(connection, row, by, at)
        is_named = row.session_id == session_id
        hands_over = wake and is_named and can_be_handed_over(sessions.again(connection, row, engine.present))
        if not (row.pause_requested or budget or hands_over or tries_again):
            continue
        if budget:
            connection.execute(connection.queries["set_budget"], (*astuple(limits), row.key))
            sessions.seal_given(connection, row.key)
        signals.append(connection, row.key, "resume", by, at, msgspec.json.encode(budget))
        if hands_over and row.ended == "failed":
            connection.execute(connection.queries["reopen"], (sessions.moved_sum(row, row.fence), row.key))
        if wake or row.kept_by is not None:  # if the engine that keeps it dies now, any other may drive it
            _wake(connection, sessions.again(connection, row, engine.present))
    return sessions.known(connection, session_id, engine.present)


def _withdraw_pause(connection: Connection, row: SessionRow, by: str | None, at: int) -> None:
    standing.settle(connection, row.key)
    since = connection.execute(connection.queries["frozen_since"], (row.key,)).get
    if since is not None:
        connection.execute(connection.queries["freeze"], (max(at - since, 0), row.key))
    connection.execute(connection.queries["withdraw_pauses"], (at, by, sums.closed(at, by), row.key))
    connection.execute(connection.queries["withdraw_request"], (row.key,))
    # Otherwise another engine might pick it up before the one that resumes it.
    connection.execute(connection.queries["not_due"], (row.key,))


def _close_reasons(connection: Connection, row: SessionRow, by: str | None, at: int) -> bool:
    """Close the pauses that are not an operator's. Return whether there were any."""
    closed = connection.execute(connection.queries["close_reasons"], (at, by, sums.closed(at, by), row.key)).fetchall()
    if closed:
        connection.execute(connection.queries["forgive"], (row.key,))
        connection.execute(connection.queries["reckon"], (row.key,))
    return bool(closed)


def _wake(connection: Connection, row: SessionRow) -> None:
    """Make a session due if it needs an engine to drive it."""
    if needs_driving(row):
        connection.execute(connection.queries["wake"], (row.key,))
        connection.execute(connection.queries["reckon"], (row.key,))


def _opening(key: int, pause: Pause) -> tuple[object, ...]:
    return (key, *astuple(pause), sums.opened(key, pause))
