"""Apply the commits of the engine that holds a session: move the session on and append to its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec
from msgspec.structs import astuple

from pausepoint.model.commits import Commit
from pausepoint.stores import checksums as sums
from pausepoint.stores.sql import commits as shared
from pausepoint.stores.sql import questions as asking
from pausepoint.stores.sql import sessions
from pausepoint.stores.sql.engines import Engine, Outcome
from pausepoint.stores.sqlite.connection import Connection
from pausepoint.stores.sqlite.sql import QUERIES

_PLACE, _ENDED, _APPEND = QUERIES["place"], QUERIES["end"], QUERIES["append"]
_MOVE, _MOVE_AND_COUNT = QUERIES["move"], QUERIES["move_and_count"]
_ENDS = f"({QUERIES['log_end']}), ({QUERIES['everything']})"
_PLACE_AND_END = _PLACE.replace(" FROM sessions", f", {_ENDS} FROM sessions")
_json = msgspec.json.encode

END = f"SELECT {_ENDS}"
"""The id of the log's last record, and the pause of everything as the query `everything` describes it."""


def move(cursor: apsw.Cursor, engine: Engine, commit: Commit) -> Outcome:
    """Apply one commit. Does the same as `move_all`, but faster, for an engine that drives one session."""
    connection: Any = cursor.connection
    place: Any = cursor.execute(_PLACE_AND_END, (commit.key,)).fetchone()
    if place is not None and place[11] is not None:
        place = shared.under_everything(connection, place, place[11])
    if (
        place is None
        or not shared.fits(engine, commit, place)
        or (commit.only_if_waiting and not asking.still_waits(connection, commit))
    ):
        return shared.refusal(connection, engine, commit, place)
    tail, head = place[4], place[10] + len(commit.records)
    if _counts(commit):
        cursor.execute(_MOVE_AND_COUNT, (*_counted(commit), *_moving(commit, tail, head)))
    else:
        cursor.execute(_MOVE, _moving(commit, tail, head))
    if commit.ended is not None or place[9] is not None:
        cursor.execute(_ENDED, _ending(commit))
    if len(commit.records) == 1:
        cursor.execute(_APPEND, (head, tail, commit.key, *astuple(commit.records[0])))
    else:
        cursor.executemany(_APPEND, _lines(commit, tail, head))
    if not commit.plain:
        shared.attach(connection, engine, commit, place, head)
    return sessions.flags_of(*place[5:9])


def move_all(connection: Connection, engine: Engine, commits: Sequence[Commit]) -> list[Outcome]:
    """Apply commits in order, with one statement per table, and return one outcome for each."""
    places: list[Any] = connection.executemany(_PLACE, [(commit.key,) for commit in commits]).fetchall()
    end, everything = connection.execute(END).get
    if everything is not None:
        places = [shared.under_everything(connection, place, everything) for place in places]
    known = {place[0]: place for place in places}
    several = len(known) < len(commits)  # a session has more than one commit here
    outcomes: list[Outcome] = []
    attaching: list[tuple[Commit, Any, int]] = []
    moves: list[tuple[object, ...]] = []
    counting: list[tuple[object, ...]] = []
    endings: list[tuple[object, ...]] = []
    lines: list[tuple[object, ...]] = []
    for commit in commits:
        place = known.get(commit.key)
        if (
            place is None
            or not shared.fits(engine, commit, place)
            or (commit.only_if_waiting and not asking.still_waits(connection, commit))
        ):
            outcomes.append(shared.refusal(connection, engine, commit, place))
            continue
        tail, end = place[4], end + len(commit.records)
        if several:
            known[commit.key] = (commit.key, commit.records[-1].seq, *place[2:4], end, *place[5:9], commit.ended)
        outcomes.append(sessions.flags_of(*place[5:9]))
        if several or _counts(commit):  # the moves of one session stay in order
            counting.append((*_counted(commit), *_moving(commit, tail, end)))
        else:
            moves.append(_moving(commit, tail, end))
        lines += _lines(commit, tail, end)
        if commit.ended is not None or place[9] is not None:
            endings.append(_ending(commit))
        if not commit.plain:
            attaching.append((commit, place, end))
    if moves:
        connection.executemany(_MOVE, moves)
    if counting:
        connection.executemany(_MOVE_AND_COUNT, counting)
    if endings:
        connection.executemany(_ENDED, endings)
    connection.executemany(_APPEND, lines)
    for commit, place, head in attaching:
        shared.attach(connection, engine, commit, place, head)
    return outcomes


def _counts(commit: Commit) -> object:
    """Return whether a commit needs `move_and_count`: it spends something, or is not progress. Most do not."""
    return commit.keep_crashes or commit.spend_operations or commit.spend_usd or commit.spend_tokens


def _counted(commit: Commit) -> tuple[object, ...]:
    """Return the bindings of the query `move_and_count` that precede those of `move`."""
    return commit.keep_crashes, commit.spend_usd, commit.spend_tokens, commit.spend_operations


def _moving(commit: Commit, tail: int, head: int) -> tuple[object, ...]:
    """Return the bindings of the query `move`."""
    last = commit.records[-1]
    failure = None if commit.failure is None else _json(commit.failure).decode()
    progress = None if commit.progress is None else _json(commit.progress).decode()
    moved = sums.moved(
        last.seq, commit.key_frame, last.digest, commit.step, commit.visit, commit.held_by_guard, commit.ended, failure,
        progress, commit.fence,
    )  # fmt: skip
    return (
        last.seq,
        tail,
        head,
        commit.key_frame,
        last.digest,
        commit.updated_at,
        commit.step,
        commit.visit,
        commit.held_by_guard,
        progress,
        moved,
        commit.key,
    )


def _ending(commit: Commit) -> tuple[object, ...]:
    """Return the bindings of the query `end`."""
    failure = None if commit.failure is None else _json(commit.failure).decode()
    return commit.ended, failure, commit.key


def _lines(commit: Commit, tail: int, head: int) -> list[tuple[object, ...]]:
    """Return the bindings of the query `append`. ``tail`` and ``head`` are the log ids before and at the end."""
    records = commit.records
    if len(records) == 1:
        return [(head, tail, commit.key, *astuple(records[0]))]
    first = head - len(records) + 1
    return [(id, id - 1 if id > first else tail, commit.key, *astuple(r)) for id, r in enumerate(records, first)]
