"""Folds a session's events into visits: what ran when, what it waited for, what it retried, and what it cost."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from pausepoint.clock import to_datetime
from pausepoint.log.events import Cursor, label_of
from pausepoint.model.sessions import Event

BEGINNINGS = ("session.created", "session.forked", "session.resumed", "step.completed", "step.skipped")
"""A visit begins after one of these events."""

WAITS = {"timer.set": "timer", "question.asked": "question", "child.called": "child"}


class Part(msgspec.Struct, frozen=True):
    """Something inside a visit: an operation, a map, or a wait.

    ``kind`` is ``operation``, ``map``, ``timer``, ``question`` or ``child``. ``label`` tells the calls of one function
    apart: it is the key, or the beginning of the arguments. ``ended_at`` is None while it is open; a map has no end of
    its own. ``retries`` counts the attempts that failed, and ``error`` is the last failure. ``total`` is the number of
    the items of a map.
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


class Span(msgspec.Struct, frozen=True):
    """One visit of a step.

    - ``seq``: the number of the record that ended it; 0 while it is open.
    - ``began_at``, ``ended_at``: from when to when. ``took`` is the time that its code ran.
    - ``attempts``: how often the step was tried. ``skipped``: why it did not run.
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

    def open(self, step: str, visit: int) -> Span:
        """Return the open visit as far as it is known."""
        parts = tuple(self._parts.values())
        return Span(step, visit, to_datetime(self.since), usd=self.usd, tokens=self.tokens, parts=parts)

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
                part = self._part(event, "operation", event.summary.partition(": attempt ")[0])
                label = data.get("item", "") or part.label
                self._parts[part.id] = replace(part, retries=data["attempt"], error=data["error"], label=label)
            case "map.started":
                part = self._part(event, "map", event.summary.rpartition(": ")[0])
                self._parts[part.id] = replace(part, total=data["total"])
            case "timer.set" | "question.asked" | "child.called":
                self._part(event, WAITS[event.event_type], event.summary)

    def _part(self, event: Event, kind: str, name: str) -> Part:
        """Return the part with the event's id; a new one begins with the event."""
        id = str(event.data["id"])
        return self._parts.setdefault(id, Part(id, kind, name, to_datetime(event.created_at)))

    def _end_part(self, event: Event) -> None:
        began = event.created_at - int(event.data["took"] * 1e6)
        part = self._part(replace(event, created_at=began), "operation", event.summary)
        label = label_of(part.id, event.summary, event.data.get("arguments")) or part.label
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
        self._parts = {}


def _seq_of(event: Event) -> int:
    """Return the number of the record that an event belongs to."""
    cursor = Cursor.parse(event.cursor)
    return cursor.seq + (cursor.index > 0)
