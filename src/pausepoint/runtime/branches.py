"""The branches of a visit that wait, found by what they wait for.

A step may wait for thousands of answers and children at once. What arrives concerns one of these branches, and the
others must not be looked at for it: their number would make all of them together quadratic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from pausepoint.errors import DamagedRecord
from pausepoint.model.questions import about
from pausepoint.model.records import SignalRecord

if TYPE_CHECKING:
    from pausepoint.runtime.visit import Visit

Branch = asyncio.Future[None]
"""What a waiting branch awaits. It is done when the branch must check again."""

Topic = tuple[str, str]
"""A kind of signal and what the signal is about: a question, the key of a question, or a child."""


MANY = 100
"""From this number of waiting branches on, a visit that only waits does not exit at once."""

LONGEST_REST = 1.0
"""The most seconds that such a visit stays."""


class Wait(NamedTuple):
    """What a branch of a visit waits for. ``due`` is the time of a timer, ``child`` the child session that must end.

    A ``question`` may have a ``due`` time too, at which it expires or a reminder is recorded. With a ``key``, an answer
    to that key ends the wait too. The step does not exit for a wait that ``holds``, because it is short.
    """

    kind: Literal["timer", "message", "child", "answer"]
    due: int | None = None
    child: str = ""
    question: str = ""
    holds: bool = False
    key: str = ""

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The signals that end this wait."""
        match self.kind:
            case "answer":
                return ("answer", self.question), ("early", self.key)
            case "child":
                return (("child", self.child),)
            case "message":
                return (("message", ""),)
        return ()


def topic_of(signal: SignalRecord) -> Topic | None:
    """Return what a signal is about. None if that cannot be read, because the signal was redacted or is damaged."""
    if signal.kind == "message":
        return "message", ""
    try:
        return (signal.kind, about(signal.kind, signal.payload) or "") if signal.payload else None
    except msgspec.MsgspecError:
        return None


class Waiting:
    """The waiting branches of one visit."""

    def __init__(self) -> None:
        self.arrivals = 0  # how often something has arrived, for whichever branch
        self._waits: dict[Branch, tuple[Wait, ...]] = {}
        self._topics: dict[Topic, dict[Branch, None]] = {}
        self._dues: list[tuple[int, int, Branch]] = []  # a heap; a branch that waits no longer may still be in it
        self._number = 0
        self._holding: set[Branch] = set()
        self._arrived: dict[Topic, int] = {}
        self._all_arrived = 0

    def __len__(self) -> int:
        return len(self._waits)

    def __iter__(self) -> Iterator[Branch]:
        return iter(tuple(self._waits))

    @property
    def waits(self) -> Iterator[Wait]:
        """What the branches wait for."""
        return (wait for waits in self._waits.values() for wait in waits)

    def add(self, branch: Branch, waits: tuple[Wait, ...]) -> None:
        """Add a branch, which waits for the first of ``waits``."""
        self._waits[branch] = waits
        for wait in waits:
            for topic in wait.topics:
                self._topics.setdefault(topic, {})[branch] = None
            if wait.holds:
                self._holding.add(branch)
        due = min((wait.due for wait in waits if wait.due is not None), default=None)
        if due is not None:
            self._number += 1
            heappush(self._dues, (due, self._number, branch))

    def remove(self, branch: Branch) -> None:
        """Remove a branch, if it is still there."""
        for wait in self._waits.pop(branch, ()):
            for topic in wait.topics:
                branches = self._topics.get(topic, {})
                branches.pop(branch, None)
                if not branches:
                    self._topics.pop(topic, None)
        self._holding.discard(branch)

    # time

    def first_due(self) -> int | None:
        """Return the earliest time at which a branch must check again."""
        while self._dues and self._dues[0][2] not in self._waits:
            heappop(self._dues)
        return self._dues[0][0] if self._dues else None

    def due(self, now: int) -> list[Branch]:
        """Return the branches that must check again because of the time."""
        found = []
        while (first := self.first_due()) is not None and first <= now:
            found.append(heappop(self._dues)[2])
        return found

    @property
    def holding(self) -> tuple[Branch, ...]:
        """The branches for which the step does not exit."""
        return tuple(self._holding)

    # arrivals

    def everything_arrived(self) -> list[Branch]:
        """Note that any wait may be over, and return all branches."""
        self.arrivals += 1
        self._all_arrived = self.arrivals
        return list(self._waits)

    def arrived(self, topics: Iterable[Topic]) -> list[Branch]:
        """Note what has arrived, and return the branches that wait for it."""
        self.arrivals += 1
        found: dict[Branch, None] = {}
        for topic in topics:
            self._arrived[topic] = self.arrivals
            found |= self._topics.get(topic, {})
        return list(found)

    def has_missed(self, since: int, waits: Iterable[Wait]) -> bool:
        """Return whether something for these waits has arrived after ``since``, a former number of arrivals."""
        if self.arrivals == since:
            return False
        topics = (topic for wait in waits for topic in wait.topics)
        return self._all_arrived > since or any(self._arrived.get(topic, 0) > since for topic in topics)


class Arrivals:
    """Finds out what has arrived for one visit, and wakes the branches that wait for it."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.unread = False  # signals may have arrived that were not read yet
        self.reading: asyncio.Task[None] | None = None

    def come(self) -> None:
        """React to signals that have arrived."""
        self.unread = True
        self.look()

    def look(self) -> None:
        """Read the signals that have arrived, if there are any and a branch waits."""
        visit = self.visit
        if self.unread and visit.waits and self.reading is None and not visit.exited:
            self.reading = visit.loop.create_task(self._look())
            visit.tasks.add(self.reading)
            self.reading.add_done_callback(visit.tasks.discard)

    async def _look(self) -> None:
        try:
            while self.unread and not self.visit.exited:
                self.unread = False
                await self.visit.uninterrupted(self._read())
        except Exception as error:  # no code of the step waits for this
            self.visit.host.requests.give_up(error)
        finally:
            self.reading = None

    async def _read(self) -> None:
        visit = self.visit
        try:
            signals = await visit.host.requests.new_signals()
        except DamagedRecord:
            visit.recheck_waits()  # the branch that needs the damaged signal finds out
            return
        topics = [topic_of(signal) for signal in signals]
        if None in topics:
            visit.recheck_waits()
        if any(signal.kind == "early" for signal in signals):
            visit.early = True
        branches = visit.waits.arrived([topic for topic in topics if topic is not None])
        if not visit.host.must_stop:  # otherwise all branches check when the request to stop is withdrawn
            visit.wake(branches)


class Rest:
    """How long a visit with many waits stays before it exits.

    All its waits must begin again when the session wakes. So the visit stays about as long as that takes: answers in
    quick succession then find the branches that wait for them, and do not begin all the others again one by one.
    """

    def __init__(self, now: float) -> None:
        self.began = now
        self.length: float | None = None  # not known before the visit only waits
        self.moves = -1  # the moves of the visit when it began to stay

    def next(self, now: float, waits: int, moves: int) -> float:
        """Return how many seconds the visit stays from now on; 0 if it exits, because nothing moved since it stayed."""
        if self.length is None:
            self.length = min(now - self.began, LONGEST_REST) if waits >= MANY else 0.0
        if self.moves == moves:
            return 0.0
        self.moves = moves
        return self.length
