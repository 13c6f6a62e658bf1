"""The verbs about what a store remembers besides sessions: requests by key, and descriptions of workflows."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from pausepoint.model.descriptions import StoredDescription
from pausepoint.model.remembered import Remembered
from pausepoint.stores.found import FoundDescriptions
from pausepoint.stores.remembered import Once, current, current_each, once
from pausepoint.stores.sqlite import descriptions, remembered
from pausepoint.stores.sqlite.engines import OwnEngine

T = TypeVar("T")


class Notes:
    """A part of the SQLite store."""

    _engine: OwnEngine

    if TYPE_CHECKING:

        async def _do(self, verb: Callable[[apsw.Connection], T], *, urgent: bool = False) -> T: ...
        async def _scan(self, read: Callable[[apsw.Connection], T], *, at_once: bool = False) -> T: ...
        def _reading(self) -> AbstractContextManager[apsw.Connection]: ...

    def _act(
        self, verb: Callable[[apsw.Connection], T], *, urgent: bool = False, wrote: Callable[[T], bool] | None = None
    ) -> Coroutine[Any, Any, T]:
        """Write like `_do`. In a block of `once`, the same transaction records that the request took effect."""
        block = current(self)
        return self._do(verb, urgent=urgent) if block is None else self._act_once(block, verb, urgent, wrote)

    async def _act_once(
        self, block: Once, verb: Callable[[apsw.Connection], T], urgent: bool, wrote: Callable[[T], bool] | None
    ) -> T:
        def both(connection: apsw.Connection) -> tuple[T, bool]:
            found = verb(connection)
            has_effect = wrote is None or wrote(found)
            if has_effect:
                remembered.took_effect(connection, self._engine, block.key)
            return found, has_effect

        found, has_effect = await self._do(both, urgent=urgent)
        block.over = block.over or has_effect
        return found

    def _act_on(
        self, verb: Callable[[apsw.Connection, remembered.Takes], T], *, urgent: bool = False
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
        def verb(connection: apsw.Connection) -> Remembered:
            return remembered.remember(connection, self._engine, key, digest, answer, until, replaces)

        return await self._do(verb)

    async def recall(self, key: str) -> Remembered | None:
        with self._reading() as connection:
            return remembered.recall(connection, self._engine, key)

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
        with self._reading() as connection:
            return descriptions.seen_at(connection, digest)

    async def descriptions(self, workflow: str | None = None) -> FoundDescriptions:
        return FoundDescriptions(*await self._scan(lambda connection: descriptions.read(connection, workflow)))

    async def forget_descriptions(self, before: int, limit: int) -> int:
        return await self._do(lambda connection: descriptions.forget(connection, before, limit), urgent=True)
