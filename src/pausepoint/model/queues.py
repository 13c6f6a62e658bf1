"""The order in which ready sessions get their turn.

A session is in one queue, which says which workers drive it. Of the ready sessions in the queues of a worker, those
with the lowest priority number come first. Among equal ones the lanes take turns: the lane with the fewest sessions at
work comes first, and ties are broken at random. A lane is a key, such as a customer; by default it is the owner.
Within a lane, the session that has been ready longest comes first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import md5
from typing import Any, NamedTuple, Protocol

DEFAULT_QUEUE = "default"
"""The queue of sessions that name none."""

HIGHEST_PRIORITY, LOWEST_PRIORITY = -1000, 1000
"""The first and the last priority. Each priority in use costs a worker one more look into the index."""

WINDOW = 500
"""Among how many ready sessions of one priority the lanes take turns."""


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


def check_queue(name: object) -> str:
    """Return a valid name of a queue, or raise `ValueError`.

    >>> check_queue("gpu")
    'gpu'
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ValueError(
            f"{name!r:.80} is not a valid name of a queue. Use 1 to 64 letters, digits or . _ + -, starting with a"
            " letter or digit."
        )
    return name


def check_priority(priority: object) -> int:
    """Return a valid priority, or raise `ValueError`."""
    if type(priority) is not int or not HIGHEST_PRIORITY <= priority <= LOWEST_PRIORITY:
        raise ValueError(
            f"priority must be a whole number from {HIGHEST_PRIORITY} (first) to {LOWEST_PRIORITY}, not"
            f" {priority!r:.60}."
        )
    return priority


def turn_of(queue: str | None, priority: int | None) -> dict[str, Any]:
    """Return the given ones of a queue and a priority, as fields of a new session. Raises `ValueError`.

    >>> turn_of("gpu", None)
    {'queue': 'gpu'}
    """
    found: dict[str, Any] = {} if queue is None else {"queue": check_queue(queue)}
    return found if priority is None else found | {"priority": check_priority(priority)}


class Facts(Protocol):
    """What decides about the turn of a session: a row, a new session, or a candidate."""

    @property
    def queue(self) -> str: ...
    @property
    def workflow(self) -> str: ...
    @property
    def lane(self) -> str | None: ...
    @property
    def owner(self) -> str | None: ...


class Candidate(NamedTuple):
    """A ready session, as found in an index. ``at`` is since when it is ready."""

    priority: int
    at: int
    key: int
    queue: str
    workflow: str
    lane: str | None
    owner: str | None


def in_turn(candidates: Iterable[Candidate], at_work: Mapping[str | None, int], now: int) -> list[Candidate]:
    """Return candidates in the order of their turns. ``at_work`` is how many sessions of each lane run now.

    Of lanes with equally many sessions at work, the time draws one: a lane with many ready sessions must not keep the
    others waiting until all of them are done. The lot is an MD5 because Postgres can compute it, too.

    >>> a1, a2, b1 = (Candidate(0, 0, key, "q", "w", lane, None) for key, lane in ((1, "a"), (2, "a"), (3, "b")))
    >>> [each.key for each in in_turn([a1, a2, b1], {}, 0)], [each.key for each in in_turn([a1, a2, b1], {"a": 2}, 0)]
    ([1, 3, 2], [3, 1, 2])
    >>> [each.key for each in in_turn([a1, a2, b1], {"b": 1}, 0)]
    [1, 2, 3]
    """
    before = Counter(at_work)
    drawn: dict[str | None, str] = {}
    turns: list[tuple[int, int, str, Candidate]] = []
    for each in sorted(candidates):
        lot = drawn.setdefault(each.lane, _lot(each.lane, now))
        turns.append((each.priority, before[each.lane], lot, each))
        before[each.lane] += 1
    return [each for *_, each in sorted(turns)]


def _lot(lane: str | None, now: int) -> str:
    return md5(f"{lane or ''} {now}".encode(), usedforsecurity=False).hexdigest()
