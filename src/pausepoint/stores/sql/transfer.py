"""Export and import sessions: read or write everything that belongs to them in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import msgspec
from msgspec.structs import astuple, replace

from pausepoint.errors import UnknownSession
from pausepoint.model.files import check_names, file_facts
from pausepoint.model.questions import about, once_of
from pausepoint.model.records import first_digest
from pausepoint.model.sessions import Filter, Pause, SessionRow
from pausepoint.model.stores import Whole
from pausepoint.stores import checksums as sums
from pausepoint.stores.sql import blobs, drawers, files, pauses, sessions, signals, standing
from pausepoint.stores.sql import questions as asking
from pausepoint.stores.sql import verify as checking
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Engine, Present
from pausepoint.stores.sql.rows import one
from pausepoint.stores.text import of_whole

FENCE = 1
"""The first fence of an imported session. Its holder in the other store cannot write to this one."""


def whole(connection: Connection, session_id: str, present: Present) -> list[Whole]:
    found = sessions.find(connection, Filter(session_id=session_id, tree=True), present)
    for damage in found.damaged:
        raise damage
    if not found:
        raise UnknownSession(
            f"There is no session {session_id!r} in this store. List all sessions with engine.sessions().",
            session_id=session_id,
        )
    return [_one(connection, row) for row in sorted(found, key=lambda row: row.key)]


def _one(connection: Connection, row: SessionRow) -> Whole:
    return Whole(
        row,
        connection.read_records(row.key, 1, row.seq),
        signals.read(connection, row.key, 0),
        [signal.n for signal in signals.mail(connection, row.key, None, None, None)],
        # A pause that someone set directly in the database has no record. Its flag is part of the facts.
        [_named(each) for each in pauses.read(connection, row.key, open_only=False) if each.id != pauses.FLAG],
        blobs.read(connection, checking.names(connection, row.key)),
        asking.all_of(connection, row.key),
        drawers.whole(connection, row.key, row.session_id),
    )


def _named(pause: Pause) -> Pause:
    """Give a pause of everything its own id, because in the other store it is the pause of each session."""
    return replace(pause, id=str(uuid4())) if pause.standing and pause.closed_at is None else pause


def import_(connection: Connection, engine: Engine, wholes: Sequence[Whole]) -> bool:
    wholes = [of_whole(each) for each in wholes]
    for each in wholes:
        check_names(each)
    if any(connection.execute(connection.queries["id_is_taken"], (each.row.session_id,)).get for each in wholes):
        return False
    keys: dict[str, int] = {}
    for each in wholes:
        parent = keys.get(each.row.parent_id) if each.row.parent_id else None
        keys[each.row.session_id] = _import(connection, each, parent)
    standing.read(connection)  # raises an error if it is damaged
    for key in keys.values():
        standing.note(connection, key, sessions.get_by_key(connection, key, engine.present).step, at=engine.now())
    return True


def _import(connection: Connection, session: Whole, parent: int | None) -> int:
    row = one(connection, connection.queries["import_session"], *_facts(session, parent))
    key: int = row[0]
    connection.execute(connection.queries["tag"], (key,))
    first = connection.append(key, session.records)
    connection.executemany(connection.queries["append_signal"], [(key, *astuple(signal)) for signal in session.signals])
    unread = [session.signals[n - 1] for n in session.mail]
    mail = [(key, each.n, each.kind, about(each.kind, each.payload)) for each in unread]
    connection.executemany(connection.queries["deliver"], mail)
    for signal in session.signals:
        if signal.kind == "file" and not signal.redacted:
            files.note(connection, key, signal.n, file_facts(signal.payload))
    connection.executemany(connection.queries["import_pause"], [_pause(key, pause) for pause in session.pauses])
    blobs.keep(connection, key, tuple(session.blobs.items()))
    root = one(connection, connection.queries["root_of"], key)[0]
    for signal in session.signals:
        if once := once_of(signal):
            connection.execute(connection.queries["note_sent"], (root, once, key, signal.n))
    for question in session.questions:
        asking.open_one(connection, key, root, first + question.seq - 1, question)
    for drawer in session.drawers:
        drawers.insert_whole(connection, key, drawer)
    connection.execute(connection.queries["reckon"], (key,))
    return key


def _facts(session: Whole, parent: int | None) -> tuple[object, ...]:
    """Return the bindings of the query `import_session`."""
    row = session.row
    tags = _json(row.tags)
    failure = None if row.failure is None else _json(row.failure)
    progress = None if row.progress is None else _json(row.progress)
    signals = session.signals[-1].digest if session.signals else first_digest(row.session_id)
    given = sums.given(
        row.session_id, row.workflow, row.version, row.owner, tags, row.input_digest, row.created_at, parent,
        row.keep_for, row.budget_usd, row.budget_tokens, row.budget_operations, int(row.cancel_requested),
        int(row.guest), row.queue, row.priority, row.lane,
    )  # fmt: skip
    moved = sums.moved(
        row.seq, row.key_frame, row.digest, row.step, row.visit, row.held_by_guard, row.ended, failure, progress, FENCE
    )
    return (
        row.session_id, parent, row.workflow, row.version, row.owner, tags, row.input_digest, row.created_at,
        row.updated_at, row.keep_for, row.seq, len(session.records), row.key_frame, row.digest, row.step, row.visit,
        row.held_by_guard,
        row.ended, failure, row.pause_requested, row.pause_mode, row.cancel_requested, FENCE, row.waiting,
        row.wakes_at, bool(session.mail), row.frozen, row.crashes, row.spent_usd, row.spent_tokens,
        row.spent_operations, row.budget_usd, row.budget_tokens, row.budget_operations, progress,
        len(session.signals), signals, given, moved, row.guest, row.queue, row.priority, row.lane,
    )  # fmt: skip


def _pause(key: int, pause: Pause) -> tuple[object, ...]:
    pause = replace(pause, standing=False)  # a pause of everything elsewhere becomes this session's own
    closed = None if pause.closed_at is None else sums.closed(pause.closed_at, pause.closed_by)
    return (key, *astuple(pause), sums.opened(key, pause), closed)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
