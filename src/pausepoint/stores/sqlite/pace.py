"""How often an engine checks for changes by other processes: more often while others write."""

from __future__ import annotations

from math import inf

QUICK = 0.005
"""Seconds between two checks shortly after another process has written, so that processes can converse quickly."""

QUICK_FOR = 1.0
"""How many seconds after such a write the checks are frequent."""


class Pace:
    """The interval of the checks. An engine's own commits do not count: a busy engine must not check more often.

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

    def check(self, now: float, changed: bool, commits: int | None) -> None:
        """Note a check. ``commits`` counts the engine's own commits; None: one is in flight."""
        if changed and commits == self.commits:
            self.until = now + QUICK_FOR
        if commits is not None:
            self.commits = commits
