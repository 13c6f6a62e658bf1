"""Checksums over facts that are in no chain: those in a session's row, in pause records and in tombstones.

They find damage, like the digests of the log, and cost a commit about a microsecond. Whoever writes one of the facts
writes its sum too, in the same transaction.
"""

from __future__ import annotations

from zlib import crc32

from holdfast.model import Pause, Tombstone


def given(
    session_id: str, workflow: str, version: int, owner: str | None, tags: str, input_digest: bytes,
    created_at: int, parent: int | None, keep_for: int | None, budget_usd: int | None, cancel_requested: int,
) -> int:  # fmt: skip
    """Over what a session was given, and what seldom changes."""
    text = (
        f"{session_id}|{workflow}|{version}|{owner!r}|{tags}|{created_at}|{parent}|{keep_for}|{budget_usd}"
        f"|{cancel_requested:d}"
    )
    return crc32(text.encode("utf-8", "surrogatepass"), crc32(input_digest))


def moved(
    seq: int, key_frame: int, digest: bytes, step: str | None, visit: int, leaving: int, ended: str | None,
    failure: str | None, progress: str | None, fence: int,
) -> int:  # fmt: skip
    """Over what a commit or a claim sets."""
    text = f"{seq}|{key_frame}|{step!r}|{visit}|{leaving:d}|{ended}|{fence}|{progress}|{failure}"
    return crc32(text.encode("utf-8", "surrogatepass"), crc32(digest))


def opened(key: int, pause: Pause) -> int:
    """Over what a pause record of the session ``key`` says from its beginning. Its mode may be raised later."""
    text = f"{key}|{pause.id}|{pause.kind}|{pause.reason}|{pause.by!r}|{pause.at}|{pause.step}|{pause.freeze:d}"
    return crc32(text.encode("utf-8", "surrogatepass"))


def closed(closed_at: int, closed_by: str | None) -> int:
    """Over the end of a pause."""
    return crc32(f"{closed_at}|{closed_by!r}".encode("utf-8", "surrogatepass"))


def buried(stone: Tombstone) -> int:
    """Over a tombstone."""
    text = (
        f"{stone.session_id}|{stone.workflow}|{stone.owner!r}|{stone.status}|{stone.created_at}|{stone.removed_at}"
        f"|{stone.by!r}|{stone.reason}|{stone.records}"
    )
    return crc32(text.encode("utf-8", "surrogatepass"), crc32(stone.digest))
