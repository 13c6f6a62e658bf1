"""One session as one file: its facts, log, signals, pauses and large values, in a form that outlives this version.

JSON lines in UTF-8, one thing per line, in this order:

- ``{"pausepoint": "session", "format": 1}``, or format 2 if the session has called others, or 3 if there are files
- ``{"session": {…}}``: the facts about the session, as `SessionRow` names them; bytes as hex
- ``{"record": {…}}`` for every record of the log; the payload is a text, salt and digests are hex
- ``{"signal": {…}}`` for everything that came from outside, with ``"unread": true`` beside it if the session has yet
  to take it in; ``{"pause": {…}}`` for every pause record, ``{"question": {…}}`` for what became of every question
- the last four again for every session that it called, each after the one that called it
- ``{"blob": hash, "text": …}`` or ``{"blob": hash, "base64": …}`` for every large value that the logs name
- ``{"file": hash, "base64": …}`` for every piece of every file, one after another
- ``{"end": {"lines": n, "sha256": …}}``: how many lines are before this one, and the hash of their bytes

Reading proves the file as a whole, the chains of logs and signals, and every large value. The bytes of files are never
in memory as a whole: what is read of them is where they are.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from pausepoint.engine.queries import Queries
from pausepoint.errors import DamagedRecord, FileRefused, InputConflict, VerbRefused
from pausepoint.log.replay import body_of
from pausepoint.log.state import Blob
from pausepoint.model.files import FileFacts, file_facts
from pausepoint.model.ids import check_session_id
from pausepoint.model.questions import changed
from pausepoint.model.records import Record, SignalRecord, first_digest, intact, rechained, signal_intact
from pausepoint.model.sessions import Pause, QuestionChange, QuestionFacts, QuestionStatus, SessionRow, Whole
from pausepoint.model.views import SessionInfo
from pausepoint.name import NAME
from pausepoint.runtime.files import damaged
from pausepoint.stores.base import Store
from pausepoint.stores.disk import PIECE, Folder, Upload
from pausepoint.threads import in_thread

ALONE, TREE, FILES = 1, 2, 3
"""The formats that are written and read. Whoever knows only the first would mix the sessions of a tree."""

# What is true of one store and one process only.
_LOCAL: dict[str, Any] = {"key": 0, "holder": None, "fence": 1, "live": False, "parent": None, "due": False}

# Facts that files of earlier versions do not have, and what was true then.
_LATER: dict[str, Any] = {}

OPEN = (QuestionStatus.WAITING, QuestionStatus.RESUMED)

_encode = msgspec.json.Encoder().encode


class Content(Protocol):
    """The bytes of a file, wherever they are."""

    def pieces(self) -> Iterator[bytes]:
        """One after another."""


@dataclass(frozen=True)
class OnDisk:
    """The bytes of a file, in the folder of its session."""

    session_id: str
    folder: Folder
    facts: FileFacts

    def pieces(self) -> Iterator[bytes]:
        digest = sha256()
        try:
            with self.folder.read(self.facts.stored_name) as file:
                while piece := file.read(PIECE):
                    digest.update(piece)
                    yield piece
        except OSError as exc:
            raise damaged(self.session_id, self.facts, f"cannot be read ({exc.strerror or exc})") from exc
        if digest.hexdigest() != self.facts.sha256:
            raise damaged(self.session_id, self.facts, "does not match its hash")


@dataclass(frozen=True)
class Enclosed:
    """The bytes of a file, in some lines of the file that a session was written to."""

    path: str | Path
    places: list[tuple[int, int]] = field(default_factory=list)

    def pieces(self) -> Iterator[bytes]:
        with open(self.path, "rb") as file:
            for start, length in self.places:
                file.seek(start)
                yield b64decode(msgspec.json.decode(file.read(length), type=dict[str, str])["base64"])


@dataclass(frozen=True)
class Bundle:
    """A session as it was when it was written to a file. ``mail`` are the numbers of the signals that it has not
    received, ``called`` the sessions below it, whose large values and files are among its own.
    """

    facts: dict[str, Any]
    records: list[Record]
    signals: list[SignalRecord] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    blobs: dict[bytes, bytes] = field(default_factory=dict)
    mail: list[int] = field(default_factory=list)
    called: list[Bundle] = field(default_factory=list)
    questions: list[QuestionFacts] = field(default_factory=list)
    files: dict[str, Content] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return what `export_session` writes to a file."""
        return b"".join(_encoded(self))

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return str(self.facts["session_id"])

    @property
    def workflow(self) -> str:
        """The name of its workflow."""
        return str(self.facts["workflow"])

    @property
    def sessions(self) -> list[Bundle]:
        """The session and those below it, who calls before who is called."""
        return [self, *self.called]

    def uploads(self) -> list[FileFacts]:
        """The files of this very session."""
        signals = [each for each in self.signals if each.kind == "file" and not each.redacted]
        return [file_facts(signal.payload) for signal in signals]

    def row(self) -> SessionRow:
        """The facts, as of a session that nobody holds."""
        row: SessionRow = _struct({**_LATER, **self.facts, **_LOCAL}, SessionRow)
        return row

    def whole(self, blobs: dict[bytes, bytes]) -> Whole:
        """All of it, with what it needs of the large values."""
        row = self.row()
        if row.mail and not self.mail:
            raise VerbRefused(
                f"session {row.session_id!r} has messages that it has not received, and the file does not say which;"
                " write it to a file again, with this version",
                session_id=row.session_id, status=row.status.value,
            )  # fmt: skip
        named = {key: blobs[key] for key in named_blobs(self.records)}
        return Whole(row, self.records, self.signals, self.mail, self.pauses, named, self.questions)


