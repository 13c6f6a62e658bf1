"""Finds places in a session's log: its checkpoints, what was true at one of them, where a visit began.

After a rewind the log has stretches that were *left behind*. They stay readable by number;
the *present line* is the rest, and a visit's name (``write#2``) means the one on it. Every
key frame says which stretches are left behind and how often each step was visited, so a
place is found by halving the distance between key frames, whatever the length of the log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from pausepoint.clock import to_datetime
from pausepoint.errors import DamagedRecord, Redacted, UnknownCheckpoint, did_you_mean
from pausepoint.log.replay import CheckpointBody, KeyBody, Line, body_of, fold
from pausepoint.model.records import Record
from pausepoint.model.sessions import SessionRow
from pausepoint.model.views import Checkpoint
from pausepoint.stores.base import Store

NEAR = 256
"""How far ahead to look for a checkpoint to name instead of one that is not there."""


class Before(NamedTuple):
    """How everything stood before a visit; ``line`` is that very moment. A new line builds on record ``base``."""

    line: Line
    base: int
    visit: str


class Timeline:
    """The log of one session up to ``row.seq``. Records that are written meanwhile are not seen.

    ``renamed``: what steps are called now, by the names that they had; visits can be named by either.
    """

    def __init__(self, store: Store, row: SessionRow, renamed: Mapping[str, str] = MappingProxyType({})) -> None:
        self.store = store
        self.row = row
        self.renamed = renamed
        self._head: list[Record] = []
        self._found: list[Record] = []  # where a visit was found: what is asked for next is often there
        self._frames: dict[int, KeyBody] = {}

    async def line(self, seq: int | None = None) -> Line:
        """The fold of the log as of record ``seq``; by default as it stands."""
        return fold(await self._stretch(self.row.seq if seq is None else seq))

    async def _stretch(self, seq: int) -> list[Record]:
        """The records from the last key frame on that tell how everything stood at ``seq``."""
        if seq >= self.row.key_frame:
            if not self._head:
                self._head = await self.store.records(self.row.key, self.row.key_frame, self.row.seq)
            return [record for record in self._head if record.seq <= seq]
        if self._found and self._found[0].seq <= seq <= self._found[-1].seq:
            return [record for record in self._found if record.seq <= seq]
        found = await self.store.records(self.row.key, await self.store.key_frame(self.row.key, seq), seq)
        if found[-1].kind == "rewind":  # what it leads to is in the key frame behind it
            found = await self.store.records(self.row.key, seq + 1, seq + 1)
        return found

    async def _frame(self, seq: int) -> KeyBody:
        if seq not in self._frames:
            (record,) = await self.store.records(self.row.key, seq, seq)
            self._frames[seq] = body_of(record)
        return self._frames[seq]

    # the list

    async def checkpoints(self, before: int | None = None, limit: int | None = 100) -> list[Checkpoint]:
        """The last ``limit`` checkpoints with a number below ``before``, the newest last."""
        left = (await self._frame(self.row.key_frame)).left
        end = self.row.seq if before is None else min(before - 1, self.row.seq)
        found: list[Checkpoint] = []
        while end >= 1 and (limit is None or len(found) < limit):
            start = await self.store.key_frame(self.row.key, end)
            records = [each for each in await self.store.records(self.row.key, start, end) if each.kind == "checkpoint"]
            wanted = records if limit is None else records[max(len(records) - limit + len(found), 0) :]
            found[:0] = [_entry(record, left) for record in wanted]
            end = start - 1
        return found

    # by name or number

    async def find(self, at: int | str) -> int:
        """The number of the record at whose end things stood as asked for: its number, or a visit's name."""
        if isinstance(at, int) and not isinstance(at, bool):
            if not 1 <= at <= self.row.seq:
                raise await self._unknown(at, f"there is no record {at}; the log has the numbers 1 to {self.row.seq}")
            return at
        step, number = _named(at)
        return await self._finished(at, step, number)

    async def before(self, to: int | str, reuse: bool) -> Before:
        """How everything stood before the visit that is to be redone; with ``reuse``, what it remembers is in it."""
        if isinstance(to, int) and not isinstance(to, bool):
            return await self._before_finished(await self._checkpoint(to), reuse)
        step, number = _named(to)
        line = await self.line()
        stands_there = line.step in self._names(step) and not line.leaving and number in (None, line.visit)
        # A visit that has left no trace never happened: then the last one is the one before it.
        trace = line.operations or line.waits or line.effects or self.row.failure or line.touched
        if stands_there and (number is not None or line.visit == 1 or trace):
            return _before(await self._stretch(self.row.seq), reuse)
        return await self._before_finished(await self._finished(to, step, number), reuse)

    async def now(self, reuse: bool) -> Before:
        """As it stands. One that has completed stands at its last step, whose way out is decided anew."""
        records = await self._stretch(self.row.seq)
        line = fold(records)
        if line.step is None:
            line.step, line.leaving = await self.last_step(), True
        if line.leaving:
            return Before(line, self.row.seq, f"{line.step}#{line.visit}")
        return _before(records, reuse)

    async def _before_finished(self, seq: int, reuse: bool) -> Before:
        found = _before(await self._stretch(seq - 1), reuse)
        if reuse:  # what the visit emitted and spent at its end
            (record,) = await self.store.records(self.row.key, seq, seq)
            body: CheckpointBody = body_of(record)
            found.line.effects.update(effect.id for effect in body.effects)
        return found

    async def last_step(self) -> str | None:
        """The step that a session which has come to its end was in last."""
        end = self.row.seq
        while end >= 1:
            start = await self.store.key_frame(self.row.key, end)
            records = await self.store.records(self.row.key, start, end)
            for record in reversed(records):
                if record.step and record.kind != "key":
                    return record.step
            end = start - 1
        return None

    async def _checkpoint(self, number: int) -> int:
        found = await self.store.records(self.row.key, number, number) if 1 <= number <= self.row.seq else []
        if not found or found[0].kind != "checkpoint":
            what = f"record {number} is no checkpoint" if found else f"there is no record {number}"
            raise await self._unknown(number, what)
        return number

    async def _finished(self, at: int | str, step: str, number: int | None) -> int:
        """The checkpoint of a finished visit on the present line, by default the last one."""
        visits, names = (await self.line()).visits, self._names(step)
        count = max(visits.get(name, 0) for name in names)
        if not count:
            raise self._refusal(at, f"no visit of {step!r} has ended{did_you_mean(step, visits)}")
        number = count if number is None else number
        if not 1 <= number <= count:
            raise self._refusal(at, f"{step} was visited {count} {'time' if count == 1 else 'times'}: #1 to #{count}")
        for first, last in reversed(await self._segments()):
            if await self._visits(names, first) < number:
                since, until = await self._between(names, number, first, last)
                self._found = await self.store.records(self.row.key, since, until)
                for record in reversed(self._found):
                    if (record.kind, record.visit) == ("checkpoint", number) and record.step in names:
                        return record.seq
                break
        why = (
            f"{step}#{number} is not found in this log by that name: it was renamed since, is older than this fork,"
            " or what leads to it was redacted"
        )
        raise await self._unknown(at, why)

    def _names(self, step: str) -> set[str]:
        """What a step is called, and was: the log has the names of its time."""
        now = self.renamed.get(step, step)
        return {now, *(old for old, new in self.renamed.items() if new == now)}

    async def _visits(self, names: Collection[str], frame: int) -> int:
        """How often a step was visited at a key frame. What is redacted tells nothing: look behind it."""
        try:
            visits = (await self._frame(frame)).visits
            return max(visits.get(name, 0) for name in names)
        except Redacted:
            return 0

    async def _between(self, names: Collection[str], number: int, first: int, last: int) -> tuple[int, int]:
        """Two key frames (or the end) between which a visit ended. The number of visits only rises along a line."""
        since, low, high = first, first, last + 1
        while high - low > 1:
            middle = (low + high) // 2
            frame = await self.store.key_frame(self.row.key, middle)
            if frame > since and await self._visits(names, frame) >= number:
                high = frame
            else:
                since, low = max(since, frame), middle
        return since, high - 1

    async def _segments(self) -> list[tuple[int, int]]:
        """The stretches of the present line, each from a key frame on."""
        left = (await self._frame(self.row.key_frame)).left
        starts = [1, *(last + 2 for _, last in left)]  # behind what was left are the rewind and its key frame
        ends = [*(first - 1 for first, _ in left), self.row.seq]
        return list(zip(starts, ends, strict=True))

    # refusals

    async def _unknown(self, at: int | str, why: str) -> UnknownCheckpoint:
        number = max(at, 0) if isinstance(at, int) else self.row.seq
        above = await self.store.records(self.row.key, number + 1, min(number + NEAR, self.row.seq))
        listed = (_entry(record, ()) for record in above if record.kind == "checkpoint")
        near = [*await self.checkpoints(number + 1, 2), *islice(listed, 2)]
        names = ", ".join(f"{each.seq} ({each.name})" for each in near)
        return self._refusal(at, why + (f"; checkpoints near it: {names}" if names else "; it has no checkpoint yet"))

    def _refusal(self, at: int | str, why: str) -> UnknownCheckpoint:
        return UnknownCheckpoint(
            f"session {self.row.session_id!r}: {why}", session_id=self.row.session_id, at_checkpoint=at
        )


