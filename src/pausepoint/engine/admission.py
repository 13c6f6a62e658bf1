"""Checks an exported session before anything of it is stored, and moves its artifacts to a folder of the importer.

The digests of an export are not keyed: they prove that the file is complete, not who wrote it. So every name in it is
checked as if a stranger had chosen it: ids of sessions, files, pauses and questions, paths of artifacts, hashes, and
the numbers by which one part refers to another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from pausepoint.clock import LATEST
from pausepoint.definition.artifacts import unfit_file
from pausepoint.errors import FolderRefused, PausepointError
from pausepoint.log import events as history
from pausepoint.log.replay import EventBody, KeyBody, Origin, WaitBody, body_of, fold
from pausepoint.log.state import Blob
from pausepoint.log.trail import PublishedFile, Trail
from pausepoint.model.files import file_facts, is_hash, unfit_facts
from pausepoint.model.ids import check_texts, is_session_id, shortened
from pausepoint.model.questions import about
from pausepoint.model.queues import check_priority, check_queue
from pausepoint.model.records import Record, SignalRecord, first_digest, rechained, resealed
from pausepoint.model.sessions import Pause, QuestionFacts, SessionRow

LARGEST = 2**63 - 1
"""The largest number that the store can hold."""

TIMES = ("at", "created_at", "updated_at", "wakes_at", "expires_at", "closed_at")


class Unsafe(Exception):
    """Something in an export cannot be stored. The message completes "It cannot be imported: …"."""


def structs_in(value: Any) -> Iterator[msgspec.Struct]:
    """Yield every struct in a decoded value, outermost first."""
    if isinstance(value, msgspec.Struct):
        yield value
        for name in value.__struct_fields__:
            yield from structs_in(getattr(value, name))
    elif isinstance(value, dict):
        for part in value.values():
            yield from structs_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from structs_in(part)


# names


def check_session(row: SessionRow, records: list[Record], signals: list[SignalRecord]) -> None:
    """Check the facts of a session, and that its log can be read from its key frame on."""
    _check_id("session", row.session_id)
    if row.parent_id is not None:
        _check_id("session", row.parent_id)
    _check_numbers(row)
    _check_turn(row)
    _check_texts(owner=row.owner, lane=row.lane, **{f"tag {number}": tag for number, tag in enumerate(row.tags, 1)})
    if (row.seq, row.digest) != (len(records), records[-1].digest):
        raise Unsafe(f"the facts of session {row.session_id!r} do not match the end of its log")
    if not 1 <= row.key_frame <= row.seq:
        raise Unsafe(f"session {row.session_id!r} names record {row.key_frame} as its key frame, which does not exist")
    for each in (*records, *signals):
        _check_numbers(each)
    _check_readable(row, records, signals)


def _check_turn(row: SessionRow) -> None:
    try:
        check_queue(row.queue)
        check_priority(row.priority)
    except ValueError as error:
        raise Unsafe(str(error).rstrip(".")) from error


def _check_readable(row: SessionRow, records: list[Record], signals: list[SignalRecord]) -> None:
    """Check that state and history can be derived, because every later look at the session does so."""
    try:
        fold(records[row.key_frame - 1 :])
        for _ in history.events(row.session_id, history.Cursor(0), records, signals):
            pass
    except (PausepointError, LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise Unsafe(f"the log of session {row.session_id!r} contradicts itself ({shortened(str(error))})") from error


def check_body(body: Any) -> None:
    """Check the names in the decoded payload of a record."""
    for each in structs_in(body):
        _check_numbers(each)
        if isinstance(each, Blob):
            _check_hash(each.hash)
        elif isinstance(each, PublishedFile):
            _check_file(each.path, [each.sha256])
        elif isinstance(each, Trail):
            for path, hashes in each.known.items():
                _check_file(path, hashes)
        for id in _ids_in(each):
            _check_id("session", id)


def _ids_in(struct: msgspec.Struct) -> Iterator[str]:
    """Yield the ids of other sessions that a part of a record names."""
    if isinstance(struct, WaitBody) and struct.child:
        yield struct.child
    elif isinstance(struct, EventBody) and struct.noticed:
        yield struct.noticed
    elif isinstance(struct, Origin):
        yield struct.session_id
    elif isinstance(struct, Trail) and struct.rebuilt_from:
        yield struct.rebuilt_from


def check_signal(signal: SignalRecord, unread: bool) -> None:
    """Check the names in a signal: those of a file, or what an unread one is about."""
    if unread:
        about(signal.kind, signal.payload)
    if signal.kind != "file" or signal.redacted:
        return
    facts = file_facts(signal.payload)
    if problem := unfit_facts(facts):
        raise Unsafe(f"file {shortened(facts.id)} cannot be stored: {problem}")


def check_pause(pause: Pause) -> None:
    """Check the id and the texts of a pause."""
    _check_uuid("pause", pause.id)
    _check_numbers(pause)
    _check_texts(by=pause.by, reason=pause.reason, closed_by=pause.closed_by)


def check_question(question: QuestionFacts, records: int, signals: int) -> None:
    """Check the id of a question, and that it names a record and a signal of its own session."""
    _check_uuid("question", question.id)
    _check_numbers(question)
    if not 1 <= question.seq <= records or not 1 <= (question.answer or 1) <= signals + (question.answer is None):
        raise Unsafe(f"question {question.id} names a record or an answer that its session does not have")


def check_tree(sessions: list[tuple[str, str | None]]) -> None:
    """Check that each session after the first is a child of an earlier one, and that no id occurs twice.

    ``sessions`` are the ids, each with the id of its parent.
    """
    known: set[str] = set()
    for id, parent in sessions:
        if id in known:
            raise Unsafe(f"session {id!r} occurs twice")
        if known and parent not in known:
            raise Unsafe(f"session {id!r} is not a child of another session in the file")
        known.add(id)


def _check_id(what: str, id: str) -> None:
    if not is_session_id(id):
        raise Unsafe(f"{shortened(id)} is not a valid {what} id")


def _check_uuid(what: str, id: str) -> None:
    try:
        valid = str(UUID(id)) == id
    except ValueError:
        valid = False
    if not valid:
        raise Unsafe(f"{shortened(id)} is not a valid {what} id")


def _check_hash(text: str) -> None:
    if not is_hash(text):
        raise Unsafe(f"{shortened(text)} is not a hash")


def _check_file(path: str, hashes: Iterable[str]) -> None:
    if problem := unfit_file(path):
        raise Unsafe(f"an artifact has the path {shortened(path)}, but {problem}")
    for each in hashes:
        _check_hash(each)


def _check_texts(**given: object) -> None:
    try:
        check_texts(**given)
    except ValueError as error:
        raise Unsafe(str(error).rstrip(".")) from error


def _check_numbers(struct: msgspec.Struct) -> None:
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if isinstance(value, int) and not -LARGEST <= value <= (LATEST if name in TIMES else LARGEST):
            raise Unsafe(f"the number {value} ({name}) is too large")


# artifacts


def publishes(records: Iterable[Record]) -> bool:
    """Return whether a session has a folder of artifacts, according to its records."""
    return any(_has_trail(record) for record in records)


def _has_trail(record: Record) -> bool:
    if record.kind != "key" or record.redacted:
        return False
    body: KeyBody = body_of(record)
    return body.trail is not None


def in_folder(records: list[Record], session_id: str, folder: str | Path | None) -> list[Record]:
    """Return the records of a session with its artifacts in ``folder``, never in the folder that the sender used.

    Raises `FolderRefused` if the folder is missing, or given for a session without artifacts.
    """
    found = publishes(records)
    if found and folder is None:
        raise FolderRefused(
            f"Session {session_id!r} publishes artifacts and needs a folder on this machine; the folder of its sender"
            " is not used. Nothing was imported. Pass folder='output/...'. If you have the artifact files, copy them"
            " there first; otherwise write them again after the import with restore().",
            session_id=session_id, path="",
        )  # fmt: skip
    if folder is not None and not found:
        raise FolderRefused(
            f"Session {session_id!r} publishes no artifacts. Nothing was imported. Leave out folder=.",
            session_id=session_id, path=str(folder),
        )  # fmt: skip
    if not found:
        return records
    moved = [_moved(record, str(Path(str(folder)).absolute())) for record in records]
    return rechained(moved, first_digest(session_id))


def _moved(record: Record, folder: str) -> Record:
    """Return a key frame with another artifact folder. Everything else in it stays as it is, byte by byte."""
    if not _has_trail(record):
        return record
    body = msgspec.json.decode(record.payload, type=dict[str, msgspec.Raw])
    trail = msgspec.json.decode(body["trail"], type=dict[str, msgspec.Raw])
    trail["folder"] = msgspec.Raw(msgspec.json.encode(folder))
    body["trail"] = msgspec.Raw(msgspec.json.encode(trail))
    return resealed(record, msgspec.json.encode(body))