async def collect(store: Store, session_id: str) -> Bundle:
    """Read a session, everything that belongs to it, from a store."""
    first, *others = [_bundle(each) for each in await store.whole(session_id)]
    first.called.extend(others)
    for other in others:
        first.blobs.update(other.blobs)
    for each in first.sessions:
        if (folder := store.folder(each.session_id)) is not None:
            kept = [OnDisk(each.session_id, Folder(folder / "files"), file) for file in each.uploads()]
            first.files.update((file.facts.sha256, file) for file in kept)
    return first


def _bundle(whole: Whole) -> Bundle:
    facts = msgspec.to_builtins(whole.row, builtin_types=(bytes,))
    facts = {name: _hex(value) for name, value in facts.items() if name not in _LOCAL}
    needed = named_blobs(whole.records)
    blobs = {key: data for key, data in whole.blobs.items() if key in needed}
    return Bundle(facts, whole.records, whole.signals, whole.pauses, blobs, whole.mail, questions=whole.questions)


async def import_(store: Store, bundle: Bundle) -> SessionRow:
    """Put a session, and those that it called, into a store that does not have them; nobody holds them then.

    Everything is as it was, except that one which was called comes without the one that called it, unless that one
    is in the file.
    """
    async with _placed(store, bundle):
        if not await store.import_([each.whole(bundle.blobs) for each in bundle.sessions]):
            raise _conflict(bundle)
    row = await store.get(bundle.session_id)
    assert row is not None, bundle.session_id
    return row


@asynccontextmanager
async def _placed(store: Store, bundle: Bundle) -> AsyncIterator[None]:
    """The bytes of the files lie where they belong before anything says so. Nobody clears them meanwhile."""
    wanted = [(each.session_id, file) for each in bundle.sessions for file in each.uploads()]
    if wanted and any([await store.get(each.session_id) is not None for each in bundle.sessions]):
        raise _conflict(bundle)  # before anything in the folder of another session is touched
    placed: list[tuple[Upload, Folder, str]] = []
    try:
        for session_id, file in wanted:
            folder = _folder_of(store, session_id)
            upload = await in_thread(_place, folder, file, bundle.files[file.sha256])
            placed.append((upload, folder, file.stored_name))
        yield
    except BaseException:
        for _, folder, name in placed:
            folder.remove(name)
        raise
    finally:
        for upload, _, _ in placed:
            upload.close()