def _named(at: object) -> tuple[str, int | None]:
    """A visit's name taken apart.

    >>> _named("write#2"), _named("write")
    (('write', 2), ('write', None))
    """
    if not isinstance(at, str) or not at:
        raise TypeError(f"a checkpoint is named by its number or by its visit, such as 'write#2', not by {at!r}")
    step, mark, number = at.rpartition("#")
    return (step, int(number)) if mark and number.isdecimal() else (at, None)


def _before(records: list[Record], reuse: bool) -> Before:
    """The beginning of the visit that is open at the end of these records."""
    line = fold(records)
    if line.step is None:
        raise DamagedRecord(f"no visit is open at record {records[-1].seq}; restore the database from a backup")
    base, visit = line.base, f"{line.step}#{line.visit}"
    if not reuse:
        line = fold(record for record in records if record.seq <= base)
        for operation in line.operations.values():  # of a key frame in the middle of the visit
            if operation.part is not None:
                line.chunked.pop(operation.part.file_id, None)
        line.operations.clear()
        line.effects.clear()
    line.waits.clear()  # what was not finished begins anew
    line.attempts, line.touched = 0, False
    return Before(line, base, visit)


def _entry(record: Record, left: tuple[tuple[int, int], ...]) -> Checkpoint:
    at, behind = to_datetime(record.at), any(first <= record.seq <= last for first, last in left)
    if record.redacted:
        return Checkpoint(record.step, record.visit, record.seq, at, left_behind=behind, redacted=True)
    body: CheckpointBody = body_of(record)
    fields = tuple(dict.fromkeys(change.path for change in body.changes))
    return Checkpoint(
        record.step, record.visit, record.seq, at, timedelta(microseconds=body.took), body.skipped, body.attempts,
        fields, body.version, behind,
    )  # fmt: skip
