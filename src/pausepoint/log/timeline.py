"""Finds positions in a session's log: its checkpoints, the state at one of them, the start of a visit.

A rewind leaves stretches of the log *behind*. They stay readable by number. The rest is the *present line*, and a
visit's name (``write#2``) means the visit on the present line. Every key frame stores which stretches are left behind
and how often each step was visited. So a position is found by binary search over the key frames.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from datetime import timedelta
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from pausepoint.clock import to_datetime
from pausepoint.errors import DamagedRecord, Redacted, UnknownCheckpoint, UnknownOperation, did_you_mean
from pausepoint.log.events import operation_name
from pausepoint.log.replay import (
    CheckpointBody,
    EventBody,
    KeyBody,
    Line,
    OperationBody,
    WaitBody,
    body_of,
    fold,
    is_inside,
)
from pausepoint.model.ids import KEPT, shortened
from pausepoint.model.records import Record
from pausepoint.model.sessions import SessionRow
from pausepoint.model.views import Checkpoint
from pausepoint.stores.base import Store

NEAR = 256
"""How many records after an unknown checkpoint are searched for one to suggest."""


AT_ONCE = 1_000
"""How many records are read at once."""


class Before(NamedTuple):
    """The session as it was before a visit, or before an operation in it. A new line continues from record ``base``."""

    line: Line
    base: int
    visit: str
    operation: OperationBody | None = None


class Timeline:
    """The log of one session up to ``row.seq``. Records that are written later are not visible.

    ``renamed`` maps former names of steps to present ones. Both names find a visit.
    """

    def __init__(self, store: Store, row: SessionRow, renamed: Mapping[str, str] = MappingProxyType({})) -> None:
        self.store = store
        self.row = row
        self.renamed = renamed
        self._head: list[Record] = []
        self._found: list[Record] = []  # the records around the last visit found; the next query often needs them
        self._frames: dict[int, KeyBody] = {}

    async def line(self, seq: int | None = None) -> Line:
        """Return the fold of the log up to record ``seq``; by default the whole log."""
        return fold(await self._stretch(self.row.seq if seq is None else seq))

    async def _stretch(self, seq: int) -> list[Record]:
        """Return the records up to ``seq``, starting at the last key frame before it."""
        if seq >= self.row.key_frame:
            if not self._head:
                self._head = await self.store.records(self.row.key, self.row.key_frame, self.row.seq)
            return [record for record in self._head if record.seq <= seq]
        if self._found and self._found[0].seq <= seq <= self._found[-1].seq:
            return [record for record in self._found if record.seq <= seq]
        found = await self.store.records(self.row.key, await self.store.key_frame(self.row.key, seq), seq)
        if found[-1].kind == "rewind":  # the key frame after a rewind has its result
            found = await self.store.records(self.row.key, seq + 1, seq + 1)
        return found

    async def records(self, first: int, last: int) -> AsyncIterator[Record]:
        """Yield the records from ``first`` to ``last``."""
        for start in range(first, last + 1, AT_ONCE):
            for record in await self.store.records(self.row.key, start, min(start + AT_ONCE - 1, last)):
                yield record

    async def is_after_rewind(self, line: Line) -> bool:
        """Return whether the open visit of a line began with a rewind."""
        if not line.left_behind:
            return False
        return any(
            record.kind == "rewind"
            for record in await self.store.records(self.row.key, line.opened - 1, line.opened - 1)
        )

    async def _frame(self, seq: int) -> KeyBody:
        if seq not in self._frames:
            (record,) = await self.store.records(self.row.key, seq, seq)
            self._frames[seq] = body_of(record)
        return self._frames[seq]

    # the list

    async def checkpoints(self, before: int | None = None, limit: int | None = 100) -> list[Checkpoint]:
        """Return the last ``limit`` checkpoints with a number below ``before``, the newest last."""
        left_behind = (await self._frame(self.row.key_frame)).left_behind
        end = self.row.seq if before is None else min(before - 1, self.row.seq)
        found: list[Checkpoint] = []
        while end >= 1 and (limit is None or len(found) < limit):
            start = await self.store.key_frame(self.row.key, end)
            records = [each for each in await self.store.records(self.row.key, start, end) if each.kind == "checkpoint"]
            wanted = records if limit is None else records[max(len(records) - limit + len(found), 0) :]
            found[:0] = [_entry(record, left_behind) for record in wanted]
            end = start - 1
        return found

    async def checkpoints_from(self, seq: int, limit: int) -> list[Checkpoint]:
        """Return the first ``limit`` checkpoints from record ``seq`` on, the newest last."""
        left_behind = (await self._frame(self.row.key_frame)).left_behind
        found: list[Checkpoint] = []
        async for record in self.records(max(seq, 1), self.row.seq):
            if len(found) >= limit:
                break
            if record.kind == "checkpoint":
                found.append(_entry(record, left_behind))
        return found

    # by name or number

    async def find(self, checkpoint: int | str) -> int:
        """Return the number of the record that ``checkpoint`` names, by number or by a visit's name.

        Raises `UnknownCheckpoint`.
        """
        if isinstance(checkpoint, int) and not isinstance(checkpoint, bool):
            if not 1 <= checkpoint <= self.row.seq:
                raise await self._unknown(
                    checkpoint, f"has no record {checkpoint}. Its log has the records 1 to {self.row.seq}"
                )
            return checkpoint
        step, number = _named(checkpoint)
        return await self._finished(checkpoint, step, number)

    async def before(self, to: int | str, reuse: bool) -> Before:
        """Return the session as it was before a visit. With ``reuse``, the visit keeps its remembered operations."""
        if isinstance(to, int) and not isinstance(to, bool):
            return await self._before_finished(await self._checkpoint(to), reuse)
        step, number = _named(to)
        line = await self.line()
        is_there = line.step in self._names(step) and not line.held_by_guard and number in (None, line.visit)
        # An open visit without a trace in the log never happened. The visit before it is then the last one.
        trace = line.operations or line.waits or line.effects or self.row.failure or line.touched
        if is_there and (number is not None or line.visit == 1 or trace):
            return _before(await self._stretch(self.row.seq), reuse)
        return await self._before_finished(await self._finished(to, step, number), reuse)

    async def now(self, reuse: bool) -> Before:
        """Return the session as it is now. A completed session is at its last step, before its guards and route."""
        records = await self._stretch(self.row.seq)
        line = fold(records)
        if line.step is None:
            line.step, line.held_by_guard = await self.last_step(), True
        if line.held_by_guard:
            return Before(line, self.row.seq, f"{line.step}#{line.visit}")
        return _before(records, reuse)

    async def _before_finished(self, seq: int, reuse: bool) -> Before:
        found = _before(await self._stretch(seq - 1), reuse)
        if reuse:  # effects that the visit committed with its checkpoint
            (record,) = await self.store.records(self.row.key, seq, seq)
            body: CheckpointBody = body_of(record)
            found.line.effects.update(effect.id for effect in body.effects)
        return found

    async def last_step(self) -> str | None:
        """Return the last step of a session that has ended."""
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
            missing = f"has no checkpoint {number}. Its log ends at number {self.row.seq}"
            what = f"has record {number}, but it is not a checkpoint" if found else missing
            raise await self._unknown(number, what)
        return number

    async def _finished(self, checkpoint: int | str, step: str, number: int | None) -> int:
        """Return the checkpoint of a finished visit on the present line; by default of the last visit."""
        visits, names = (await self.line()).visits, self._names(step)
        count = max(visits.get(name, 0) for name in names)
        if not count:
            raise self._refusal(
                checkpoint, f"has no finished visit of step {shortened(step)}{did_you_mean(step, visits)}"
            )
        number = count if number is None else number
        if not 1 <= number <= count:
            raise self._refusal(checkpoint, f"has no finished visit {step}#{number}. The last one is {step}#{count}.")
        for first, last in reversed(await self._segments()):
            if await self._visits(names, first) < number:
                since, until = await self._between(names, number, first, last)
                self._found = await self.store.records(self.row.key, since, until)
                for record in reversed(self._found):
                    if (record.kind, record.visit) == ("checkpoint", number) and record.step in names:
                        return record.seq
                break
        why = (
            f"has no visit {step}#{number} under that name. The step was renamed, the visit is older than this fork,"
            " or the records before it were redacted"
        )
        raise await self._unknown(checkpoint, why)

    def _names(self, step: str) -> set[str]:
        """Return the present and former names of a step. The log has the name that was valid at the time."""
        now = self.renamed.get(step, step)
        return {now, *(old for old, new in self.renamed.items() if new == now)}

    async def _visits(self, names: Collection[str], frame: int) -> int:
        """Return how often a step was visited up to a key frame; 0 if the key frame was redacted."""
        try:
            visits = (await self._frame(frame)).visits
            return max(visits.get(name, 0) for name in names)
        except Redacted:
            return 0

    async def _between(self, names: Collection[str], number: int, first: int, last: int) -> tuple[int, int]:
        """Return the range of records in which a visit ended, by binary search.

        The search works because the number of visits only rises along a line.
        """
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
        """Return the stretches of the present line. Each starts at a key frame."""
        left_behind = (await self._frame(self.row.key_frame)).left_behind
        starts = [1, *(last + 2 for _, last in left_behind)]  # a rewind record and its key frame follow
        ends = [*(first - 1 for first, _ in left_behind), self.row.seq]
        return list(zip(starts, ends, strict=True))

    # operations

    async def before_operation(self, place: int | str) -> Before:
        """Return the session as it was before an operation. Its visit remembers what did not begin after it.

        An operation is named by its id, by the number of its record, by ``think`` (the last call), or by ``think#3``.
        Raises `UnknownOperation`.
        """
        if isinstance(place, int) and not isinstance(place, bool):
            records, id = await self._around_record(place)
        else:
            records, id = await self._around_call(_Call.parse(place))
        before = _before(records, reuse=True)
        operation = before.line.operations[id]
        _forget(records, before.line, id)
        return before._replace(operation=operation)

    async def left_behind(self) -> Undone:
        """Return what tells which operations rewinds have left behind."""
        ranges = (await self._frame(self.row.key_frame)).left_behind
        kept = dict[tuple[str, int], dict[str, OperationBody]]()
        for _, last in ranges:
            (frame,) = await self.store.records(self.row.key, last + 2, last + 2)  # after the record of the rewind
            journal = None if frame.redacted else body_of(frame).journal
            kept[frame.step, frame.visit] = {} if journal is None else {each.id: each for each in journal.operations}
        return Undone(ranges, kept)

    async def _around_record(self, number: int) -> tuple[list[Record], str]:
        """Return the records of the visit of an operation, from their key frame, and the operation's id."""
        records = await self.store.records(self.row.key, number, number) if 1 <= number <= self.row.seq else []
        body = operation_of(records[0]) if records else None
        if body is None:
            raise await self._unknown_record(number, bool(records))
        step, visit = records[0].step, records[0].visit
        for present in (await self._stretch(self.row.seq), await self._ended(step, visit)):
            if present and fold(present).operations.get(body.id) == body:
                return present, body.id
        end = self.row.seq
        async for record in self.records(number + 1, self.row.seq):
            if record.kind in ("checkpoint", "rewind") or (record.step, record.visit) != (step, visit):
                end = record.seq - 1
                break
        return await self._stretch(end), body.id

    async def _around_call(self, call: _Call) -> tuple[list[Record], str]:
        """Return the records of the last visit on the present line with such a call, and the operation's id."""
        records, visits, names = await self._stretch(self.row.seq), set[tuple[str, int]](), set[str]()
        async for record, body in self._from_the_end():
            names.add(body.name)
            ids = call.ids_in(fold(records)) if records else []
            if ids:
                break
            place, records = (record.step, record.visit), []
            if place not in visits and call.means(body):
                visits.add(place)
                records = await self._ended(*place)
        ids = call.ids_in(fold(records)) if records else []
        if ids and (call.nth is None or 1 <= call.nth <= len(ids)):
            return records, ids[-1 if call.nth is None else call.nth - 1]
        operation = call.id or call.name + ("" if call.nth is None else f"#{call.nth}")
        why = f"has no operation {shortened(operation)} that has ended{did_you_mean(call.name, names)}"
        if visits and not ids:
            why = (
                f"has no operation {shortened(operation)} on its present line: a rewind has undone it. Name it by the"
                " number of its record to return to it."
            )
        elif ids:
            line = fold(records)
            times = "once" if len(ids) == 1 else f"{len(ids):,} times"
            why = f"has no operation {shortened(operation)}: {call.name} has ended {times} in {line.step}#{line.visit}."
        raise self._no_operation(operation, why)

    async def _ended(self, step: str, visit: int) -> list[Record]:
        """Return the records of a finished visit of the present line, from their key frame; none if there is none."""
        try:
            return await self._stretch(await self._finished(f"{step}#{visit}", step, visit) - 1)
        except UnknownCheckpoint:
            return []

    async def _from_the_end(self) -> AsyncIterator[tuple[Record, OperationBody]]:
        """Yield the records of operations, the newest first."""
        for last in range(self.row.seq, 0, -AT_ONCE):
            for record in reversed(await self.store.records(self.row.key, max(last - AT_ONCE + 1, 1), last)):
                if (body := operation_of(record)) is not None:
                    yield record, body

    async def _unknown_record(self, number: int, is_record: bool) -> UnknownOperation:
        around = await self.store.records(self.row.key, max(min(number, self.row.seq) - NEAR, 1), number + NEAR)
        near = sorted(
            ((record.seq, body.name) for record in around if (body := operation_of(record)) is not None),
            key=lambda each: abs(each[0] - number),
        )
        names = ", ".join(f"{seq} ({name})" for seq, name in sorted(near[:4]))
        missing = f"has no record {number}. Its log has the records 1 to {self.row.seq}."
        why = f"has record {number}, but it is not an operation that has ended." if is_record else missing
        return self._no_operation(str(number), why + (f" Nearby operations: {names}." if names else ""))

    def _no_operation(self, operation: str, why: str) -> UnknownOperation:
        id = self.row.session_id
        return UnknownOperation(
            f"Session {id!r} {why} List them with `pausepoint show {id} --operations`.",
            session_id=id, operation=operation[:KEPT],
        )  # fmt: skip

    # refusals

    async def _unknown(self, checkpoint: int | str, why: str) -> UnknownCheckpoint:
        number = max(checkpoint, 0) if isinstance(checkpoint, int) else self.row.seq
        above = await self.store.records(self.row.key, number + 1, min(number + NEAR, self.row.seq))
        listed = (_entry(record, ()) for record in above if record.kind == "checkpoint")
        near = [*await self.checkpoints(number + 1, 2), *islice(listed, 2)]
        names = ", ".join(f"{each.seq} ({each.name})" for each in near)
        return self._refusal(
            checkpoint, why + (f". Nearby checkpoints: {names}." if names else ". It has no checkpoints yet.")
        )

    def _refusal(self, checkpoint: int | str, why: str) -> UnknownCheckpoint:
        return UnknownCheckpoint(
            f"Session {self.row.session_id!r} {why}", session_id=self.row.session_id, at_checkpoint=checkpoint
        )


