"""One session as one file: its facts, log, signals, pauses and large values, in a form that outlives this version.

JSON lines in UTF-8, one thing per line, in this order:

- ``{"holdfast": "session", "format": 1}``
- ``{"session": {…}}``: the facts about the session, as `SessionRow` names them; bytes as hex
- ``{"record": {…}}`` for every record of the log; the payload is a text, salt and digests are hex
- ``{"signal": {…}}`` for everything that came from outside, ``{"pause": {…}}`` for every pause record
- ``{"blob": hash, "text": …}`` or ``{"blob": hash, "base64": …}`` for every large value that the log names
- ``{"end": {"lines": n, "sha256": …}}``: how many lines are before this one, and the hash of their bytes

Reading proves the file as a whole, the chains of log and signals, and every large value.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import DamagedRecord, InputConflict, VerbRefused
from holdfast.model import (
    Commit,
    Filter,
    NewSession,
    Pause,
    Record,
    SessionRow,
    SignalRecord,
    first_digest,
    intact,
    signal_intact,
)
from holdfast.replay import body_of
from holdfast.state import Blob
from holdfast.store import Store

FORMAT = 1

# What is true of one store and one process only.
_LOCAL: dict[str, Any] = {"key": 0, "holder": None, "fence": 1, "live": False, "parent": None, "due": False}

# Facts that files of earlier versions do not have, and what was true then.
_LATER: dict[str, Any] = {}

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Bundle:
    """A session as it was when it was written to a file."""

    facts: dict[str, Any]
    records: list[Record]
    signals: list[SignalRecord] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    blobs: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return str(self.facts["session_id"])

    @property
    def workflow(self) -> str:
        """The name of its workflow."""
        return str(self.facts["workflow"])

    def row(self) -> SessionRow:
        """The facts, as of a session that nobody holds."""
        row: SessionRow = _struct({**_LATER, **self.facts, **_LOCAL}, SessionRow)
        return row


async def collect(store: Store, row: SessionRow) -> Bundle:
    """Read a session, everything that belongs to it, from a store."""
    records = await store.records(row.key, 1, row.seq)
    signals = await store.signals(row.key, 0)
    pauses = await store.pauses(row.key, open_only=False)
    blobs = await store.blobs(sorted(named_blobs(records)))
    facts = msgspec.to_builtins(row, builtin_types=(bytes,))
    facts = {name: _hex(value) for name, value in facts.items() if name not in _LOCAL}
    return Bundle(facts, records, signals, pauses, blobs)


async def restore(store: Store, bundle: Bundle) -> SessionRow:
    """Put a session into a store that does not have it; nobody holds it then.

    Log, large values, facts and open pauses are as they were. What came from outside stays in the file: signals are
    numbered anew by the store. So a session with messages that it has not received is refused, and a child comes back
    without its parent.
    """
    row = bundle.row()
    if row.mail:
        raise VerbRefused(
            f"session {row.session_id!r} has messages that it has not received and that a file does not bring back;"
            " let it receive them before it is written to a file",
            session_id=row.session_id, status=row.status.value,
        )  # fmt: skip
    last = bundle.records[-1]
    held = await store.create(_as_new(bundle, row, bundle.records[:-1] or [last]))
    if held is None:
        raise InputConflict(
            f"session {row.session_id!r} is in this store already; look at the one that is there",
            session_id=row.session_id,
        )
    if held.seq < last.seq:
        await store.commit(_as_commit(bundle, row, held))
    for pause in bundle.pauses:
        if pause.kind == "operator" and pause.closed_at is None:
            await store.pause(Filter(session_id=row.session_id), pause)
    restored = await store.get(row.session_id)
    assert restored is not None, row.session_id
    return restored


def _as_new(bundle: Bundle, row: SessionRow, records: list[Record]) -> NewSession:
    several = len(bundle.records) > 1
    return NewSession(
        row.session_id, row.workflow, row.version, row.owner, row.tags, row.input_digest, row.created_at, row.step,
        row.visit, row.budget_usd, tuple(records), tuple(bundle.blobs.items()), claim=several, keep_for=row.keep_for,
        leaving=row.leaving,
    )  # fmt: skip


def _as_commit(bundle: Bundle, row: SessionRow, held: SessionRow) -> Commit:
    """The last record, with all that is known of the session at its end."""
    pauses = [pause for pause in bundle.pauses if pause.kind != "operator" and pause.closed_at is None]
    return Commit(
        held.key, held.fence, held.seq, (bundle.records[-1],), row.updated_at, row.key_frame, row.step, row.visit,
        row.leaving, row.ended, row.failure, release=True, spend_usd=row.spent_usd, spend_tokens=row.spent_tokens,
        progress=row.progress, open_pauses=tuple(pauses), waiting=row.waiting, wakes_at=row.wakes_at,
    )  # fmt: skip


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
    """Write a session to a file."""
    lines = [_encode(line) + b"\n" for line in _lines(bundle)]
    end = {"end": {"lines": len(lines), "sha256": sha256(b"".join(lines)).hexdigest()}}
    target = Path(path)
    target.write_bytes(b"".join(lines) + _encode(end) + b"\n")
    return target


def _lines(bundle: Bundle) -> Iterator[dict[str, Any]]:
    yield {"holdfast": "session", "format": FORMAT}
    yield {"session": bundle.facts}
    yield from ({"record": _plain(record)} for record in bundle.records)
    yield from ({"signal": _plain(signal)} for signal in bundle.signals)
    yield from ({"pause": _plain(pause)} for pause in bundle.pauses)
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
    data = Path(path).read_bytes()
    lines = _proved(data, path)
    head, *rest = lines
    if head.get("holdfast") != "session":
        raise _damaged(path, "is no session of Holdfast; its first line says what it is")
    if not isinstance(head.get("format"), int) or head["format"] > FORMAT:
        raise _damaged(
            path, f"has the format {head.get('format')!r}, this version reads {FORMAT}; use a newer Holdfast"
        )
    bundle = Bundle(facts={}, records=[])
    for number, line in enumerate(rest, 2):
        try:
            _take(bundle, line)
        except (msgspec.ValidationError, KeyError, ValueError, TypeError) as error:
            raise _damaged(path, f"has a line {number} that cannot be read: {error}") from error
    _prove_chain(bundle, path)
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


def _take(bundle: Bundle, line: dict[str, Any]) -> None:
    match line:
        case {"session": facts}:
            bundle.facts.update(facts)
        case {"record": record}:
            bundle.records.append(_struct(record, Record))
        case {"signal": signal}:
            bundle.signals.append(_struct(signal, SignalRecord))
        case {"pause": pause}:
            bundle.pauses.append(_struct(pause, Pause))
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


def _prove_chain(bundle: Bundle, path: str | Path) -> None:
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
    missing = named_blobs(bundle.records) - bundle.blobs.keys()
    if missing:
        raise _damaged(path, f"lacks the large value {min(missing).hex()}")


def _damaged(path: str | Path, what: str) -> DamagedRecord:
    return DamagedRecord(f"the file {path} {what}", path=str(path))
