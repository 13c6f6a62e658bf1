"""Limits, and the order in which ready sessions get their turn."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from pausepoint.errors import LimitReached
from pausepoint.model.limits import AtWork, ReadyCount, Scope, Slots, StoredLimit
from pausepoint.model.queues import Candidate, Facts, in_turn
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.found import FoundLimits
from tests.support.dictstore.data import Kept
from tests.support.dictstore.questions import Questions


class Limits(Questions):
    """Limits, by target."""

    async def limits(self) -> FoundLimits:
        self._check()
        return FoundLimits(each for _, each in sorted(self.data.limits.items()))

    async def set_limit(self, limit: StoredLimit) -> None:
        self._check()
        self._check_key()
        before = self.data.limits.get((limit.target, limit.declared))
        if before is not None and (before.most, before.per) == (limit.most, limit.per):
            limit = replace(limit, full_at=before.full_at)
        self.data.limits[limit.target, limit.declared] = limit
        self._tell()
        self._took_effect()

    async def drop_limits(self, scope: Scope, name: str, declared: bool = False) -> int:
        self._check()
        self._check_key()
        gone = [
            key for key, each in self.data.limits.items() if (each.scope, each.name, key[1]) == (scope, name, declared)
        ]
        for key in gone:
            del self.data.limits[key]
        self._tell()
        self._took_effect(bool(gone))
        return len(gone)

    def _check_key(self) -> None:
        """See `Notes`."""

    def _took_effect(self, effect: bool = True) -> None:
        """See `Notes`."""

    def _at_work(self) -> list[SessionRow]:
        rows = [kept.row for kept in self._known()]
        return [row for row in rows if row.holder in self.data.engines and not row.guest]

    def _slots(self, now: int) -> Slots:
        return Slots(self.data.limits.values(), [(row, 1) for row in self._at_work()], now)

    def _use_slot(self, session: Facts, now: int) -> bool:
        slots = self._slots(now)
        if slots.full(session) is not None:
            return False
        slots.use(session)
        for limit in slots.used.values():
            self.data.limits[limit.target, limit.declared] = limit
        return True

    async def at_work(self) -> list[AtWork]:
        self._check()
        return [AtWork(row.queue, row.workflow, row.lane, row.owner, 1) for row in self._at_work()]

    async def ready_counts(self, now: int) -> list[ReadyCount]:
        self._check()
        rows = [self._seen(kept) for kept in self._known()]
        ready = Counter((row.queue, row.workflow) for row in rows if row.ready_at is not None and row.ready_at <= now)
        return [ReadyCount(*kind, count) for kind, count in sorted(ready.items())]

    def _check_slot(self, kept: Kept, row: SessionRow, now: int) -> None:
        if not row.live and not row.guest and not self._use_slot(row, now):
            self._set(kept, wakes_at=0, ended=None)
            self._tell()
            raise LimitReached(
                f"no slot is free for {row.session_id}", session_id=row.session_id, status=row.status.value
            )

    def _in_turn(self, rows: list[SessionRow], now: int, limit: int) -> list[SessionRow]:
        """Return the rows whose turn it is, as many as there are slots."""
        by_key = {row.key: row for row in rows}
        lanes = Counter(row.lane for row in self._at_work())
        slots, found = self._slots(now), list[SessionRow]()
        candidates = [
            Candidate(row.priority, row.ready_at or 0, row.key, row.queue, row.workflow, row.lane, row.owner)
            for row in rows
        ]
        for each in in_turn(candidates, lanes, now):
            if len(found) < limit and slots.full(each) is None:
                slots.use(each)
                found.append(by_key[each.key])
        return found
