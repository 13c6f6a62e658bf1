"""Store, change and find questions.

The log holds what a question asks; its row holds the status. `pausepoint.model.questions.judge` decides which answer is
accepted, inside the transaction that also delivers the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any, Literal, NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import astuple, replace

from pausepoint.errors import DamagedRecord
from pausepoint.model.commits import Commit
from pausepoint.model.cursors import QUESTIONS
from pausepoint.model.questions import NEVER, Inquiry, QuestionRow, QuestionSort, changed, next_round, settled
from pausepoint.model.records import SignalRecord
from pausepoint.model.sessions import Position, QuestionChange, QuestionFacts, QuestionStatus
from pausepoint.stores import checksums as sums
from pausepoint.stores.found import FoundQuestions
from pausepoint.stores.sql import sessions, signals
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.pages import Column, beyond, last_position, ordered
from pausepoint.stores.sql.pages import bindings as after_bindings
from pausepoint.stores.sql.rows import every, one, prepared
from pausepoint.stores.text import storable

AT_ONCE = 200
"""How many questions are read at a time when a query has no limit."""

_CONDITIONS = {
    "session": "session = :session",
    "session_id": "(root = (SELECT key FROM sessions WHERE session_id = :session_id)"
    " OR session = (SELECT key FROM sessions WHERE session_id = :session_id))",
    "workflow": "root IN (SELECT key FROM sessions WHERE workflow = :workflow)",
    "owner": "root IN (SELECT key FROM sessions WHERE owner = :owner)",
    "key": "key = :key",
}


@prepared
class _Row(msgspec.Struct, array_like=True):
    """The columns of a question's row, in the order of the queries."""

    n: int
    session: int
    root: int
    id: bytes
    key: str
    seq: int
    status: QuestionStatus
    version: int
    seen: bytes
    created_at: int
    updated_at: int
    expires_at: int | None
    answer: int | None
    told: Literal[0, 1]
    refused: int
    sum: int


_WIDTH = len(_Row.__struct_fields__)
_UPDATED, _EXPIRES = map(_Row.__struct_fields__.index, ("updated_at", "expires_at"))

_SORTS: dict[QuestionSort, tuple[Column, ...]] = {
    "asked": (Column("questions.n"),),
    "expires": (Column(f"coalesce(questions.expires_at, {NEVER})"), Column("questions.n")),
    "updated": (Column("questions.updated_at", falls=True), Column("questions.n", falls=True)),
}


class StoredQuestion(NamedTuple):
    """A question with its row number, and the keys of its session and root session."""

    n: int
    session: int
    root: int
    facts: QuestionFacts


def _stored_question(stored: Sequence[Any]) -> StoredQuestion:
    """Return a verified row. Raises `DamagedRecord`."""
    try:
        row = msgspec.convert(stored[:_WIDTH], _Row, builtin_types=(bytes,))
        facts = QuestionFacts(
            str(UUID(bytes=row.id)), row.key, row.seq, row.status, row.version, row.seen, row.created_at,
            row.updated_at, row.expires_at, row.answer, row.told == 1, row.refused,
        )  # fmt: skip
    except (msgspec.ValidationError, ValueError) as exc:
        raise _damaged(stored[0], str(exc)) from exc
    if row.sum != sums.asked(row.session, row.root, facts):
        raise _damaged(row.n, "it does not match its checksum")
    return StoredQuestion(row.n, row.session, row.root, facts)


def _damaged(n: object, why: str) -> DamagedRecord:
    return DamagedRecord(f"Question number {n} cannot be read ({why}). Restore the database from a backup.")


# writing


def open_one(connection: Connection, session: int, root: int, place: int, facts: QuestionFacts) -> None:
    """Store a question, or its next round."""
    values = UUID(facts.id).bytes, *astuple(facts)[1:]
    connection.execute(connection.queries["ask"], (session, root, place, *values, sums.asked(session, root, facts)))


def change(connection: Connection, kept: StoredQuestion, **changes: Any) -> None:
    """Change facts about a question."""
    _write(connection, kept, replace(kept.facts, **changes))


def _write(connection: Connection, kept: StoredQuestion, facts: QuestionFacts) -> None:
    total = sums.asked(kept.session, kept.root, facts)
    values = facts.status, facts.updated_at, facts.expires_at, facts.answer, facts.told, facts.refused, total, kept.n
    connection.execute(connection.queries["change_question"], values)


def still_waits(connection: Connection, commit: Commit) -> bool:
    """Return whether the question that a commit is about is still waiting."""
    bindings = commit.key, UUID(commit.only_if_waiting).bytes
    return bool(connection.execute(connection.queries["question_is_open"], bindings).get)


