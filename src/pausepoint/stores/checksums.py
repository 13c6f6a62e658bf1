"""Checksums of facts that are not in a chain of digests: session rows, pauses, questions and tombstones.

Like the digests of the log, they detect damage. They cost less than a microsecond per commit. A transaction that
changes one of the facts must also write its checksum.
"""

from __future__ import annotations

from zlib import crc32

import msgspec

from pausepoint.model.sessions import Pause, QuestionFacts
from pausepoint.model.stores import Tombstone

_packed = msgspec.msgpack.Encoder().encode  # fast, and always the same bytes for the same values


def given(
    session_id: str, workflow: str, version: int, owner: str | None, tags: str, input_digest: bytes,
    created_at: int, parent: int | None, keep_for: int | None, budget_usd: int | None, budget_tokens: int | None,
    budget_operations: int | None, cancel_requested: int, guest: int, queue: str, priority: int, lane: str | None,
) -> int:  # fmt: skip
    """Return the checksum of the facts that a session was created with and that seldom change."""
    return crc32(
        _packed(
            (session_id, workflow, version, owner, tags, input_digest, created_at, parent, keep_for, budget_usd,
             budget_tokens, budget_operations, cancel_requested, guest, queue, priority, lane)
        )
    )  # fmt: skip


def moved(
    seq: int, key_frame: int, digest: bytes, step: str | None, visit: int, held_by_guard: int, ended: str | None,
    failure: str | None, progress: str | None, fence: int,
) -> int:  # fmt: skip
    """Return the checksum of the facts that a commit or a claim sets. ``held_by_guard`` may be 0, 1 or a bool.

    The fence is added: so one statement can raise the fences of many sessions, with their checksums.
    """
    return crc32(_packed((seq, key_frame, digest, step, visit, held_by_guard == 1, ended, failure, progress))) + fence


def opened(key: int, pause: Pause) -> int:
    """Return the checksum of a pause record when it is opened. The mode is not included, because it may change."""
    said = pause.kind, pause.reason, pause.by, pause.created_at, pause.step, pause.freeze, pause.standing
    return crc32(_packed((key, pause.id, *said)))


def standing(pause: Pause, epoch: int, round: int) -> int:
    """Return the checksum of the pause of everything."""
    said = pause.id, pause.reason, pause.by, pause.created_at, pause.mode, pause.freeze
    return crc32(_packed((*said, epoch, round)))


def closed(closed_at: int, closed_by: str | None) -> int:
    """Return the checksum of the end of a pause."""
    return crc32(_packed((closed_at, closed_by)))


def asked(key: int, root: int, question: QuestionFacts) -> int:
    """Return the checksum of a question of the session ``key``, whose root session is ``root``."""
    return crc32(_packed((key, root, question)))


def buried(stone: Tombstone) -> int:
    """Return the checksum of a tombstone."""
    return crc32(_packed(stone))