def _named(checkpoint: object) -> tuple[str, int | None]:
    """Split a visit's name into step and number.

    >>> _named("write#2"), _named("write")
    (('write', 2), ('write', None))
    """
    if not isinstance(checkpoint, str) or not checkpoint:
        raise TypeError(
            f"{shortened(checkpoint)} does not name a checkpoint. Pass its number, or a visit such as 'write#2'."
        )
    step, mark, number = checkpoint.rpartition("#")
    return (step, int(number)) if mark and number.isdecimal() else (checkpoint, None)


def _before(records: list[Record], reuse: bool) -> Before:
    """Return the session as it was before the visit that is open at the end of these records."""
    line = fold(records)
    if line.step is None:
        raise DamagedRecord(f"No visit is open at record {records[-1].seq}. Restore the database from a backup.")
    base, visit = line.base, f"{line.step}#{line.visit}"
    if not reuse:
        line = fold(record for record in records if record.seq <= base)
        for operation in line.operations.values():  # they come from a key frame in the middle of the visit
            if operation.part is not None:
                line.chunked.pop(operation.part.file_id, None)
        line.operations.clear()
        line.effects.clear()
    line.waits.clear()  # unfinished waits start again
    line.attempts, line.touched, line.tries = 0, False, 0
    return Before(line, base, visit)


