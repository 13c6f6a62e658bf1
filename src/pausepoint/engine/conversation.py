"""Reads a session as a conversation, the newest turns first, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pausepoint.engine.filters import check_limit
from pausepoint.log.conversation import Conversation
from pausepoint.log.replay import OperationBody, body_of
from pausepoint.log.state import Blob
from pausepoint.log.timeline import AT_ONCE, Undone, operation_of
from pausepoint.model.records import Record, SignalRecord
from pausepoint.model.views import Turn
from pausepoint.stores.base import Store
from pausepoint.threads import in_thread

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine

LARGEST = 256 * 1024
"""The most bytes of a result that is read to find out whether a model has returned it."""


async def conversation(
    engine: Engine, session_id: str, *, before: int | None = None, limit: int | None = 100, whole: bool = False
) -> list[Turn]:
    """Return the last turns of a session before record ``before``, oldest first.

    There are at least ``limit`` if there are so many: those of one record stay together. Long texts are cut, unless
    ``whole`` is set.
    """
    check_limit(limit, "turns")
    engine._service.check_open()
    store, row = engine._service.store, await engine._service.row(session_id)
    undone = await engine._service.timeline(row).left_behind()
    end = row.seq + 1 if before is None else min(before, row.seq + 1)
    signals = [each for each in await store.signals(row.key, 0) if before is None or each.after < before]
    turns: list[Turn] = []
    while end > 1 and (limit is None or len(turns) < limit):
        start = max(end - AT_ONCE, 1)
        records = await store.records(row.key, start, end - 1)
        data = await _results(store, records, whole)
        late = [each for each in signals if each.after >= start or start == 1]
        turns[:0] = await in_thread(_turns, records, late, data, undone, whole)
        signals, end = signals[: len(signals) - len(late)], start
    return turns if limit is None else _last(turns, limit)


def _last(turns: Sequence[Turn], limit: int) -> list[Turn]:
    newest: list[Turn] = []
    for _, group in groupby(reversed(turns), key=lambda turn: turn.seq):
        if len(newest) >= limit:
            break
        newest += group
    return newest[::-1]


async def _results(store: Store, records: Sequence[Record], whole: bool) -> dict[str, bytes]:
    """Return the values of results that are stored outside of their records."""
    hashes = set()
    for record in records:
        if record.kind == "operation" and not record.redacted:
            body: OperationBody = body_of(record)
            if isinstance(body.value, Blob) and (whole or body.value.size <= LARGEST):
                hashes.add(bytes.fromhex(body.value.hash))
    return {key.hex(): data for key, data in (await store.blobs(list(hashes))).items()} if hashes else {}


def _turns(
    records: Sequence[Record], signals: Sequence[SignalRecord], data: dict[str, bytes], undone: Undone, whole: bool
) -> list[Turn]:
    talk, left = Conversation(whole), list(signals)
    for record in records:
        while left and left[0].after < record.seq:
            talk.signal(left.pop(0))
        begin, body = len(talk.turns), operation_of(record)
        if not record.redacted:
            talk.record(record, data)
        if body is not None and undone.has(record, body):
            talk.turns[begin:] = [replace(turn, left_behind=True) for turn in talk.turns[begin:]]
    for signal in left:
        talk.signal(signal)
    return talk.turns
