"""The file of an exported session: its facts, log, signals, pauses, large values and files.

The file contains JSON lines in UTF-8, in this order:

- ``{"pausepoint": "session", "format": 1}``; 2 if the session has children, 3 if there are files, 4 with drawers
- ``{"session": {…}}``: the facts of the session, named as in `SessionRow`; bytes are hex
- ``{"record": {…}}`` for every record of the log; the payload is text, salt and digests are hex
- ``{"signal": {…}}`` for every signal, with ``"unread": true`` next to it if the session has not consumed it yet
- ``{"pause": {…}}`` for every pause, and ``{"question": {…}}`` for every question
- ``{"drawer": {…}}`` for every drawer of the session, with everything in it; bytes are Base64
- the same lines again for every child session, each after its parent
- ``{"blob": hash, "text": …}`` or ``{"blob": hash, "base64": …}`` for every large value that the logs reference
- ``{"file": hash, "base64": …}`` for every piece of every file, in order
- ``{"end": {"lines": n, "sha256": …}}``: the number of lines before this one, and the hash of their bytes

An import checks the file as a whole, the chains of logs and signals, and every large value, and then every name in it
(see `admission`), because the digests do not say who wrote the file. The bytes of a file are never held in memory as a
whole: only their positions in the export are.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from pausepoint.engine import admission
from pausepoint.errors import DamagedRecord, DrawerRefused, FileRefused, InputConflict, PausepointError, VerbRefused
from pausepoint.log.replay import body_of
from pausepoint.log.state import Blob
from pausepoint.model.drawers import StoredDrawer, check_drawers
from pausepoint.model.files import FileFacts, file_facts
from pausepoint.model.questions import changed
from pausepoint.model.records import Record, SignalRecord, first_digest, intact, rechained, signal_intact
from pausepoint.model.sessions import Pause, QuestionChange, QuestionFacts, QuestionStatus, SessionRow
from pausepoint.model.stores import Whole
from pausepoint.name import NAME
from pausepoint.stores.base import Store
from pausepoint.stores.disk import sync_folder
from pausepoint.stores.files import Files, Upload
from pausepoint.threads import to_its_end

ALONE, TREE, FILES, DRAWERS = 1, 2, 3, 4
"""The formats that are written and read. They differ because older versions would mix the sessions of a tree."""

# Facts that apply to one store and one process only.
_LOCAL: dict[str, Any] = {
    "key": 0,
    "holder": None,
    "fence": 1,
    "live": False,
    "parent": None,
    "due": False,
    "signals": 0,
}

# Facts that files of earlier versions lack, with their values at that time.
_LATER: dict[str, Any] = {}

OPEN = (QuestionStatus.WAITING, QuestionStatus.RESUMED)

_encode = msgspec.json.Encoder().encode


class Content(Protocol):
    """The bytes of a file, wherever they are stored."""

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes in pieces, in order. This blocks: call it in a thread."""


class InStore(msgspec.Struct, frozen=True):
    """The bytes of a file of a session in a store."""

    contents: Files
    facts: FileFacts

    def pieces(self) -> Iterator[bytes]:
        return self.contents.pieces(self.facts)


class Enclosed(msgspec.Struct, frozen=True):
    """The bytes of a file in some lines of an export."""

    path: str | Path
    places: list[tuple[int, int]] = []

    def pieces(self) -> Iterator[bytes]:
        with open(self.path, "rb") as file:
            for start, length in self.places:
                file.seek(start)
                yield self._piece(file.read(length))

    def _piece(self, line: bytes) -> bytes:
        try:
            return b64decode(msgspec.json.decode(line, type=dict[str, str])["base64"])
        except (msgspec.MsgspecError, KeyError, ValueError) as error:
            what = f"is damaged: a piece of a file cannot be read ({error}). Export the session again."
            raise _damaged(self.path, what) from error


