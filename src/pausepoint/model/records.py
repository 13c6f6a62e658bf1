"""The records of a session's log and its signals, and the chain of digests that verifies them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256
from typing import Literal, TypeVar

import msgspec
from msgspec.structs import replace

RecordKind = Literal["key", "operation", "checkpoint", "event", "wait", "edit", "rewind", "definition"]


class Record(msgspec.Struct, frozen=True, gc=False):
    """One entry of a session's log.

    ``seq`` only rises; ``parent`` is the record that this one builds on. ``body`` is sha256(salt + payload), and
    ``digest`` chains it to the previous record. A record can therefore be redacted (payload and salt deleted) and the
    chain still verifies.
    """

    seq: int
    parent: int
    kind: RecordKind
    step: str
    visit: int
    at: int
    payload: bytes
    salt: bytes
    body: bytes
    digest: bytes

    @property
    def redacted(self) -> bool:
        """Return whether payload and salt were deleted. Every record is written with both."""
        return not self.payload and not self.salt


def first_digest(session_id: str) -> bytes:
    """Return the digest that a session's first record is chained to."""
    return sha256(session_id.encode()).digest()


def chained(previous: bytes, head: str, body: bytes) -> bytes:
    """Return an entry's digest: a hash of the previous digest, the entry's header and its body."""
    return sha256(b"%b%b%b" % (previous, body, head.encode())).digest()


class _Salts:
    """Random salts, read from the system for 64 records at a time. A forked child reads its own."""

    def __init__(self) -> None:
        self.forget()
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        self.left: list[bytes] = []

    def __call__(self) -> bytes:
        try:
            return self.left.pop()
        except IndexError:
            fresh = os.urandom(16 * 64)
            self.left = [fresh[start : start + 16] for start in range(16, len(fresh), 16)]
            return fresh[:16]


_salt = _Salts()


def seal(
    previous: bytes, seq: int, parent: int, kind: RecordKind, step: str, visit: int, at: int, payload: bytes
) -> Record:
    """Create a record and chain it to the record whose digest is ``previous``."""
    salt = _salt()
    body = sha256(salt + payload).digest()
    digest = chained(previous, _record_head(seq, parent, kind, step, visit, at), body)
    return Record(seq, parent, kind, step, visit, at, payload, salt, body, digest)


def resealed(record: Record, payload: bytes) -> Record:
    """Return a record with another payload and the same salt. Its digest is wrong until `rechained` computes it."""
    return replace(record, payload=payload, body=sha256(record.salt + payload).digest())


def _record_head(seq: int, parent: int, kind: str, step: str, visit: int, at: int) -> str:
    return f"{seq}|{parent}|{kind}|{step}|{visit}|{at}"


def intact(record: Record, previous: bytes) -> bool:
    """Return whether a stored record is unchanged (or was redacted) and follows the record with digest ``previous``."""
    return (sha256(record.salt + record.payload).digest() == record.body or record.redacted) and chained(
        previous, _head(record), record.body
    ) == record.digest


class SignalRecord(msgspec.Struct, frozen=True):
    """Something that reached a session from outside: a request to pause, resume or cancel, a message, a child's end.

    Signals are numbered per session and have their own chain of digests. ``after`` is the log's ``seq`` when the signal
    arrived, which gives log and signals one common order. ``payload``, ``salt`` and ``body`` are as in `Record`.
    """

    n: int
    after: int
    kind: str
    by: str | None
    at: int
    payload: bytes
    digest: bytes
    salt: bytes = b""
    body: bytes = b""

    @property
    def redacted(self) -> bool:
        """Return whether payload and salt were deleted."""
        return not self.payload and not self.salt


def seal_signal(
    previous: bytes, n: int, after: int, kind: str, by: str | None, at: int, payload: bytes
) -> SignalRecord:
    """Create a signal and chain it to the signal whose digest is ``previous``."""
    salt = _salt()
    body = sha256(salt + payload).digest()
    return SignalRecord(
        n, after, kind, by, at, payload, chained(previous, _signal_head(n, after, kind, by, at), body), salt, body
    )


def signal_intact(signal: SignalRecord, previous: bytes) -> bool:
    """Return whether a stored signal is unchanged (or was redacted) and follows the signal with digest ``previous``."""
    return (sha256(signal.salt + signal.payload).digest() == signal.body or signal.redacted) and chained(
        previous, _head(signal), signal.body
    ) == signal.digest


def _signal_head(n: int, after: int, kind: str, by: str | None, at: int) -> str:
    return f"{n}|{after}|{kind}|{by}|{at}"


R = TypeVar("R", Record, SignalRecord)


def rechained(entries: Sequence[R], first: bytes) -> list[R]:
    """Return the same records or signals in a chain that starts at ``first``. Redacted entries stay redacted."""
    found: list[R] = []
    for entry in entries:
        found.append(replace(entry, digest=chained(first, _head(entry), entry.body)))
        first = found[-1].digest
    return found


def _head(entry: Record | SignalRecord) -> str:
    if isinstance(entry, Record):
        return _record_head(entry.seq, entry.parent, entry.kind, entry.step, entry.visit, entry.at)
    return _signal_head(entry.n, entry.after, entry.kind, entry.by, entry.at)
