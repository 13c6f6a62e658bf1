"""Simulated power loss: the files that a recorded run can leave on the disk.

Synced writes survive. Any part of the unsynced writes may survive: none, all, the first ones, some but not others, or
single 512-byte sectors of a write. A name (a new file, a deletion) is durable once its folder is synced. SQLite syncs
the folder with the first sync of a new side file.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from tests.faults.vfs import Touch
from tests.faults.witness import Note

SECTOR = 512

Style = Literal["synced", "all", "prefix", "torn tail", "subset", "sectors"]
STYLES: tuple[Style, ...] = ("synced", "all", "prefix", "torn tail", "subset", "sectors")


@dataclass(frozen=True)
class CrashState:
    """The files after a power loss, and the writes that were acknowledged before it."""

    name: str
    files: dict[str, bytes]
    notes: tuple[Note, ...]

    def digest(self) -> bytes:
        """Return a digest that distinguishes states: their files, and how much was acknowledged before."""
        told = sum(note.what == "ack" for note in self.notes)
        files = sorted((ending, sha256(content).digest()) for ending, content in self.files.items())
        return sha256(repr((told, files)).encode()).digest()

    def build(self, database: Path) -> None:
        for ending, content in self.files.items():
            database.with_name(database.name + ending).write_bytes(content)


@dataclass
class _File:
    """One file name. ``content`` is durable (None: the file does not exist), ``pending`` are the later writes.

    If the name was deleted but the deletion is not durable yet, ``successor`` holds what was written under it since.
    """

    content: bytes | None = None
    pending: list[Touch] = field(default_factory=list)
    deleted: bool = False
    successor: list[Touch] = field(default_factory=list)

    @property
    def named(self) -> bool:
        """Return whether the file that is being written has a durable name."""
        return self.content is not None and not self.deleted


class Disk:
    """Follows a run touch by touch and computes the possible results of a power loss at any moment."""

    def __init__(self, database: bytes) -> None:
        # The store creates an empty file and syncs the folder before SQLite sees the file.
        self.files = {"": _File(database)}

    def touch(self, touch: Touch) -> None:
        file = self.files.setdefault(touch.file, _File())
        if touch.kind == "sync":
            self._sync(file)
        elif touch.kind == "delete":
            file.deleted = True
            file.successor = []
        else:
            (file.successor if file.deleted else file.pending).append(touch)

    def _sync(self, file: _File) -> None:
        if not file.named:
            for other in self.files.values():
                _settle_name(other)
            file.content = file.content or b""
        file.content = applied(file.content or b"", file.pending)
        file.pending = []

    def crash(self, style: Style, rng: random.Random) -> dict[str, bytes]:
        """Return the remaining files by the ending of their names."""
        left: dict[str, bytes] = {}
        for ending, file in self.files.items():
            content = _left(file, style, rng)
            if content is not None:
                left[ending] = content
        return left


def _settle_name(file: _File) -> None:
    """Apply a sync of the folder: deletions and new names become durable."""
    if file.deleted:
        file.content, file.pending = None, file.successor
        file.deleted, file.successor = False, []
    if file.content is None and file.pending:
        file.content = b""


def _left(file: _File, style: Style, rng: random.Random) -> bytes | None:
    gone = file.deleted and (style == "all" or (style != "synced" and rng.random() < 0.5))
    content, pending = (None, file.successor) if gone else (file.content, file.pending)
    if content is None and (not pending or style == "synced" or (style != "all" and rng.random() < 0.3)):
        return None
    return applied(content or b"", survivors(pending, style, rng))


def survivors(pending: Sequence[Touch], style: Style, rng: random.Random) -> list[Touch]:
    """Return the unsynced writes that a power loss leaves, or their parts."""
    if style == "synced":
        return []
    if style == "all":
        return list(pending)
    if style == "subset":
        return [touch for touch in pending if rng.random() < 0.5]
    if style == "sectors":
        return [part for touch in pending for part in _sectors(touch) if rng.random() < 0.5]
    kept = list(pending[: rng.randint(0, len(pending))])
    if style == "torn tail" and kept:
        parts = list(_sectors(kept.pop()))
        kept += parts[: rng.randint(0, len(parts))]
    return kept


def _sectors(touch: Touch) -> Iterator[Touch]:
    """Split a write into the writes of its sectors."""
    if touch.kind != "write":
        yield touch
        return
    start, end = touch.offset, touch.offset + len(touch.data)
    while start < end:
        stop = min((start // SECTOR + 1) * SECTOR, end)
        yield Touch(touch.index, "write", touch.file, start, touch.data[start - touch.offset : stop - touch.offset])
        start = stop


def applied(content: bytes, touches: Sequence[Touch]) -> bytes:
    """Return the content after some writes and truncations."""
    if not touches:
        return content
    buffer = bytearray(content)
    for touch in touches:
        if touch.kind == "truncate":
            del buffer[touch.offset :]
            buffer.extend(bytes(touch.offset - len(buffer)))
            continue
        buffer.extend(bytes(max(0, touch.offset - len(buffer))))
        buffer[touch.offset : touch.offset + len(touch.data)] = touch.data
    return bytes(buffer)


def sample(events: Sequence[Any], database: bytes, rng: random.Random, count: int) -> Iterator[CrashState]:
    """Yield up to ``count`` different states: after every acknowledgement, and at other random moments of the run."""
    moments = _moments(events, rng, count)
    disk = Disk(database)
    notes: list[Note] = []
    seen: set[bytes] = set()
    for place, event in enumerate(events):
        if isinstance(event, Touch):
            disk.touch(event)
        else:
            notes.append(event)
        for style in moments.get(place, ()):
            state = CrashState(f"{style}, after event {place}", disk.crash(style, rng), tuple(notes))
            if (digest := state.digest()) not in seen:
                seen.add(digest)
                yield state


def _moments(events: Sequence[Any], rng: random.Random, count: int) -> dict[int, list[Style]]:
    """Choose the events after which the power fails, and the styles of loss for each."""
    told = [place for place, event in enumerate(events) if isinstance(event, Note) and event.what == "ack"]
    moments: dict[int, list[Style]] = {}
    for place in told[:count]:
        moments[place] = ["synced"]
    while sum(map(len, moments.values())) < count:
        place = rng.choice(told) if rng.random() < 0.25 else rng.randrange(len(events))
        moments.setdefault(place, []).append(rng.choice(STYLES))
    return moments
