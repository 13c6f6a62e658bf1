"""The store's reads, as functions of a connection. Everything with a digest or checksum is verified."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

import apsw
import msgspec
from msgspec.structs import replace

from pausepoint.errors import DamagedRecord, UnknownSession
from pausepoint.model.budgets import Purse
from pausepoint.model.records import Record, SignalRecord, first_digest, intact, signal_intact
from pausepoint.model.sessions import (
    Ended,
    Failure,
    Filter,
    Flags,
    Pause,
    PauseKind,
    PauseMode,
    SessionRow,
    Sort,
    Status,
)
from pausepoint.stores.base import Found
from pausepoint.stores.sqlite import checksums as sums
from pausepoint.stores.sqlite.sql import PARTS, QUERIES


class Present(NamedTuple):
    """Facts about the present that are not in the database: which engines are alive, and the time."""

    alive: Callable[[int], bool]
    now: Callable[[], int]


Rows = list[SessionRow]
Looked = tuple[int, SessionRow | DamagedRecord]

_FACTS = QUERIES["facts"]
_TAGS = msgspec.json.Decoder(tuple[str, ...])
_FAILURE = msgspec.json.Decoder(Failure)
_PROGRESS = msgspec.json.Decoder(tuple[int, int])
_LAST = 2**63 - 1

FLAG = "flag"
"""The id of a pause without a record: someone set the flag directly in the database."""

# The types of an intact row. A value of another type means damage.
_Flag = Literal[0, 1]
_Seq = Annotated[int, msgspec.Meta(ge=1)]
_Time = Annotated[int, msgspec.Meta(ge=-(2**55), le=253_402_300_799_999_999)]  # the range of a datetime
_Stored = tuple[
    int, str, str, int, str | None, str, bytes, _Time, _Time,
    _Seq, _Seq, bytes, str | None, int, _Flag, Ended | None, str | None,
    _Flag, PauseMode, _Flag, int | None, int, str | None, _Time | None,
    int, int, int, int, int | None, int | None, int | None, int, str | None,
    int | None, int | None, _Flag, int, str | None,
    int | None, _Flag, int, int, _Time | None, PauseMode | None, _Flag,
]  # fmt: skip


class _Row(msgspec.Struct, array_like=True, gc=False):
    """A wrapper for speed: msgspec caches the types of a struct, but analyses a bare tuple again for each row."""

    facts: _Stored


_Paused = tuple[
    str, PauseKind, str, str | None, int, str, PauseMode, _Flag, _Time | None, str | None, _Flag, int, int | None,
    _Time | None, str | None,
]  # fmt: skip

# All possible values. A commit returns one of these instead of creating it.
_FLAGS: dict[tuple[int, str, int, int], Flags] = {
    (pause, mode, cancel, mail): Flags(bool(pause), mode, bool(cancel), bool(mail))
    for pause in (0, 1)
    for mode in ("finish", "abort")
    for cancel in (0, 1)
    for mail in (0, 1)
}

# The fields of a Filter that select sessions, each as an SQL condition.
_CONDITIONS = {
    "session_id": "session_id = :session_id",
    "prefix": "session_id BETWEEN :prefix AND :prefix || char(1114111)",  # a range, so that SQLite uses the index
    "workflow": "workflow = :workflow",
    "owner": "owner = :owner",
    "tag": "EXISTS (SELECT 1 FROM json_each(tags) WHERE value = :tag)",
    "parent": "parent = :parent",
    "input_digest": "input_digest = :input_digest",
}
# The rules of `derive_status` in SQL, to count and filter sessions without reading each row. The store suite and the
# store model check that both agree.
_STATUS = f"""CASE
    WHEN ended = 'completed' THEN 'completed'
    WHEN ended = 'cancelled' THEN 'cancelled'
    WHEN {PARTS["asked"]} OR EXISTS (SELECT 1 FROM pauses WHERE session = key AND closed_at IS NULL AND standing = 0)
        THEN iif(holder IN (SELECT value FROM json_each(:alive)), 'pausing', 'paused')
    WHEN ended = 'failed' THEN 'failed'
    WHEN holder IN (SELECT value FROM json_each(:alive)) THEN 'running'
    WHEN wakes_at = 0 OR wakes_at <= :now THEN 'ready'
    WHEN waiting IS NOT NULL THEN 'waiting'
    WHEN wakes_at IS NOT NULL THEN 'sleeping'
    WHEN seq <= 1 THEN 'created'
    ELSE 'ready'