class Undone(NamedTuple):
    """The ranges of a log that rewinds have left behind, and the operations that later visits ``kept`` from there."""

    ranges: tuple[tuple[int, int], ...]
    kept: Mapping[tuple[str, int], Mapping[str, OperationBody]]

    def has(self, record: Record, body: OperationBody) -> bool:
        """Return whether a rewind has undone an operation."""
        is_behind = any(first <= record.seq <= last for first, last in self.ranges)
        return is_behind and self.kept.get((record.step, record.visit), {}).get(body.id) != body


class _Call(NamedTuple):
    """An operation as a person names it: by its ``id``, or as a call of ``name``, the last one without ``nth``."""

    id: str
    name: str
    nth: int | None = None

    @classmethod
    def parse(cls, operation: object) -> _Call:
        """Split the name of an operation.

        >>> _Call.parse("think#3"), _Call.parse("think").nth
        (_Call(id='', name='think', nth=3), None)
        """
        if not isinstance(operation, str) or not operation:
            raise TypeError(
                f"{shortened(operation)} does not name an operation. Pass its id, the number of its record, or a call"
                " such as 'think' or 'think#3'."
            )
        if operation.startswith("/"):
            return cls(operation, operation_name(operation))
        name, mark, number = operation.rpartition("#")
        return cls("", name, int(number)) if mark and number.isdecimal() else cls("", operation)

    def ids_in(self, line: Line) -> list[str]:
        """Return the ids of the operations that the open visit remembers and that are meant, in order."""
        return [body.id for body in line.operations.values() if not body.total and self.means(body)]

    def means(self, body: OperationBody) -> bool:
        """Return whether an operation may be meant."""
        return body.id == self.id if self.id else body.name == self.name


