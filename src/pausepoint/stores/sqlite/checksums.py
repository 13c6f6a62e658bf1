"""Checksums over facts that are in no chain: those in a session's row, in pauses, questions and tombstones.

They find damage, like the digests of the log, and cost a commit less than a microsecond. Whoever writes one of the
facts writes its sum too, in the same transaction.
"""

from __future__ import annotations

from zlib import crc32

import msgspec

from pausepoint.model.sessions import Pause, QuestionFacts, Tombstone

_packed = msgspec.msgpack.Encoder().encode  # quick, and the same bytes for the same values for ever


def given(
    session_id: str, workflow: str, version: int, owner: str | None, tags: str, input_digest: bytes,
    created_at: int, parent: int | None, keep_for: int | None, budget_usd: int | None, cancel_requested: int,
) -> int:  # fmt: skip
    """Over what a session was given, and what seldom changes."""
    return crc32(
        _packed(
            (session_id, workflow, version, owner, tags, input_digest, created_at, parent, keep_for, budget_usd,
             cancel_requested)
        )
    )  # fmt: skip


def moved(
    seq: int, key_frame: int, digest: bytes, step: str | None, visit: int, held_by_guard: int, ended: str | None,
    failure: str | None, progress: str | None, fence: int,
) -> int:  # fmt: skip
    """Over what a commit or a claim sets. ``held_by_guard`` may be a flag as stored or a bool."""
    return crc32(_packed((seq, key_frame, digest, step, visit, held_by_guard == 1, ended, failure, progress, fence)))


def opened(key: int, pause: Pause) -> int:
    """Over what a pause record of the session ``key`` says from its beginning. Its mode may be raised later."""
    said = pause.kind, pause.reason, pause.by, pause.created_at, pause.step, pause.freeze, pause.standing
    return crc32(_packed((key, pause.id, *said)))


def standing(pause: Pause) -> int:
    """Over the pause of everything."""
    return crc32(_packed((pause.id, pause.reason, pause.by, pause.created_at, pause.mode, pause.freeze)))


def closed(closed_at: int, closed_by: str | None) -> int:
    """Over the end of a pause."""
    return crc32(_packed((closed_at, closed_by)))


def asked(key: int, root: int, question: QuestionFacts) -> int:
    """Over a question of the session ``key``, which belongs to the tree of ``root``."""
    return crc32(_packed((key, root, question)))


def buried(stone: Tombstone) -> int:
    """Over a tombstone."""
    return crc32(_packed(stone))
