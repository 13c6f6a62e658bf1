"""The last changes, kept for clients that come back."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from functools import cached_property

import msgspec

from pausepoint.engine.history_documents import EventDocument
from pausepoint.model.sessions import Event

REMEMBERED = 4096
"""The number of changes that are kept."""

SIZE = 16 * 2**20
"""The most bytes of history that they have together."""


class Entry:
    """One change of one session. ``mark`` is the position after it; it is shared by changes without a write."""

    def __init__(
        self, mark: str, session_id: str, owner: str | None, known: bool, events: tuple[Event, ...] = ()
    ) -> None:
        self.mark = mark
        self.session_id = session_id
        self.owner = owner
        self.known = known  # otherwise the session was removed, and its owner is not known
        self.events = events
        self.asks = any(each.event_type.startswith(("question.", "answer.")) for each in events)
        self.cut = False  # its events are only in the store

    @cached_property
    def line(self) -> bytes:
        """The new events of the session's history, with the mark. A client that has received it has all before it."""
        return _line(self.session_id, self.events, self.mark)

    def without(self, seen: Collection[tuple[str, str]]) -> bytes:
        """Return the events that a client has not read from the store already."""
        if not seen:
            return self.line
        left = tuple(each for each in self.events if (self.session_id, each.cursor) not in seen)
        return self.line if len(left) == len(self.events) else _line(self.session_id, left, self.mark) if left else b""

    def is_new(self, seen: Collection[tuple[str, str]]) -> bool:
        """Return whether its mark is after what a client has read from the store already."""
        return not seen or any((self.session_id, each.cursor) not in seen for each in self.events)


def _line(session_id: str, events: Iterable[Event], mark: str) -> bytes:
    document = {"session_id": session_id, "events": [EventDocument.of(event) for event in events]}
    return f"event: line\nid: {mark}\ndata: ".encode() + msgspec.json.encode(document) + b"\n\n"


class Entries:
    """The last changes. Events of sessions that no client follows are not kept: the store has them."""

    def __init__(self) -> None:
        self._kept: deque[Entry] = deque()
        self._size = 0

    def restart(self, mark: str) -> None:
        """Forget all changes. Clients may continue at this mark."""
        self._kept.clear()
        self._size = 0
        self._kept.append(Entry(mark, "", None, False))

    def add(self, entries: Iterable[Entry], followed: Collection[str]) -> None:
        """Keep changes. ``followed`` are the sessions whose history a client follows."""
        for entry in entries:
            if entry.events and entry.session_id in followed:
                self._size += len(entry.line)
            elif entry.events:
                entry.events, entry.cut = (), True
            self._kept.append(entry)
        while len(self._kept) > REMEMBERED or self._size > SIZE:
            oldest = self._kept.popleft()
            self._size -= len(oldest.line) if oldest.events else 0

    def since(self, mark: str, follows: Collection[str]) -> list[Entry] | None:
        """Return the changes after a mark; None if only the store has what a client that follows these sessions needs.

        Changes without a write that have the same mark are among them.
        """
        entries = list(self._kept)
        for n, entry in enumerate(entries):
            if entry.mark == mark:
                found = entries[n + 1 :]
                return None if any(each.cut and each.session_id in follows for each in found) else found
        return None
