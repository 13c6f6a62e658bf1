"""Adds up a session's log: how often each step and each operation ran, for how long, how often it failed, its cost."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import msgspec

from pausepoint.log.replay import Body, CheckpointBody, EventBody, OperationBody, WaitBody, body_of
from pausepoint.log.timeline import Undone, operation_of
from pausepoint.model.records import Record

MOST = 200
"""How many operations have totals of their own. Those that took longest come first."""

FAILURES = ("step.retried", "session.failed")


class Total(msgspec.Struct, frozen=True):
    """What a step, or an operation, has done in a session.

    - ``count``: how many visits, or calls, have ended and still count. ``undone``: how many a rewind has undone.
    - ``took``: how long their code ran. ``longest`` is the longest of them, and ``longest_at`` its record.
    - ``first``, ``last``: the records of the first and the last one; 0 if none has ended.
    - ``failures``: how many attempts have failed; for a step also those of its operations.
    - ``usd``, ``tokens``: what they spent, also those undone. An operation has no cost of its own.
    """

    name: str
    count: int
    undone: int
    took: timedelta
    longest: timedelta
    longest_at: int
    first: int
    last: int
    failures: int
    usd: float = 0.0
    tokens: int = 0


class Totals(msgspec.Struct, frozen=True):
    """A session as a whole. ``earlier`` visits, also undone ones, ended before the record that was asked for."""

    earlier: int
    steps: tuple[Total, ...]
    operations: tuple[Total, ...]

    @property
    def visits(self) -> int:
        """The visits that have ended and still count."""
        return sum(each.count for each in self.steps)

    @property
    def took(self) -> timedelta:
        """How long their code ran."""
        return sum((each.took for each in self.steps), timedelta())


class Adder:
    """The fold. Add the records of a session in order, then read `totals`. Open visits and waits are not counted."""

    def __init__(self, undone: Undone, before: int | None = None) -> None:
        self._undone = undone
        self._before = before
        self._earlier = 0
        self._steps: dict[str, _Sum] = {}
        self._operations: dict[str, _Sum] = {}
        self._waits: set[str] = set()  # the open ones: the operation that ends a wait is no work

    def add(self, records: Iterable[Record]) -> None:
        """Add some records."""
        for record in records:
            if record.kind == "checkpoint" and (self._before is None or record.seq < self._before):
                self._earlier += 1
            self._add(record, None if record.redacted else body_of(record))

    def totals(self) -> Totals:
        """Return the totals of the records so far."""
        longest = sorted(self._operations.items(), key=lambda each: -each[1].took)[:MOST]
        steps = tuple(found.total(name) for name, found in self._steps.items())
        return Totals(self._earlier, steps, tuple(found.total(name) for name, found in longest))

    def _add(self, record: Record, body: Body | None) -> None:
        if record.kind == "checkpoint":
            took = body.took if isinstance(body, CheckpointBody) else 0
            is_behind = any(first <= record.seq <= last for first, last in self._undone.ranges)
            step = self._step(record.step)
            step.end(record.seq, took, is_behind)
            step.failures += isinstance(body, CheckpointBody) and body.failure is not None
        elif isinstance(body, WaitBody) and body.error:
            self._operation(body.name).failures += 1
            self._step(record.step).failures += 1
        elif isinstance(body, WaitBody):
            self._waits.add(body.id)
        elif isinstance(body, OperationBody) and body.id in self._waits:
            self._waits.discard(body.id)
        elif (call := operation_of(record)) is not None:
            self._operation(call.name).end(record.seq, call.took, self._undone.has(record, call))
        elif isinstance(body, EventBody) and body.type in FAILURES:
            self._step(record.step).failures += 1
        for effect in getattr(body, "effects", ()):
            if effect.usd or effect.tokens:
                self._step(record.step).spend(effect.usd, effect.tokens)

    def _step(self, name: str) -> _Sum:
        return self._steps.setdefault(name, _Sum())

    def _operation(self, name: str) -> _Sum:
        return self._operations.setdefault(name, _Sum())


class _Sum:
    """A total while it grows. Times are in microseconds."""

    __slots__ = ("count", "failures", "first", "last", "longest", "longest_at", "tokens", "took", "undone", "usd")

    def __init__(self) -> None:
        self.count = self.undone = self.took = self.longest = self.longest_at = self.first = self.last = 0
        self.failures = self.usd = self.tokens = 0

    def end(self, seq: int, took: int, is_undone: bool) -> None:
        if is_undone:
            self.undone += 1
            return
        self.count += 1
        self.took += took
        self.first, self.last = self.first or seq, seq
        if took >= self.longest:
            self.longest, self.longest_at = took, seq

    def spend(self, usd: int, tokens: int) -> None:
        self.usd += usd
        self.tokens += tokens

    def total(self, name: str) -> Total:
        return Total(
            name, self.count, self.undone, timedelta(microseconds=self.took), timedelta(microseconds=self.longest),
            self.longest_at, self.first, self.last, self.failures, self.usd / 1e6, self.tokens,
        )  # fmt: skip