def operation_of(record: Record) -> OperationBody | None:
    """Return the operation that a record is about; None if it is something else, or redacted."""
    if record.kind != "operation" or record.redacted:
        return None
    body: OperationBody = body_of(record)
    return None if body.total else body


SLACK = 10_000
"""By how many microseconds, and a hundredth of its time, an operation must overlap with another to count as begun
before its end. Clocks drift."""


def _forget(records: list[Record], line: Line, id: str) -> None:
    """Take an operation away from what the open visit remembers, and all that began after it had ended.

    The operations inside it go, too, and those around it, since they contain its result. The records are those of the
    line. If the operation was carried over from another line, its time is unknown: all that follows it goes.
    """
    began, after, effects, ended = set[str](), set[str](), set[str](), None
    is_after = False
    for record in records:
        body = body_of(record)
        journal = body.journal if isinstance(body, KeyBody) else None
        for each in journal.operations if journal else (body,):
            if isinstance(each, OperationBody) and each.id == id:
                is_after, ended = True, record.at if each is body else None
                after, effects = {id}, set()
            elif not is_after:
                if isinstance(each, WaitBody):
                    began.add(each.id)
            elif isinstance(each, OperationBody | WaitBody | EventBody):
                effects.update(effect.id for effect in each.effects)
                if not isinstance(each, OperationBody) or each.id in began or is_inside(id, {each.id}):
                    continue
                if not _overlaps(record, each, ended):
                    after.add(each.id)
    around = {each for each, body in line.operations.items() if is_inside(id, {each}) and not body.total}
    forgotten = around | {each for each in line.operations if each in after or is_inside(each, after)}
    for each in forgotten:
        part = line.operations.pop(each).part
        if part is not None and (tally := line.chunked.get(part.file_id)) is not None and tally.work == part.work:
            if part.index < 0:
                del line.chunked[part.file_id]
            else:
                tally.processed -= 1
    line.effects -= {each for each in line.effects if is_inside(each, after)}
    line.effects -= {each for each in effects if not is_inside(each, line.operations)}


def _overlaps(record: Record, body: OperationBody, ended: int | None) -> bool:
    """Return whether an operation that ended later had begun before another one ended, and cannot know its result."""
    if ended is None or record.at < ended:  # the clock was set back
        return False
    return record.at - body.took + SLACK + body.took // 100 < ended


def _entry(record: Record, left_behind: tuple[tuple[int, int], ...]) -> Checkpoint:
    at, behind = to_datetime(record.at), any(first <= record.seq <= last for first, last in left_behind)
    if record.redacted:
        return Checkpoint(record.step, record.visit, record.seq, at, left_behind=behind, redacted=True)
    body: CheckpointBody = body_of(record)
    fields = tuple(dict.fromkeys(change.path for change in body.changes))
    return Checkpoint(
        record.step, record.visit, record.seq, at, timedelta(microseconds=body.took), body.skipped, body.attempts,
        fields, body.version, behind,
    )  # fmt: skip
