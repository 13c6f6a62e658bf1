"""The verbs that keep a store in order: remove, verify, describe and transfer what it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from pausepoint.errors import DamagedRecord
from pausepoint.model.sessions import Filter, SessionRow
from pausepoint.model.stores import About, Proved, Removal, Space, Sweep, Tombstone, Whole
from pausepoint.stores.sql import removal, sessions
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Engine
from pausepoint.stores.sqlite import about, schema
from pausepoint.stores.sqlite.ballast import Ballast

T = TypeVar("T")


class Upkeep:
    """A part of the SQLite store."""

    _engine: Engine
    _place: schema.Place
    _ballast: Ballast

    if TYPE_CHECKING:

        async def _do(self, verb: Callable[[Connection], T], *, urgent: bool = False) -> T: ...
        def _act(
            self,
            verb: Callable[[Connection], T],
            *,
            urgent: bool = False,
            wrote: Callable[[T], bool] | None = None,
        ) -> Coroutine[Any, Any, T]: ...
        async def _scan(self, read: Callable[[Connection], T], *, at_once: bool = False) -> T: ...
        def _reading(self) -> AbstractContextManager[Connection]: ...
        def _check(self) -> None: ...

    # removing data

    async def remove(
        self, session_id: str, by: str | None, reason: str, at: int, expired: bool = False, ended_for: int | None = None
    ) -> list[Removal]:
        def verb(connection: Connection) -> list[Removal]:
            return removal.remove(connection, self._engine, session_id, by, reason, at, expired, ended_for)

        return await self._act(verb, urgent=True)

    async def removing(self) -> list[Removal]:
        return await self._scan(removal.removing)

    async def strip(self, key: int, limit: int) -> Tombstone | None:
        return await self._do(lambda connection: removal.strip(connection, key, limit), urgent=True)

    async def expired(self, now: int, after: int, limit: int, ended_for: int | None = None) -> list[tuple[int, str]]:
        return await self._scan(lambda connection: removal.expired(connection, now, after, limit, ended_for))

    async def tombstones(self, session_id: str | None = None) -> list[Tombstone]:
        return await self._scan(lambda connection: removal.tombstones(connection, session_id))

    async def sweep(self, after: int, limit: int, apply: bool) -> Sweep:
        if apply:
            return await self._do(lambda connection: removal.sweep(connection, after, limit), urgent=True)
        return await self._scan(lambda connection: removal.swept(removal.unnamed(connection, after, limit), limit))

    async def weight(self, *session_ids: str) -> int:
        def read(connection: Connection) -> int:
            tree = sessions.find(connection, Filter(ids=session_ids, tree=True), self._engine.present)
            return removal.weight(connection, tree)

        return await self._scan(read, at_once=True)

    async def space(self) -> Space:
        return await self._scan(about.space, at_once=True)

    async def compact(self, at_most: int) -> int:
        count = max(1, at_most // schema.PAGE_SIZE)
        given = await self._do(lambda connection: about.compact(connection, count), urgent=True)
        return given * schema.PAGE_SIZE

    async def fold(self) -> bool:
        self._check()
        return self._place.in_memory or await asyncio.to_thread(schema.fold, self._place)

    # verification

    async def survey(self, after: int, limit: int) -> list[tuple[int, str, SessionRow | DamagedRecord]]:
        from pausepoint.stores.sql import verify  # a listing needs none of it

        return await self._scan(
            lambda connection: verify.survey(connection, after, limit, self._engine.present), at_once=True
        )

    async def names(self, key: int) -> dict[bytes, bool]:
        from pausepoint.stores.sql import verify  # a listing needs none of it

        with self._reading() as connection:
            return verify.names(connection, key)

    async def values(self, after: int, limit: int) -> Proved:
        from pausepoint.stores.sql import verify  # a listing needs none of it

        return await self._scan(lambda connection: verify.values(connection, after, limit))

    async def check(self) -> list[str]:
        self._check()
        if not self._place.in_memory:  # on a thread of its own, because it reads every page of the file
            return await asyncio.to_thread(about.check_file, self._place)
        with self._reading() as connection:
            return about.check(connection)

    async def about(self) -> About:
        return await self._scan(
            lambda connection: about.about(connection, self._place, self._ballast, self._engine.present), at_once=True
        )

    # transfer

    async def whole(self, session_id: str) -> list[Whole]:
        from pausepoint.stores.sql import transfer  # a listing needs none of it

        return await self._scan(
            lambda connection: transfer.whole(connection, session_id, self._engine.present), at_once=True
        )

    async def import_(self, sessions: Sequence[Whole]) -> bool:
        from pausepoint.stores.sql import transfer  # a listing needs none of it

        return await self._act(lambda connection: transfer.import_(connection, self._engine, sessions), wrote=bool)
