"""How often an engine checks for changes by other processes: more often while there may be a conversation."""

from __future__ import annotations

from math import inf

QUICK = 0.005
"""Seconds between two checks shortly after a change, so that processes can converse quickly."""

QUICK_FOR = 1.0
"""How many seconds after a change the checks are frequent."""

FEW = 5
"""With more commits of its own between two checks, an engine is busy. It must not check more often because of them."""


class Pace:
    """The interval of the checks.

    >>> pace = Pace(0.05)
    >>> pace.interval(now=0.0)
    0.05
    >>> pace.check(now=0.1, changed=True, commits=0)
    >>> pace.interval(now=0.2), pace.interval(now=1.2)
    (0.005, 0.05)
    """

    def __init__(self, poll: float) -> None:
        self.poll, self.quick = poll, min(poll, QUICK)
        self.until = -inf
        self.commits = 0

    def interval(self, now: float) -> float:
        """Return how long to wait before the next check."""
        return self.quick if now < self.until else self.poll

    def check(self, now: float, changed: bool, commits: int) -> None:
        """Note a check: whether the database has changed, and how many commits this engine has made so far."""
        if changed and commits - self.commits <= FEW:
            self.until = now + QUICK_FOR
        self.commits = commits