def _folder_of(store: Store, session_id: str) -> Folder:
    found = store.folder(session_id)
    if found is None:
        raise FileRefused(
            f"session {session_id!r} has files, and this store has no place for any; take it in on disk",
            session_id=session_id,
        )
    return Folder(found / "files")


def _place(folder: Folder, file: FileFacts, content: Content) -> Upload:
    upload = Upload(folder)
    try:
        upload.begin()
        for piece in content.pieces():
            upload.write(piece)
        if (upload.sha256, upload.size) != (file.sha256, file.size):
            raise DamagedRecord(f"the file {file.id} ({file.filename}) does not match its hash; nothing was taken in")
        upload.finish()
        upload.publish(file.stored_name, replace=True)
    except BaseException:
        upload.close()
        raise
    return upload


def _conflict(bundle: Bundle) -> InputConflict:
    return InputConflict(
        f"session {bundle.session_id!r}, or one that it called, is in this store already; look at the one that is"
        " there, or take this one in under another id with session_id= (--session-id)",
        session_id=bundle.session_id,
    )


def renamed(bundle: Bundle, session_id: str) -> Bundle:
    """The same session under another id: its chains begin with it, so they are made anew."""
    if bundle.called:
        raise VerbRefused(
            f"session {bundle.session_id!r} has called others, whose ids are made of its own; take it in under that id,"
            " in another store if this one has it, and fork it there",
            session_id=bundle.session_id, status=bundle.row().status.value,
        )  # fmt: skip
    first = first_digest(session_id)
    records, signals = rechained(bundle.records, first), rechained(bundle.signals, first)
    pauses = [replace(pause, id=str(uuid4())) for pause in bundle.pauses]
    facts = bundle.facts | {"session_id": session_id, "digest": records[-1].digest.hex()}
    questions = [_another(question) for question in bundle.questions]
    if facts["waiting"] and any(question.status in OPEN for question in bundle.questions):
        facts["wakes_at"] = 0  # due: what it waits for is to be asked anew
    return Bundle(
        facts, records, signals, pauses, bundle.blobs, bundle.mail, questions=questions, files=bundle.files
    )  # fmt: skip


def _another(question: QuestionFacts) -> QuestionFacts:
    """Nobody can have seen what a copy asks: what is open is asked anew."""
    copy, over = replace(question, id=str(uuid4())), QuestionChange("", QuestionStatus.CANCELLED)
    return changed(copy, over, copy.updated_at) if copy.status in OPEN else copy


def named_blobs(records: Iterable[Record]) -> set[bytes]:
    """The hashes of the large values that these records name."""
    return {bytes.fromhex(hash) for record in records if not record.redacted for hash in _hashes(body_of(record))}


def _hashes(value: Any) -> Iterator[str]:
    if isinstance(value, Blob):
        yield value.hash
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _hashes(getattr(value, name))
    elif isinstance(value, dict):
        yield from (hash for part in value.values() for hash in _hashes(part))
    elif isinstance(value, list | tuple):
        yield from (hash for part in value for hash in _hashes(part))


# writing


def write(bundle: Bundle, path: str | Path) -> Path:
    """Write a session to a file: all of it or nothing, and on disk when this returns."""
    target = Path(path)
    part = target.with_name(f".{target.name}.{uuid4().hex[:8]}")
    try:
        with open(part, "xb") as file:
            file.writelines(_encoded(bundle))
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return target


