"""The rows of sessions: find them, verify them against their checksums, count them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from pausepoint.errors import DamagedRecord, UnknownSession
from pausepoint.model.budgets import Purse
from pausepoint.model.commits import Flags
from pausepoint.model.cursors import SESSIONS
from pausepoint.model.ids import OwnedId, check_owner
from pausepoint.model.sessions import Ended, Failure, Filter, PauseMode, Position, SessionRow, Sort, Status
from pausepoint.stores import checksums as sums
from pausepoint.stores.found import Found
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Present
from pausepoint.stores.sql.pages import Column, beyond, last_position, ordered
from pausepoint.stores.sql.pages import bindings as after_bindings
from pausepoint.stores.sql.rows import Flag, Seq, Time, damaged_facts, every, in_turns, one, prepared, typed
from pausepoint.stores.text import storable

Rows = list[SessionRow]
Looked = tuple[int, SessionRow | DamagedRecord]

_PURSES = prepared(list[Purse])
_TAGS = msgspec.json.Decoder(tuple[str, ...])
_FAILURE = msgspec.json.Decoder(Failure)
_PROGRESS = msgspec.json.Decoder(tuple[int, int])

_Stored = tuple[
    int, str, str, int, str | None, str, bytes, Time, Time,
    Seq, Seq, bytes, str | None, int, Flag, Ended | None, str | None,
    Flag, PauseMode, Flag, int | None, int, str | None, Time | None,
    int, int, int, int, int | None, int | None, int | None, int, str | None,
    int | None, int | None, Flag, int, str | None,
    int | None, Flag, int, int, Time | None, PauseMode | None, Flag, int,
    str, int, str | None,
]  # fmt: skip


@prepared
class _Row(msgspec.Struct, array_like=True, gc=False):
    """A wrapper for speed: msgspec caches the types of a struct, but analyses a bare tuple again for each row."""

    facts: _Stored


# All possible values. A commit returns one of these instead of creating it.
_FLAGS: dict[tuple[int, str, int, int], Flags] = {
    (pause, mode, cancel, mail): Flags(bool(pause), mode, bool(cancel), bool(mail))
    for pause in (0, 1)
    for mode in ("finish", "abort")
    for cancel in (0, 1)
    for mail in (0, 1)
}

# The fields of a Filter that select sessions. Each has its SQL condition in the part `by_` and its name.
_CONDITIONS = (
    "session_id", "prefix", "workflow", "owner", "tag", "queue", "parent", "input_digest", "ids", "since", "until",
    "text",
)  # fmt: skip
_FAILED = "ended = 'failed'"
_BY_KEY = "NOT INDEXED "
_OPEN = "INDEXED BY sessions_open "
_RESTED: dict[Sort, str] = {"updated": "INDEXED BY sessions_rested ", "spent": "INDEXED BY sessions_spent "}
"""The indexes of what a driven session changes all the time. They have only the sessions that are not driven."""
_DRIVEN = "INDEXED BY sessions_held "
_BROAD = ("", _OPEN, "INDEXED BY sessions_workflow ")
"""The indexes that do not narrow a filter down further than by workflow and end."""
_HELD = {Status.RUNNING, Status.PAUSING}
_OVER = {Status.COMPLETED, Status.CANCELLED}
_SORTS: dict[Sort, tuple[Column, ...]] = {
    "created": (Column("created_at", falls=True), Column("key", falls=True)),
    "updated": (Column("updated_at", falls=True), Column("key", falls=True)),
    "workflow": (Column("workflow"), Column("created_at", falls=True), Column("key", falls=True)),
    "spent": (Column("spent_usd", falls=True), Column("key", falls=True)),
    "id": (Column("session_id"),),
}
# Where the query `facts` has the columns that lists are sorted by.
_PLACES = {"key": 0, "session_id": 1, "workflow": 2, "created_at": 7, "updated_at": 8, "spent_usd": 25}


def flags_of(pause_requested: int, pause_mode: PauseMode, cancel_requested: int, mail: int) -> Flags:
    """Return the stored flags as a struct."""
    try:
        return _FLAGS[pause_requested, pause_mode, cancel_requested, mail]
    except KeyError as exc:
        raise damaged_facts(exc) from exc


def get(connection: Connection, session_id: str, present: Present) -> SessionRow | None:
    found = one(connection, f"{connection.queries['facts']} WHERE session_id = ?", session_id)
    if found is None:
        return None
    row = row_of(found, present)
    if row.session_id != session_id:
        raise damaged_facts(f"the index has {session_id!r}, the row has {row.session_id!r}")
    check_owner(session_id, row.owner)
    return row


def check_owner_of(connection: Connection, session_id: str | None) -> None:
    """Raise `WrongOwner` if the id names an owner, and the session has another one. The session may be damaged."""
    if isinstance(session_id, OwnedId):
        for (owner,) in every(connection, connection.queries["owner_of"], str(session_id)):
            check_owner(session_id, owner if isinstance(owner, str) else None)


def check_missing(connection: Connection, session_id: str) -> None:
    """Check that the index is right not to find this id: a flipped bit in the index must not hide a session."""
    if one(connection, connection.queries["hidden"], session_id) is not None:
        raise DamagedRecord(
            f"Session {session_id!r} exists, but the index of session ids does not find it: the database is damaged."
            " Restore it from a backup, or build the index again with REINDEX (sqlite3 PATH REINDEX)."
        )


def get_by_key(connection: Connection, key: int, present: Present) -> SessionRow:
    found = one(connection, f"{connection.queries['facts']} WHERE key = ?", key)
    if found is None:
        raise no_session(key)
    return row_of(found, present)


def known(connection: Connection, session_id: str, present: Present) -> SessionRow:
    row = get(connection, session_id, present)
    if row is None:
        check_missing(connection, session_id)
        raise UnknownSession(
            f"No session in this store has the id {session_id!r}. Check the id and the store's path, or start the"
            " session first.",
            session_id=session_id,
        )
    return row


def again(connection: Connection, row: SessionRow, present: Present) -> SessionRow:
    return get_by_key(connection, row.key, present)


def no_session(key: int) -> UnknownSession:
    return UnknownSession(
        f"No session in this store has the key {key}. It may have been removed. List the sessions with"
        " engine.sessions().",
        session_id="",
    )


def find(connection: Connection, query: Filter, present: Present) -> Found:
    more = query if query.limit is None else replace(query, limit=query.limit + 1)  # is there a next page?
    stored = _stored(connection, more, present)
    page = stored[: query.limit]
    return found(page, present, _last(page, query.sort) if len(stored) > len(page) else None)


def found(stored: Sequence[Sequence[Any]], present: Present, next: Position | None = None) -> Found:
    """Return rows of the query `facts`, verified. Damaged ones are listed apart."""
    present = asked_once(present)
    looked = [_row_or_damage(row, present) for row in in_turns(stored)]
    return Found(
        (facts for facts in looked if isinstance(facts, SessionRow)),
        (facts for facts in looked if isinstance(facts, DamagedRecord)),
        next,
    )


def _last(page: Sequence[Sequence[Any]], sort: Sort) -> Position | None:
    return last_position(page, [_PLACES[column.sql] for column in _SORTS[sort]], SESSIONS[sort])


def _columns(connection: Connection, sort: Sort) -> tuple[Column, ...]:
    """Return the columns that a list is sorted by, or the expression that a database has for one of them."""
    return tuple(column._replace(sql=connection.parts.get(column.sql, column.sql)) for column in _SORTS[sort])


def look(connection: Connection, query: Filter, present: Present) -> list[Looked]:
    """Return key and facts of the sessions that match. A damaged session has its error instead of the facts."""
    present = asked_once(present)
    return [(row[0], _row_or_damage(row, present)) for row in in_turns(_stored(connection, query, present))]


def _stored(connection: Connection, query: Filter, present: Present) -> list[Any]:
    """Return the rows of the sessions that match, as stored and not verified."""
    if query.limit is None:
        selected, bindings = _selected(connection, query, present)
    else:
        # First only the keys: sorting evaluates all columns of many more rows than the limit.
        keys, bindings = _page(connection, query, present)
        selected = f"WHERE key IN ({keys}) ORDER BY {ordered(_columns(connection, query.sort), query.reverse)}"
    return connection.execute(f"{connection.queries['facts']} {selected}", bindings).fetchall()


def _page(connection: Connection, query: Filter, present: Present) -> tuple[str, dict[str, Any]]:
    """Return the statement that selects the keys of a page, and its bindings."""
    index = _index(query)
    if connection.hints and query.sort in _RESTED and not index and not _is_narrow(query):
        return _rested_and_driven(connection, query, present)
    if connection.hints and query.sort == "created" and index == _BY_KEY and query.level != "top":
        return _last_tagged(connection, query, present)
    selected, bindings = _selected(connection, query, present)
    return f"SELECT key FROM sessions {selected}", bindings


def _rested_and_driven(connection: Connection, query: Filter, present: Present) -> tuple[str, dict[str, Any]]:
    """Select from the sessions that are driven, which are few, and from the others in the order of their index."""
    columns = _columns(connection, query.sort)
    order = f"ORDER BY {ordered(columns, query.reverse)} LIMIT :limit"
    parts = []
    bindings: dict[str, Any] = {}
    for index, held in ((_RESTED[query.sort], "holder IS NULL"), (_DRIVEN, "holder IS NOT NULL")):
        where, bindings = _where(connection, query, present, index)
        where, bindings = _after(query, columns, f"{where} AND {held}", bindings)
        parts.append(f"SELECT * FROM (SELECT key, {columns[0].sql} FROM sessions {where} {order})")
    return f"SELECT key FROM ({' UNION ALL '.join(parts)}) {order}", bindings


def _last_tagged(connection: Connection, query: Filter, present: Present) -> tuple[str, dict[str, Any]]:
    """Select the sessions with a tag in the order of their creation, which the index of tags has."""
    columns = Column("tagged.at", falls=True), Column("tagged.session", falls=True)
    where, bindings = _where(connection, query, present, "", {"tag": "tag = :tag"})
    where, bindings = _after(query, columns, where, bindings)
    order = ordered(columns, query.reverse)
    return (
        f"SELECT key FROM tagged CROSS JOIN sessions ON key = session {where} ORDER BY {order} LIMIT :limit",
        bindings,
    )


def ids(connection: Connection, query: Filter, present: Present) -> list[str]:
    selected, bindings = _selected(connection, query, present)
    rows: list[Any] = connection.execute(f"SELECT session_id FROM sessions {selected}", bindings).fetchall()
    return [str(session_id) for (session_id,) in rows]


def _selected(connection: Connection, query: Filter, present: Present) -> tuple[str, dict[str, Any]]:
    """Return everything that follows FROM sessions: which of them, in which order, and how many."""
    columns = _columns(connection, query.sort)
    where, bindings = _after(query, columns, *_where(connection, query, present))
    return (
        f"{where} ORDER BY {ordered(columns, query.reverse)}{'' if query.limit is None else ' LIMIT :limit'}",
        bindings,
    )


def _after(
    query: Filter, columns: Sequence[Column], where: str, bindings: dict[str, Any]
) -> tuple[str, dict[str, Any]]:  # fmt: skip
    """Add where the page begins, and how many sessions it has."""
    if query.after is not None:
        where += f" AND {beyond(columns, query.reverse)}"
        bindings |= after_bindings(query.after)
    return where, bindings if query.limit is None else bindings | {"limit": query.limit}


def tally(connection: Connection, query: Filter, present: Present) -> dict[tuple[str, Status], int]:
    """Count the sessions that match, by workflow and status.

    Ended sessions are counted in their index. Only the others have a status that must be derived from the row.
    """
    if not _counts_by_index(query):
        return _derived(connection, query, present)
    counts: dict[tuple[str, Status], int] = {}
    if not query.statuses or not set(query.statuses) <= _OVER:
        counts |= _derived(connection, replace(query, unended=True), present, _OPEN)
    if not query.unended and (not query.statuses or set(query.statuses) & _OVER):
        counts |= _ended(connection, query)
    return counts


def spending(connection: Connection, query: Filter, present: Present) -> dict[str, int]:
    where, bindings = _where(connection, query, present)
    statement = f"SELECT workflow, sum({connection.parts['spent_usd']}) FROM sessions {where} GROUP BY 1"
    rows: list[Any] = connection.execute(statement, bindings).fetchall()
    return {str(workflow): int(spent) for workflow, spent in rows}  # in Postgres, a sum is a Decimal


def _counts_by_index(query: Filter) -> bool:
    """Return whether a filter selects ended sessions by nothing but their workflow and status."""
    others = [part for part in _CONDITIONS if part != "workflow" and getattr(query, part) is not None]
    return not others and query.level == "any" and not (query.crashed or query.own_pause) and _index(query) in _BROAD


def _derived(
    connection: Connection, query: Filter, present: Present, index: str | None = None
) -> dict[tuple[str, Status], int]:
    where, bindings = _where(connection, query, present, index)
    bindings |= _moment(connection, present)
    statement = f"SELECT workflow, {connection.parts['status']}, count(*) FROM sessions {where} GROUP BY 1, 2"
    rows: list[Any] = connection.execute(statement, bindings).fetchall()
    return {(str(name), Status(status)): count for name, status, count in rows}


def _ended(connection: Connection, query: Filter) -> dict[tuple[str, Status], int]:
    """Count completed and cancelled sessions in their index, without reading them."""
    which = "" if query.workflow is None else " AND workflow = :workflow"
    bindings = {} if query.workflow is None else {"workflow": query.workflow}
    rows: list[Any] = connection.execute(
        f"{connection.queries['tally_ended']}{which} GROUP BY 1, 2", bindings
    ).fetchall()
    # A damaged index may have other values of `ended`.
    found = {(str(name), Status.COMPLETED if completed else Status.CANCELLED): n for name, completed, n in rows}
    return {key: count for key, count in found.items() if not query.statuses or key[1] in query.statuses}


def _where(
    connection: Connection, query: Filter, present: Present, index: str | None = None,
    others: Mapping[str, str] = {},
) -> tuple[str, dict[str, Any]]:  # fmt: skip
    """Return the WHERE clause of a filter, after the index to use if SQLite would choose badly, and its bindings.

    ``others`` are conditions instead of the usual ones.
    """
    bindings = {part: getattr(query, part) for part in _CONDITIONS if getattr(query, part) is not None}
    bindings |= {part: storable(bindings[part]) for part in ("owner", "tag") if part in bindings}
    index = (_index(query) if index is None else index) if connection.hints else ""
    parts = connection.parts
    other = {"session_id": parts["tree"], "ids": parts["trees"]} if query.tree else {}
    other |= ({"tag": parts["tagged"]} if index == _BY_KEY else {}) | dict(others)
    conditions = [other.get(part, parts[f"by_{part}"]) for part in bindings]
    if query.ids is not None:
        bindings["ids"] = msgspec.json.encode(query.ids).decode()
    if query.text is not None:
        bindings["quoted"] = msgspec.json.encode(query.text).decode()[1:-1]  # as it is in the JSON of tags
    conditions.append("removing = 0")
    if query.unended or query.own_pause or index == _OPEN:
        conditions.append("(ended IS NULL OR ended = 'failed')")
    if query.crashed:
        conditions.append("crashes > 0 AND ended IS NULL")
    if query.own_pause:
        conditions.append(parts["own_pause"])
    if query.statuses:
        bindings |= _moment(connection, present) | {"statuses": msgspec.json.encode(query.statuses).decode()}
        conditions.append(parts["by_statuses"])
        if set(query.statuses) <= _HELD:
            conditions.append("holder IS NOT NULL")
    if _only_failed(query):
        conditions.append(_FAILED)
    elif query.failed is not None:
        conditions.append("ended IS DISTINCT FROM 'failed'")
    if query.level == "root":
        conditions.append("parent IS NULL")
    elif query.level == "top":
        alike = " AND ".join(conditions)
        conditions.append(f"(parent IS NULL OR parent NOT IN (SELECT key FROM sessions WHERE {alike}))")
    return f"{index}WHERE {' AND '.join(conditions)}", bindings


def _only_failed(query: Filter) -> bool:
    return query.failed is True or set(query.statuses) == {Status.FAILED}


def _index(query: Filter) -> str:
    """Return the index to use: the one that leaves the fewest sessions to look at.

    Without it, SQLite prefers to scan all sessions in the order of the result.
    """
    if _is_narrow(query):
        return ""
    if query.tag is not None:
        return _BY_KEY
    if query.owner is not None:
        return "INDEXED BY sessions_owner "
    if query.statuses and set(query.statuses) <= _HELD:
        return _DRIVEN
    if _only_failed(query):
        return "INDEXED BY sessions_failed "
    if query.workflow is not None and not query.crashed:
        return "INDEXED BY sessions_workflow "
    return _OPEN if _only_open(query) else ""


def _is_narrow(query: Filter) -> bool:
    """Return whether a filter names sessions so exactly that SQLite finds its index on its own."""
    return any(
        part is not None for part in (query.session_id, query.ids, query.prefix, query.parent, query.input_digest)
    )


def _only_open(query: Filter) -> bool:
    """Return whether no session that matches has completed or was cancelled."""
    if query.unended or query.crashed or query.own_pause:
        return True
    return bool(query.statuses) and not set(query.statuses) & _OVER


def _moment(connection: Connection, present: Present) -> dict[str, Any]:
    """Return the bindings for a status that are not in the row: the live holders and the time."""
    holders = [holder for (holder,) in every(connection, connection.queries["holders"]) if present.alive(holder)]
    return {"alive": msgspec.json.encode(holders).decode(), "now": present.now()}


def asked_once(present: Present) -> Present:
    """Check each holder only once, no matter how many sessions it holds."""
    known: dict[int, bool] = {}

    def alive(holder: int) -> bool:
        if holder not in known:
            known[holder] = present.alive(holder)
        return known[holder]

    return Present(alive, present.now)


def _row_or_damage(stored: Sequence[Any], present: Present) -> SessionRow | DamagedRecord:
    try:
        return row_of(stored, present)
    except DamagedRecord as exc:
        if "session_id" in exc.fields:
            return exc
        return DamagedRecord(f"Session {stored[1]!r}: {exc}", session_id=str(stored[1]))


def failure_of(stored: str | None) -> str | None:
    """Return the message of a stored failure."""
    try:
        return None if stored is None else _FAILURE.decode(stored).message
    except msgspec.MsgspecError as exc:
        raise damaged_facts(exc) from exc


def moved_sum(row: SessionRow, fence: int) -> int:
    """Return the checksum of the facts that a commit or a claim sets, for a session that has not ended."""
    failure = None if row.failure is None else msgspec.json.encode(row.failure).decode()
    progress = None if row.progress is None else msgspec.json.encode(row.progress).decode()
    at = row.seq, row.key_frame, row.digest, row.step, row.visit, row.held_by_guard
    return sums.moved(*at, None, failure, progress, fence)


def purses(connection: Connection, key: int) -> list[Purse]:
    rows = every(connection, connection.queries["purses"], key)
    found: list[Purse] = typed(rows, _PURSES)
    return found


def row_of(stored: Sequence[Any], present: Present) -> SessionRow:
    facts = typed((stored,), _Row).facts
    (key, session_id, workflow, version, owner, tags, input_digest, created_at, updated_at,
     seq, key_frame, digest, step, visit, held_by_guard, ended, failure,
     pause_requested, pause_mode, cancel_requested, holder, fence, waiting, wakes_at,
     crashes, spent_usd, spent_tokens, spent_operations, budget_usd, budget_tokens, budget_operations,
     open_pauses, progress,
     parent, keep_for, mail, frozen, parent_id, kept_by, removing, given_sum, moved_sum, ready_at,
     everything, guest, signals, queue, priority, lane) = facts  # fmt: skip
    if removing:
        raise UnknownSession(
            f"Session {session_id!r} is being removed. Complete the removal with engine.gc(apply=True).",
            session_id=session_id,
        )
    if given_sum != sums.given(session_id, workflow, version, owner, tags, input_digest, created_at, parent,
                               keep_for, budget_usd, budget_tokens, budget_operations, cancel_requested,
                               guest, queue, priority, lane):  # fmt: skip
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
            budget_operations, bool(guest), signals, queue, priority, lane,
        )  # fmt: skip
    except msgspec.MsgspecError as exc:
        raise damaged_facts(exc) from exc


def _damaged_row(session_id: str, what: str) -> DamagedRecord:
    return DamagedRecord(
        f"Session {session_id!r}: the facts in its row ({what}) do not match their checksum."
        " Restore the database from a backup.",
        session_id=session_id,
    )


def flags(connection: Connection, keys: Sequence[int]) -> dict[int, tuple[int, Flags]]:
    rows: Iterable[Any] = connection.executemany(connection.queries["flags"], [(key,) for key in keys])
    return {key: (fence, flags_of(*requests)) for key, fence, *requests in rows}


def seal_given(connection: Connection, key: int) -> None:
    """Update the checksum of the facts that seldom change."""
    given = one(connection, connection.queries["given"], key)
    connection.execute(connection.queries["seal_given"], (sums.given(*given), key))


def flag_damaged(connection: Connection, query: str, *bindings: object) -> list[Any]:
    """Set a flag of a session whose facts cannot be read. Its checksums stay, so it still counts as damaged."""
    try:
        return every(connection, connection.queries[query], *bindings)
    except connection.refusals:  # a value in its row has the wrong type, so no engine can drive it anyway
        return []