class Bundle(msgspec.Struct, frozen=True):
    """An exported session with its children.

    ``mail`` are the numbers of the signals that the session has not consumed. ``called`` are its descendants; their
    large values and files are included in ``blobs`` and ``files`` of this bundle.
    """

    facts: dict[str, Any]
    records: list[Record]
    signals: list[SignalRecord] = []
    pauses: list[Pause] = []
    blobs: dict[bytes, bytes] = {}
    mail: list[int] = []
    called: list[Bundle] = []
    questions: list[QuestionFacts] = []
    files: dict[str, Content] = {}
    drawers: list[StoredDrawer] = []

    def to_bytes(self) -> bytes:
        """Return the bytes that `export_session` writes to a file."""
        return b"".join(_encoded(self))

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return str(self.facts["session_id"])

    @property
    def workflow(self) -> str:
        """The name of the session's workflow."""
        return str(self.facts["workflow"])

    @property
    def sessions(self) -> list[Bundle]:
        """The session and its descendants, parents before children."""
        return [self, *self.called]

    def uploads(self) -> list[FileFacts]:
        """Return the files of this session, without those of its children."""
        signals = [each for each in self.signals if each.kind == "file" and not each.redacted]
        return [file_facts(signal.payload) for signal in signals]

    def row(self) -> SessionRow:
        """Return the facts as the row of a session without a hold."""
        row: SessionRow = _struct({**_LATER, **self.facts, **_LOCAL}, SessionRow)
        return row

    def whole(self, blobs: dict[bytes, bytes]) -> Whole:
        """Return the complete session with the large values that it references."""
        row = self.row()
        if row.mail and not self.mail:
            raise VerbRefused(
                f"Session {row.session_id!r} has messages that it has not received, and the file does not say which."
                " Export it again with this version of Pausepoint.",
                session_id=row.session_id, status=row.status.value,
            )  # fmt: skip
        named = {key: blobs[key] for key in named_blobs(self.records)}
        return Whole(row, self.records, self.signals, self.mail, self.pauses, named, self.questions, self.drawers)


async def collect(store: Store, session_id: str) -> Bundle:
    """Read a session and everything that belongs to it from a store."""
    first, *others = [_bundle(each) for each in await store.whole(session_id)]
    first.called.extend(others)
    for other in others:
        first.blobs.update(other.blobs)
    for each in first.sessions:
        if (contents := store.files_of(each.session_id)) is not None:
            first.files.update((file.sha256, InStore(contents, file)) for file in each.uploads())
    return first


def _bundle(whole: Whole) -> Bundle:
    facts = msgspec.to_builtins(whole.row, builtin_types=(bytes,))
    facts = {name: _hex(value) for name, value in facts.items() if name not in _LOCAL}
    needed = named_blobs(whole.records)
    blobs = {key: data for key, data in whole.blobs.items() if key in needed}
    return Bundle(
        facts, whole.records, whole.signals, whole.pauses, blobs, whole.mail, questions=whole.questions,
        drawers=whole.drawers,
    )  # fmt: skip


async def import_(store: Store, bundle: Bundle) -> SessionRow:
    """Import a session and its children into a store that does not have them. No process holds them then.

    Everything stays as it was, except that a child is imported without its parent if the parent is not in the file.
    """
    async with _placed(store, bundle):
        if not await to_its_end(store.import_([each.whole(bundle.blobs) for each in bundle.sessions])):
            raise _conflict(bundle)
    row = await store.get(bundle.session_id)
    assert row is not None, bundle.session_id
    return row


@asynccontextmanager
async def _placed(store: Store, bundle: Bundle) -> AsyncIterator[None]:
    """Store the bytes of the files before their records, and lock them meanwhile so that they are not deleted."""
    wanted = [(each.session_id, file) for each in bundle.sessions for file in each.uploads()]
    placed: list[tuple[str, Upload]] = []
    async with AsyncExitStack() as stack:
        try:
            if wanted and any([await store.get(each.session_id) is not None for each in bundle.sessions]):
                raise _conflict(bundle)  # before any content of another session is touched
            for session_id in dict.fromkeys(session_id for session_id, _ in wanted):
                if not await stack.enter_async_context(_contents_of(store, session_id).reserved()):
                    raise _is_imported(session_id)
            for session_id, file in wanted:
                put = _contents_of(store, session_id).put(
                    bundle.files[file.sha256].pieces(), "import the session again"
                )
                upload = await stack.enter_async_context(put)
                if (upload.sha256, upload.size) != (file.sha256, file.size):
                    raise DamagedRecord(
                        f"File {file.id} ({file.filename}) in the export does not match its hash. Nothing was imported."
                        " Export the session again."
                    )
                placed.append((session_id, upload))
                await to_its_end(upload.keep([file.stored_name]))
            yield
        except BaseException:
            await _withdraw(store, placed)
            raise


async def _withdraw(store: Store, placed: Iterable[tuple[str, Upload]]) -> None:
    """Delete the contents of an import that failed. Keep those of a session that is stored after all.

    Another import may have stored the session, or the task was cancelled after the commit.
    """
    for session_id, upload in placed:
        with suppress(PausepointError):  # a store that cannot be read does not say whether it needs the file
            if await store.get(session_id) is None:
                await upload.withdraw()


def _contents_of(store: Store, session_id: str) -> Files:
    found = store.files_of(session_id)
    if found is None:
        raise FileRefused(
            f"Session {session_id!r} has files, but this store has no folder for files. Import it into a store on"
            " disk.",
            session_id=session_id,
        )
    return found