def attach(connection: Connection, commit: Commit, head: int) -> None:
    """Store a commit's new questions and changes.

    ``head`` is the log id of the commit's last record. The session may already be further, if several of its commits
    are applied together.
    """
    at = commit.updated_at
    for facts in commit.asks:
        (root,) = one(connection, connection.queries["root_of"], commit.key)
        place, seq = head - len(commit.records) + 1, commit.records[0].seq
        open_one(connection, commit.key, root, place, _in_next_round(connection, replace(facts, seq=seq), commit))
    changes = {each.id: each for each in commit.questions}
    for kept in open_ones(connection, commit.key) if changes else ():
        if (wanted := changes.get(kept.facts.id)) is not None:
            facts = changed(kept.facts, wanted, at)
            _write(connection, kept, facts)
            if kept.facts.answer is not None and facts.answer is None:  # unread, it would wake the session for ever
                connection.execute(connection.queries["consume"], (commit.key, kept.facts.answer))
                connection.execute(connection.queries["look_for_mail"], (commit.key,))


def _in_next_round(connection: Connection, facts: QuestionFacts, commit: Commit) -> QuestionFacts:
    row = one(connection, connection.queries["question_before"], UUID(facts.id).bytes)
    return facts if row is None else next_round(facts, _stored_question(row).facts, commit.consume)


def settle(connection: Connection, commit: Commit) -> None:
    """Close all open questions of a visit that is over. Unread answers to them no longer wake the session."""
    kept = open_ones(connection, commit.key)
    if not kept:
        return
    unread = [n for (n,) in every(connection, connection.queries["mail_of_kind"], commit.key, "answer", -1)]
    for each in kept:
        last = QuestionChange(each.facts.id, settled(each.facts, unread, commit.ended))
        _write(connection, each, changed(each.facts, last, commit.updated_at))
        if each.facts.answer in unread:
            connection.execute(connection.queries["consume"], (commit.key, each.facts.answer))
    connection.execute(connection.queries["look_for_mail"], (commit.key,))


def forget(connection: Connection, before: int, limit: int) -> int:
    found = every(connection, connection.queries["settled_questions"], before, limit)
    connection.executemany(connection.queries["forget_question"], found)
    return len(found)


# reading


def open_ones(connection: Connection, session: int) -> list[StoredQuestion]:
    """Return a session's open questions: those that wait, or whose answer is not settled yet."""
    return [_stored_question(row) for row in every(connection, connection.queries["open_questions"], session)]


def all_of(connection: Connection, session: int) -> list[QuestionFacts]:
    """Return all questions of a session that were not deleted."""
    return [_stored_question(row).facts for row in every(connection, connection.queries["all_questions"], session)]


def found(connection: Connection, query: Inquiry, now: int) -> FoundQuestions:
    """Return the questions that match, sorted."""
    if query.ids:
        rows = [row for id in query.ids for row in _chosen(connection, "WHERE id = :id", {"id": _bytes(id)})]
        return FoundQuestions(_around(connection, row, now) for row in rows)
    most = None if query.limit is None else query.limit + 1  # is there a next page?
    matching = list(islice(_matching(connection, query, now), most))
    page = matching[: query.limit]
    return FoundQuestions(
        (row for _, row in page if isinstance(row, QuestionRow)),
        (row for _, row in page if isinstance(row, DamagedRecord)),
        _last([stored for stored, _ in page], query.sort) if len(page) < len(matching) else None,
    )


def _matching(
    connection: Connection, query: Inquiry, now: int
) -> Iterator[tuple[Sequence[Any], QuestionRow | DamagedRecord]]:
    """Yield the rows that match, each as stored and as read."""
    size = AT_ONCE if query.limit is None else query.limit + 1
    page = _page(connection, query, size)
    while page:
        for stored in page:
            try:
                row = _around(connection, stored, now)
            except DamagedRecord as exc:
                yield stored, exc
                continue
            if not query.statuses or row.status_at(now) in query.statuses:
                yield stored, row
        after = _last(page, query.sort) if len(page) == size else None
        page = [] if after is None else _page(connection, replace(query, after=after), size)


def _page(connection: Connection, query: Inquiry, size: int) -> list[Any]:
    where, bindings = _where(connection, query)
    columns = _SORTS[query.sort]
    if query.after is not None:
        where += f" AND {beyond(columns, query.reverse)}"
        bindings |= after_bindings(query.after)
    order = ordered(columns, query.reverse)
    return _chosen(connection, f"{where} ORDER BY {order} LIMIT {size}", bindings, order)


def _last(page: Sequence[Sequence[Any]], sort: QuestionSort) -> Position | None:
    """Return the position of the last question that can be read."""
    places = [(row[_UPDATED], row[0]) if sort == "updated" else (row[0],) for row in page]
    if sort == "expires":
        places = [(NEVER if row[_EXPIRES] is None else row[_EXPIRES], row[0]) for row in page]
    return last_position(places, range(len(QUESTIONS[sort])), QUESTIONS[sort])


