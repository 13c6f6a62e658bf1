"""The verbs that keep a store in order: remove, verify, describe and transfer what it holds."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pausepoint.errors import DamagedRecord
from pausepoint.model.sessions import Filter, SessionRow
from pausepoint.model.stores import About, Proved, Removal, Space, Sweep, Tombstone, Whole
from pausepoint.stores.postgres import about, locks
from pausepoint.stores.postgres.engines import OwnEngine
from pausepoint.stores.postgres.locks import Lock
from pausepoint.stores.postgres.place import Place
from pausepoint.stores.postgres.writer import EXCLUSIVE, SHARED
from pausepoint.stores.sql import removal, sessions, transfer, verify

T = TypeVar("T")
Read = Callable[[Any], T]


class Upkeep:
    """A part of the Postgres store."""

    _engine: OwnEngine
    _place: Place

    if TYPE_CHECKING:

        async def _do(
            self, verb: Read[T], *, urgent: bool = False, lock: Lock | None = None, gate: str | None = None
        ) -> T: ...
        def _locked(self, lock: Lock | None, gate: str | None = None) -> Any: ...
        def _act(
            self, verb: Read[T], *, urgent: bool = False, wrote: Callable[[T], bool] | None = None
        ) -> Coroutine[Any, Any, T]: ...
        async def _scan(self, read: Read[T], *, at_once: bool = False) -> T: ...

    async def remove(
        self, session_id: str, by: str | None, reason: str, at: int, expired: bool = False, ended_for: int | None = None
    ) -> list[Removal]:
        def verb(connection: Any) -> list[Removal]:
            return removal.remove(connection, self._engine, session_id, by, reason, at, expired, ended_for)

        with self._locked(locks.line_of(session_id), SHARED):
            return await self._act(verb)

    async def removing(self) -> list[Removal]:
        return await self._scan(removal.removing)

    async def strip(self, key: int, limit: int) -> Tombstone | None:
        return await self._do(lambda connection: removal.strip(connection, key, limit), lock=locks.keyed(key))

    async def expired(self, now: int, after: int, limit: int, ended_for: int | None = None) -> list[tuple[int, str]]:
        return await self._scan(lambda connection: removal.expired(connection, now, after, limit, ended_for))

    async def tombstones(self, session_id: str | None = None) -> list[Tombstone]:
        return await self._scan(lambda connection: removal.tombstones(connection, session_id))

    async def sweep(self, after: int, limit: int, apply: bool) -> Sweep:
        if apply:
            return await self._do(lambda connection: removal.sweep(connection, after, limit), gate=EXCLUSIVE)
        return await self._scan(lambda connection: removal.swept(removal.unnamed(connection, after, limit), limit))

    async def weight(self, *session_ids: str) -> int:
        def read(connection: Any) -> int:
            tree = sessions.find(connection, Filter(ids=session_ids, tree=True), self._engine.present)
            return removal.weight(connection, tree)

        return await self._scan(read)

    async def space(self) -> Space:
        return await self._scan(about.space)

    async def compact(self, at_most: int) -> int:
        """Return 0: VACUUM gives space back, and the operator of the server decides when it runs."""
        await self._scan(lambda connection: None)
        return 0

    async def fold(self) -> bool:
        """Return True. What the server keeps of deleted data until the next VACUUM, and in backups, is its own."""
        await self._scan(lambda connection: None)
        return True

    async def survey(self, after: int, limit: int) -> list[tuple[int, str, SessionRow | DamagedRecord]]:
        return await self._scan(lambda connection: verify.survey(connection, after, limit, self._engine.present))

    async def names(self, key: int) -> dict[bytes, bool]:
        return await self._scan(lambda connection: verify.names(connection, key))

    async def values(self, after: int, limit: int) -> Proved:
        return await self._scan(lambda connection: verify.values(connection, after, limit))

    async def check(self) -> list[str]:
        return await self._scan(verify.check)

    async def about(self) -> About:
        return await self._scan(lambda connection: about.about(connection, self._place, self._engine.present))

    async def whole(self, session_id: str) -> list[Whole]:
        return await self._scan(lambda connection: transfer.whole(connection, session_id, self._engine.present))

    async def import_(self, sessions: Sequence[Whole]) -> bool:
        with self._locked(None, SHARED):
            return await self._act(lambda connection: transfer.import_(connection, self._engine, sessions), wrote=bool)
