"""Stores whose pause of everything has one fault each, and the tests of the suite that find them."""

from __future__ import annotations

from typing import Any

from pausepoint.model.sessions import SessionRow
from tests.support.dictstore import DictStore, Kept


class StartsWhileEverythingStandsStill(DictStore):
    def _exempt_like(self, parent: int | None) -> int:
        return self.data.rounds[-1].round if self.data.rounds else 0


class StartsAgainWhileEverythingIsPaused(DictStore):
    async def unpause(self, *given: Any, exempt: bool = True, **options: Any) -> SessionRow:
        return await super().unpause(*given, **options)


class RetriesWhileEverythingIsPaused(DictStore):
    def _is_concerned(self, kept: Kept) -> bool:
        return super()._is_concerned(kept) and kept.row.ended != "failed"


class LiftsEveryPause(DictStore):
    async def lift(self, by: str | None, at: int) -> bool:
        lifted = await super().lift(by, at)
        for kept in self._known():
            await self.unpause(kept.row.session_id, by, at)
        return lifted


class TakesWhatStandsStill(DictStore):
    async def take(
        self, now: int, workflows: Any, limit: int, skip: Any = None, queues: Any = None
    ) -> list[SessionRow]:  # fmt: skip
        rows = [row for row in map(self._seen, self._known()) if row.ready_at is not None and row.ready_at <= now]
        rows.sort(key=lambda row: (row.ready_at, row.key))
        rows = [row for row in rows if row.workflow in workflows and (skip or {}).get(row.key) != row.seq]
        return [await self.claim(row.session_id, paused=True) for row in rows[:limit]]


STANDING_TWINS: dict[type[DictStore], str] = {
    StartsWhileEverythingStandsStill: "test_a_session_created_meanwhile_is_paused_and_not_held",
    StartsAgainWhileEverythingIsPaused: "test_a_start_lets_nothing_run_while_everything_is_paused",
    RetriesWhileEverythingIsPaused: "test_a_start_lets_nothing_run_while_everything_is_paused",
    LiftsEveryPause: "test_lifting_it_closes_its_own_pauses_and_no_others",
    TakesWhatStandsStill: "test_nobody_picks_up_what_it_stops",
}
