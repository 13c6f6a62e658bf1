"""The data of a dictionary store, and facts about its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from pausepoint.model.descriptions import StoredDescription
from pausepoint.model.everything import Round
from pausepoint.model.records import Record, SignalRecord
from pausepoint.model.sessions import (
    Flags,
    Pause,
    QuestionFacts,
    QuestionStatus,
    SessionRow,
    Tombstone,
)

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
class Data:
    """The data that all engines share. It stays when they close."""

    sessions: dict[int, Kept] = field(default_factory=dict)
    large: dict[bytes, bytes] = field(default_factory=dict)
    stones: list[Tombstone] = field(default_factory=list)
    engines: dict[int, Callable[[], None]] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    descriptions: dict[bytes, StoredDescription] = field(default_factory=dict)
    drives: dict[int, tuple[str, ...]] = field(default_factory=dict)
    standing: Pause | None = None
    rounds: list[Round] = field(default_factory=list)
    asked: dict[int, int] = field(default_factory=dict)  # by epoch
    last_key: int = 0
    last_question: int = 0
    last_engine: int = 0
    feed: list[Entry] = field(default_factory=list)
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
