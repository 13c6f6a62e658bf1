"""The verbs about what a store keeps besides sessions: requests by key, descriptions, schedules, limits, drawers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from pausepoint.model.commits import NewSession
from pausepoint.model.descriptions import StoredDescription
from pausepoint.model.drawers import Change, DrawerId, DrawerInfo, DrawerValue, Fold, Range, StoredDrawer
from pausepoint.model.limits import AtWork, ReadyCount, Scope, StoredLimit
from pausepoint.model.remembered import Remembered
from pausepoint.model.schedules import Fired, Schedule
from pausepoint.stores.found import FoundDescriptions, FoundLimits, FoundSchedules, FoundStreams
from pausepoint.stores.remembered import Once, current, current_each, once
from pausepoint.stores.sql import descriptions, limits, remembered, schedules
from pausepoint.stores.sql import drawers as kept_drawers
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Engine

T = TypeVar("T")

FEW = 64
"""More rows of a drawer than these are read on another thread, and so are a few large ones."""


class Notes:
    """A part of a store in an SQL database."""

    _engine: Engine
    _reads_inline = True
    """Whether `_look` reads on the event loop's thread."""

    if TYPE_CHECKING:

        async def _do(self, verb: Callable[[Connection], T], *, urgent: bool = False) -> T: ...
        async def _scan(self, read: Callable[[Connection], T], *, at_once: bool = False) -> T: ...
        async def _look(self, read: Callable[[Connection], T], *, at_once: bool = False) -> T: ...

    def _act(
        self, verb: Callable[[Connection], T], *, urgent: bool = False, wrote: Callable[[T], bool] | None = None
    ) -> Coroutine[Any, Any, T]:
        """Write like `_do`. In a block of `once`, the same transaction records that the request took effect."""
        block = current(self)
        return self._do(verb, urgent=urgent) if block is None else self._act_once(block, verb, urgent, wrote)

    async def _act_once(
        self, block: Once, verb: Callable[[Connection], T], urgent: bool, wrote: Callable[[T], bool] | None
    ) -> T:
        def both(connection: Connection) -> tuple[T, bool]:
            found = verb(connection)
            has_effect = wrote is None or wrote(found)
            if has_effect:
                remembered.took_effect(connection, self._engine, block.key)
            return found, has_effect

        found, has_effect = await self._do(both, urgent=urgent)
        block.over = block.over or has_effect
        return found

    def _act_on(
        self, verb: Callable[[Connection, remembered.Takes], T], *, urgent: bool = False
    ) -> Coroutine[Any, Any, T]:
        """Write like `_act`. In a block of `once` with ``each``, ``verb`` treats only sessions that it takes."""
        block = current_each(self)
        if block is None:
            return self._act(lambda connection: verb(connection, remembered.takes_all), urgent=urgent)
        engine, key = self._engine, block.key
        return self._do(
            lambda connection: verb(connection, remembered.took_effect_on(connection, engine, key)), urgent=urgent
        )

    # requests by key

    async def remember(
        self, key: str, digest: bytes, answer: bytes | None, until: int, replaces: bytes | None = None
    ) -> Remembered:
        def verb(connection: Connection) -> Remembered:
            return remembered.remember(connection, self._engine, key, digest, answer, until, replaces)

        return await self._do(verb)

    async def recall(self, key: str) -> Remembered | None:
        return await self._look(lambda connection: remembered.recall(connection, self._engine, key))

    async def forget(self, key: str) -> bool:
        return await self._do(lambda connection: remembered.forget(connection, self._engine, key), urgent=True)

    def once(self, key: str, each: bool = False) -> AbstractContextManager[None]:
        return once(self, key, each)

    async def treated(self) -> list[str]:
        block = current_each(self)
        return [] if block is None else await self._scan(lambda connection: remembered.treated(connection, block.key))

    async def forget_expired(self, now: int, limit: int) -> int:
        return await self._do(lambda connection: remembered.forget_expired(connection, now, limit), urgent=True)

    # descriptions of workflows

    async def keep_description(self, new: StoredDescription) -> None:
        await self._do(lambda connection: descriptions.keep(connection, new))

    async def description_seen(self, digest: bytes) -> int | None:
        return await self._look(lambda connection: descriptions.seen_at(connection, digest))

    async def descriptions(self, workflow: str | None = None) -> FoundDescriptions:
        return FoundDescriptions(*await self._scan(lambda connection: descriptions.read(connection, workflow)))

    async def forget_descriptions(self, before: int, limit: int) -> int:
        return await self._do(lambda connection: descriptions.forget(connection, before, limit), urgent=True)

    # schedules

    async def schedules(self) -> FoundSchedules:
        return FoundSchedules(*await self._scan(schedules.every_one))

    async def schedule(self, name: str) -> Schedule | None:
        return await self._look(lambda connection: schedules.get(connection, name))

    async def due_schedules(self, now: int, workflows: Sequence[str]) -> list[Schedule]:
        return await self._look(lambda connection: schedules.due(connection, now, workflows))

    async def set_schedule(self, before: Schedule | None, after: Schedule, new: NewSession | None = None) -> Fired:
        return await self._act(
            lambda connection: schedules.put(connection, self._engine, before, after, new),
            wrote=lambda fired: fired.written,
        )

    async def drop_schedule(self, name: str) -> bool:
        return await self._act(lambda connection: schedules.drop(connection, name), urgent=True, wrote=bool)

    # limits

    async def limits(self) -> FoundLimits:
        return FoundLimits(*await self._look(limits.read))

    async def at_work(self) -> list[AtWork]:
        return await self._look(lambda connection: limits.at_work(connection, self._engine.present))

    async def ready_counts(self, now: int) -> list[ReadyCount]:
        return await self._look(lambda connection: limits.ready_counts(connection, now))

    async def set_limit(self, limit: StoredLimit) -> None:
        await self._act(lambda connection: limits.put(connection, limit))

    async def drop_limits(self, scope: Scope, name: str, declared: bool = False) -> int:
        return await self._act(lambda connection: limits.drop(connection, scope, name, declared), wrote=bool)

    # drawers

    async def drawer_append(
        self, drawer: DrawerId, stream: str, entries: Sequence[bytes], fold: Fold | None, keep_for: int | None = None
    ) -> int:
        def verb(connection: Connection) -> int:
            return kept_drawers.append(connection, self._engine, drawer, stream, entries, fold, keep_for)

        return await self._do(verb)

    async def drawer_read(
        self, drawer: DrawerId, stream: str, after: int = 0, last: int | None = None
    ) -> list[bytes] | None:
        return await self._find(
            lambda connection, most: kept_drawers.read(connection, drawer, stream, after, last, most), last
        )

    async def drawer_streams(self, drawer: DrawerId, prefix: str = "") -> FoundStreams:
        found = await self._scan(lambda connection: kept_drawers.streams(connection, drawer, prefix), at_once=True)
        return FoundStreams(*found)

    async def drawer_pop(self, drawer: DrawerId, stream: str) -> bytes | None:
        return await self._do(lambda connection: kept_drawers.pop(connection, self._engine, drawer, stream))

    async def drawer_drop(self, drawer: DrawerId, streams: Sequence[str]) -> int:
        return await self._do(
            lambda connection: kept_drawers.drop(connection, self._engine, drawer, streams), urgent=True
        )

    async def drawer_put(self, drawer: DrawerId, changes: Sequence[Change], keep_for: int | None = None) -> list[int]:
        return await self._do(lambda connection: kept_drawers.put(connection, self._engine, drawer, changes, keep_for))

    async def drawer_get(self, drawer: DrawerId, keys: Sequence[str]) -> dict[str, DrawerValue]:
        return await self._find(lambda connection, most: kept_drawers.get(connection, drawer, keys, most), len(keys))

    async def drawer_find(self, drawer: DrawerId, keys: Range) -> dict[str, DrawerValue]:
        return await self._find(lambda connection, most: kept_drawers.find(connection, drawer, keys, most), keys.limit)

    async def drawer_keys(self, drawer: DrawerId, prefix: str = "") -> list[str]:
        return await self._scan(lambda connection: kept_drawers.keys(connection, drawer, prefix), at_once=True)

    async def _find(self, read: Callable[[Connection, int | None], T], limit: int | None) -> T:
        """Read at most ``limit`` rows of one moment. Many or large ones are read on another thread."""
        if self._reads_inline and limit is not None and limit <= FEW:
            with suppress(kept_drawers.TooLarge):
                return await self._look(lambda connection: read(connection, kept_drawers.SMALL), at_once=True)
        return await self._scan(lambda connection: read(connection, None), at_once=True)

    async def drawer_clear(self, drawer: DrawerId, prefix: str = "") -> int:
        return await self._do(
            lambda connection: kept_drawers.clear(connection, self._engine, drawer, prefix), urgent=True
        )

    async def drawers(self, session_id: str | None = None) -> list[DrawerInfo]:
        return await self._scan(lambda connection: kept_drawers.infos(connection, session_id), at_once=True)

    async def drawer_damage(self, session_id: str | None = None) -> list[str]:
        from pausepoint.stores.sql import drawer_upkeep  # a listing needs none of it

        return await self._scan(lambda connection: drawer_upkeep.problems(connection, session_id), at_once=True)

    async def expire_drawers(self, now: int, limit: int) -> int:
        from pausepoint.stores.sql import drawer_upkeep

        return await self._do(lambda connection: drawer_upkeep.delete_expired(connection, now, limit), urgent=True)

    async def delete_discarded(self, limit: int) -> int:
        from pausepoint.stores.sql import drawer_upkeep

        return await self._do(lambda connection: drawer_upkeep.delete_discarded(connection, limit), urgent=True)

    async def whole_drawer(self, name: str) -> StoredDrawer | None:
        return await self._scan(lambda connection: kept_drawers.one_whole(connection, name), at_once=True)

    async def import_drawer(self, drawer: StoredDrawer) -> bool:
        return await self._do(lambda connection: kept_drawers.import_one(connection, drawer))
