"""The pause of everything: which sessions it stops, and how long it has frozen their timers.

It is one fact of the store, not one per session. Each request for it is a *round*; a round number is never used again.
A session is *exempt* up to a round: earlier rounds no longer concern it. The rounds from a pause to its lift have the
same *epoch*, the number of the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec


class Round(msgspec.Struct, frozen=True):
    """One request to pause everything. ``freeze`` includes the requests before it in the same epoch."""

    round: int
    epoch: int
    at: int
    freeze: bool
    lifted_at: int | None = None
    lifted_by: str | None = None


def frozen_by(rounds: Iterable[Round], exempt: int, own: int | None, noted: Mapping[int, int]) -> int:
    """Return for how long lifted pauses froze the timers of a session, beside a pause of its own.

    ``own`` is since when a pause of its own freezes them, which is counted when that pause ends. ``noted`` maps epochs
    to the times from which on the session was under that pause, for sessions that have a record of it.

    >>> frozen_by([Round(1, 1, 10, True, 50)], 0, None, {}), frozen_by([Round(1, 1, 10, True, 50)], 0, 30, {1: 15})
    (40, 15)
    """
    total = 0
    counted = [each for each in rounds if each.round > exempt and each.freeze and each.lifted_at is not None]
    for epoch in {each.epoch for each in counted}:
        some = [each for each in counted if each.epoch == epoch]
        until = max(each.lifted_at or 0 for each in some)
        since = max(min(each.at for each in some), noted.get(epoch, -(2**63)))
        total += max((until if own is None else min(until, own)) - since, 0)
    return total


def frozen_since(rounds: Iterable[Round], exempt: int, own: int | None, noted: Mapping[int, int]) -> int | None:
    """Return since when the timers of a session are frozen; None if they run. Parameters are as for `frozen_by`."""
    some = [each for each in rounds if each.round > exempt and each.freeze and each.lifted_at is None]
    found = [] if own is None else [own]
    if some:
        found.append(max(min(each.at for each in some), noted.get(some[0].epoch, -(2**63))))
    return min(found, default=None)
