"""Limits: the size of bodies, the number of requests in a minute, and wrong tokens."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from hashlib import sha256
from math import ceil
from typing import Any, NamedTuple

import msgspec

from pausepoint.server.problems import Problem

MINUTE = 60.0

REMEMBERED = 10_000
"""How many people and addresses are remembered. The one that was idle for the longest time is forgotten first."""


class Limits(msgspec.Struct, frozen=True):
    """How much one person may ask for. ``wrong_tokens`` is per address; the others are per sign-in.

    ``all_streams`` are those of all people together. ``bundle`` is the size of a session that is imported.
    """

    body: int = 2**20
    bundle: int = 2**30
    actions: int = 60
    reads: int = 3000
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
        _forget(self._seen)
        while times and times[0] <= now - MINUTE:
            times.popleft()
        if len(times) >= most:
            wait = ceil(times[0] + MINUTE - now)
            raise too_many(f"You have sent {most} {kind} within a minute, which is the limit.", wait)
        times.append(now)


class Streams:
    """Counts the open streams of each sign-in. A stream counts as soon as it is granted."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def take(self, who: str, limits: Limits) -> None:
        """Count one stream. Raises a 429 if too many are open."""
        if self._open[who] >= limits.streams:
            raise too_many(f"You have {limits.streams} streams open, which is the limit. Close one.", 5)
        if self._open.total() >= limits.all_streams:
            raise too_many(f"The server has {limits.all_streams} streams open, which is the limit.", 30)
        self._open[who] += 1

    def leave(self, who: str) -> None:
        """Count one stream less."""
        self._open[who] -= 1
        self._open += Counter()  # without those that have none


class Tries(NamedTuple):
    """The wrong tokens of one address: how many, the time of the last one, and the hashes of the last few."""

    wrong: int
    last: float
    hashes: tuple[bytes, ...]


class Attempts:
    """Wrong tokens of each address: a few in a minute, then a wait that doubles with each further one.

    Many people and programs may share an address, and one of them must not lock the others out. So a program that
    repeats an old token is not guessing, and is counted once. A token that was right from this address does not wait.
    """

    def __init__(self, most: int, now: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._now = now
        self._wrong: OrderedDict[str, Tries] = OrderedDict()
        self._right: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def check(self, address: str, token: str) -> None:
        """Raise a 429 while the address has to wait."""
        found = self._wrong.get(address)
        if found is None or found.wrong < self._most or (address, _hash(token)) in self._right:
            return
        left = found.last + self._wait(found.wrong) - self._now()
        if left > 0:
            raise too_many("Too many wrong tokens came from your address.", ceil(left))

    def wrong(self, address: str, token: str) -> None:
        """Count a wrong token. After a time without one that is twice the wait, counting begins again."""
        now, given = self._now(), _hash(token)
        self._right.pop((address, given), None)  # it was revoked
        found = self._wrong.pop(address, Tries(0, now, ()))
        if now - found.last > 2 * self._wait(found.wrong):
            found = Tries(0, now, ())
        if given not in found.hashes:
            found = Tries(found.wrong + 1, now, (*found.hashes, given)[-self._most :])
        self._wrong[address] = found
        _forget(self._wrong)

    def right(self, address: str, token: str) -> None:
        """Remember a right token. It does not end a wait: otherwise its owner could guess the tokens of others."""
        self._right[address, _hash(token)] = None
        self._right.move_to_end((address, _hash(token)))
        _forget(self._right)

    def _wait(self, count: int) -> float:
        """Return how many seconds to wait after so many wrong tokens: a minute, then doubling, at most an hour."""
        return float(min(MINUTE * 2 ** max(min(count - self._most, 20), 0), 3_600))


def _hash(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def _forget(remembered: OrderedDict[Any, Any]) -> None:
    while len(remembered) > REMEMBERED:
        remembered.popitem(last=False)


def too_many(what: str, seconds: int) -> Problem:
    """Return the refusal of a request that came too early."""
    wait = max(seconds, 1)
    return Problem(429, f"{what} Retry in {wait} s.", headers={"Retry-After": str(wait)}, retry_after=wait)
