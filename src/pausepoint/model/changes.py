"""Changes of all sessions in the order in which they were stored, and the marks of their readers."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from pausepoint.errors import DamagedRecord
from pausepoint.model.sessions import Event
from pausepoint.model.stores import Tombstone

DIGEST = 8
"""The bytes of a row's digest that a mark carries. A digest includes a random salt, so they identify the row."""

_LARGEST = 2**63 - 1
_POINT = r"(\d{1,19}):((?:[0-9a-f]{16})?)"
_TEXT = re.compile(rf"{_POINT},{_POINT},{_POINT}(?:,(\d{{1,19}}),(\d{{1,19}}),(\d{{1,19}}))?")


class Point(NamedTuple):
    """A row that a reader has read, and the beginning of its digest: its number can be used again after a removal."""

    number: int = 0
    digest: bytes = b""

    def __str__(self) -> str:
        return f"{self.number}:{self.digest.hex()}"


class Within(NamedTuple):
    """A position inside a page: the records and signals before the page, and the last session that was read."""

    record: int
    signal: int
    session: int


class Mark(msgspec.Struct, frozen=True):
    """A reader's position: the last record, the last signal and the last tombstone that it has read.

    With ``within``, the reader has read only some sessions of the page that ends there.
    """

    record: Point = Point()
    signal: Point = Point()
    stone: Point = Point()
    within: Within | None = None

    @classmethod
    def parse(cls, text: object) -> Mark:
        """Parse the mark of a change. An empty string is the beginning.

        >>> Mark.parse(str(Mark(Point(12, bytes(8))))).record.number
        12
        >>> Mark.parse("12")
        Traceback (most recent call last):
        ValueError: '12' is not the mark of a change. Pass the mark of a change that you received, '' for the \
beginning, or None for the present.
        """
        if not text:
            return cls()
        found = _TEXT.fullmatch(text) if isinstance(text, str) and text.isascii() else None
        if found is None or not _is_possible(found.groups()):
            raise ValueError(
                f"{text!r:.100} is not the mark of a change. Pass the mark of a change that you received, '' for the"
                " beginning, or None for the present."
            )
        parts = found.groups()
        record, signal, stone = (Point(int(parts[n]), bytes.fromhex(parts[n + 1])) for n in (0, 2, 4))
        return cls(record, signal, stone, None if parts[6] is None else Within(*map(int, parts[6:])))

    def __str__(self) -> str:
        whole = f"{self.record},{self.signal},{self.stone}"
        return whole if self.within is None else f"{whole},{','.join(map(str, self.within))}"


def _is_possible(parts: tuple[str | None, ...]) -> bool:
    """Return whether a mark has only numbers that a row can have, and a digest for each row that it names."""
    numbers = [int(part) for part in (*parts[0:6:2], *parts[6:]) if part is not None]
    named = all((int(parts[n] or 0) > 0) == bool(parts[n + 1]) for n in (0, 2, 4))
    within = parts[6] is None or (int(parts[6]) <= int(parts[0] or 0) and int(parts[7] or 0) <= int(parts[2] or 0))
    return named and within and max(numbers) <= _LARGEST


class Moved(msgspec.Struct, frozen=True):
    """A session with new records ``since <= seq <= until``, new signals ``after < n <= last``, or a tombstone.

    ``above`` are the ids of its ancestors, parent first. ``mark`` is the position after it.
    """

    key: int
    session_id: str
    since: int
    until: int
    after: int
    last: int
    mark: Mark
    above: tuple[str, ...] = ()
    stone: Tombstone | None = None


class Page(msgspec.Struct, frozen=True):
    """The next sessions that changed, and the position after them. ``more``: there are further changes."""

    moved: tuple[Moved, ...]
    mark: Mark
    more: bool = False


class Change(msgspec.Struct, frozen=True):
    """A session that changed, and its new events. `Engine.changes` yields it.

    - ``seq``: the number of the session's last record in this change.
    - ``events``: the new events, in the order of the session's history.
    - ``mark``: the position after this change. Store it, and pass it as ``after`` to continue from here.
    - ``reset``: the changes up to here are not known, or were not asked for. Read what you need again. Such a change
      has no session.
    - ``damaged``: why the new events of the session cannot be read.
    """

    session_id: str
    seq: int
    events: tuple[Event, ...]
    mark: str
    reset: bool = False
    damaged: DamagedRecord | None = None