def _is_imported(session_id: str) -> InputConflict:
    return InputConflict(
        f"Session {session_id!r} is being imported into this store by another process or task. Wait until that"
        " import has ended, or import it under another id with session_id=.",
        session_id=session_id,
    )


def _conflict(bundle: Bundle) -> InputConflict:
    return InputConflict(
        f"Session {bundle.session_id!r}, or one of its children, already exists in this store. Import it under another"
        " id with session_id=.",
        session_id=bundle.session_id,
    )


def renamed(bundle: Bundle, session_id: str) -> Bundle:
    """Return the same session under another id. Its chains start with the id, so they are computed again."""
    if bundle.called:
        raise VerbRefused(
            f"Session {bundle.session_id!r} has children, whose ids are derived from its own, so it cannot be imported"
            " under another id. Import it under its own id, into another store if necessary, and fork it there.",
            session_id=bundle.session_id, status=bundle.row().status.value,
        )  # fmt: skip
    first = first_digest(session_id)
    records, signals = rechained(bundle.records, first), rechained(bundle.signals, first)
    pauses = [replace(pause, id=str(uuid4())) for pause in bundle.pauses]
    facts = bundle.facts | {"session_id": session_id, "digest": records[-1].digest.hex()}
    questions = [_another(question) for question in bundle.questions]
    if facts["waiting"] and any(question.status in OPEN for question in bundle.questions):
        facts["wakes_at"] = 0  # due now, so that its open questions are asked again
    return Bundle(
        facts, records, signals, pauses, bundle.blobs, bundle.mail, questions=questions, files=bundle.files,
        drawers=bundle.drawers,
    )  # fmt: skip


def _another(question: QuestionFacts) -> QuestionFacts:
    """Return a question of a copied session. An open one is cancelled, because the copy asks it again."""
    copy, over = replace(question, id=str(uuid4())), QuestionChange("", QuestionStatus.CANCELLED)
    return changed(copy, over, copy.updated_at) if copy.status in OPEN else copy


def named_blobs(records: Iterable[Record]) -> set[bytes]:
    """Return the hashes of the large values that these records reference."""
    return {bytes.fromhex(hash) for record in records if not record.redacted for hash in _hashes(body_of(record))}


def _hashes(body: Any) -> Iterator[str]:
    return (each.hash for each in admission.structs_in(body) if isinstance(each, Blob))


def in_folder(bundle: Bundle, folder: str | Path | None) -> Bundle:
    """Return the same session with its artifacts in another folder. Raises `FolderRefused` if it needs one."""
    records = admission.in_folder(bundle.records, bundle.session_id, folder)
    return replace(bundle, facts=bundle.facts | {"digest": records[-1].digest.hex()}, records=records)


# writing


def write(bundle: Bundle, path: str | Path) -> Path:
    """Write a session to a file atomically and durably."""
    target = Path(path)
    part = target.with_name(f".{target.name}.{uuid4().hex[:8]}")
    try:
        with open(part, "xb") as file:
            file.writelines(_encoded(bundle))
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
        sync_folder(target.parent)
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
    plain = FILES if bundle.files else TREE if bundle.called else ALONE
    yield {NAME: "session", "format": DRAWERS if any(each.drawers for each in bundle.sessions) else plain}
    for each in bundle.sessions:
        yield {"session": each.facts}
        yield from ({"record": _plain(record)} for record in each.records)
        for signal in each.signals:
            yield {"signal": _plain(signal)} | ({"unread": True} if signal.n in each.mail else {})
        yield from ({"pause": _plain(pause)} for pause in each.pauses)
        yield from ({"question": _plain(question)} for question in each.questions)
        yield from ({"drawer": drawer} for drawer in each.drawers)
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
    """Return a struct as plain data, with a readable payload."""
    found = {name: getattr(struct, name) for name in struct.__struct_fields__}
    if "payload" in found:
        found["payload"] = found["payload"].decode()
    return {name: _hex(value) for name, value in found.items()}


