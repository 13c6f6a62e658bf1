"""One session as one file: its facts, log, signals, pauses and large values, in a form that outlives this version.

JSON lines in UTF-8, one thing per line, in this order:

- ``{"holdfast": "session", "format": 1}``, or format 2 if the session has called others
- ``{"session": {…}}``: the facts about the session, as `SessionRow` names them; bytes as hex
- ``{"record": {…}}`` for every record of the log; the payload is a text, salt and digests are hex
- ``{"signal": {…}}`` for everything that came from outside, with ``"unread": true`` beside it if the session has yet
  to take it in; ``{"pause": {…}}`` for every pause record
- the last three again for every session that it called, each after the one that called it
- ``{"blob": hash, "text": …}`` or ``{"blob": hash, "base64": …}`` for every large value that the logs name
- ``{"end": {"lines": n, "sha256": …}}``: how many lines are before this one, and the hash of their bytes

Reading proves the file as a whole, the chains of logs and signals, and every large value.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from holdfast.errors import DamagedRecord, InputConflict, VerbRefused
from holdfast.model import (
    Pause,
    Record,
    SessionRow,
    SignalRecord,
    Whole,
    first_digest,
    intact,
    rechained,
    signal_intact,
)
from holdfast.replay import body_of
from holdfast.state import Blob
from holdfast.store import Store

ALONE, TREE = 1, 2
"""The formats that are written and read. Whoever knows only the first would mix the sessions of a tree."""

# What is true of one store and one process only.
_LOCAL: dict[str, Any] = {"key": 0, "holder": None, "fence": 1, "live": False, "parent": None, "due": False}

# Facts that files of earlier versions do not have, and what was true then.
_LATER: dict[str, Any] = {}

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Bundle:
    """A session as it was when it was written to a file. ``mail`` are the numbers of the signals that it has not
    received, ``called`` the sessions below it, whose large values are among its own.
    """

    facts: dict[str, Any]
    records: list[Record]
    signals: list[SignalRecord] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    blobs: dict[bytes, bytes] = field(default_factory=dict)
    mail: list[int] = field(default_factory=list)
    called: list[Bundle] = field(default_factory=list)

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
        return Whole(row, self.records, self.signals, self.mail, self.pauses, named)


async def collect(store: Store, session_id: str) -> Bundle:
    """Read a session, everything that belongs to it, from a store."""
    first, *others = [_bundle(each) for each in await store.whole(session_id)]
    first.called.extend(others)
    for other in others:
        first.blobs.update(other.blobs)
    return first


def _bundle(whole: Whole) -> Bundle:
    facts = msgspec.to_builtins(whole.row, builtin_types=(bytes,))
    facts = {name: _hex(value) for name, value in facts.items() if name not in _LOCAL}
    needed = named_blobs(whole.records)
    blobs = {key: data for key, data in whole.blobs.items() if key in needed}
    return Bundle(facts, whole.records, whole.signals, whole.pauses, blobs, whole.mail)


async def restore(store: Store, bundle: Bundle) -> SessionRow:
    """Put a session, and those that it called, into a store that does not have them; nobody holds them then.

    Everything is as it was, except that one which was called comes without the one that called it, unless that one
    is in the file.
    """
    if not await store.restore([each.whole(bundle.blobs) for each in bundle.sessions]):
        raise InputConflict(
            f"session {bundle.session_id!r}, or one that it called, is in this store already; look at the one that is"
            " there, or take this one in under another id",
            session_id=bundle.session_id,
        )
    row = await store.get(bundle.session_id)
    assert row is not None, bundle.session_id
    return row


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
    return Bundle(facts, records, signals, pauses, bundle.blobs, bundle.mail)


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
            file.write(to_bytes(bundle))
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return target


def to_bytes(bundle: Bundle) -> bytes:
    """What stands in the file."""
    lines = [_encode(line) + b"\n" for line in _lines(bundle)]
    end = {"end": {"lines": len(lines), "sha256": sha256(b"".join(lines)).hexdigest()}}
    return b"".join(lines) + _encode(end) + b"\n"


def _lines(bundle: Bundle) -> Iterator[dict[str, Any]]:
    yield {"holdfast": "session", "format": TREE if bundle.called else ALONE}
    for each in bundle.sessions:
        yield {"session": each.facts}
        yield from ({"record": _plain(record)} for record in each.records)
        for signal in each.signals:
            yield {"signal": _plain(signal)} | ({"unread": True} if signal.n in each.mail else {})
        yield from ({"pause": _plain(pause)} for pause in each.pauses)
    for key, data in sorted(bundle.blobs.items()):
        try:
            yield {"blob": key.hex(), "text": data.decode()}
        except UnicodeDecodeError:
            yield {"blob": key.hex(), "base64": b64encode(data).decode()}


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
    lines = _proved(Path(path).read_bytes(), path)
    head, *rest = lines
    if head.get("holdfast") != "session":
        raise _damaged(path, "is no session of Holdfast; its first line says what it is")
    if head.get("format") not in (ALONE, TREE):
        raise _damaged(path, f"has the format {head.get('format')!r}, this version reads {TREE}; use a newer Holdfast")
    bundle = Bundle(facts={}, records=[])
    for number, line in enumerate(rest, 2):
        try:
            _take(bundle, line, head["format"])
        except (msgspec.ValidationError, KeyError, ValueError, TypeError) as error:
            raise _damaged(path, f"has a line {number} that cannot be read: {error}") from error
    for each in bundle.sessions:
        _prove_chain(each, bundle.blobs, path)
    return bundle


def _proved(data: bytes, path: str | Path) -> list[dict[str, Any]]:
    body, _, last = data.rstrip(b"\n").rpartition(b"\n")
    try:
        end = msgspec.json.decode(last, type=dict[str, Any]).get("end")
        lines = [msgspec.json.decode(line, type=dict[str, Any]) for line in body.split(b"\n")]
    except msgspec.MsgspecError as error:
        raise _damaged(path, f"has a line that is no JSON object: {error}") from error
    if not isinstance(end, dict) or end != {"lines": len(lines), "sha256": sha256(body + b"\n").hexdigest()}:
        raise _damaged(path, "is cut off or was changed: its last line does not match the rest")
    return lines


def _take(bundle: Bundle, line: dict[str, Any], format: int) -> None:
    last = bundle.sessions[-1]
    match line:
        case {"session": facts} if not last.facts:
            last.facts.update(facts)
        case {"session": facts} if format == TREE:
            bundle.called.append(Bundle(dict(facts), []))
        case {"record": record}:
            last.records.append(_struct(record, Record))
        case {"signal": signal}:
            last.signals.append(_struct(signal, SignalRecord))
            if line.get("unread"):
                last.mail.append(last.signals[-1].n)
        case {"pause": pause}:
            last.pauses.append(_struct(pause, Pause))
        case {"blob": key, **value}:
            data = value["text"].encode() if "text" in value else b64decode(value["base64"])
            if sha256(data).hexdigest() != key:
                raise ValueError(f"the large value {key} does not match its hash")
            bundle.blobs[bytes.fromhex(key)] = data
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


def _prove_chain(bundle: Bundle, blobs: dict[bytes, bytes], path: str | Path) -> None:
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
    missing = named_blobs(bundle.records) - blobs.keys()
    if missing:
        raise _damaged(path, f"lacks the large value {min(missing).hex()}")


def _damaged(path: str | Path, what: str) -> DamagedRecord:
    return DamagedRecord(f"the file {path} {what}", path=str(path))