def _encoded(bundle: Bundle) -> Iterator[bytes]:
    digest, count = sha256(), 0
    for count, each in enumerate(_lines(bundle), 1):  # noqa: B007 (how many there are)
        line = _encode(each) + b"\n"
        digest.update(line)
        yield line
    yield _encode({"end": {"lines": count, "sha256": digest.hexdigest()}}) + b"\n"


def _lines(bundle: Bundle) -> Iterator[dict[str, Any]]:
    yield {NAME: "session", "format": FILES if bundle.files else TREE if bundle.called else ALONE}
    for each in bundle.sessions:
        yield {"session": each.facts}
        yield from ({"record": _plain(record)} for record in each.records)
        for signal in each.signals:
            yield {"signal": _plain(signal)} | ({"unread": True} if signal.n in each.mail else {})
        yield from ({"pause": _plain(pause)} for pause in each.pauses)
        yield from ({"question": _plain(question)} for question in each.questions)
    for key, data in sorted(bundle.blobs.items()):
        try:
            yield {"blob": key.hex(), "text": data.decode()}
        except UnicodeDecodeError:
            yield {"blob": key.hex(), "base64": b64encode(data).decode()}
    for hash_, content in sorted(bundle.files.items()):
        there = False
        for piece in content.pieces():
            there = True
            yield {"file": hash_, "base64": b64encode(piece).decode()}
        if not there:
            yield {"file": hash_, "base64": ""}


def _plain(struct: msgspec.Struct) -> dict[str, Any]:
    """A struct as a line; its payload stays readable."""
    found = {name: getattr(struct, name) for name in struct.__struct_fields__}
    if "payload" in found:
        found["payload"] = found["payload"].decode()
    return {name: _hex(value) for name, value in found.items()}


