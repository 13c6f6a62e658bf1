"""Apply the commits of the engine that holds a session: move the session on and append to its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec
from msgspec.structs import astuple

from pausepoint.errors import HoldLost
from pausepoint.model.endings import is_over
from pausepoint.model.sessions import Commit, Flags
from pausepoint.stores.sqlite import blobs, engines, pauses, sessions, signals, standing
from pausepoint.stores.sqlite import checksums as sums
from pausepoint.stores.sqlite import questions as asking
from pausepoint.stores.sqlite import redaction as redacting
from pausepoint.stores.sqlite.engines import OwnEngine
from pausepoint.stores.sqlite.sql import QUERIES

_PLACE, _ENDED, _APPEND = QUERIES["place"], QUERIES["end"], QUERIES["append"]
_MOVE, _MOVE_AND_COUNT = QUERIES["move"], QUERIES["move_and_count"]
_ENDS = f"({QUERIES['log_end']}), ({QUERIES['everything']})"
_PLACE_AND_END = _PLACE.replace(" FROM sessions", f", {_ENDS} FROM sessions")
_json = msgspec.json.encode

END = f"SELECT {_ENDS}"
"""The id of the log's last record, and the pause of everything as the query `everything` describes it."""

Outcome = Flags | HoldLost | None


def move(cursor: apsw.Cursor, engine: OwnEngine, commit: Commit) -> Outcome:
    """Apply one commit. Does the same as `move_all`, but faster, for an engine that drives one session."""
    place: Any = cursor.execute(_PLACE_AND_END, (commit.key,)).fetchone()
    if place is not None and place[11] is not None:
        place = _under_everything(cursor.connection, place, place[11])
    if (
        place is None
        or not _fits(engine, commit, place)
        or (commit.only_if_waiting and not asking.still_waits(cursor.connection, commit))
    ):
        return _refusal(cursor.connection, engine, commit, place)
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
        _attach(cursor.connection, engine, commit, place, head)
    return sessions.flags_of(*place[5:9])


def move_all(connection: apsw.Connection, engine: OwnEngine, commits: Sequence[Commit]) -> list[Outcome]:
    """Apply commits in order, with one statement per table, and return one outcome for each."""
    places: list[Any] = connection.executemany(_PLACE, [(commit.key,) for commit in commits]).fetchall()
    end, everything = connection.execute(END).get
    if everything is not None:
        places = [_under_everything(connection, place, everything) for place in places]
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
            or not _fits(engine, commit, place)
            or (commit.only_if_waiting and not asking.still_waits(connection, commit))
        ):
            outcomes.append(_refusal(connection, engine, commit, place))
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
        _attach(connection, engine, commit, place, head)
    return outcomes


def _fits(engine: OwnEngine, commit: Commit, place: Any) -> bool:
    """Return whether the session is where the driver assumes, is held by it, and is paused if that is required."""
    return (
        place[1] == commit.base_seq
        and place[2] == commit.fence
        and place[3] == engine.number
        and (not commit.only_if_paused or place[5] == 1)
    )


def _refusal(connection: apsw.Connection, engine: OwnEngine, commit: Commit, place: Any) -> HoldLost | None:
    """Return why a commit does not fit. None means that the pause or question it requires is no longer open."""
    if place is None:
        return HoldLost(
            f"No session in this store has the key {commit.key}. It may have been removed. Nothing was written."
            " List the sessions with engine.sessions().",
            session_id="",
        )
    _, seq, fence, holder, *_ = place
    if (seq, fence, holder) == (commit.base_seq, commit.fence, engine.number):
        return None
    session_id = connection.execute(QUERIES["session_id"], (commit.key,)).get
    return HoldLost(
        f"Session {session_id!r} is no longer held by this engine. The session is at record {seq} with fence"
        f" {fence}, this engine at record {commit.base_seq} with fence {commit.fence}. Nothing was written."
        f" The session is now held by {engines.describe(connection, holder)}. To drive it here again, call"
        f" engine.resume({session_id!r}, steal=True).",
        session_id=session_id,
    )


def _under_everything(connection: apsw.Connection, place: Any, everything: int) -> Any:
    """Return a session's place with the pause of everything among its requests, unless the session is exempt."""
    if connection.execute(QUERIES["exempt"], (place[0],)).get >= everything >> 1:
        return place
    return (*place[:5], 1, "abort" if everything & 1 else place[6], *place[7:])


def _attach(connection: apsw.Connection, engine: OwnEngine, commit: Commit, place: Any, head: int) -> None:
    """Write what only some commits contain. ``head`` is the log id of this commit's last record."""
    if commit.blobs:
        blobs.keep(connection, commit.key, commit.blobs)
    if commit.open_pauses or commit.close_pauses or commit.ended in ("completed", "cancelled"):
        pauses.attach(connection, commit, requested=place[5] == 1)
    if commit.consume:
        connection.executemany(QUERIES["consume"], [(commit.key, n) for n in commit.consume])
        connection.execute(QUERIES["look_for_mail"], (commit.key,))
    if commit.asks or commit.questions:
        asking.attach(connection, commit, head)
    if commit.settles or commit.ended in ("completed", "cancelled"):
        asking.settle(connection, commit)
    if commit.thaw:
        connection.execute(QUERIES["thaw"], (commit.key,))
    if commit.parent is not None:
        _report_to_parent(connection, engine, commit, commit.parent)
    if commit.only_if_paused and commit.release:
        connection.execute(QUERIES["took_effect"], (commit.updated_at, commit.key))
        standing.note(connection, commit.key, commit.step, after=commit.base_seq, took_effect_at=commit.updated_at)
    if commit.release:
        if commit.kept:
            connection.execute(QUERIES["keep"], (commit.key,))
        query = QUERIES["release" if commit.waiting is None else "release_waiting"]
        connection.execute(query, (commit.waiting, commit.wakes_at, commit.key))
        if commit.ended is None:  # what has ended is never ready, as what was held
            connection.execute(QUERIES["reckon"], (commit.key,))
    if commit.version is not None:
        connection.execute(QUERIES["set_version"], (commit.version, commit.key))
        sessions.seal_given(connection, commit.key)
    if commit.redact or commit.redact_signals or commit.unname:
        redacting.blank(connection, commit)


def _report_to_parent(connection: apsw.Connection, engine: OwnEngine, commit: Commit, parent: int) -> None:
    """Add a child's spending to all its ancestors, and deliver its report to the parent."""
    spent = commit.spend_usd, commit.spend_tokens, commit.spend_operations
    if any(spent):
        connection.execute(QUERIES["charge_ancestors"], (commit.key, *spent))
    report = commit.report
    if report is None or is_over(sessions.get_by_key(connection, parent, engine.present)):
        return
    n = signals.append(connection, parent, "child", None, commit.updated_at, report.payload)
    if report.ends:
        signals.deliver(connection, parent, n, "child", report.payload)


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