END"""
_SORTS: dict[Sort, tuple[str, str]] = {
    "created": ("created_at DESC, key DESC", "created_at, key"),
    "updated": ("updated_at DESC, key DESC", "updated_at, key"),
    "workflow": ("workflow, updated_at DESC", "workflow DESC, updated_at"),
    "spent": ("spent_usd DESC, key DESC", "spent_usd, key"),
    "id": ("session_id", "session_id DESC"),
}
# The first condition is a range of the index; 0 is due even if the clock is before 1970.
_DUE = """wakes_at <= max(:now, 0) AND (wakes_at <= :now OR wakes_at = 0) AND wakes_at IS NOT NULL
    AND pause_requested = 0 AND guest = 0 AND removing = 0 AND (ended IS NULL OR ended = 'failed')
    AND workflow IN (SELECT value FROM json_each(:workflows))"""
_EXEMPT = "INDEXED BY sessions_exempt WHERE exempt = :round AND exempt > 0 AND "
"""While everything is paused, only the few sessions that were resumed since can run."""
_TREE = """key IN (
    WITH RECURSIVE down (key) AS (
        SELECT key FROM sessions WHERE session_id = :session_id
        UNION
        SELECT sessions.key FROM down JOIN sessions ON sessions.parent = down.key
    )
    SELECT key FROM down
)"""


def one(connection: apsw.Connection, query: str, *bindings: object) -> Any:
    """Return the first row, or None."""
    return connection.execute(query, bindings).fetchone()


def every(connection: apsw.Connection, query: str, *bindings: object) -> list[Any]:
    """Return all rows."""
    return connection.execute(query, bindings).fetchall()


def flags_of(pause_requested: int, pause_mode: PauseMode, cancel_requested: int, mail: int) -> Flags:
    """Return the stored flags as a struct."""
    try:
        return _FLAGS[pause_requested, pause_mode, cancel_requested, mail]
    except KeyError as exc:
        raise _damaged_facts(exc) from exc


def get(connection: apsw.Connection, session_id: str, present: Present) -> SessionRow | None:
    found = one(connection, f"{_FACTS} WHERE session_id = ?", session_id)
    if found is None:
        return None
    row = _row(found, present)
    if row.session_id != session_id:
        raise _damaged_facts(f"the index has {session_id!r}, the row has {row.session_id!r}")
    return row


def get_by_key(connection: apsw.Connection, key: int, present: Present) -> SessionRow:
    found = one(connection, f"{_FACTS} WHERE key = ?", key)
    if found is None:
        raise _no_session(key)
    return _row(found, present)


def _no_session(key: int) -> UnknownSession:
    return UnknownSession(
        f"No session in this store has the key {key}. It may have been removed. List the sessions with"
        " engine.sessions().",
        session_id="",
    )


def find(connection: apsw.Connection, query: Filter, present: Present) -> Found:
    looked = [facts for _, facts in look(connection, query, present)]
    return Found(
        (facts for facts in looked if isinstance(facts, SessionRow)),
        (facts for facts in looked if isinstance(facts, DamagedRecord)),
    )


def look(connection: apsw.Connection, query: Filter, present: Present) -> list[Looked]:
    """Return key and facts of the sessions that match. A damaged session has its error instead of the facts."""
    present = _asked_once(present)
    where, bindings = _where(connection, query, present)
    order = _SORTS[query.sort][query.reverse]
    bindings["limit"] = -1 if query.limit is None else query.limit
    rows: list[Any] = connection.execute(f"{_FACTS} {where} ORDER BY {order} LIMIT :limit", bindings).fetchall()
    return [(row[0], _row_or_damage(row, present)) for row in rows]


def tally(connection: apsw.Connection, query: Filter, present: Present) -> dict[tuple[str, Status], int]:
    """Count the sessions that match, by workflow and status."""
    where, bindings = _where(connection, query, present)
    bindings |= _moment(connection, present)
    statement = f"SELECT workflow, {_STATUS}, count(*) FROM sessions {where} GROUP BY 1, 2"
    return {(str(name), Status(status)): count for name, status, count in connection.execute(statement, bindings)}


def _where(connection: apsw.Connection, query: Filter, present: Present) -> tuple[str, dict[str, Any]]:
    """Return the WHERE clause of a filter, after the index to use if SQLite would choose badly, and its bindings."""
    index = ""
    bindings = {part: getattr(query, part) for part in _CONDITIONS if getattr(query, part) is not None}
    conditions = [_TREE if query.tree and part == "session_id" else _CONDITIONS[part] for part in bindings]
    conditions.append("removing = 0")
    if query.unended:
        conditions.append("(ended IS NULL OR ended = 'failed')")
    if query.statuses:
        bindings |= _moment(connection, present) | {"statuses": msgspec.json.encode(query.statuses).decode()}
        conditions.append(f"{_STATUS} IN (SELECT value FROM json_each(:statuses))")
        if set(query.statuses) <= {Status.RUNNING, Status.PAUSING}:
            conditions.append("holder IS NOT NULL")
            index = "INDEXED BY sessions_held "  # otherwise SQLite scans all sessions in the order of the result
    if query.failed is not None:
        conditions.append("ended = 'failed'" if query.failed else "ended IS NOT 'failed'")
    if query.level == "root":
        conditions.append("parent IS NULL")
    elif query.level == "top":
        alike = " AND ".join(conditions)
        conditions.append(f"(parent IS NULL OR parent NOT IN (SELECT key FROM sessions WHERE {alike}))")
    return f"{index}WHERE {' AND '.join(conditions)}", bindings


def _moment(connection: apsw.Connection, present: Present) -> dict[str, Any]:
    """Return the bindings for a status that are not in the row: the live holders and the time."""
    holders = [holder for (holder,) in every(connection, QUERIES["holders"]) if present.alive(holder)]
    return {"alive": msgspec.json.encode(holders).decode(), "now": present.now()}


def _asked_once(present: Present) -> Present:
    """Check each holder only once, no matter how many sessions it holds."""
    known: dict[int, bool] = {}

    def alive(holder: int) -> bool:
        if holder not in known:
            known[holder] = present.alive(holder)
        return known[holder]

    return Present(alive, present.now)


def _row_or_damage(stored: Sequence[Any], present: Present) -> SessionRow | DamagedRecord:
    try:
        return _row(stored, present)
    except DamagedRecord as exc:
        if "session_id" in exc.fields:
            return exc
        return DamagedRecord(f"Session {stored[1]!r}: {exc}", session_id=str(stored[1]))


def due(
    connection: apsw.Connection, present: Present, now: int, workflows: Sequence[str], limit: int, tree: str | None
) -> Rows:
    bindings = _waking(now, workflows, tree)
    among = f" AND {_TREE}" if tree is not None else ""
    query = f"{_FACTS} {_unstopped(connection, bindings)}{_DUE}{among} ORDER BY wakes_at"
    return _free(connection, query, bindings, _asked_once(present), limit)


def _free(
    connection: apsw.Connection, query: str, bindings: dict[str, Any], present: Present, limit: int,
    skip: Mapping[int, int] = MappingProxyType({}),
) -> Rows:  # fmt: skip
    """Return the first ``limit`` sessions of a query that an engine can pick up.

    The others are passed over here, not cut off by a LIMIT: they must not keep an engine from those behind them. They
    are damaged, held, kept in memory by another engine, paused by the engine itself, or in ``skip``.
    """
    rows: Rows = []
    cursor = connection.execute(query, bindings)
    try:
        while len(rows) < limit and (stored := cursor.fetchone()) is not None:
            with suppress(DamagedRecord):
                row = _row(stored, present)
                stuck = row.live or row.kept_by is not None or row.open_pauses
                if not stuck and skip.get(row.key) != row.seq:
                    rows.append(row)
    finally:
        cursor.close()  # an open cursor would keep its snapshot of the database
    return rows


def _unstopped(connection: apsw.Connection, bindings: dict[str, Any]) -> str:
    """Return the beginning of a query for sessions that the pause of everything does not stop, and add its binding."""
    number = everything(connection)
    if number is None:
        return "WHERE "
    bindings["round"] = number >> 1
    return _EXEMPT


def everything(connection: apsw.Connection) -> int | None:
    """Return the pause of everything as one number, as the query `everything` describes it; None if there is none."""
    number: int | None = connection.execute(QUERIES["everything"]).get
    return number


def ready(
    connection: apsw.Connection, present: Present, now: int, workflows: Sequence[str], limit: int,
    skip: Mapping[int, int],
) -> Rows:  # fmt: skip
    """Return sessions that can be taken. ``skip`` is as in `Store.take`."""
    rows, present = [], _asked_once(present)
    for workflow in dict.fromkeys(workflows):
        bindings = {"workflow": workflow, "now": now}
        where = _unstopped(connection, bindings)
        query = QUERIES["ready"]
        if where is _EXEMPT:
            query = query.replace("INDEXED BY sessions_ready WHERE ", where)
        rows += _free(connection, f"{_FACTS} {query}", bindings, present, limit, skip)
    return sorted(rows, key=lambda row: (row.ready_at or 0, row.key))[:limit]


def dead_holders(connection: apsw.Connection, present: Present) -> list[int]:
    """Return the engines that died while they held sessions."""
    return [holder for (holder,) in every(connection, QUERIES["holders"]) if not present.alive(holder)]


def next_wake(connection: apsw.Connection, now: int, workflows: Sequence[str], tree: str | None) -> int | None:
    among = f" AND {_TREE}" if tree is not None else ""
    bindings = _waking(now, workflows, tree)
    query = QUERIES["next_wake"].replace("WHERE ", _unstopped(connection, bindings), 1)
    found: int | None = connection.execute(query + among, bindings).get
    return found


def _waking(now: int, workflows: Sequence[str], tree: str | None) -> dict[str, Any]:
    return {"now": now, "workflows": msgspec.json.encode(workflows).decode(), "session_id": tree}


def failure_of(stored: str | None) -> str | None:
    """Return the message of a stored failure."""
    try:
        return None if stored is None else _FAILURE.decode(stored).message
    except msgspec.MsgspecError as exc:
        raise _damaged_facts(exc) from exc


def purses(connection: apsw.Connection, key: int) -> list[Purse]:
    rows = every(connection, QUERIES["purses"], key)
    found: list[Purse] = _typed(rows, list[Purse])
    return found


def _row(stored: Sequence[Any], present: Present) -> SessionRow:
    facts = _typed((stored,), _Row).facts
    (key, session_id, workflow, version, owner, tags, input_digest, created_at, updated_at,
     seq, key_frame, digest, step, visit, held_by_guard, ended, failure,
     pause_requested, pause_mode, cancel_requested, holder, fence, waiting, wakes_at,
     crashes, spent_usd, spent_tokens, spent_operations, budget_usd, budget_tokens, budget_operations,
     open_pauses, progress,
     parent, keep_for, mail, frozen, parent_id, kept_by, removing, given_sum, moved_sum, ready_at,
     everything, guest) = facts  # fmt: skip
    if removing:
        raise UnknownSession(
            f"Session {session_id!r} is being removed. Complete the removal with engine.gc(apply=True).",
            session_id=session_id,
        )
    if given_sum != sums.given(session_id, workflow, version, owner, tags, input_digest, created_at, parent,
                               keep_for, budget_usd, budget_tokens, budget_operations, cancel_requested,
                               guest):  # fmt: skip
        raise _damaged_row(session_id, "settings")
    if moved_sum != sums.moved(seq, key_frame, digest, step, visit, held_by_guard, ended, failure, progress, fence):
        raise _damaged_row(session_id, "position")
    try:
        return SessionRow(
            key, session_id, workflow, version, owner, _TAGS.decode(tags), input_digest, created_at, updated_at,
            seq, key_frame, digest, step, visit, bool(held_by_guard), ended,
            None if failure is None else _FAILURE.decode(failure),
            bool(pause_requested) or everything is not None, "abort" if everything == "abort" else pause_mode,
            bool(cancel_requested), holder, fence,
            holder is not None and present.alive(holder), waiting, wakes_at,
            crashes, spent_usd, spent_tokens, budget_usd, open_pauses,
            None if progress is None else _PROGRESS.decode(progress), parent, keep_for, bool(mail), frozen,
            parent_id,
            wakes_at is not None and (wakes_at == 0 or wakes_at <= present.now()),
            kept_by if kept_by is not None and present.alive(kept_by) else None,
            ready_at, bool(pause_requested), everything is not None, spent_operations, budget_tokens,
            budget_operations, bool(guest),
        )  # fmt: skip
    except msgspec.MsgspecError as exc:
        raise _damaged_facts(exc) from exc


def _typed(stored: object, types: Any) -> Any:
    """Return a row after checking the types of its values, which SQLite does not check on reading."""
    try:
        return msgspec.convert(stored, types, builtin_types=(bytes,))
    except msgspec.ValidationError as exc:
        raise _damaged_facts(exc) from exc


def _damaged_row(session_id: str, what: str) -> DamagedRecord:
    return DamagedRecord(
        f"Session {session_id!r}: the facts in its row ({what}) do not match their checksum."
        " Restore the database from a backup.",
        session_id=session_id,
    )


def _damaged_facts(what: object) -> DamagedRecord:
    return DamagedRecord(f"The facts about a session cannot be read ({what}). Restore the database from a backup.")


def flags(connection: apsw.Connection, keys: Sequence[int]) -> dict[int, tuple[int, Flags]]:
    rows: Iterable[Any] = connection.executemany(QUERIES["flags"], [(key,) for key in keys])
    return {key: (fence, flags_of(*requests)) for key, fence, *requests in rows}


def pauses(connection: apsw.Connection, key: int, open_only: bool) -> list[Pause]:
    found = [_pause(key, row) for row in every(connection, QUERIES["pauses"], key, open_only)]
    flag = one(connection, QUERIES["pause_flag"], key)
    asked = [pause for pause in found if pause.kind == "operator" and pause.closed_at is None]
    if flag and flag[0] and all(pause.standing for pause in asked):
        reason = "pause_requested was set in the database"
        found.append(Pause(FLAG, "operator", reason, by=None, created_at=flag[2], mode=flag[1]))
    if flag and flag[3] and not any(pause.standing for pause in asked):
        # The session was parked already, so nothing was written for it.
        everything, *_ = standing(connection)
        since = replace(everything, created_at=flag[4] if flag[4] is not None else everything.created_at)
        later = [n for n, pause in enumerate(found) if pause.created_at > since.created_at]
        found.insert(later[0] if later else len(found), since)
    return found


def _pause(key: int, stored: Sequence[Any]) -> Pause:
    (id, kind, reason, by, at, step, mode, freeze, closed_at, closed_by, standing,
     opened_sum, closed_sum, lifted_at, lifted_by) = _typed(stored, _Paused)  # fmt: skip
    pause = Pause(id, kind, reason, by, at, step, mode, bool(freeze), closed_at, closed_by, bool(standing))
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


def standing_pause(connection: apsw.Connection) -> Pause | None:
    if one(connection, QUERIES["standing_pause"]) is None:
        return None
    pause, epoch, round, sum = standing(connection)
    if sum != sums.standing(pause, epoch, round):
        raise DamagedRecord(
            "The pause of everything does not match its checksum, so no new session is started."
            " Lift it with engine.lift_pause() or `pausepoint resume --all`."
        )
    return pause


def standing(connection: apsw.Connection) -> tuple[Pause, int, int, int]:
    """Return the pause of everything with its epoch, round and checksum, which is not verified."""
    stored = one(connection, QUERIES["standing_pause"])
    types = tuple[str, str, str | None, _Time, PauseMode, _Flag, int, int, int]
    id, reason, by, at, mode, freeze, epoch, round, sum = _typed(stored, types)
    pause = Pause(id, "operator", reason, by, at, mode=mode, freeze=bool(freeze), standing=True)
    return pause, epoch, round, sum


def records(connection: apsw.Connection, key: int, since: int, until: int | None) -> list[Record]:
    head = one(connection, QUERIES["log_head"], key)
    if head is None:
        raise _no_session(key)
    session_id, last_seq, last_digest, end = _typed(head, tuple[str, _Seq, bytes, int])
    first, last = max(since, 1), last_seq if until is None else min(until, last_seq)
    if first > last:
        return []
    if last < last_seq:  # the chain is read backwards, so start as close as possible
        near = one(connection, QUERIES["key_frame_after"], key, last)
        end = end if near is None else near[0]
    found = [Record(*row) for row in every(connection, QUERIES["records"], end, key, first - 1, last)]
    found.reverse()
    lowest = found[0].seq if found else last + 1
    if lowest > max(first - 1, 1):  # the chain ends before the first record
        raise _damaged(session_id, lowest - 1, "is missing")
    previous = found.pop(0).digest if first > 1 else first_digest(session_id)
    _prove_records(session_id, first, last, found, previous)
    if last == last_seq and found[-1].digest != last_digest:
        raise _damaged(session_id, last, "is not the session's last record")
    return found


def key_frame(connection: apsw.Connection, key: int, seq: int) -> int:
    found = one(connection, QUERIES["key_frame_before"], key, seq)
    if found is None:
        raise DamagedRecord(
            f"Session key {key}: there is no key frame at or before record {seq}, so the state cannot be rebuilt."
            " Restore the database from a backup."
        )
    number: int = found[0]
    return number


def _prove_records(session_id: str, first: int, last: int, found: list[Record], previous: bytes) -> None:
    expected = first
    for record in found:
        if record.seq != expected:
            break
        if not _intact(record, previous):
            raise _damaged(session_id, expected, "does not match its digest")
        previous, expected = record.digest, expected + 1
    if expected <= last:
        raise _damaged(session_id, expected, "is missing")


def _intact(record: Record, previous: bytes) -> bool:
    try:
        return intact(record, previous)
    except TypeError:  # a value has the wrong type
        return False


def _damaged(session_id: str, seq: int, what: str) -> DamagedRecord:
    return DamagedRecord(
        f"Session {session_id!r}: record {seq} {what}. Restore the database from a backup.",
        session_id=session_id,
        seq=seq,
    )


def signals(connection: apsw.Connection, key: int, after: int, until: int | None = None) -> list[SignalRecord]:
    head = one(connection, QUERIES["signals_head"], key)
    if head is None:
        raise _no_session(key)
    session_id, _, count, last_digest = _typed(head, tuple[str, int, int, bytes])
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
        return _picked(connection, key, every(connection, QUERIES["mail"], key, at_most))
    if about is None:
        return _picked(connection, key, every(connection, QUERIES["mail_of_kind"], key, kind, at_most))
    return _picked(connection, key, every(connection, QUERIES["mail_about"], key, kind, about, at_most))


def files(connection: apsw.Connection, key: int, id: str | None, sha256: str | None) -> list[SignalRecord]:
    """Return the signals that added files: all of them, the one with ``id``, or those with the given content."""
    if id is not None:
        return _picked(connection, key, every(connection, QUERIES["file_by_id"], key, id))
    if sha256 is not None:
        return _picked(connection, key, every(connection, QUERIES["files_of_content"], key, bytes.fromhex(sha256)))
    return _picked(connection, key, every(connection, QUERIES["file_signals"], key))


def _picked(connection: apsw.Connection, key: int, numbers: list[Any]) -> list[SignalRecord]:
    """Return the signals with these numbers, each verified against its predecessor."""
    found: list[SignalRecord] = []
    for first, last in _stretches([n for (n,) in numbers]):
        found += signals(connection, key, first - 1, last)
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


def blobs(connection: apsw.Connection, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for hash_ in hashes:
        data = _blob(connection, hash_)
        if data is None or sha256(data).digest() != hash_:
            what = "is missing" if data is None else "does not match its hash"
            raise DamagedRecord(
                f"The stored value {hash_.hex()} {what}. Restore the database from a backup.", hash=hash_.hex()
            )
        found[hash_] = data
    return found


def _blob(connection: apsw.Connection, hash_: bytes) -> bytes | None:
    """Read a blob through its handle. As a column, SQLite would copy it once more, which takes six times as long."""
    id: int | None = connection.execute(QUERIES["blob_place"], (hash_,)).get
    if id is None:
        return None
    try:
        blob = connection.blob_open("main", "blobs", "data", id, False)
    except apsw.SQLError:  # the stored value is not a blob
        return b""
    try:
        return blob.read()
    finally:
        blob.close(True)


def describe_engine(connection: apsw.Connection, number: int) -> tuple[int, str, int] | None:
    """Return process id, host and start time of an engine, if its row still exists."""
    found: tuple[int, str, int] | None = one(connection, QUERIES["engine"], number)
    return found