def _hex(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


# reading


def read(path: str | Path) -> Bundle:
    """Read a session from a file and prove it. Raises `DamagedRecord`, saying what is wrong."""
    lines = _proved(path)
    head, *rest = lines
    if head.get(NAME) != "session":
        raise _damaged(path, "is no session of Pausepoint; its first line says what it is")
    if head.get("format") not in (ALONE, TREE, FILES):
        raise _damaged(
            path, f"has the format {head.get('format')!r}, this version reads {FILES}; use a newer Pausepoint"
        )
    bundle = Bundle(facts={}, records=[])
    for number, line in enumerate(rest, 2):
        try:
            _take(bundle, line, head["format"], path)
        except (msgspec.ValidationError, KeyError, ValueError, TypeError) as error:
            raise _damaged(path, f"has a line {number} that cannot be read: {error}") from error
    for each in bundle.sessions:
        _prove_chain(each, bundle, path)
    return bundle


def _proved(path: str | Path) -> list[dict[str, Any]]:
    """The lines of a file that is whole. Of a piece of a file, only where it is."""
    lines: list[dict[str, Any]] = []
    digest, last, start, place = sha256(), b"", 0, 0
    try:
        with open(path, "rb") as file:
            for line in file:
                if line.rstrip(b"\n"):
                    if last:
                        digest.update(last)
                        lines.append(_line(last, start))
                    last, start = line, place
                place += len(line)
        end = msgspec.json.decode(last, type=dict[str, Any]).get("end")
    except msgspec.MsgspecError as error:
        raise _damaged(path, f"has a line that is no JSON object: {error}") from error
    if not lines or end != {"lines": len(lines), "sha256": digest.hexdigest()}:
        raise _damaged(path, "is cut off or was changed: its last line does not match the rest")
    return lines


def _line(line: bytes, start: int) -> dict[str, Any]:
    found = msgspec.json.decode(line, type=dict[str, Any])
    return {"file": found["file"], "place": (start, len(line))} if "file" in found else found


def _take(bundle: Bundle, line: dict[str, Any], format: int, path: str | Path) -> None:
    last = bundle.sessions[-1]
    match line:
        case {"session": facts} if not last.facts:
            last.facts.update(facts)
        case {"session": facts} if format != ALONE:
            bundle.called.append(Bundle(dict(facts), []))
        case {"record": record}:
            last.records.append(_struct(record, Record))
        case {"signal": signal}:
            last.signals.append(_struct(signal, SignalRecord))
            if line.get("unread"):
                last.mail.append(last.signals[-1].n)
        case {"pause": pause}:
            last.pauses.append(_struct(pause, Pause))
        case {"question": question}:
            last.questions.append(_struct(question, QuestionFacts))
        case {"blob": key, **value}:
            data = value["text"].encode() if "text" in value else b64decode(value["base64"])
            if sha256(data).hexdigest() != key:
                raise ValueError(f"the large value {key} does not match its hash")
            bundle.blobs[bytes.fromhex(key)] = data
        case {"file": hash_, "place": place}:
            content = bundle.files.setdefault(hash_, Enclosed(path))
            assert isinstance(content, Enclosed)
            content.places.append(place)
        case _:
            raise ValueError(f"nothing is known by the name {next(iter(line), '')!r}")


def _struct(line: dict[str, Any], kind: type[msgspec.Struct]) -> Any:
    """A line as a struct: bytes were written as hex, payloads as texts."""
    values = dict(line)
    for each in msgspec.structs.fields(kind):
        value = values.get(each.name)
        if each.type is bytes and isinstance(value, str):
            values[each.name] = value.encode() if each.name == "payload" else bytes.fromhex(value)
    return msgspec.convert(values, kind, builtin_types=(bytes,))


def _prove_chain(bundle: Bundle, whole: Bundle, path: str | Path) -> None:
    if "session_id" not in bundle.facts or not bundle.records:
        raise _damaged(path, "has no session, or one without records")
    previous = first_digest(bundle.session_id)
    for expected, record in enumerate(bundle.records, 1):
        if record.seq != expected or not intact(record, previous):
            raise _damaged(path, f"has a record {expected} that is missing or does not match its digest")
        previous = record.digest
    previous = first_digest(bundle.session_id)
    for expected, signal in enumerate(bundle.signals, 1):
        if signal.n != expected or not signal_intact(signal, previous):
            raise _damaged(path, f"has a signal {expected} that is missing or does not match its digest")
        previous = signal.digest
    missing = named_blobs(bundle.records) - whole.blobs.keys()
    if missing:
        raise _damaged(path, f"lacks the large value {min(missing).hex()}")
    for file in bundle.uploads():
        if file.sha256 not in whole.files:
            raise _damaged(path, f"lacks the file {file.id} ({file.filename})")


def _damaged(path: str | Path, what: str) -> DamagedRecord:
    return DamagedRecord(f"the file {path} {what}", path=str(path))


class Transfer(Queries):
    """The verbs that write a session to a file and read it from one."""

    async def export_session(self, session_id: str, path: str | Path | None = None) -> Bundle:
        """Return a session, and those that it called, as a `Bundle`; with ``path``, write it to that file as well.

        Works in any status and changes nothing. A file that is there is replaced, and never left half written. Without
        a path, `Bundle.to_bytes` gives what the file would contain.
        """
        self._check_open()
        found = await collect(self.store, check_session_id(session_id))
        if path is not None:
            await asyncio.to_thread(write, found, path)
        return found

    async def import_session(self, path: str | Path, *, session_id: str | None = None) -> SessionInfo:
        """Take in a session from such a file, as it was then; nobody drives it until it is resumed, or due.

        Everything in the file is proved first (`DamagedRecord`). ``session_id``: under another id than its own. An id
        that is taken is an `InputConflict`, and nothing is stored.
        """
        self._check_open()
        found = await asyncio.to_thread(read, path)
        if session_id is not None and session_id != found.session_id:
            found = renamed(found, check_session_id(session_id))
        row = await import_(self.store, found)
        self.driver.on_change()  # it may be due
        return self._info(row)
