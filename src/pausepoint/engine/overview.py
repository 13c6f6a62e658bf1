"""The verbs about all sessions at once, for programs that give an overview."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from pausepoint.engine.base import Service
from pausepoint.engine.filters import Statuses, When, filter_of
from pausepoint.errors import DamagedRecord
from pausepoint.model.ids import SessionId
from pausepoint.model.sessions import Filter, Level, SessionRow, Status
from pausepoint.model.stores import Holder
from pausepoint.model.views import Health, Listing, SessionInfo

_WAITING = (Status.READY, Status.CREATED)


def _is_picked_up(row: SessionRow, engines: Sequence[Holder]) -> bool:
    return any(each.picks_up(row.workflow, row.session_id, row.queue) for each in engines)


class Overview:
    """The store's health and engines, what wakes up next, what was spent, and how far the steps that run here are."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def health(self) -> Health:
        """Return the store's health: its errors, the other processes that have it open, and crashed sessions."""
        self.service.check_open()
        about, counts = await self.service.store.about(), await self.service.store.tally(Filter())
        crashed = await self.service.store.find(Filter(crashed=True))
        statuses: Counter[Status] = Counter()
        for (_, status), count in counts.items():
            statuses[status] += count
        others = [holder for holder in about.holders if holder.number != self.service.store.number]
        return Health(
            about, self.service.trouble, dict(statuses),
            tuple(holder for holder in others if holder.live), tuple(holder for holder in others if not holder.live),
            {SessionId(row.session_id): row.crashes for row in crashed},
            tuple(str(damage) for damage in crashed.damaged), await self.service.store.standing_pause(),
        )  # fmt: skip

    async def engines(self) -> list[Holder]:
        """Return the engines that have the store open, this one included."""
        self.service.check_open()
        return [holder for holder in (await self.service.store.about()).holders if holder.live]

    async def stranded(self, *, limit: int = 100) -> Listing[SessionInfo]:
        """Return sessions that are ready, but that no open engine picks up, the last updated first."""
        self.service.check_open()
        engines = await self.engines()
        counts = await self.service.store.tally(Filter(statuses=_WAITING))
        rows: list[SessionRow] = []
        damaged: list[DamagedRecord] = []
        for name in sorted({name for name, _ in counts}):
            if not any(each.queues is None and each.picks_up(name, "") for each in engines):
                await self._collect_stranded(name, engines, limit, rows, damaged)
        rows.sort(key=lambda row: (row.updated_at, row.key), reverse=True)
        return Listing(await self.service.infos(rows[:limit]), damaged)

    async def _collect_stranded(
        self, workflow: str, engines: Sequence[Holder], limit: int, rows: list[SessionRow], damaged: list[DamagedRecord]
    ) -> None:
        """Add up to ``limit`` sessions of a workflow that no engine picks up."""
        query = Filter(workflow=workflow, statuses=_WAITING, sort="updated", limit=max(limit, 100))
        end = len(rows) + limit
        while len(rows) < end:
            found = await self.service.store.find(query)
            damaged += found.damaged
            rows += [row for row in found if not row.guest and not _is_picked_up(row, engines)]
            if found.next is None:
                return
            query = replace(query, after=found.next)

    async def waking(self, *, owner: str | None = None, limit: int = 100) -> Listing[SessionInfo]:
        """Return the sessions that wake up on their own, the next one first."""
        self.service.check_open()
        found = await self.service.store.waking(self.service.clock.now(), limit, owner)
        return Listing(await self.service.infos(found), found.damaged)

    async def spending(
        self, *, workflow: str | None = None, owner: str | None = None, tag: str | None = None,
        status: Statuses = None, failed: bool | None = None, since: When | None = None, until: When | None = None,
        text: str | None = None, level: Level = "root", queue: str | None = None,
    ) -> dict[str, float]:  # fmt: skip
        """Return the dollars that the matching sessions have spent, by workflow, without reading the sessions."""
        self.service.check_open()
        query = filter_of(
            self.service.clock.now(), workflow=workflow, owner=owner, tag=tag, status=status, failed=failed,
            since=since, until=until, text=text, queue=queue,
        )  # fmt: skip
        found = await self.service.store.spending(replace(query, level=level))
        return {name: spent / 1e6 for name, spent in found.items()}

    async def progress(self) -> dict[SessionId, tuple[int, int]]:
        """Return what the steps that this engine runs have last reported with ``ctx.progress``, by session."""
        self.service.check_open()
        drives = {id: run.drive for id, run in self.service.driver.runs.items()}
        shown = {id: drive.ledger.progress for id, drive in drives.items() if drive is not None}
        return {SessionId(id): found for id, found in shown.items() if found is not None}
