"""The data of a dictionary store, and facts about its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pausepoint.model.commits import Flags
from pausepoint.model.descriptions import StoredDescription
from pausepoint.model.drawers import StoredDrawer, StoredStream, StoredValue
from pausepoint.model.everything import Round
from pausepoint.model.limits import StoredLimit, Target
from pausepoint.model.records import Record, SignalRecord
from pausepoint.model.schedules import Schedule
from pausepoint.model.sessions import Pause, QuestionFacts, QuestionStatus, SessionRow
from pausepoint.model.stores import Tombstone
from pausepoint.stores.base import OnChange

Drives = tuple[tuple[str, ...], tuple[str, ...] | None]
"""The workflows and queues of an engine, as in `pausepoint.model.stores.Holder`."""

OPEN = (QuestionStatus.WAITING, QuestionStatus.RESUMED)


@dataclass
class Kept:
    """A session with everything that belongs to it."""

    row: SessionRow
    records: list[Record]
    pauses: list[Pause] = field(default_factory=list)
    signals: list[SignalRecord] = field(default_factory=list)
    inbox: list[int] = field(default_factory=list)
    names: set[bytes] = field(default_factory=set)
    questions: dict[int, QuestionFacts] = field(default_factory=dict)
    tombstone: Tombstone | None = None  # set while the session is being removed
    exempt: int = 0  # rounds of the pause of everything up to this one do not concern it
    epochs: dict[str, int] = field(default_factory=dict)  # the pause of everything that a pause record is part of


class Entry(NamedTuple):
    """A record, a signal or a tombstone, in the order of all writes. ``turn`` is the number of the write."""

    kind: str
    turn: int
    key: int
    number: int
    digest: bytes


@dataclass
class Request:
    """A remembered request."""

    digest: bytes
    answer: bytes | None
    until: int
    holder: int
    took_effect: bool = False
    treated: set[int] = field(default_factory=set)


@dataclass
class KeptStream:
    """A stream in a drawer."""

    entries: list[bytes] = field(default_factory=list)
    changed: int = 0
    note: bytes | None = None


@dataclass
class KeptDrawer:
    """A drawer with everything in it."""

    name: str
    changed: int = 0
    version: int = 0
    keep_for: int | None = None
    streams: dict[str, KeptStream] = field(default_factory=dict)
    values: dict[str, StoredValue] = field(default_factory=dict)

    @property
    def size(self) -> int:
        data = [each for stream in self.streams.values() for each in (stream.note or b"", *stream.entries)]
        return sum(map(len, [*data, *(each.data for each in self.values.values())]))

    def stored(self) -> StoredDrawer:
        streams = [
            StoredStream(name, each.changed, each.note, list(each.entries))
            for name, each in sorted(self.streams.items())
        ]
        values = [each for _, each in sorted(self.values.items())]
        return StoredDrawer(self.name, self.changed, self.version, self.keep_for, streams, values)

    @staticmethod
    def of(stored: StoredDrawer) -> KeptDrawer:
        streams = {each.stream: KeptStream(list(each.entries), each.changed, each.note) for each in stored.streams}
        values = {each.key: each for each in stored.values}
        return KeptDrawer(stored.name, stored.changed, stored.version, stored.keep_for, streams, values)


@dataclass
class Data:
    """The data that all engines share. It stays when they close."""

    sessions: dict[int, Kept] = field(default_factory=dict)
    large: dict[bytes, bytes] = field(default_factory=dict)
    stones: list[Tombstone] = field(default_factory=list)
    engines: dict[int, OnChange] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    descriptions: dict[bytes, StoredDescription] = field(default_factory=dict)
    schedules: dict[str, Schedule] = field(default_factory=dict)
    limits: dict[tuple[Target, bool], StoredLimit] = field(default_factory=dict)  # by target and ``declared``
    drawers: dict[tuple[int, str], KeptDrawer] = field(default_factory=dict)  # by session (0: none) and name
    drives: dict[int, Drives] = field(default_factory=dict)
    standing: Pause | None = None
    rounds: list[Round] = field(default_factory=list)
    asked: dict[int, int] = field(default_factory=dict)  # by epoch
    last_key: int = 0
    last_question: int = 0
    last_engine: int = 0
    feed: list[Entry] = field(default_factory=list)
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)  # by session id and stored name
    in_use: dict[str, list[str]] = field(default_factory=dict)
    reserved: set[str] = field(default_factory=set)
    turn: int = 0


def over(row: SessionRow) -> bool:
    return row.ended in ("completed", "cancelled")


def is_open_request(pause: Pause) -> bool:
    return pause.kind == "operator" and pause.closed_at is None


def own_freeze(kept: Kept) -> int | None:
    """Return since when a pause of the session's own freezes its timers."""
    own = [each for each in kept.pauses if is_open_request(each) and not each.standing and each.freeze]
    return min((each.created_at for each in own), default=None)


def noted(kept: Kept) -> dict[int, int]:
    """Return the open records of pauses of everything: their epochs, and since when."""
    return {kept.epochs[each.id]: each.created_at for each in kept.pauses if is_open_request(each) and each.standing}


def flags_of(row: SessionRow) -> Flags:
    return Flags(row.pause_requested, row.pause_mode, row.cancel_requested, row.mail)