def _hex(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


# reading


def read(path: str | Path) -> Bundle:
    """Read a session from a file and check it. Raises `DamagedRecord` if something is wrong."""
    lines = _proved(path)
    head, *rest = lines
    if head.get(NAME) != "session":
        raise _damaged(path, "is not an exported Pausepoint session. Check the path.")
    if head.get("format") not in (ALONE, TREE, FILES, DRAWERS):
        raise _damaged(
            path, f"has format {head.get('format')!r}, but this version reads up to {DRAWERS}. Use a newer Pausepoint."
        )
    bundle = Bundle(facts={}, records=[])
    for number, line in enumerate(rest, 2):
        try:
            _take(bundle, line, head["format"], path)
        except (msgspec.ValidationError, KeyError, ValueError, TypeError) as error:
            what = f"is damaged: line {number} cannot be read ({error!s:.200}). Export the session again."
            raise _damaged(path, what) from error
    for each in bundle.sessions:
        _prove_chain(each, path)
    for each in bundle.sessions:
        _admit(each, bundle, path)
        _prove_parts(each, bundle, path)
    return bundle


def _admit(each: Bundle, whole: Bundle, path: str | Path) -> None:
    """Check every name in a session, because anyone may have written the file."""
    try:
        admission.check_session(each.row(), each.records, each.signals)
        for record in each.records:
            if not record.redacted:
                admission.check_body(body_of(record))
        for signal in each.signals:
            admission.check_signal(signal, signal.n in each.mail)
        for pause in each.pauses:
            admission.check_pause(pause)
        for question in each.questions:
            admission.check_question(question, len(each.records), len(each.signals))
        check_drawers(each.drawers)
        if each is whole:
            admission.check_tree([(one.session_id, one.facts.get("parent_id")) for one in whole.sessions])
        elif admission.publishes(each.records):
            raise admission.Unsafe(f"the child session {each.session_id!r} has a folder of artifacts")
    except (
        admission.Unsafe,
        DrawerRefused,
        msgspec.MsgspecError,
        LookupError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        said = f"{error!s:.200}".rstrip(".")
        what = f"cannot be imported: {said}. Nothing was imported. Ask its sender for another export."
        raise _damaged(path, what) from error


def _proved(path: str | Path) -> list[dict[str, Any]]:
    """Return the lines of an intact export. For a piece of a file, return only its position."""
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
        if not lines:
            raise _damaged(path, "is not an exported Pausepoint session. Check the path.") from error
        raise _damaged(path, f"is damaged: a line is not a JSON object ({error}). Export the session again.") from error
    except RecursionError as error:
        raise _damaged(path, "is damaged: a line is nested too deep. Export the session again.") from error
    if not lines or end != {"lines": len(lines), "sha256": digest.hexdigest()}:
        raise _damaged(
            path, "is cut off or was changed: its last line does not match the rest. Export the session again."
        )
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
        case {"drawer": drawer}:
            last.drawers.append(msgspec.convert(drawer, StoredDrawer))
        case {"blob": key, **value}:
            if not isinstance(value.get("text", ""), str):
                raise ValueError(f"large value {key} has no text")
            data = value["text"].encode() if "text" in value else b64decode(value["base64"])
            if sha256(data).hexdigest() != key:
                raise ValueError(f"large value {key} does not match its hash")
            bundle.blobs[bytes.fromhex(key)] = data
        case {"file": hash_, "place": place}:
            content = bundle.files.setdefault(hash_, Enclosed(path))
            assert isinstance(content, Enclosed)
            content.places.append(place)
        case _:
            raise ValueError(f"unknown kind of line {next(iter(line), '')!r}")


def _struct(line: dict[str, Any], kind: type[msgspec.Struct]) -> Any:
    """Return a line as a struct. Bytes were written as hex, payloads as text."""
    values = dict(line)
    for each in msgspec.structs.fields(kind):
        value = values.get(each.name)
        if each.type is bytes and isinstance(value, str):
            values[each.name] = value.encode() if each.name == "payload" else bytes.fromhex(value)
    return msgspec.convert(values, kind, builtin_types=(bytes,))


def _prove_chain(bundle: Bundle, path: str | Path) -> None:
    if "session_id" not in bundle.facts or not bundle.records:
        raise _damaged(path, "is damaged: it has no session, or a session without records. Export the session again.")
    previous = first_digest(bundle.session_id)
    for expected, record in enumerate(bundle.records, 1):
        if record.seq != expected or not intact(record, previous):
            what = f"record {expected} is missing or does not match its digest"
            raise _damaged(path, f"is damaged: {what}. Export the session again.")
        previous = record.digest
    previous = first_digest(bundle.session_id)
    for expected, signal in enumerate(bundle.signals, 1):
        if signal.n != expected or not signal_intact(signal, previous):
            what = f"signal {expected} is missing or does not match its digest"
            raise _damaged(path, f"is damaged: {what}. Export the session again.")
        previous = signal.digest


def _prove_parts(bundle: Bundle, whole: Bundle, path: str | Path) -> None:
    """Check that the large values and files that a session names are in the export."""
    missing = named_blobs(bundle.records) - whole.blobs.keys()
    if missing:
        raise _damaged(path, f"is damaged: large value {min(missing).hex()} is missing. Export the session again.")
    for file in bundle.uploads():
        if file.sha256 not in whole.files:
            raise _damaged(path, f"is damaged: file {file.id} ({file.filename}) is missing. Export the session again.")


def _damaged(path: str | Path, what: str) -> DamagedRecord:
    return DamagedRecord(f"The file {path} {what}", path=str(path))
