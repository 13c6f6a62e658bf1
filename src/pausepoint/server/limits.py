"""Limits: the size of bodies, the number of requests in a minute, and wrong tokens."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from math import ceil

import msgspec

from pausepoint.server.problems import Problem

MINUTE = 60.0

REMEMBERED = 10_000
"""How many people and addresses are remembered. The one that was idle for the longest time is forgotten first."""


class Limits(msgspec.Struct, frozen=True):
    """How much one person may ask for. ``wrong_tokens`` is per address; the others are per sign-in.

    ``all_streams`` are those of all people together.
    """

    body: int = 2**20
    actions: int = 60
    reads: int = 600
    wrong_tokens: int = 5
    read_seconds: float = 10.0
    body_seconds: float = 30.0
    streams: int = 16
    all_streams: int = 2000


class Rates:
    """Counts the requests of each sign-in within the last minute."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seen: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    def take(self, who: str, kind: str, most: int) -> None:
        """Count one request. Raises a 429 if there were ``most`` of this kind within the last minute."""
        now = self._now()
        times = self._seen.setdefault((who, kind), deque())
        self._seen.move_to_end((who, kind))
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        while times and times[0] <= now - MINUTE:
            times.popleft()
        if len(times) >= most:
            wait = ceil(times[0] + MINUTE - now)
            raise too_many(f"You have sent {most} {kind} within a minute, which is the limit.", wait)
        times.append(now)


class Attempts:
    """Wrong tokens of each address: a few in a minute, then a wait that doubles with each further one."""

    def __init__(self, most: int, now: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._now = now
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()  # address → count, time of the last one

    def check(self, address: str) -> None:
        """Raise a 429 while the address has to wait."""
        count, last = self._wrong.get(address, (0, 0.0))
        left = last + self._wait(count) - self._now()
        if count >= self._most and left > 0:
            raise too_many("Too many wrong tokens came from your address.", ceil(left))

    def wrong(self, address: str) -> None:
        """Count a wrong token. After a time without one that is twice the wait, counting begins again."""
        now = self._now()
        count, last = self._wrong.pop(address, (0, now))
        self._wrong[address] = (1 if now - last > 2 * self._wait(count) else count + 1, now)
        while len(self._wrong) > REMEMBERED:
            self._wrong.popitem(last=False)

    def right(self, address: str) -> None:
        """Forget the wrong tokens of an address that has sent a right one."""
        self._wrong.pop(address, None)

    def _wait(self, count: int) -> float:
        """Return how many seconds to wait after so many wrong tokens: a minute, then doubling, at most a day."""
        return float(min(MINUTE * 2 ** max(min(count - self._most, 20), 0), 86_400))


def too_many(what: str, seconds: int) -> Problem:
    """Return the refusal of a request that came too early."""
    wait = max(seconds, 1)
    return Problem(429, f"{what} Retry in {wait} s.", headers={"Retry-After": str(wait)}, retry_after=wait)
