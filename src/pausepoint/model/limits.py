"""How many sessions may be at work at once, and how many may get to work in a time.

A session is at work while an engine holds it. A session that waits, sleeps, is paused or has ended is not: it uses no
slot, so a parent that waits for its child cannot block the child.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Literal, NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from pausepoint.model.queues import Facts

Scope = Literal["queue", "workflow", "lane"]
LimitKey = Literal["owner", "lane"]

MOST = 1_000_000
"""The largest limit."""


LOOK_AGAIN = 1_000_000
"""Microseconds after which an engine looks again for a free slot: the death of an engine frees slots without a word."""


class Limit(msgspec.Struct, frozen=True):
    """At most ``most`` sessions at work at once, or with ``per`` at most so many that get to work in that time.

    With ``by``, each owner or each lane has its own limit. ``Workflow(limit=Limit(5, by="owner"))`` lets five sessions
    of the workflow work at once for each owner. With ``most=0``, no session gets to work.

    >>> Limit(-1)
    Traceback (most recent call last):
    ...
    ValueError: most must be a whole number from 0 to 1,000,000, not -1.
    """

    most: int
    per: timedelta | None = None
    by: LimitKey | None = None

    def __post_init__(self) -> None:
        check_limit(self.most, self.per, self.by)


def check_limit(most: object, per: object, by: object) -> None:
    """Raise `ValueError` unless a limit can be stored like this."""
    least = 0 if per is None else 1
    if type(most) is not int or not least <= most <= MOST:
        closes = " Leave out per to close it." if most == 0 else ""
        raise ValueError(f"most must be a whole number from {least} to {MOST:,}, not {most!r:.60}.{closes}")
    if per is not None and (not isinstance(per, timedelta) or not timedelta(0) < per <= timedelta(days=366)):
        given = f"{per}" if isinstance(per, timedelta) else f"{per!r:.60}"
        raise ValueError(f"per must be a time above zero and of at most 366 days, not {given}.")
    if by is not None and by not in get_args(LimitKey):
        raise ValueError(f"by must be 'owner' or 'lane', not {by!r:.60}.")
    if per is not None and by is not None:
        raise ValueError("A limit per time counts all sessions of its queue, workflow or lane. Leave out per or by.")


class Target(NamedTuple):
    """What a limit is about. ``rate`` tells limits with ``per`` from those of sessions at work."""

    scope: Scope
    name: str
    by: str
    rate: bool


class StoredLimit(msgspec.Struct, frozen=True):
    """A limit as a store keeps it.

    ``per`` is in microseconds; 0 means at once. ``most`` is None if an operator has lifted a limit of the code.
    ``declared`` limits come from the code of a workflow; another one of the same target overrides them. ``full_at`` is
    when as many sessions as the limit allows may get to work at once again: each one that does moves it forward.
    """

    scope: Scope
    name: str
    most: int | None
    per: int = 0
    by: str = ""
    declared: bool = False
    full_at: int = 0

    @classmethod
    def of(cls, scope: Scope, name: str, limit: Limit, declared: bool = False) -> StoredLimit:
        """Return a limit as a store keeps it.

        >>> StoredLimit.of("queue", "mail", Limit(10, per=timedelta(seconds=1))).per
        1000000
        """
        per = 0 if limit.per is None else limit.per // timedelta(microseconds=1)
        return cls(scope, name, limit.most, per, limit.by or "", declared)

    @property
    def target(self) -> Target:
        """What the limit is about."""
        return Target(self.scope, self.name, self.by, self.per > 0)

    def described(self, count: int) -> str:
        """Describe the limit for people. ``count`` sessions are at work.

        >>> StoredLimit("queue", "gpu", 4).described(4), StoredLimit("workflow", "brief", 5, by="owner").described(5)
        ('queue gpu, 4 of 4 at work', 'workflow brief for this owner, 5 of 5 at work')
        >>> StoredLimit("queue", "gpu", 0).described(3)
        'queue gpu, which is closed'
        """
        what = f"{self.scope} {self.name}" + (f" for this {self.by}" if self.by else "")
        if self.most == 0:
            return f"{what}, which is closed"
        return f"{what}, {self.most} in {self.per / 1e6:g} s" if self.per else f"{what}, {count} of {self.most} at work"

    def covers(self, session: Facts) -> bool:
        """Return whether the limit counts a session."""
        return bool(getattr(session, self.scope) == self.name)

    def group(self, session: Facts) -> str | None:
        """Return the owner or the lane that a session is counted for; None if the limit has no ``by``."""
        return getattr(session, self.by) if self.by else None

    @property
    def _interval(self) -> int:
        return -(-self.per // (self.most or 1))

    def left(self, now: int) -> int:
        """Return how many sessions may get to work now, if the limit has ``per``."""
        return (now + self.per - self._full_at(now)) // self._interval

    def used(self, now: int) -> StoredLimit:
        """Return the limit after one more session got to work."""
        return replace(self, full_at=self._full_at(now) + self._interval)

    def _full_at(self, now: int) -> int:
        """Return when the limit is full. A later time than this one allows comes from a clock that was set back."""
        return now if self.full_at > now + self.per else max(self.full_at, now)

    def next_at(self, now: int) -> int | None:
        """Return when the next session may get to work; None if one may now."""
        return (
            None
            if not self.per or self.most is None or self.left(now)
            else self._full_at(now) - self.per + self._interval
        )


class AtWork(NamedTuple):
    """How many sessions of one queue, workflow, lane and owner an engine drives."""

    queue: str
    workflow: str
    lane: str | None
    owner: str | None
    sessions: int


class ReadyCount(NamedTuple):
    """How many sessions of one queue and workflow are ready."""

    queue: str
    workflow: str
    sessions: int


def in_effect(limits: Iterable[StoredLimit]) -> list[StoredLimit]:
    """Return the limits that count: those of operators, and those of the code that no operator has overridden."""
    found = list(limits)
    set_by_hand = {each.target for each in found if not each.declared}
    return [
        each for each in found if each.most is not None and not (each.declared and each.target in set_by_hand)
    ]  # fmt: skip


class Slots:
    """The slots that are left for more sessions. ``at_work`` are the sessions at work, with their number."""

    def __init__(self, limits: Iterable[StoredLimit], at_work: Iterable[tuple[Facts, int]], now: int) -> None:
        self.limits = in_effect(limits)
        self.now = now
        self.used: dict[Target, StoredLimit] = {}
        self.at_work = list(at_work)
        self._at_work: Counter[tuple[Target, str | None]] = Counter()
        for session, count in self.at_work:
            for limit in self._covering(session):
                self._at_work[limit.target, limit.group(session)] += count

    def copy(self) -> Slots:
        """Return the same slots, to try something out."""
        found = Slots((), (), self.now)
        found.limits, found.used, found._at_work = self.limits, dict(self.used), Counter(self._at_work)
        return found

    def _covering(self, session: Facts) -> list[StoredLimit]:
        return [limit for limit in self.limits if limit.covers(session)]

    def count(self, limit: StoredLimit, session: Facts) -> int:
        """Return how many sessions are at work that count for the same limit as this one."""
        return self._at_work[limit.target, limit.group(session)]

    def total(self, limit: StoredLimit) -> int:
        """Return how many sessions are at work in the scope of a limit, whatever its ``by``."""
        return sum(count for session, count in self.at_work if limit.covers(session))

    def full(self, session: Facts) -> StoredLimit | None:
        """Return a limit that leaves no slot for this session; None if it may get to work."""
        return next((each for each in self._covering(session) if self._is_full(each, each.group(session))), None)

    def closed(self, queue: str, workflow: str) -> bool:
        """Return whether no session of a queue and workflow can get to work, whatever its lane and owner."""
        scopes = ("queue", queue), ("workflow", workflow)
        alike = [each for each in self.limits if not each.by and (each.scope, each.name) in scopes]
        return any(self._is_full(each, None) for each in alike)

    def _is_full(self, limit: StoredLimit, group: str | None) -> bool:
        if limit.per:
            return self.used.get(limit.target, limit).left(self.now) < 1
        return self._at_work[limit.target, group] >= (limit.most or 0)

    def use(self, session: Facts) -> None:
        """Count a session that gets to work."""
        for limit in self._covering(session):
            if limit.per:
                self.used[limit.target] = self.used.get(limit.target, limit).used(self.now)
            else:
                self._at_work[limit.target, limit.group(session)] += 1
