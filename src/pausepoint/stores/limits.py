"""The part of the `Store` protocol about limits. `pausepoint.stores.base` has the contract of all methods."""

from __future__ import annotations

from typing import Protocol

from pausepoint.model.limits import AtWork, ReadyCount, Scope, StoredLimit
from pausepoint.stores.found import FoundLimits


class Limits(Protocol):
    """A store keeps limits, and obeys them.

    `create`, `claim` and `take` hold a session only if every limit in effect (`pausepoint.model.limits.in_effect`) has
    a slot for it, and count it in the same transaction, so several engines together never exceed a limit. A session
    uses a slot while a live engine holds it. Guests use none. A limit with ``per`` counts each hold that begins.
    """

    async def limits(self) -> FoundLimits:
        """Return all limits, ordered by their target, each verified. Damaged ones are listed in ``damaged``."""

    async def at_work(self) -> list[AtWork]:
        """Return how many sessions live engines hold, without guests. The cost follows the number of these sessions."""

    async def ready_counts(self, now: int) -> list[ReadyCount]:
        """Return how many sessions could be taken now, by queue and workflow, whatever limits leave.

        The cost follows the number of these sessions. The pause of everything does not change the figures.
        """

    async def set_limit(self, limit: StoredLimit) -> None:
        """Store a limit, or replace the one with the same target and the same ``declared``.

        Sessions at work stay at work, even if they are more than the limit.
        """

    async def drop_limits(self, scope: Scope, name: str, declared: bool = False) -> int:
        """Delete the limits of a queue, workflow or lane, damaged or not, and return how many there were.

        Only those with this ``declared`` are deleted.
        """
