"""Folds a session's events into visits: what ran when, what it waited for, what it retried, and what it cost."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from pausepoint.clock import to_datetime, to_micros
from pausepoint.log.events import Cursor, label_of
from pausepoint.model.sessions import Event

BEGINNINGS = ("session.created", "session.forked", "session.resumed", "step.completed", "step.skipped")
"""A visit begins after one of these events."""

WAITS = {"timer.set": "timer", "question.asked": "question", "child.called": "child"}


ATTEMPTS = 10
"""How many failed attempts at one thing are kept: the last ones."""


class Attempt(msgspec.Struct, frozen=True):
    """An attempt that failed, with its error.

    ``began_at`` is estimated until the operation has ended, because only its failure is recorded. ``again_at`` is the
    time of the next attempt; None if there was none, so that the session has failed.
    """

    began_at: datetime
    ended_at: datetime
    error: str
    again_at: datetime | None = None


class Part(msgspec.Struct, frozen=True):
    """Something inside a visit: an operation, a map, or a wait.

    ``kind`` is ``operation``, ``map``, ``timer``, ``question`` or ``child``. ``label`` tells the calls of one function
    apart: it is the key, or the beginning of the arguments. ``ended_at`` is None while it is open; a map has no end of
    its own. ``retries`` counts the attempts that failed, and ``error`` is the last failure; ``failed`` are the last
    of them. ``total`` is the number of the items of a map.
    """

    id: str
    kind: str
    name: str
    began_at: datetime
    ended_at: datetime | None = None
    retries: int = 0
    error: str = ""
    total: int = 0
    label: str = ""
    failed: tuple[Attempt, ...] = ()


class Span(msgspec.Struct, frozen=True):
    """One visit of a step.

    - ``seq``: the number of the record that ended it; 0 while it is open.
    - ``began_at``, ``ended_at``: from when to when. ``took`` is the time that its code ran.
    - ``attempts``: how often the step was tried; ``failed``: the last attempts that failed. ``skipped``: why it did
      not run.
    - ``usd``, ``tokens``: what it spent.
    - ``parts``: its operations, maps and waits, in the order in which they appeared.
    - ``left_behind``: a rewind has undone it.
    """

    step: str
    visit: int
    began_at: datetime
    seq: int = 0
    ended_at: datetime | None = None
    took: timedelta = timedelta()
    attempts: int = 1
    skipped: str = ""
    usd: float = 0.0
    tokens: int = 0
    parts: tuple[Part, ...] = ()
    left_behind: bool = False
    failed: tuple[Attempt, ...] = ()

    @property
    def operations(self) -> tuple[Part, ...]:
        """The operations that have ended."""
        return tuple(part for part in self.parts if part.kind == "operation" and part.ended_at is not None)

    @property
    def waits(self) -> tuple[Part, ...]:
        """The timers, questions and children that it waits or waited for."""
        return tuple(part for part in self.parts if part.kind in WAITS.values())

    @property
    def retries(self) -> int:
        """How many attempts of operations have failed."""
        return sum(part.retries for part in self.parts)


class Spans:
    """The fold. Apply a session's events in order; the visits are in ``done``, and the open one is `open`."""

    def __init__(self) -> None:
        self.done: list[Span] = []
        self.since = 0  # when the open visit began, in microseconds
        self.remembered = 0  # the operations of the open visit that have ended
        self.usd = 0.0
        self.tokens = 0
        self._parts: dict[str, Part] = {}
        self._failed: tuple[Attempt, ...] = ()
        self._now = 0  # the time of the last event

    def apply(self, event: Event, place: tuple[str, int] = ("", 0)) -> None:
        """Fold in one event. ``place`` is the open step and visit, for a visit that a rewind leaves unfinished."""
        if event.event_type == "session.rewound":
            self._rewound(event, place)
        elif event.event_type in ("step.completed", "step.skipped"):
            self._ended(event)
        else:
            self._inside(event)
        if event.event_type in BEGINNINGS:
            self.since = event.created_at
        self._now = event.created_at

    def open(self, step: str, visit: int) -> Span:
        """Return the open visit as far as it is known."""
        parts = tuple(self._parts.values())
        return Span(
            step, visit, to_datetime(self.since), usd=self.usd, tokens=self.tokens, parts=parts, failed=self._failed
        )

    def ended_redacted(self, step: str, visit: int, seq: int, at: int) -> None:
        """Fold in a checkpoint whose content was deleted: only its place and its time are known."""
        self.done.append(replace(self.open(step, visit), seq=seq, ended_at=to_datetime(at)))
        self._begin()
        self.since = at

    def keep(self, place: tuple[str, int], ids: Collection[str]) -> None:
        """Move operations from a visit that a rewind left behind, at this step and visit, to the open one."""
        for n, span in enumerate(self.done):
            if span.left_behind and (span.step, span.visit) == place:
                self._parts.update((part.id, part) for part in span.parts if part.id in ids)
                self.done[n] = replace(span, parts=tuple(part for part in span.parts if part.id not in ids))

    def _inside(self, event: Event) -> None:
        data = event.data
        match event.event_type:
            case "spent":
                self.usd += data["usd"]
                self.tokens += data["tokens"]
            case "operation.completed":
                self.remembered += 1
                self._end_part(event)
            case "operation.retried":
                self._retry_part(event)
            case "step.retried":
                self._failed = _added(self._failed, event, self.since, data["error"])
            case "session.failed" if "attempts" in data:  # otherwise the visit has ended, and what follows it failed
                self._failed = _added(self._failed, event, self.since, f"{data['type']}: {event.summary}")
            case "map.started":
                part = self._part(event, "map", event.summary.rpartition(": ")[0])
                self._parts[part.id] = replace(part, total=data["total"])
            case "timer.set" | "question.asked" | "child.called":
                self._part(event, WAITS[event.event_type], event.summary)

    def _part(self, event: Event, kind: str, name: str) -> Part:
        """Return the part with the event's id; a new one begins with the event."""
        id = str(event.data["id"])
        return self._parts.setdefault(id, Part(id, kind, name, to_datetime(event.created_at)))

    def _retry_part(self, event: Event) -> None:
        data, before = event.data, self._parts.get(str(event.data["id"]))
        began = self.since if before and before.failed else max(self._now, self.since)
        part = self._part(replace(event, created_at=began), "operation", event.summary.partition(": attempt ")[0])
        self._parts[part.id] = replace(
            part, retries=data["attempt"], error=data["error"], label=data.get("item", "") or part.label,
            failed=_added(part.failed, event, began, data["error"]),
        )  # fmt: skip

    def _end_part(self, event: Event) -> None:
        began = event.created_at - int(event.data["took"] * 1e6)
        part = self._part(replace(event, created_at=began), "operation", event.summary)
        label = label_of(part.id, event.summary, event.data.get("arguments")) or part.label
        if part.failed and to_datetime(began) <= part.failed[0].ended_at:  # its time includes all attempts
            first = replace(part.failed[0], began_at=to_datetime(began))
            kept = part.failed if part.retries > len(part.failed) else (first, *part.failed[1:])
            part = replace(part, began_at=to_datetime(began), failed=kept)
        self._parts[part.id] = replace(part, name=event.summary, ended_at=to_datetime(event.created_at), label=label)

    def _ended(self, event: Event) -> None:
        data = event.data
        why = event.summary.partition(": ")[2] if event.event_type == "step.skipped" else ""
        whole = replace(
            self.open(data["step"], data["visit"]), seq=_seq_of(event), ended_at=to_datetime(event.created_at),
            took=timedelta(seconds=data["took"]), attempts=data["attempts"], skipped=why,
        )  # fmt: skip
        self.done.append(whole)
        self._begin()

    def _rewound(self, event: Event, place: tuple[str, int]) -> None:
        """Mark what the session leaves behind: the visits after the record that it continues from, and the open one."""
        base = int(event.data["seq"])
        self.done = [replace(span, left_behind=True) if span.seq > base else span for span in self.done]
        if self._parts or self.usd or self.tokens:
            self.done.append(replace(self.open(*place), seq=_seq_of(event), left_behind=True))
        self._begin()

    def _begin(self) -> None:
        self.remembered, self.usd, self.tokens = 0, 0.0, 0
        self._parts, self._failed = {}, ()


def _added(failed: tuple[Attempt, ...], event: Event, began: int, error: str) -> tuple[Attempt, ...]:
    """Return the failed attempts with one more. It ended with the event, and began at ``began`` or when it was due."""
    ended, delay = event.created_at, event.data.get("delay")
    again = None if delay is None else to_datetime(ended + int(delay * 1e6))
    if failed and failed[-1].again_at is not None:
        began = max(began, to_micros(failed[-1].again_at))
    new = Attempt(to_datetime(min(began, ended)), to_datetime(ended), error, again)
    return (*failed, new)[-ATTEMPTS:]


def _seq_of(event: Event) -> int:
    """Return the number of the record that an event belongs to."""
    cursor = Cursor.parse(event.cursor)
    return cursor.seq + (cursor.index > 0)