def _where(connection: Connection, query: Inquiry) -> tuple[str, dict[str, Any]]:
    """Return a WHERE clause for the rows that may match. Whether a waiting question has expired is checked later."""
    bindings: dict[str, Any] = {part: getattr(query, part) for part in _CONDITIONS if getattr(query, part) is not None}
    bindings |= {"owner": storable(query.owner)} if query.owner is not None else {}
    conditions = [_CONDITIONS[part] for part in bindings]
    if query.statuses:
        may_be = {*query.statuses} | ({QuestionStatus.WAITING} if QuestionStatus.EXPIRED in query.statuses else set())
        conditions.append(" OR ".join(f"status = '{each.value}'" for each in sorted(may_be)).join("()"))
    if query.prefix:
        conditions.append("id BETWEEN :low AND :high")
        bindings["low"], bindings["high"] = _beginning(query.prefix)
    return f"{_index(connection, query)}WHERE {' AND '.join(conditions or ['TRUE'])}", bindings


def _index(connection: Connection, query: Inquiry) -> str:
    """Return the index of waiting questions, unless another one leaves fewer of them.

    Without it, SQLite prefers to read all questions in the order in which they were asked.
    """
    if not connection.hints:
        return ""
    narrow = query.session is not None or query.session_id is not None or query.prefix
    return "INDEXED BY questions_waiting " if query.statuses == (QuestionStatus.WAITING,) and not narrow else ""


def _beginning(prefix: str) -> tuple[bytes, bytes]:
    """Return the first and last id with this prefix. The range is empty if no id can have it.

    >>> [each.hex() for each in _beginning("5aeab3f0-1")]
    ['5aeab3f0100000000000000000000000', '5aeab3f01fffffffffffffffffffffff']
    """
    text = prefix.lower()
    low, high = ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff")
    try:
        found = UUID(text + low[len(text) :]), UUID(text + high[len(text) :])
    except ValueError:
        return b"\xff", b""
    return (found[0].bytes, found[1].bytes) if str(found[0]).startswith(text) else (b"\xff", b"")


def tally(connection: Connection, query: Inquiry, now: int) -> dict[QuestionStatus, int]:
    """Count the questions that match, by current status."""
    where, bindings = _where(connection, query)
    among = f"WHERE questions.n IN (SELECT n FROM questions {where})"
    text = f"{connection.queries['tally_questions']} {among} GROUP BY status_now"
    found = {QuestionStatus(status): count for status, count in connection.execute(text, bindings | {"now": now})}
    return {status: count for status, count in found.items() if not query.statuses or status in query.statuses}


def last(connection: Connection, session: int, key: str | None, now: int) -> list[QuestionRow]:
    """Return the questions that an answer to a session may be for.

    With a key, that is the last question with this key. Without one, it is all waiting questions and the last one.
    """
    tree = "(root = :session OR session = :session)"
    newest = f"n = (SELECT max(n) FROM questions WHERE {tree}{' AND key = :key' if key is not None else ''})"
    waiting = f" OR ({tree} AND status = 'WAITING_USER_INPUT')" if key is None else ""
    bindings = {"session": session} | ({} if key is None else {"key": key})
    return [_around(connection, row, now) for row in _chosen(connection, f"WHERE {newest}{waiting}", bindings)]


def by_number(connection: Connection, n: int) -> StoredQuestion:
    """Return the stored facts about one question."""
    return _stored_question(one(connection, connection.queries["question"], n))


def _chosen(connection: Connection, where: str, bindings: dict[str, Any], order: str = "questions.n") -> list[Any]:
    query = f"{connection.queries['questions']} WHERE questions.n IN (SELECT n FROM questions {where}) ORDER BY {order}"
    return connection.execute(query, bindings).fetchall()


def _around(connection: Connection, stored: Sequence[Any], now: int) -> QuestionRow:
    kept = _stored_question(stored)
    facts = kept.facts
    session_id, root_id, workflow, owner, step, payload, salt, body, frozen, failure, ended, since = stored[_WIDTH:]
    if payload is None or (payload and sha256(salt + payload).digest() != body):
        what = "is missing" if payload is None else "does not match its digest"
        raise DamagedRecord(
            f"Question {facts.id}: record {facts.seq} of session {session_id!r}, which asks it, {what}. Restore the"
            " database from a backup.",
            session_id=session_id, seq=facts.seq,
        )  # fmt: skip
    return QuestionRow(
        kept.n, facts, session_id, root_id, workflow, owner, step, payload, _answer(connection, kept),
        frozen + (0 if since is None else max(now - max(since, facts.updated_at), 0)),
        sessions.failure_of(failure) if ended == "failed" else None,
    )  # fmt: skip


def _answer(connection: Connection, kept: StoredQuestion) -> SignalRecord | None:
    n = kept.facts.answer
    return None if n is None else signals.read(connection, kept.session, n - 1, n)[0]


def _bytes(id: str) -> bytes:
    try:
        return UUID(id).bytes
    except ValueError:
        return b""  # no question has this id
