"""Schedules."""

from __future__ import annotations

from collections.abc import Sequence

from pausepoint.model.commits import NewSession
from pausepoint.model.schedules import Fired, Schedule
from pausepoint.stores import text
from pausepoint.stores.found import FoundSchedules
from tests.support.dictstore.notes import Notes


class Schedules(Notes):
    """Schedules, by name."""

    async def schedules(self) -> FoundSchedules:
        self._check()
        return FoundSchedules(each for _, each in sorted(self.data.schedules.items()))

    async def schedule(self, name: str) -> Schedule | None:
        self._check()
        return self.data.schedules.get(name)

    async def due_schedules(self, now: int, workflows: Sequence[str]) -> list[Schedule]:
        found = [each for each in await self.schedules() if each.workflow in workflows and each.is_due(now)]
        return sorted(found, key=lambda each: each.next_at)

    async def set_schedule(self, before: Schedule | None, after: Schedule, new: NewSession | None = None) -> Fired:
        self._check()
        self._check_key()
        if self.data.schedules.get(after.name) != before:
            return Fired(False)
        after = text.of_schedule(after)
        row = None if new is None else await self.create(new)
        self.data.schedules[after.name] = after
        self._tell()
        self._took_effect()
        return Fired(True, row)

    async def drop_schedule(self, name: str) -> bool:
        self._check()
        self._check_key()
        gone = self.data.schedules.pop(name, None) is not None
        self._tell()
        self._took_effect(gone)
        return gone

    async def next_wake(self, now: int, workflows: Sequence[str], tree: str | None = None) -> int | None:
        wakes_at = await super().next_wake(now, workflows, tree)
        mine = [each for each in self.data.schedules.values() if tree is None and each.workflow in workflows]
        times = [each.next_at for each in mine if each.next_at > now and each.paused_at is None]
        return min([*times, *([] if wakes_at is None else [wakes_at])], default=None)
