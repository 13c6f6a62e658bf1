"""The verbs about all sessions at once, for programs that give an overview."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from pausepoint.engine.changes import Changes
from pausepoint.engine.filters import Statuses, When, filter_of
from pausepoint.model.ids import SessionId
from pausepoint.model.sessions import Filter, Holder, Level, Status
from pausepoint.model.views import Health, Listing, SessionInfo


class Overview(Changes):
    """The store's health and engines, what wakes up next, what was spent, and how far the steps that run here are."""

    async def health(self) -> Health:
        """Return the store's health: its errors, the other processes that have it open, and crashed sessions.

        Changes nothing, and reads no session but the crashed ones: `verify` checks all of them.
        """
        self._check_open()
        about, counts = await self.store.about(), await self.store.tally(Filter())
        crashed = await self.store.find(Filter(crashed=True))
        statuses: Counter[Status] = Counter()
        for (_, status), count in counts.items():
            statuses[status] += count
        others = [holder for holder in about.holders if holder.number != self.store.number]
        return Health(
            about, self.trouble, dict(statuses),
            tuple(holder for holder in others if holder.live), tuple(holder for holder in others if not holder.live),
            {SessionId(row.session_id): row.crashes for row in crashed},
            tuple(str(damage) for damage in crashed.damaged), await self.store.standing_pause(),
        )  # fmt: skip

    async def engines(self) -> list[Holder]:
        """Return the engines that have the store open, this one included: the sessions they hold, and what they drive.

        If no engine has a workflow in its ``workflows``, its sessions stay ready until you start one::

            driven = any("brief" in each.workflows for each in await engine.engines())
        """
        self._check_open()
        return [holder for holder in (await self.store.about()).holders if holder.live]

    async def waking(self, *, owner: str | None = None, limit: int = 100) -> Listing[SessionInfo]:
        """Return the sessions that wake up on their own, the next one first.

        A timer ends then, or the time for an answer or a message. Paused sessions are left out, because a pause keeps
        them from waking up.
        """
        self._check_open()
        found = await self.store.waking(self.clock.now(), limit, owner)
        return Listing(await self._infos(found), found.damaged)

    async def spending(
        self, *, workflow: str | None = None, owner: str | None = None, tag: str | None = None,
        status: Statuses = None, failed: bool | None = None, since: When | None = None, until: When | None = None,
        text: str | None = None, level: Level = "root",
    ) -> dict[str, float]:  # fmt: skip
        """Return the dollars that the matching sessions have spent, by workflow, without reading the sessions.

        The filters are those of `sessions`. By default children are left out, because what they spend is part of their
        parent's figure. The figures cover all sessions of the store, ended ones too; removed ones are not counted.

        >>> import asyncio
        >>> from pausepoint import Context, Engine, workflow
        >>> @workflow
        ... async def greet(name: str, ctx: Context) -> str:
        ...     ctx.spend(usd=0.25)
        ...     return f"Hello, {name}!"
        >>> async def main() -> dict[str, float]:
        ...     async with Engine(":memory:") as engine:
        ...         for name in ("Ada", "Grace"):
        ...             await (await engine.start(greet, name=name)).outcome()
        ...         return await engine.spending()
        >>> asyncio.run(main())
        {'greet': 0.5}
        """
        self._check_open()
        query = filter_of(
            self.clock.now(), workflow=workflow, owner=owner, tag=tag, status=status, failed=failed, since=since,
            until=until, text=text,
        )  # fmt: skip
        found = await self.store.spending(replace(query, level=level))
        return {name: spent / 1e6 for name, spent in found.items()}

    async def progress(self) -> dict[SessionId, tuple[int, int]]:
        """Return what the steps that this engine runs have last reported with ``ctx.progress``, by session.

        It is the present: `info` returns what was stored with the last record. Reads nothing from the store.
        """
        self._check_open()
        drives = {id: run.drive for id, run in self.driver.runs.items()}
        shown = {id: drive.ledger.progress for id, drive in drives.items() if drive is not None}
        return {SessionId(id): found for id, found in shown.items() if found is not None}
