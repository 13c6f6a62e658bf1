"""The part of the `Store` protocol about schedules. `pausepoint.stores.base` has the contract of all methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pausepoint.model.commits import NewSession
from pausepoint.model.schedules import Fired, Schedule
from pausepoint.stores.found import FoundSchedules


class Schedules(Protocol):
    """A store keeps schedules. Engines decide when they are due, and what a run is."""

    async def schedules(self) -> FoundSchedules:
        """Return all schedules, ordered by name, each verified. Damaged ones are listed in ``damaged``."""

    async def schedule(self, name: str) -> Schedule | None:
        """Return one schedule; None if there is none with this name. Raises `DamagedRecord`."""

    async def due_schedules(self, now: int, workflows: Sequence[str]) -> list[Schedule]:
        """Return the schedules of these workflows that `Schedule.is_due`, the earliest run first, then by name.

        Damaged ones are left out. The pause of everything does not count: their sessions are stored paused.
        """

    async def set_schedule(self, before: Schedule | None, after: Schedule, new: NewSession | None = None) -> Fired:
        """Replace a schedule, and store the session of a run, in one transaction.

        Nothing is written, and ``written`` is False, if the stored schedule does not equal ``before`` any more; None
        means that there must be none with this name. So of several engines that start a run, one does. ``new`` is
        stored as by `create`: ``row`` is None if its id is taken.
        """

    async def drop_schedule(self, name: str) -> bool:
        """Delete a schedule, damaged or not. Return whether there was one. Its sessions stay."""
